/*
 * inbox.h - one connection's incoming frame: decoded header, options, and room for a control body.
 *
 * Joins transport (bytes) to wire (meaning): owners of connections use these three calls in their
 * on_prefix, on_head and on_frame, and see decoded frames from then on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_RPC_INBOX_H
#define PSI_RPC_INBOX_H

#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/message.h"

/* Thread: owned by the loop of its connection. */
struct psi_inbox {
    struct psi_frame frame; /* the frame being received */
    struct psi_meta meta;
    uint8_t *body; /* owned; control bodies land here */
    size_t body_capacity;
};

void psi_inbox_fini(struct psi_inbox *inbox);

/* on_prefix: decodes the header. `limit` bounds the payload further (a stranger's HELLO).
 * PSD_ERR_REFUSED: not a frame but a TLS handshake, of somebody who has a secret. */
psd_status psi_inbox_prefix(struct psi_inbox *inbox, const uint8_t *prefix, size_t limit,
                            struct psi_frame_size *size_p, struct psd_error *err);

/* on_head and before anything else in on_frame: decodes the options. */
psd_status psi_inbox_meta(struct psi_inbox *inbox, const uint8_t *head, size_t head_bytes,
                          struct psd_error *err);

/* on_head: a place for a control body of the announced size. */
psd_status psi_inbox_body(struct psi_inbox *inbox, struct psi_sink *sink_p, struct psd_error *err);

/* on_frame: checks the payload against its checksum, where it has one. */
psd_status psi_inbox_verify(const struct psi_inbox *inbox, const void *payload, size_t bytes,
                            struct psd_error *err);

#endif
