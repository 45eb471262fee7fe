/*
 * fuzz_gate.c - what a stranger's request says of itself, before anybody is let in.
 *
 * The input is six texts, each up to a line end: method, host, origin, cookie, authorization, token.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "fuzz.h"
#include "launch/page/gate.h"

static const char token[] = "0123456789abcdef0123456789abcdef0123456789abcdef";

/* The next text, or NULL when there is none. */
static const char *
next(char **rest)
{
    return strsep(rest, "\n");
}

/* A name that was taken for ours is ours, whatever stands behind it. */
static void
check_host(const char *host)
{
    if (host != NULL && gate_is_host(host, "localhost")) {
        psi_assert(strncasecmp(host, "localhost", 9) == 0);
        psi_assert(host[9] == '\0' || (host[9] == ':' && strspn(host + 10, "0123456789") >= 1));
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    char *rest = text;
    struct gate_request request;
    enum gate_verdict verdict;
    struct gate gate;
    const char *method;

    psi_assert(text != NULL);
    gate_init(&gate, token, "10.0.0.7", "node7", NULL);
    method = next(&rest);
    request = (struct gate_request){.method = method != NULL ? method : ""};
    request.host = next(&rest);
    request.origin = next(&rest);
    request.cookie = next(&rest);
    request.authorization = next(&rest);
    request.token = next(&rest);
    verdict = gate_check(&gate, &request, 0);
    psi_assert(verdict < GATE_VERDICTS);
    check_host(request.host);
    if (verdict == GATE_OPEN || verdict == GATE_TRADE) { /* somebody knew a secret */
        psi_assert((request.token != NULL && strcmp(request.token, token) == 0) ||
                   (request.cookie != NULL && strcmp(request.cookie, gate.cookie) == 0) ||
                   (request.authorization != NULL && strstr(request.authorization, token) != NULL));
        psi_assert(request.host != NULL);
    }
    free(text);
    return 0;
}
