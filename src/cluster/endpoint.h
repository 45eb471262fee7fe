/*
 * endpoint.h - "[user@]host[:port]", as people write it into a configuration.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLUSTER_ENDPOINT_H
#define PSI_CLUSTER_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

struct psi_endpoint {
    char user[65];  /* "": none */
    char host[256]; /* without brackets */
    uint16_t port;  /* 0: none */
};

/* NULL, or what is wrong with text ("is empty"); then *endpoint_p is not written. */
const char *psi_endpoint_parse(const char *text, struct psi_endpoint *endpoint_p);

/* A login name that is neither an option nor a piece of shell. */
bool psi_user_valid(const char *user);

#endif
