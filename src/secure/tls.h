/*
 * tls.h - who is at the other end, proved by TLS 1.3 with a pre-shared key.
 *
 * Every connection has a key of its own, derived from the job's secret and a *label* that names
 * both members:
 *
 *     "psd1 tls worker:3 server:0.1 48digits"
 *      |    |   |        |          the pass: see pass.h
 *      |    |   |        who accepts: the master, or lane 1 of server 0
 *      |    |   who connects, and in which life of which job if it knows: rpc/identity.h
 *      |    what follows the handshake: TLS records, or plain bytes ("plain", loopback only)
 *      version of this scheme
 *
 *     "psd1 plain worker:3 server:0.1 tcp://127.0.0.1:40312 tcp://127.0.0.1:5555 48digits"
 *                                     the two ends of the connection, as both of them see it
 *
 * So a key proves both names, the direction and the mode: a member cannot be mistaken for another,
 * a connection cannot be reflected to its author, and nobody on the way can downgrade the mode.
 * Where plain bytes follow, it proves the connection, too: whoever relays the handshake would own
 * the bytes behind it, but has two connections, and their ends differ. Records need no such proof,
 * and addresses may be translated between hosts.
 *
 * Readers are those who have another secret, made from the job's (secret.h). Who says "reader" is asked
 * for that one, and everybody else for the job's: so neither proves the name of the other.
 *
 * The handshake has forward secrecy (psk_dhe_ke); there are no certificates, tickets, resumption or
 * early data.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SECURE_TLS_H
#define PSI_SECURE_TLS_H

#include "secure/secret.h"
#include "transport/transport.h"

/* What one loop of one process needs. Thread: owned by the loop. */
struct psi_tls;

/* self: the name this process accepts connections as ("master", "server:0.1"); NULL: it accepts
 * none. secret is borrowed for the life of the object. */
psd_status psi_tls_create(const struct psi_secret *secret, const char *self, struct psi_tls **tls_p,
                          struct psd_error *err);
void psi_tls_destroy(struct psi_tls *tls);

/* TLS records on loopback, too; a peer that wants plain bytes is refused. Before the first
 * connection. */
void psi_tls_seal_always(struct psi_tls *tls);

/* Readers may connect, too. Before the first connection. */
psd_status psi_tls_admit_readers(struct psi_tls *tls, struct psd_error *err);

/* Who we are to those who connect, when it was not known at first. */
void psi_tls_name(struct psi_tls *tls, const char *self);

/* For struct psi_loop_config: .auth = &psi_tls_auth, .credentials = tls. */
extern const struct psi_auth_ops psi_tls_auth;

#endif
