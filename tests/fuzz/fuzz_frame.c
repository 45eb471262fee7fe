/*
 * fuzz_frame.c - the header of a frame and the options behind it.
 *
 * The first 64 bytes are the header, the rest is meta. The header is read twice: as it is, and with
 * its checksum set right, so that builds without PSI_FUZZING get past it, too.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "fuzz.h"
#include "wire/bytes.h"
#include "wire/frame.h"

static void
check_header(const uint8_t *bytes)
{
    const bool named = strcmp(psi_frame_type_name(bytes[5]), "?") != 0;
    uint8_t right[PSI_FRAME_BYTES];
    uint8_t again[PSI_FRAME_BYTES];
    struct psi_frame frame;
    struct psd_error err;

    memcpy(right, bytes, sizeof(right));
    psi_store_u32(right + 60, psi_crc32c(0, right, 60));
    psi_frame_decode(bytes, &frame, &err);
    if (psi_frame_decode(right, &frame, &err) != PSD_OK) {
        psi_assert(err.status == PSD_ERR_PROTOCOL || err.status == PSD_ERR_VERSION);
        return;
    }
    psi_assert(named);
    psi_assert(frame.payload_bytes <= PSI_FRAME_CHUNK_MAX);
    psi_assert(frame.meta_bytes <= PSI_FRAME_META_MAX);
    psi_frame_encode(&frame, again);
    psi_assert(memcmp(again, right, sizeof(again)) == 0);
}

/* Unknown options are skipped, so the bytes may change; what they say may not. */
static void
check_meta(const uint8_t *bytes, size_t size)
{
    struct psi_meta meta;
    struct psi_meta again;
    struct psd_error err;
    uint8_t first[PSI_FRAME_META_MAX];
    uint8_t second[PSI_FRAME_META_MAX];
    size_t used;

    if (psi_meta_decode(bytes, size, &meta, &err) != PSD_OK) {
        psi_assert(err.status == PSD_ERR_PROTOCOL);
        return;
    }
    used = psi_meta_encode(&meta, first);
    psi_assert(used <= size);
    psi_assert(psi_meta_decode(first, used, &again, &err) == PSD_OK);
    psi_assert(again.has_part == meta.has_part && again.part == meta.part);
    psi_assert(again.has_deadline == meta.has_deadline && again.deadline_ms == meta.deadline_ms);
    psi_assert(again.has_weight == meta.has_weight && again.weight == meta.weight);
    psi_assert(again.has_trace == meta.has_trace && again.trace == meta.trace);
    psi_assert(psi_meta_encode(&again, second) == used);
    psi_assert(memcmp(first, second, used) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= PSI_FRAME_BYTES && size <= PSI_FRAME_BYTES + PSI_FRAME_META_MAX) {
        check_header(data);
        check_meta(data + PSI_FRAME_BYTES, size - PSI_FRAME_BYTES);
    }
    return 0;
}
