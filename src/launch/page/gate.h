/*
 * gate.h - who may see the page: pure checks of one request.
 *
 * Whoever has the token of the address may read; nobody may write. A browser trades the token for a
 * cookie at its first request, and goes on to an address without it. Pages of other sites are kept
 * out by their Origin, and names that somebody pointed at this machine (DNS rebinding) by Host: of a
 * page with TLS those of its certificate are ours. A cookie knows no ports: so it is for a path that
 * no other server of this machine has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_GATE_H
#define LAUNCH_PAGE_GATE_H

#include <openssl/x509.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    GATE_SECRET_BYTES = 24,
    GATE_SECRET_CHARS = 2 * GATE_SECRET_BYTES, /* in hexadecimal digits */
    GATE_PLACE_CHARS = 16,                     /* of the path, likewise */
    GATE_HOST_BYTES = 256,
    GATE_REQUESTS_PER_S = 200,
};

/* Thread: owned by the main thread of psd_run. */
struct gate {
    char token[GATE_SECRET_CHARS + 1];  /* of the address, and of Authorization: Bearer */
    char cookie[GATE_SECRET_CHARS + 1]; /* what browsers get for it */
    char place[GATE_PLACE_CHARS + 1];   /* the cookie counts below this path alone */
    char address[GATE_HOST_BYTES];      /* where it listens: a name that is ours, too ... */
    char name[GATE_HOST_BYTES];         /* ... and this machine's; "": none */
    bool tls;
    X509 *certificate; /* owned; names that are ours, too. NULL: none */
    uint64_t second;   /* in which `requests` were refused */
    unsigned requests;
};

/* What a request says of itself; NULL: nothing. */
struct gate_request {
    const char *method;
    const char *host;
    const char *origin;
    const char *cookie;
    const char *authorization;
    const char *token; /* of its address */
};

enum gate_verdict {
    GATE_OPEN,
    GATE_TRADE, /* the token is right: it gets the cookie */
    GATE_READ_ONLY,
    GATE_STRANGE_HOST,
    GATE_STRANGE_ORIGIN,
    GATE_NO_TOKEN,
    GATE_WRONG_TOKEN,
    GATE_TOO_OFTEN,
    GATE_VERDICTS,
};

/* The cookie is made of the token: pages stay open while a job is begun anew. address, name:
 * (optional) what a Host may say besides localhost. certificate: PEM, with TLS; NULL: without. */
void gate_init(struct gate *gate, const char *token, const char *address, const char *name,
               const char *certificate);
void gate_fini(struct gate *gate);

/* Fills in hexadecimal digits nobody can guess. Returns false when there is no randomness. */
bool gate_draw(char secret_p[GATE_SECRET_CHARS + 1]);

enum gate_verdict gate_check(struct gate *gate, const struct gate_request *request,
                             uint64_t now_ms);

/* For the answer: 200, 401, 403, ...; and what it says to people. */
unsigned gate_http_status(enum gate_verdict verdict);
const char *gate_text(enum gate_verdict verdict);

/* Pure: what is asked for below the gate's own path, like "/events"; NULL: it is somewhere else. */
const char *gate_below(const struct gate *gate, const char *path);

/* Pure: whether a Host is `name`, with or without a port. */
bool gate_is_host(const char *host, const char *name);

#endif
