/*
 * rows.c - the payload of frames about rows of sparse tables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "wire/rows.h"

#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/frame.h"

enum { AT_PUSHED = 0, AT_ASKED = 4, AT_GRADIENTS = 8, AT_ZERO = 12, ID_BYTES = 8 };

static uint64_t
padded(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

size_t
psi_rows_bytes(size_t row_bytes, uint64_t pushed, uint64_t asked)
{
    return PSI_ROWS_HEAD_BYTES +
           (size_t)(pushed * ID_BYTES + padded(pushed * row_bytes) + asked * ID_BYTES);
}

uint32_t
psi_rows_part(size_t row_bytes, uint32_t part_bytes)
{
    const size_t most =
        part_bytes == 0 || part_bytes > PSI_FRAME_CHUNK_MAX ? PSI_FRAME_CHUNK_MAX : part_bytes;
    const size_t overhead = PSI_ROWS_HEAD_BYTES + 8; /* with the padding */
    const size_t rows = most > overhead ? (most - overhead) / (row_bytes + ID_BYTES) : 0;

    return rows == 0 ? 1 : rows > PSI_ROWS_MAX ? PSI_ROWS_MAX : (uint32_t)rows;
}

uint32_t
psi_rows_ask_max(size_t row_bytes, uint32_t part_bytes)
{
    const size_t most =
        part_bytes == 0 || part_bytes > PSI_FRAME_CHUNK_MAX ? PSI_FRAME_CHUNK_MAX : part_bytes;
    const size_t rows = most > PSI_ROWS_HEAD_BYTES ? (most - PSI_ROWS_HEAD_BYTES) / row_bytes : 0;

    return rows == 0 ? 1 : rows > PSI_ROWS_MAX ? PSI_ROWS_MAX : (uint32_t)rows;
}

uint32_t
psi_rows_read_max(size_t row_bytes, bool may_be_cold)
{
    const size_t most = may_be_cold ? PSI_READ_COLD_ROWS_MAX : PSI_READ_ROWS_MAX;
    const size_t rows = (PSI_READ_BYTES_MAX - PSI_ROWS_HEAD_BYTES) / row_bytes;

    return (uint32_t)(rows > most ? most : rows);
}

struct psi_rows_room
psi_rows_encode(uint8_t *payload, size_t row_bytes, const struct psi_rows *counts)
{
    const size_t rows_bytes = counts->pushed * row_bytes;
    struct psi_rows_room room = {.ids = payload + PSI_ROWS_HEAD_BYTES};

    psi_store_u32(payload + AT_PUSHED, counts->pushed);
    psi_store_u32(payload + AT_ASKED, counts->asked);
    psi_store_u32(payload + AT_GRADIENTS, counts->gradients);
    psi_store_u32(payload + AT_ZERO, 0);
    room.rows = room.ids + (size_t)counts->pushed * ID_BYTES;
    memset(room.rows + rows_bytes, 0, padded(rows_bytes) - rows_bytes);
    room.asked_ids = room.rows + padded(rows_bytes);
    return room;
}

/* Sorted, each once, and of this place. */
static psd_status
check_ids(const uint8_t *ids, uint32_t count, const struct psi_rows_form *form,
          struct psd_error *err)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t id = psi_load_u64(ids + (size_t)i * ID_BYTES);
        const uint64_t mixed = psi_bucket_mix(id);
        const uint32_t bucket = (uint32_t)(mixed >> (64 - form->bucket_bits));

        if (bucket < form->first_bucket || bucket >= form->end_bucket) {
            return psi_fail(err, PSD_ERR_PROTOCOL, "id %llu is of another place",
                            (unsigned long long)id);
        }
        if (i > 0 && mixed <= last) {
            return psi_fail(err, PSD_ERR_PROTOCOL, "id %llu %s", (unsigned long long)id,
                            mixed == last ? "comes twice" : "is not where it belongs: not sorted");
        }
        last = mixed;
    }
    return PSD_OK;
}

