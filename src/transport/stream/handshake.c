/*
 * handshake.c - the exchange before the first frame: psi_auth_ops with its bounds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/handshake.h"

#include <stdlib.h>

#include "base/fail.h"

struct psi_handshake *
psi_handshake_create(const struct psi_auth_ops *ops, void *credentials,
                     const struct psi_auth_args *args)
{
    struct psi_handshake *handshake = malloc(sizeof(*handshake));

    if (handshake == NULL) {
        return NULL;
    }
    handshake->ops = ops;
    handshake->heard_bytes = 0;
    handshake->made_bytes = 0;
    handshake->sent_bytes = 0;
    handshake->session = ops->create(credentials, args);
    if (handshake->session == NULL) {
        free(handshake);
        return NULL;
    }
    return handshake;
}

void
psi_handshake_destroy(struct psi_handshake *handshake)
{
    if (handshake != NULL) {
        if (handshake->session != NULL) {
            handshake->ops->destroy(handshake->session);
        }
        free(handshake);
    }
}

void *
psi_handshake_take(struct psi_handshake *handshake)
{
    void *session = handshake->session;

    handshake->session = NULL;
    return session;
}

psd_status
psi_handshake_step(struct psi_handshake *handshake, struct psi_stream_in *in, struct psd_error *err)
{
    psd_status status;
    size_t here;
    size_t consumed;

    do {
        const uint8_t *bytes = psi_stream_in_peek(in, &here);
        const size_t capacity = sizeof(handshake->out) - handshake->made_bytes;
        size_t made = 0;

        consumed = 0;
        status = handshake->ops->step(handshake->session, bytes, here, &consumed,
                                      handshake->out + handshake->made_bytes, capacity, &made, err);
        psi_assert(consumed <= here);
        psi_assert(made <= capacity);
        psi_stream_in_skip(in, consumed);
        handshake->heard_bytes += consumed;
        handshake->made_bytes += made;
    } while (status == PSD_PENDING && consumed > 0 && consumed < here);

    if (status == PSD_PENDING && handshake->heard_bytes + here - consumed >= PSI_AUTH_BYTES_MAX) {
        return psi_fail(err, PSD_ERR_REFUSED, "authenticate: no end after %d bytes",
                        PSI_AUTH_BYTES_MAX);
    }
    return status;
}
