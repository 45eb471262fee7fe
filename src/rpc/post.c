/*
 * post.c - sending frames.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/post.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"

enum { REFUSE_LINGER_MS = 500 };

static void
free_body(void *owner, uint64_t cookie)
{
    (void)cookie;
    free(owner);
}

psd_status
psi_post_payload(struct psi_conn *conn, const struct psi_frame *frame, const struct psi_meta *meta,
                 const struct psi_payload *payload)
{
    uint8_t head[PSI_FRAME_BYTES + PSI_META_ENCODED_MAX];
    struct psi_frame full = *frame;
    struct psi_outgoing outgoing = {.head = head};

    full.meta_bytes = 0;
    if (meta != NULL) {
        full.meta_bytes = (uint16_t)psi_meta_encode(meta, head + PSI_FRAME_BYTES);
    }
    psi_assert(payload->bytes <= PSI_FRAME_CHUNK_MAX); /* nobody would take it */
    full.payload_bytes = (uint32_t)payload->bytes;
    if (payload->checksum && payload->bytes > 0) {
        full.flags |= PSI_FLAG_CHECKSUM;
        full.payload_crc = psi_crc32c(0, payload->base, payload->bytes);
    }
    psi_frame_encode(&full, head);
    outgoing.head_bytes = PSI_FRAME_BYTES + (size_t)full.meta_bytes;
    if (payload->bytes > 0) {
        outgoing.buffers[0].base = payload->base;
        outgoing.buffers[0].bytes = payload->bytes;
        outgoing.buffer_count = 1;
        outgoing.stable = payload->stable;
    }
    outgoing.patient = payload->patient;
    outgoing.release = payload->release;
    outgoing.release_owner = payload->owner;
    outgoing.release_cookie = payload->cookie;
    return conn->ops->send(conn, &outgoing);
}

psd_status
psi_post(struct psi_conn *conn, const struct psi_frame *frame)
{
    const struct psi_payload none = {0};

    return psi_post_payload(conn, frame, NULL, &none);
}

psd_status
psi_post_body(struct psi_conn *conn, const struct psi_frame *frame, const void *body, size_t bytes)
{
    struct psi_payload payload = {.bytes = bytes, .release = free_body};
    psd_status status;

    if (bytes == 0) {
        return psi_post(conn, frame);
    }
    payload.owner = malloc(bytes);
    if (payload.owner == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    memcpy(payload.owner, body, bytes);
    payload.base = payload.owner;
    status = psi_post_payload(conn, frame, NULL, &payload);
    if (status != PSD_OK) {
        free(payload.owner);
    }
    return status;
}

static psd_status
post_message(struct psi_conn *conn, const struct psi_frame *frame,
             void (*encode)(struct psi_pack *pack, const void *message), const void *message)
{
    PSI_UNINITIALIZED uint8_t small[4096];
    struct psi_pack pack;
    psd_status status;
    uint8_t *large;

    psi_pack_init(&pack, small, sizeof(small));
    encode(&pack, message);
    if (!pack.overflow) {
        return psi_post_body(conn, frame, small, pack.used);
    }
    large = malloc(PSI_FRAME_CONTROL_MAX);
    if (large == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    psi_pack_init(&pack, large, PSI_FRAME_CONTROL_MAX);
    encode(&pack, message);
    status = pack.overflow ? PSD_ERR_TOO_BIG : psi_post_body(conn, frame, large, pack.used);
    free(large);
    return status;
}

#define DEFINE_POST(name, type)                                                                    \
    static void pack_##name(struct psi_pack *pack, const void *message)                            \
    {                                                                                              \
        psi_##name##_encode(pack, message);                                                        \
    }                                                                                              \
    psd_status psi_post_##name(struct psi_conn *conn, const struct psi_frame *frame,               \
                               const type *message)                                                \
    {                                                                                              \
        return post_message(conn, frame, pack_##name, message);                                    \
    }
PSI_MESSAGE_MAP(DEFINE_POST)
#undef DEFINE_POST

psd_status
psi_post_error(struct psi_conn *conn, const struct psi_frame *frame, psd_status status,
               int exit_code, const char *text)
{
    struct psi_verdict verdict = {.status = status, .exit_code = exit_code};
    struct psi_frame full = *frame;

    full.status = (int16_t)status;
    snprintf(verdict.text, sizeof(verdict.text), "%s", text);
    return psi_post_verdict(conn, &full, &verdict);
}

void
psi_refuse(struct psi_conn *conn, psd_status status, const char *text)
{
    const struct psi_frame frame = {.type = PSI_FRAME_REFUSE};

    (void)psi_post_error(conn, &frame, status, 0, text);
    conn->ops->close_after_send(conn, REFUSE_LINGER_MS);
}
