/*
 * tls.h - who is at the other end, proved by TLS 1.3 with a pre-shared key.
 *
 * Every pair of members has a key of its own, derived from the job's secret and an *identity*:
 *
 *     "psd1 plain worker:3 server:0.1"
 *      |    |     |        who accepts: the master, or lane 1 of server 0
 *      |    |     who connects: worker 3 ("worker:*" asks for any rank), "server:0.1", "observer"
 *      |    what follows the handshake: plain bytes (loopback only) or TLS records ("tls")
 *      version of this scheme
 *
 * So a key proves both names, the direction and the mode: a member cannot be mistaken for another,
 * a connection cannot be reflected to its author, and nobody on the way can downgrade the mode. The
 * handshake has forward secrecy (psk_dhe_ke); there are no certificates, tickets, resumption or
 * early data.
 */
#ifndef PSI_SECURE_TLS_H
#define PSI_SECURE_TLS_H

#include "secure/secret.h"
#include "transport/transport.h"

/* What one loop of one process needs. Thread: immutable, but for OpenSSL's own counters. */
struct psi_tls;

/* self: the name this process accepts connections as ("master", "server:0.1"); NULL: it accepts
 * none. secret is borrowed for the life of the object. */
psd_status psi_tls_create(const struct psi_secret *secret, const char *self, struct psi_tls **tls_p,
                          struct psd_error *err);
void psi_tls_destroy(struct psi_tls *tls);

/* TLS records on loopback, too; a peer that wants plain bytes is refused. Before the first
 * connection. */
void psi_tls_seal_always(struct psi_tls *tls);

/* Who we are to those who connect, when it was not known at first. */
void psi_tls_name(struct psi_tls *tls, const char *self);

/* For struct psi_loop_config: .auth = &psi_tls_auth, .credentials = tls. */
extern const struct psi_auth_ops psi_tls_auth;

#endif
