/*
 * security.h - what a daemon needs to be allowed to listen, and how it then meets its peers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef DAEMON_SECURITY_H
#define DAEMON_SECURITY_H

#include "daemon/options.h"
#include "secure/tls.h"
#include "transport/loop/loop.h"

/* Thread: immutable once initialised. */
struct daemon_security {
    char listen_address[PSI_ADDRESS_BYTES];
    struct psi_secret *secret; /* owned; NULL: insecure */
    bool sealed_always;        /* PSD_FORCE_TLS: TLS records on loopback, too */
};

/*
 * Finds the job's secret, or none where that is allowed: a daemon starts without one only when it
 * is told to (--insecure), listens on a loopback address and connects (master_address; NULL: to
 * nobody) to one. PSD_ERR_INVALID says what to do; nothing is to be destroyed then. An address that
 * means all of them is never allowed: nobody could be told where to connect.
 */
psd_status daemon_security_init(struct daemon_security *security_p,
                                const struct daemon_given *given, uint16_t port,
                                const char *master_address, struct psd_error *err);
void daemon_security_fini(struct daemon_security *security);

/* Makes connections of a loop prove the secret, if there is one: *tls_p (owned by the caller, NULL
 * without a secret) and the config's auth. self: the name that this process proves. */
psd_status daemon_security_apply(const struct daemon_security *security, const char *self,
                                 struct psi_loop_config *config, struct psi_tls **tls_p,
                                 struct psd_error *err);

#endif
