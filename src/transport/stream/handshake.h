/*
 * handshake.h - the exchange before the first frame: psi_auth_ops with its bounds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_HANDSHAKE_H
#define PSI_TRANSPORT_STREAM_HANDSHAKE_H

#include "transport/stream/stream_in.h"
#include "transport/transport.h"

/*
 * All that one side ever says fits into `out`: that is the bound on it.
 *
 * Thread: owned by the connection's loop.
 */
struct psi_handshake {
    const struct psi_auth_ops *ops;
    void *session;
    size_t heard_bytes;
    size_t made_bytes; /* of out */
    size_t sent_bytes; /* of these */
    uint8_t out[PSI_AUTH_BYTES_MAX];
};

/* NULL: no memory. */
struct psi_handshake *psi_handshake_create(const struct psi_auth_ops *ops, void *credentials,
                                           const struct psi_auth_args *args);
void psi_handshake_destroy(struct psi_handshake *handshake);

/* Takes the session out of an exchange that ended well: its bytes are sealed from now on. */
void *psi_handshake_take(struct psi_handshake *handshake);

/* Goes on with what waits in `in`. PSD_OK: satisfied. PSD_PENDING: wants more. Anything else:
 * refused. In every case out[sent_bytes, made_bytes) is to be sent. */
psd_status psi_handshake_step(struct psi_handshake *handshake, struct psi_stream_in *in,
                              struct psd_error *err);

#endif
