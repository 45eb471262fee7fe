/*
 * listener_state.h - the inside of a listener, for the files of this folder.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_LISTENER_STATE_H
#define PSI_TRANSPORT_STREAM_LISTENER_STATE_H

#include "transport/loop/loop_state.h"
#include "transport/stream/sockets.h"

/*
 * Thread: owned by the loop.
 */
struct psi_listener {
    const struct psi_transport *transport; /* first: transports.h */
    struct psi_source source;
    struct psi_timer pause; /* armed: accepting failed, try again then */
    struct psi_loop *loop;
    const struct psi_sockets *sockets;
    const struct psi_listener_events *events; /* set by whoever creates it, as is transport */
    void *owner;
    bool closed; /* only waits to be freed */
};

#endif
