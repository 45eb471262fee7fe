/*
 * sparse_sums.c - the rows of a sparse sum, from all places.
 *
 * Each place answers with its own ids, by their mixed ids. Programs want them by their ids: these are
 * sorted a byte at a time, from the last on, without the bytes that all have in common. Rows are
 * copied once, to where they belong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/sparse_sums.h"

#include <stdlib.h>
#include <string.h>

#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { DIGITS = 256, DIGIT_BITS = 8, ID_BITS = 64 };

/* What one place has answered. */
struct place_sums {
    uint8_t *answer; /* owned */
    size_t room;
    struct psi_rows rows; /* in it */
};

struct sparse_sums {
    const struct psi_spec *spec; /* the table's */
    size_t row_bytes;
    uint32_t places;
    struct place_sums place[];
};

struct sum_row {
    uint64_t id;
    const uint8_t *row;
};

struct sparse_sums *
psi_sparse_sums_create(const struct psi_spec *spec, uint32_t places)
{
    struct sparse_sums *sums = calloc(1, sizeof(*sums) + places * sizeof(sums->place[0]));

    if (sums != NULL) {
        sums->spec = spec;
        sums->row_bytes = spec->width * psi_dtype_bytes(spec->dtype);
        sums->places = places;
    }
    return sums;
}

void
psi_sparse_sums_free(struct sparse_sums *sums)
{
    for (uint32_t i = 0; sums != NULL && i < sums->places; i++) {
        free(sums->place[i].answer);
    }
    free(sums);
}

void *
psi_sparse_sums_room(struct sparse_sums *sums, uint64_t place, size_t bytes)
{
    struct place_sums *here = &sums->place[place];

    if (bytes > here->room) {
        free(here->answer);
        here->answer = malloc(bytes);
        here->room = here->answer == NULL ? 0 : bytes;
    }
    return here->answer;
}

psd_status
psi_sparse_sums_came(struct sparse_sums *sums, uint64_t place, size_t bytes, struct psd_error *err)
{
    struct place_sums *here = &sums->place[place];
    const uint32_t bits = sums->spec->bucket_bits;
    const struct psi_rows_form form = {
        .row_bytes = sums->row_bytes,
        .bucket_bits = bits,
        .first_bucket = psi_bucket_first((uint32_t)place, bits, sums->places),
        .end_bucket = psi_bucket_first((uint32_t)place + 1, bits, sums->places),
    };

    return psi_rows_sum_decode(here->answer, bytes, &form, &here->rows, err);
}

uint64_t
psi_sparse_sums_count(const struct sparse_sums *sums)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < sums->places; i++) {
        count += sums->place[i].rows.pushed;
    }
    return count;
}

static void
collect(const struct sparse_sums *sums, struct sum_row *all)
{
    for (uint32_t i = 0; i < sums->places; i++) {
        const struct psi_rows *rows = &sums->place[i].rows;

        for (uint32_t k = 0; k < rows->pushed; k++) {
            *all++ = (struct sum_row){.id = psi_load_u64(rows->ids + k * sizeof(uint64_t)),
                                      .row = rows->rows + k * sums->row_bytes};
        }
    }
}

static uint8_t
digit(const struct sum_row *row, uint32_t shift)
{
    return (uint8_t)(row->id >> shift);
}

/* Turns counts into where the rows with each digit begin. False: all have the same one. */
static bool
place_digits(const struct sum_row *rows, uint64_t count, uint32_t shift, uint64_t *begin)
{
    uint64_t before = 0;

    memset(begin, 0, DIGITS * sizeof(*begin));
    for (uint64_t i = 0; i < count; i++) {
        begin[digit(&rows[i], shift)]++;
    }
    if (begin[digit(&rows[0], shift)] == count) {
        return false;
    }
    for (uint32_t i = 0; i < DIGITS; i++) {
        const uint64_t here = begin[i];

        begin[i] = before;
        before += here;
    }
    return true;
}

/* Either of the two has them in order then. */
static struct sum_row *
sort(struct sum_row *rows, struct sum_row *other, uint64_t count)
{
    uint64_t begin[DIGITS];

    for (uint32_t shift = 0; count > 0 && shift < ID_BITS; shift += DIGIT_BITS) {
        if (place_digits(rows, count, shift, begin)) {
            struct sum_row *const sorted = other;

            for (uint64_t i = 0; i < count; i++) {
                sorted[begin[digit(&rows[i], shift)]++] = rows[i];
            }
            other = rows;
            rows = sorted;
        }
    }
    return rows;
}

bool
psi_sparse_sums_read(const struct sparse_sums *sums, uint64_t *ids_p, void *rows_p)
{
    const uint64_t count = psi_sparse_sums_count(sums);
    struct sum_row *const both = malloc((2 * count + 1) * sizeof(*both));
    const struct sum_row *sorted;

    if (both == NULL) {
        return false;
    }
    collect(sums, both);
    sorted = sort(both, both + count, count);
    for (uint64_t i = 0; i < count; i++) {
        ids_p[i] = sorted[i].id;
        memcpy((uint8_t *)rows_p + i * sums->row_bytes, sorted[i].row, sums->row_bytes);
    }
    free(both);
    return true;
}
