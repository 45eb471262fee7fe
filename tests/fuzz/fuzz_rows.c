/*
 * fuzz_rows.c - payloads of frames about rows of sparse tables.
 *
 * The first four bytes say what the lane expects: the size of a row, and which place it is of how
 * many. What is taken has its ids in order and inside the payload, and is written again as it came.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "fuzz.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { HEAD = 4 };

static void
check_list(const uint8_t *ids, uint32_t count, const struct psi_rows_form *form)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t id = psi_load_u64(ids + 8 * (size_t)i);
        const uint32_t bucket = psi_bucket_of(id, form->bucket_bits);

        psi_assert(bucket >= form->first_bucket && bucket < form->end_bucket);
        psi_assert(i == 0 || psi_bucket_before(psi_load_u64(ids + 8 * (size_t)i - 8), id));
    }
}

static void
check_written_again(const struct psi_rows *rows, const uint8_t *payload, size_t bytes,
                    size_t row_bytes)
{
    uint8_t *again = malloc(bytes);
    const struct psi_rows_room room = psi_rows_encode(again, row_bytes, rows);

    memcpy(room.ids, rows->ids, 8 * (size_t)rows->pushed);
    memcpy(room.rows, rows->rows, row_bytes * rows->pushed);
    memcpy(room.asked_ids, rows->asked_ids, 8 * (size_t)rows->asked);
    psi_assert(room.asked_ids + 8 * (size_t)rows->asked == again + bytes);
    psi_assert(memcmp(again, payload, PSI_ROWS_HEAD_BYTES) == 0);
    free(again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct psi_rows rows;
    struct psd_error err;
    const uint8_t *values;

    if (size < HEAD) {
        return 0;
    }
    const uint32_t places = 1u + data[1] % 7u;
    const uint32_t place = data[2] % places;
    const uint32_t bits = PSI_BUCKET_BITS_MIN + data[3] % 7u;
    const struct psi_rows_form form = {
        .row_bytes = 2u * (1u + data[0]),
        .bucket_bits = bits,
        .first_bucket = psi_bucket_first(place, bits, places),
        .end_bucket = psi_bucket_first(place + 1, bits, places),
    };

    (void)psi_rows_value_decode(data + HEAD, size - HEAD, form.row_bytes, data[1], &values, &err);
    if (psi_rows_sum_decode(data + HEAD, size - HEAD, &form, &rows, &err) == PSD_OK) {
        psi_assert(rows.gradients == 1 && rows.asked == 0);
        check_list(rows.ids, rows.pushed, &form);
    }
    if (psi_rows_decode(data + HEAD, size - HEAD, &form, &rows, &err) != PSD_OK) {
        psi_assert(err.status == PSD_ERR_PROTOCOL);
        return 0;
    }
    check_list(rows.ids, rows.pushed, &form);
    check_list(rows.asked_ids, rows.asked, &form);
    check_written_again(&rows, data + HEAD, size - HEAD, form.row_bytes);
    return 0;
}
