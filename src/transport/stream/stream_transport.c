/*
 * stream_transport.c - connect and listen of every transport that has stream sockets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/listener.h"
#include "transport/stream/stream.h"

psd_status
psi_stream_transport_connect(const struct psi_transport *transport, struct psi_loop *loop,
                             const struct psi_address *address, const struct psi_conn_owner *owner,
                             struct psi_conn **conn_p, struct psd_error *err)
{
    return psi_stream_connect(loop, transport->sockets, address, owner, conn_p, err);
}

psd_status
psi_stream_transport_listen(const struct psi_transport *transport, struct psi_loop *loop,
                            const struct psi_address *address,
                            const struct psi_listener_owner *owner,
                            struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
                            struct psd_error *err)
{
    struct psi_listener *listener;
    const psd_status status =
        psi_listener_create(loop, transport->sockets, address, &listener, bound_p, err);

    if (status == PSD_OK) {
        listener->transport = transport;
        listener->events = owner->events;
        listener->owner = owner->owner;
        *listener_p = listener;
    }
    return status;
}
