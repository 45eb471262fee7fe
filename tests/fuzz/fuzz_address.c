/*
 * fuzz_address.c - where somebody listens or a host is, as people and peers write it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "cluster/endpoint.h"
#include "cluster/hostlist.h"
#include "fuzz.h"
#include "transport/address.h"

/* What was taken apart can be put together (if it is not too long) and is then the same. */
static void
check_address(const char *text)
{
    struct psi_address address;
    struct psi_address again;
    char formatted[PSI_ADDRESS_BYTES];
    struct psd_error err;

    if (psi_address_parse(text, &address, &err) != PSD_OK) {
        psi_assert(err.status == PSD_ERR_INVALID);
        return;
    }
    (void)psi_address_is_loopback(&address);
    if (psi_address_format(&address, formatted, &err) != PSD_OK) {
        psi_assert(err.status == PSD_ERR_TOO_BIG);
        return;
    }
    psi_assert(psi_address_parse(formatted, &again, &err) == PSD_OK);
    psi_assert(again.scheme == address.scheme && again.port == address.port);
    psi_assert(strcmp(again.host, address.host) == 0);
}

/* Every name of a list is one that stands for itself. */
static void
check_hostlist(const char *text)
{
    struct psi_hostlist list = {0};
    struct psi_hostlist again = {0};
    size_t column = 0;

    if (psi_hostlist_expand(text, &list, &column) != NULL) {
        psi_assert(column >= 1 && column <= strlen(text) + 1);
        return;
    }
    psi_assert(list.count >= 1 && list.count <= PSI_HOSTLIST_NAMES_MAX);
    for (size_t i = 0; i < list.count; i++) {
        psi_assert(strchr(list.names[i], ',') == NULL || strchr(list.names[i], '[') != NULL);
        if (strchr(list.names[i], '[') == NULL) {
            psi_assert(psi_hostlist_expand(list.names[i], &again, &column) == NULL);
            psi_assert(again.count == 1 && strcmp(again.names[0], list.names[i]) == 0);
            psi_hostlist_free(&again);
        }
    }
    psi_hostlist_free(&list);
}

/* An endpoint ends up on a command line: no part of it may look like an option or a shell's. */
static void
check_endpoint(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-:%";
    struct psi_endpoint endpoint;
    const char *wrong = psi_endpoint_parse(text, &endpoint);

    if (wrong != NULL) {
        psi_assert(wrong[0] != '\0');
        return;
    }
    psi_assert(endpoint.host[0] != '\0' && endpoint.host[0] != '-');
    psi_assert(endpoint.host[strspn(endpoint.host, letters)] == '\0');
    psi_assert(endpoint.user[0] == '\0' || psi_user_valid(endpoint.user));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);

    psi_assert(text != NULL);
    check_address(text);
    check_endpoint(text);
    check_hostlist(text);
    (void)psi_user_valid(text);
    free(text);
    return 0;
}
