/*
 * security.c - what a daemon needs to be allowed to listen, and how it then meets its peers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "daemon/security.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#include "base/fail.h"
#include "config/environment.h"
#include "secure/source.h"
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

static psd_status
find_secret(const struct daemon_given *given, struct psi_secret **secret_p, struct psd_error *err)
{
    const struct psi_secret_source source = {
        .fd = psi_environment("PSD_SECRET_FD"),
        .file =
            given->secret_file != NULL ? given->secret_file : psi_environment("PSD_SECRET_FILE"),
        .file_key = given->secret_file != NULL ? "--secret_file" : "PSD_SECRET_FILE",
        .insecure = given->insecure ? "--insecure" : NULL,
    };

    return psi_secret_find(&source, secret_p, err);
}

static psd_status
allow_without_secret(const struct daemon_given *given, const struct psi_address *listen,
                     const char *master_address, struct psd_error *err)
{
    if (!psi_address_is_loopback(listen)) {
        psi_fail(err, PSD_ERR_INVALID,
                 "refusing to listen on %s without a secret: whoever reaches it could join the "
                 "job; %sgive --secret_file (psd_run secret FILE makes one)",
                 listen->host, given->insecure ? "--insecure is for loopback only; " : "");
    } else if (!given->insecure) {
        psi_fail(err, PSD_ERR_INVALID,
                 "no secret: every user of this machine could join the job; give --secret_file "
                 "(psd_run secret FILE makes one), or --insecure");
    } else {
        return master_address == NULL ? PSD_OK
                                      : psi_insecure_connect("--insecure", master_address, err);
    }
    psi_environment_hint("PSD_SECRET_FILE", err);
    psi_environment_hint("PSD_SECRET_FD", err);
    return PSD_ERR_INVALID;
}

psd_status
daemon_security_init(struct daemon_security *security_p, const struct daemon_given *given,
                     uint16_t port, const char *master_address, struct psd_error *err)
{
    struct psi_address listen = {.scheme = PSI_SCHEME_TCP, .port = port};
    struct daemon_security security = {0};
    psd_status status;

    snprintf(listen.host, sizeof(listen.host), "%s", given->bind);
    if (is_every_address(listen.host)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "refusing to listen on %s: members are told the address to connect to; "
                        "give --bind one address of this machine that they can reach",
                        listen.host);
    }
    status = psi_environment_switch("PSD_FORCE_TLS", &security.sealed_always, err);
    if (status == PSD_OK) {
        status = psi_address_format(&listen, security.listen_address, err);
    }
    if (status == PSD_OK) {
        status = find_secret(given, &security.secret, err);
    }
    if (status == PSD_OK && security.secret == NULL) {
        status = allow_without_secret(given, &listen, master_address, err);
    }
    if (status == PSD_OK) {
        *security_p = security;
    }
    return status;
}

void
daemon_security_fini(struct daemon_security *security)
{
    psi_secret_destroy(security->secret);
    security->secret = NULL;
}

psd_status
daemon_security_apply(const struct daemon_security *security, const char *self,
                      struct psi_loop_config *config, struct psi_tls **tls_p, struct psd_error *err)
{
    psd_status status;

    *tls_p = NULL;
    if (security->secret == NULL) {
        return PSD_OK;
    }
    status = psi_tls_create(security->secret, self, tls_p, err);
    if (status != PSD_OK) {
        return status;
    }
    if (security->sealed_always) {
        psi_tls_seal_always(*tls_p);
    }
    status = psi_tls_admit_readers(*tls_p, err);
    if (status != PSD_OK) {
        psi_tls_destroy(*tls_p);
        *tls_p = NULL;
        return status;
    }
    config->auth = &psi_tls_auth;
    config->credentials = *tls_p;
    return PSD_OK;
}