static psd_status
check_counts(const struct psi_rows *rows, uint32_t zero, struct psd_error *err)
{
    if (rows->pushed > PSI_ROWS_MAX || rows->asked > PSI_ROWS_MAX) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%u ids, at most %d",
                        rows->pushed > rows->asked ? rows->pushed : rows->asked, PSI_ROWS_MAX);
    }
    if (rows->gradients > 1 || zero != 0 || (rows->gradients == 0 && rows->pushed > 0)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%u rows of %u gradients", rows->pushed,
                        rows->gradients);
    }
    return PSD_OK;
}

psd_status
psi_rows_decode(const uint8_t *payload, size_t bytes, const struct psi_rows_form *form,
                struct psi_rows *rows_p, struct psd_error *err)
{
    struct psi_rows rows = {0};
    psd_status status;

    if (bytes < PSI_ROWS_HEAD_BYTES) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%zu bytes, at least %d", bytes,
                        PSI_ROWS_HEAD_BYTES);
    }
    rows.pushed = psi_load_u32(payload + AT_PUSHED);
    rows.asked = psi_load_u32(payload + AT_ASKED);
    rows.gradients = psi_load_u32(payload + AT_GRADIENTS);
    status = check_counts(&rows, psi_load_u32(payload + AT_ZERO), err);
    if (status != PSD_OK) {
        return status;
    }
    if (bytes != psi_rows_bytes(form->row_bytes, rows.pushed, rows.asked)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%zu bytes for %u rows and %u ids, expected %zu",
                        bytes, rows.pushed, rows.asked,
                        psi_rows_bytes(form->row_bytes, rows.pushed, rows.asked));
    }
    rows.ids = payload + PSI_ROWS_HEAD_BYTES;
    rows.rows = rows.ids + (size_t)rows.pushed * ID_BYTES;
    rows.asked_ids = rows.rows + padded(rows.pushed * form->row_bytes);
    status = check_ids(rows.ids, rows.pushed, form, err);
    if (status == PSD_OK) {
        status = check_ids(rows.asked_ids, rows.asked, form, err);
    }
    if (status == PSD_OK) {
        *rows_p = rows;
    }
    return status;
}

size_t
psi_rows_value_bytes(size_t row_bytes, uint64_t count)
{
    return PSI_ROWS_HEAD_BYTES + (size_t)(count * row_bytes);
}

uint8_t *
psi_rows_value_encode(uint8_t *payload, uint32_t count)
{
    memset(payload, 0, PSI_ROWS_HEAD_BYTES);
    psi_store_u32(payload + AT_PUSHED, count);
    return payload + PSI_ROWS_HEAD_BYTES;
}

psd_status
psi_rows_value_decode(const uint8_t *payload, size_t bytes, size_t row_bytes, uint32_t expected,
                      const uint8_t **rows_p, struct psd_error *err)
{
    const uint32_t count = bytes < PSI_ROWS_HEAD_BYTES ? 0 : psi_load_u32(payload + AT_PUSHED);

    if (bytes != psi_rows_value_bytes(row_bytes, expected) || count != expected) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%zu bytes of %u rows, expected %zu of %u", bytes,
                        count, psi_rows_value_bytes(row_bytes, expected), expected);
    }
    *rows_p = payload + PSI_ROWS_HEAD_BYTES;
    return PSD_OK;
}

void
psi_rows_sum_encode(uint8_t *payload, size_t row_bytes, const uint64_t *ids, const void *rows,
                    uint32_t count)
{
    const struct psi_rows counts = {.pushed = count, .gradients = 1};
    const struct psi_rows_room room = psi_rows_encode(payload, row_bytes, &counts);

    for (uint32_t i = 0; i < count; i++) {
        psi_store_u64(room.ids + (size_t)i * ID_BYTES, ids[i]);
    }
    if (count > 0) {
        memcpy(room.rows, rows, count * row_bytes);
    }
}

psd_status
psi_rows_sum_decode(const uint8_t *payload, size_t bytes, const struct psi_rows_form *form,
                    struct psi_rows *rows_p, struct psd_error *err)
{
    struct psi_rows rows;
    const psd_status status = psi_rows_decode(payload, bytes, form, &rows, err);

    if (status == PSD_OK && (rows.asked > 0 || rows.gradients != 1)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "a sum of %u gradients that asks for %u rows",
                        rows.gradients, rows.asked);
    }
    if (status == PSD_OK) {
        *rows_p = rows;
    }
    return status;
}
