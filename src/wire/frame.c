/*
 * frame.c - the fixed 64-byte header of every frame.
 *
 * The offsets below are the protocol; docs/protocol.md shows them as a table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "wire/frame.h"

#include <psd/psd.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "codec/codec.h"
#include "wire/bytes.h"

enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_TYPE = 5,
    AT_FLAGS = 6,
    AT_PAYLOAD_BYTES = 8,
    AT_META_BYTES = 12,
    AT_DTYPE = 14,
    AT_CODEC = 15,
    AT_SEQ = 16,
    AT_STEP = 24,
    AT_VIEW = 32,
    AT_REQUEST = 36,
    AT_TABLE = 40,
    AT_CHUNK = 44,
    AT_RANK = 48,
    AT_INCARNATION = 50,
    AT_LEVEL = 52,
    AT_PRIORITY = 53,
    AT_STATUS = 54,
    AT_PAYLOAD_CRC = 56,
    AT_HEADER_CRC = 60,

    FLAGS_MUST = 0x00ff, /* the byte of flags that a receiver has to understand */
};

_Static_assert(AT_HEADER_CRC + 4 == PSI_FRAME_BYTES, "the header is part of the protocol");

const char *
psi_frame_type_name(uint8_t type)
{
    switch (type) {
#define TYPE_NAME(name, code, traits, text)                                                        \
    case PSI_FRAME_##name:                                                                         \
        return #name;
        PSI_FRAME_MAP(TYPE_NAME)
#undef TYPE_NAME
    default:
        return "?";
    }
}

const uint8_t psi_frame_traits[256] = {
#define TRAITS(name, code, traits, text) [code] = (traits),
    PSI_FRAME_MAP(TRAITS)
#undef TRAITS
};

/* What a payload of this type may have; 0 for what is refused anyway. */
static uint32_t
payload_bytes_max(uint8_t type)
{
    const unsigned traits = psi_frame_traits[type];

    if ((traits & PSI_KIND_DATA) != 0) {
        return PSI_FRAME_CHUNK_MAX;
    }
    if ((traits & PSI_KIND_CONTROL) != 0) {
        return PSI_FRAME_CONTROL_MAX;
    }
    return (traits & PSI_KIND_HELLO) != 0 ? PSI_FRAME_HELLO_MAX : 0;
}

static uint32_t
header_crc(const uint8_t bytes[PSI_FRAME_BYTES])
{
    return psi_crc32c(0, bytes, AT_HEADER_CRC);
}

void
psi_frame_encode(const struct psi_frame *frame, uint8_t bytes[PSI_FRAME_BYTES])
{
    psi_store_u32(bytes + AT_MAGIC, PSI_FRAME_MAGIC);
    bytes[AT_VERSION] = PSI_PROTOCOL_VERSION;
    bytes[AT_TYPE] = frame->type;
    psi_store_u16(bytes + AT_FLAGS, frame->flags);
    psi_store_u32(bytes + AT_PAYLOAD_BYTES, frame->payload_bytes);
    psi_store_u16(bytes + AT_META_BYTES, frame->meta_bytes);
    bytes[AT_DTYPE] = frame->dtype;
    bytes[AT_CODEC] = frame->codec;
    psi_store_u64(bytes + AT_SEQ, frame->seq);
    psi_store_u64(bytes + AT_STEP, frame->step);
    psi_store_u32(bytes + AT_VIEW, frame->view);
    psi_store_u32(bytes + AT_REQUEST, frame->request);
    psi_store_u32(bytes + AT_TABLE, frame->table);
    psi_store_u32(bytes + AT_CHUNK, frame->chunk);
    psi_store_u16(bytes + AT_RANK, frame->rank);
    psi_store_u16(bytes + AT_INCARNATION, frame->incarnation);
    bytes[AT_LEVEL] = frame->level;
    bytes[AT_PRIORITY] = frame->priority;
    psi_store_u16(bytes + AT_STATUS, (uint16_t)frame->status);
    psi_store_u32(bytes + AT_PAYLOAD_CRC, frame->payload_crc);
    psi_store_u32(bytes + AT_HEADER_CRC, header_crc(bytes));
}

