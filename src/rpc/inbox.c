/*
 * inbox.c - one connection's incoming frame.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/inbox.h"

#include <stdlib.h>

#include "base/crc32c.h"
#include "base/fail.h"

enum { BODY_KEPT_MAX = 65536 }; /* a larger buffer is not kept for the next frame */

void
psi_inbox_fini(struct psi_inbox *inbox)
{
    free(inbox->body);
    inbox->body = NULL;
    inbox->body_capacity = 0;
}

/* A TLS record with a ClientHello. */
static bool
is_client_hello(const uint8_t *prefix)
{
    return prefix[0] == 22 && prefix[1] == 3 && prefix[5] == 1;
}

psd_status
psi_inbox_prefix(struct psi_inbox *inbox, const uint8_t *prefix, size_t limit,
                 struct psi_frame_size *size_p, struct psd_error *err)
{
    const psd_status status = psi_frame_decode(prefix, &inbox->frame, err);

    if (status == PSD_ERR_PROTOCOL && is_client_hello(prefix)) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "it has a secret, and this job runs --insecure, without one");
    }
    if (status != PSD_OK) {
        return status;
    }
    if (inbox->frame.payload_bytes > limit) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s frame: payload of %u bytes, at most %zu here",
                        psi_frame_type_name(inbox->frame.type), inbox->frame.payload_bytes, limit);
    }
    if (inbox->body_capacity > BODY_KEPT_MAX) {
        psi_inbox_fini(inbox);
    }
    size_p->meta_bytes = inbox->frame.meta_bytes;
    size_p->payload_bytes = inbox->frame.payload_bytes;
    return PSD_OK;
}

psd_status
psi_inbox_meta(struct psi_inbox *inbox, const uint8_t *head, size_t head_bytes,
               struct psd_error *err)
{
    return psi_meta_decode(head + PSI_FRAME_BYTES, head_bytes - PSI_FRAME_BYTES, &inbox->meta, err);
}

psd_status
psi_inbox_body(struct psi_inbox *inbox, struct psi_sink *sink_p, struct psd_error *err)
{
    const size_t bytes = inbox->frame.payload_bytes;

    if (inbox->body_capacity < bytes) {
        uint8_t *grown = realloc(inbox->body, bytes);

        if (grown == NULL) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "%s frame: no %zu bytes for its body",
                            psi_frame_type_name(inbox->frame.type), bytes);
        }
        inbox->body = grown;
        inbox->body_capacity = bytes;
    }
    sink_p->into = inbox->body;
    return PSD_OK;
}

psd_status
psi_inbox_verify(const struct psi_inbox *inbox, const void *payload, size_t bytes,
                 struct psd_error *err)
{
    if ((inbox->frame.flags & PSI_FLAG_CHECKSUM) != 0 && payload != NULL &&
        psi_crc32c(0, payload, bytes) != inbox->frame.payload_crc) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s frame: payload does not match its checksum",
                        psi_frame_type_name(inbox->frame.type));
    }
    return PSD_OK;
}
