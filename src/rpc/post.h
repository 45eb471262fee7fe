/*
 * post.h - sending frames: headers alone, small bodies (copied), large payloads (borrowed).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_RPC_POST_H
#define PSI_RPC_POST_H

#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/message.h"

/* A frame without meta or payload. */
psd_status psi_post(struct psi_conn *conn, const struct psi_frame *frame);

/* With a body, copied. frame->payload_bytes is filled in. */
psd_status psi_post_body(struct psi_conn *conn, const struct psi_frame *frame, const void *body,
                         size_t bytes);

/* With a payload, borrowed until release(owner, cookie) (may be NULL). meta may be NULL. A checksum
 * over the payload is added when asked for. */
struct psi_payload {
    const void *base;
    size_t bytes;
    bool checksum;
    bool stable;  /* see struct psi_outgoing */
    bool patient; /* likewise */
    void (*release)(void *owner, uint64_t cookie);
    void *owner;
    uint64_t cookie;
};

psd_status psi_post_payload(struct psi_conn *conn, const struct psi_frame *frame,
                            const struct psi_meta *meta, const struct psi_payload *payload);

/* REFUSE, END, BECAUSE or an ACK with an error: status, exit code and text as the body. */
psd_status psi_post_error(struct psi_conn *conn, const struct psi_frame *frame, psd_status status,
                          int exit_code, const char *text);

/* Sends REFUSE with the reason and closes once it is out. */
void psi_refuse(struct psi_conn *conn, psd_status status, const char *text);

/* psi_post_hello(conn, &frame, &hello), psi_post_view(...), ...: a message as the body. */
#define PSI_POST_DECLARE(name, type)                                                               \
    psd_status psi_post_##name(struct psi_conn *conn, const struct psi_frame *frame,               \
                               const type *message);
PSI_MESSAGE_MAP(PSI_POST_DECLARE)
#undef PSI_POST_DECLARE

#endif