static void
read_fields(const uint8_t bytes[PSI_FRAME_BYTES], struct psi_frame *frame)
{
    frame->type = bytes[AT_TYPE];
    frame->flags = psi_load_u16(bytes + AT_FLAGS);
    frame->payload_bytes = psi_load_u32(bytes + AT_PAYLOAD_BYTES);
    frame->meta_bytes = psi_load_u16(bytes + AT_META_BYTES);
    frame->dtype = bytes[AT_DTYPE];
    frame->codec = bytes[AT_CODEC];
    frame->seq = psi_load_u64(bytes + AT_SEQ);
    frame->step = psi_load_u64(bytes + AT_STEP);
    frame->view = psi_load_u32(bytes + AT_VIEW);
    frame->request = psi_load_u32(bytes + AT_REQUEST);
    frame->table = psi_load_u32(bytes + AT_TABLE);
    frame->chunk = psi_load_u32(bytes + AT_CHUNK);
    frame->rank = psi_load_u16(bytes + AT_RANK);
    frame->incarnation = psi_load_u16(bytes + AT_INCARNATION);
    frame->level = bytes[AT_LEVEL];
    frame->priority = bytes[AT_PRIORITY];
    frame->status = (int16_t)psi_load_u16(bytes + AT_STATUS);
    frame->payload_crc = psi_load_u32(bytes + AT_PAYLOAD_CRC);
}

/* Is it a frame of our protocol, of a type that may be sent? */
static psd_status
check_type(const uint8_t bytes[PSI_FRAME_BYTES], struct psd_error *err)
{
    const uint32_t magic = psi_load_u32(bytes + AT_MAGIC);
    const uint8_t type = bytes[AT_TYPE];

    if (magic != PSI_FRAME_MAGIC) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "frame: magic 0x%08x, expected 0x%08x", magic,
                        PSI_FRAME_MAGIC);
    }
    if (bytes[AT_VERSION] != PSI_PROTOCOL_VERSION) {
        return psi_fail(err, PSD_ERR_VERSION, "frame: peer speaks protocol version %u, we speak %d",
                        bytes[AT_VERSION], PSI_PROTOCOL_VERSION);
    }
    if (psi_frame_traits[type] == 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "frame: type %u is not known", type);
    }
    if ((psi_frame_traits[type] & PSI_KIND_RESERVED) != 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "frame: type %u, %s, is reserved", type,
                        psi_frame_type_name(type));
    }
    return PSD_OK;
}

static psd_status
check_sizes(const struct psi_frame *frame, struct psd_error *err)
{
    const uint32_t limit = payload_bytes_max(frame->type);

    if (frame->payload_bytes > limit) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: payload of %u bytes, at most %u",
                        psi_frame_type_name(frame->type), frame->payload_bytes, limit);
    }
    if (frame->meta_bytes > PSI_FRAME_META_MAX) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: meta of %u bytes, at most %d",
                        psi_frame_type_name(frame->type), frame->meta_bytes, PSI_FRAME_META_MAX);
    }
    if ((frame->flags & PSI_FLAG_EMPTY) != 0 && frame->payload_bytes != 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: flagged as empty, payload of %u bytes",
                        psi_frame_type_name(frame->type), frame->payload_bytes);
    }
    return PSD_OK;
}

/* Does it ask for something that this version cannot do? */
static psd_status
check_understood(const struct psi_frame *frame, struct psd_error *err)
{
    const unsigned strange = frame->flags & FLAGS_MUST & ~(unsigned)PSI_FLAGS_KNOWN;

    if (strange != 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: flags 0x%04x are not known",
                        psi_frame_type_name(frame->type), strange);
    }
    if (frame->dtype > PSD_BF16) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: dtype %u is not known",
                        psi_frame_type_name(frame->type), frame->dtype);
    }
    if (psi_codec_find(frame->codec) == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: codec %u is not known",
                        psi_frame_type_name(frame->type), frame->codec);
    }
    return PSD_OK;
}

/* A fuzzer cannot guess checksums; with PSI_FUZZING it need not. */
static psd_status
check_crc(const uint8_t bytes[PSI_FRAME_BYTES], struct psd_error *err)
{
#ifndef PSI_FUZZING
    const uint32_t want = header_crc(bytes);
    const uint32_t have = psi_load_u32(bytes + AT_HEADER_CRC);

    if (have != want) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: header checksum 0x%08x, expected 0x%08x",
                        psi_frame_type_name(bytes[AT_TYPE]), have, want);
    }
#endif
    return PSD_OK;
}

psd_status
psi_frame_decode(const uint8_t bytes[PSI_FRAME_BYTES], struct psi_frame *frame_p,
                 struct psd_error *err)
{
    struct psi_frame frame = {0};
    psd_status status = check_type(bytes, err);

    if (status != PSD_OK) {
        return status;
    }
    read_fields(bytes, &frame);
    status = check_sizes(&frame, err);
    if (status == PSD_OK) {
        status = check_understood(&frame, err);
    }
    if (status == PSD_OK) {
        status = check_crc(bytes, err);
    }
    if (status == PSD_OK) {
        *frame_p = frame;
    }
    return status;
}
