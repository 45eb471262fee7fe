/*
 * meta.c - the options behind a header: tag, length, value, by strictly rising tag.
 *
 * The low bit of a tag says whether a receiver that does not know it must refuse the frame (1) or
 * may step over it (0). A number taken for later: 7 range inside a chunk.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "clock/clock.h"
#include "wire/frame.h"
#include "wire/pack.h"

enum tag {
    TAG_PART = 1,     /* u8 */
    TAG_DEADLINE = 2, /* u32, ms */
    TAG_WEIGHT = 3,   /* f32 */
    TAG_TRACE = 4,    /* u64 */
    TAG_NODE = 5,     /* u16 first rank, u16 gradients */

    TAG_MUST = 1, /* the bit */
};

static void
pack_tag(struct psi_pack *pack, enum tag tag, uint16_t length)
{
    psi_pack_u16(pack, (uint16_t)tag);
    psi_pack_u16(pack, length);
}

size_t
psi_meta_encode(const struct psi_meta *meta, uint8_t *bytes)
{
    struct psi_pack pack;

    psi_pack_init(&pack, bytes, PSI_META_ENCODED_MAX);
    if (meta->has_part) {
        pack_tag(&pack, TAG_PART, 1);
        psi_pack_u8(&pack, meta->part);
    }
    if (meta->has_deadline) {
        pack_tag(&pack, TAG_DEADLINE, 4);
        psi_pack_u32(&pack, meta->deadline_ms);
    }
    if (meta->has_weight) {
        pack_tag(&pack, TAG_WEIGHT, 4);
        psi_pack_f32(&pack, meta->weight);
    }
    if (meta->has_trace) {
        pack_tag(&pack, TAG_TRACE, 8);
        psi_pack_u64(&pack, meta->trace);
    }
    if (meta->has_node) {
        pack_tag(&pack, TAG_NODE, 4);
        psi_pack_u16(&pack, meta->node_first);
        psi_pack_u16(&pack, meta->node_leaves);
    }
    psi_assert(!pack.overflow);
    return pack.used;
}

/* A known option has the length we know; 0: not a known one. */
static uint16_t
known_length(uint16_t tag)
{
    switch (tag) {
    case TAG_PART:
        return 1;
    case TAG_DEADLINE:
    case TAG_WEIGHT:
    case TAG_NODE:
        return 4;
    case TAG_TRACE:
        return 8;
    default:
        return 0;
    }
}

static void
unpack_value(struct psi_unpack *unpack, uint16_t tag, struct psi_meta *meta)
{
    switch (tag) {
    case TAG_PART:
        meta->has_part = true;
        meta->part = psi_unpack_u8(unpack, "part", 0, UINT8_MAX);
        break;
    case TAG_DEADLINE:
        meta->has_deadline = true;
        meta->deadline_ms = psi_unpack_u32(unpack, "deadline", 0, UINT32_MAX);
        break;
    case TAG_WEIGHT:
        meta->has_weight = true;
        meta->weight = psi_unpack_f32(unpack, "weight");
        if (!(meta->weight == 1.0f)) {
            psi_unpack_refuse(unpack, "weight", "%g, only 1 is possible", (double)meta->weight);
        }
        break;
    case TAG_TRACE:
        meta->has_trace = true;
        meta->trace = psi_unpack_u64(unpack, "trace");
        break;
    case TAG_NODE:
        meta->has_node = true;
        meta->node_first = psi_unpack_u16(unpack, "node.first", 0, PSI_RANKS_MAX - 1);
        meta->node_leaves = psi_unpack_u16(unpack, "node.leaves", 0, PSI_RANKS_MAX);
        break;
    }
}

static void
unpack_option(struct psi_unpack *unpack, uint16_t tag, struct psi_meta *meta)
{
    const uint16_t length = psi_unpack_u16(unpack, "length", 0, PSI_FRAME_META_MAX);
    const uint16_t known = known_length(tag);

    if (known == 0 && (tag & TAG_MUST) != 0) {
        psi_unpack_refuse(unpack, "tag", "%u is not known and must be", tag);
    } else if (known == 0) {
        psi_unpack_skip(unpack, "value", length);
    } else if (length != known) {
        psi_unpack_refuse(unpack, "length", "%u for tag %u, expected %u", length, tag, known);
    } else {
        unpack_value(unpack, tag, meta);
    }
}

psd_status
psi_meta_decode(const uint8_t *bytes, size_t size, struct psi_meta *meta_p, struct psd_error *err)
{
    struct psi_meta meta = {0};
    struct psi_unpack unpack;
    uint16_t last = 0; /* no tag is 0 */

    if (size == 0) { /* as nearly always */
        *meta_p = meta;
        return PSD_OK;
    }
    psi_unpack_init(&unpack, "meta", bytes, size, err);
    while (unpack.left > 0 && unpack.status == PSD_OK) {
        const uint16_t tag = psi_unpack_u16(&unpack, "tag", 1, UINT16_MAX);

        if (tag <= last) {
            psi_unpack_refuse(&unpack, "tag", "%u behind %u", tag, last);
        }
        last = tag;
        unpack_option(&unpack, tag, &meta);
    }
    if (unpack.status == PSD_OK) {
        *meta_p = meta;
    }
    return unpack.status;
}
