/*
 * stream.h - a connection over a stream socket, whatever scheme it came from.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_STREAM_H
#define PSI_TRANSPORT_STREAM_STREAM_H

#include "transport/loop/loop_state.h"
#include "transport/stream/sockets.h"
#include "transport/transports.h"

/* Starts connecting; see psi_env_ops.connect. */
psd_status psi_stream_connect(struct psi_loop *loop, const struct psi_sockets *sockets,
                              const struct psi_address *address, const struct psi_conn_owner *owner,
                              struct psi_conn **conn_p, struct psd_error *err);

/* connect and listen of a transport that has stream sockets. */
psd_status psi_stream_transport_connect(const struct psi_transport *transport,
                                        struct psi_loop *loop, const struct psi_address *address,
                                        const struct psi_conn_owner *owner,
                                        struct psi_conn **conn_p, struct psd_error *err);
psd_status psi_stream_transport_listen(const struct psi_transport *transport, struct psi_loop *loop,
                                       const struct psi_address *address,
                                       const struct psi_listener_owner *owner,
                                       struct psi_listener **listener_p,
                                       char bound_p[PSI_ADDRESS_BYTES], struct psd_error *err);

#define PSI_STREAM_TRANSPORT(kind)                                                                 \
    {                                                                                              \
        .connect = psi_stream_transport_connect, .listen = psi_stream_transport_listen,            \
        .unlisten = psi_listener_destroy, .sockets = (kind)                                        \
    }

#endif
