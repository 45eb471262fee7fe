/*
 * daemon.c - what a daemon needs to be allowed to listen.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/daemon.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/fail.h"
#include "transport/address.h"

/* 0.0.0.0, ::, and the other ways to write them. */
static bool
is_every_address(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_aton(host, &v4) == 1) {
        return v4.s_addr == INADDR_ANY;
    }
    if (inet_pton(AF_INET6, host, &v6) != 1) {
        return false;
    }
    return IN6_IS_ADDR_UNSPECIFIED(&v6) ||
           (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr32[3] == INADDR_ANY);
}

psd_status
psi_secure_listen(const struct psi_secret_source *source, bool insecure,
                  const struct psi_address *listen, struct psi_secret **secret_p,
                  struct psd_error *err)
{
    const bool loopback = psi_address_is_loopback(listen);
    psd_status status;

    *secret_p = NULL;
    if (is_every_address(listen->host)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "refusing to listen on %s: members are told the address to connect to; "
                        "give --bind one address of this machine that they can reach",
                        listen->host);
    }
    status = psi_secret_find(source, secret_p, err);
    if (status != PSD_OK || *secret_p != NULL) {
        return status;
    }
    if (!loopback) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "refusing to listen on %s without a secret: whoever reaches it could join "
                        "the job; %sgive --secret_file (psd_run secret FILE makes one)",
                        listen->host, insecure ? "--insecure is for loopback only; " : "");
    }
    if (!insecure) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "no secret: every user of this machine could join the job; give "
                        "--secret_file (psd_run secret FILE makes one), or --insecure");
    }
    return PSD_OK;
}
