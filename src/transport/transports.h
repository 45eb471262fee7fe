/*
 * transports.h - what a transport is: two verbs behind the word before "://".
 *
 * PSI_TRANSPORT_MAP (address.h) lists them, transport/world calls them, and nobody else knows which
 * there are. Shared memory is none of them: a stream between two processes of one host turns into
 * rings by itself (transport/stream, its carriers).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_TRANSPORTS_H
#define PSI_TRANSPORT_TRANSPORTS_H

#include "transport/address.h"

struct psi_loop;
struct psi_sockets;

/* Whom a new connection belongs to, and what it has to prove (NULL: nothing). */
struct psi_conn_owner {
    const struct psi_conn_events *events;
    void *owner;
    const char *identity;
};

struct psi_listener_owner {
    const struct psi_listener_events *events;
    void *owner;
};

/* Every hook runs on the loop's thread and returns at once. Thread: immutable. */
struct psi_transport {
    /* See psi_env_ops. */
    psd_status (*connect)(const struct psi_transport *transport, struct psi_loop *loop,
                          const struct psi_address *address, const struct psi_conn_owner *owner,
                          struct psi_conn **conn_p, struct psd_error *err);

    /* What it gives begins with `const struct psi_transport *`. */
    psd_status (*listen)(const struct psi_transport *transport, struct psi_loop *loop,
                         const struct psi_address *address, const struct psi_listener_owner *owner,
                         struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
                         struct psd_error *err);
    void (*unlisten)(struct psi_listener *listener);

    const struct psi_sockets *sockets; /* of one over stream sockets (stream/sockets.h); or NULL */
};

#define PSI_TRANSPORT_DECLARE(id, word, rest)                                                      \
    extern const struct psi_transport psi_transport_##word;
PSI_TRANSPORT_MAP(PSI_TRANSPORT_DECLARE)
#undef PSI_TRANSPORT_DECLARE

#endif
