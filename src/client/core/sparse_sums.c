/*
 * sparse_sums.c - the rows of a sparse sum, from all places.
 *
 * Each place answers with its own ids, by their mixed ids. Programs want them by their ids: these are
 * sorted a byte at a time, from the last on, without the bytes that all have in common. Rows are
 * copied once, to where they belong.
 *
 * What a place has answered does not change any more when all of it is here. So its operation shares it
 * with whoever keeps it for servers that are lost (keep.c), and it goes when neither needs it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/sparse_sums.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { DIGITS = 256, DIGIT_BITS = 8, ID_BITS = 64 };

/* One answer of a place, which may have several. */
struct answer {
    struct answer *next;
    struct psi_rows rows; /* in bytes */
    size_t size;
    _Alignas(8) uint8_t bytes[];
};

/* What one place has answered. Thread: operations are freed by any thread, hence the atomic. */
struct place_sum {
    atomic_uint users;    /* who still needs it; the last one frees it */
    struct answer *first; /* owned */
    struct answer *last;
    uint64_t count; /* rows that have come ... */
    uint64_t bytes; /* ... and what they take */
};

struct sparse_sums {
    const struct psi_spec *spec; /* the table's */
    size_t row_bytes;
    uint32_t places;
    struct place {
        struct place_sum *sum; /* shared; NULL: nothing has come */
        struct answer *coming; /* owned; not all of it is here */
    } place[];
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
psi_place_sum_release(struct place_sum *sum)
{
    if (sum == NULL || atomic_fetch_sub(&sum->users, 1) > 1) {
        return;
    }
    while (sum->first != NULL) {
        struct answer *next = sum->first->next;

        free(sum->first);
        sum->first = next;
    }
    free(sum);
}

void
psi_sparse_sums_begin(struct sparse_sums *sums, uint64_t place)
{
    struct place *here = &sums->place[place];

    psi_place_sum_release(here->sum);
    free(here->coming);
    *here = (struct place){0};
}

void
psi_sparse_sums_free(struct sparse_sums *sums)
{
    for (uint32_t i = 0; sums != NULL && i < sums->places; i++) {
        psi_sparse_sums_begin(sums, i);
    }
    free(sums);
}

void *
psi_sparse_sums_room(struct sparse_sums *sums, uint64_t place, size_t bytes)
{
    struct place *here = &sums->place[place];

    if (here->sum == NULL) {
        here->sum = calloc(1, sizeof(*here->sum));
        if (here->sum == NULL) {
            return NULL;
        }
        atomic_init(&here->sum->users, 1);
    }
    free(here->coming);
    here->coming = malloc(sizeof(*here->coming) + bytes);
    return here->coming == NULL ? NULL : here->coming->bytes;
}

bool
psi_sparse_sums_last(const struct sparse_sums *sums, uint64_t place, uint64_t *id_p)
{
    const struct place_sum *sum = sums->place[place].sum;
    const struct answer *last = sum == NULL ? NULL : sum->last;

    if (last == NULL || last->rows.pushed == 0) {
        return false;
    }
    *id_p = psi_load_u64(last->rows.ids + (last->rows.pushed - 1) * sizeof(uint64_t));
    return true;
}

static void
append(struct place *here, size_t bytes)
{
    struct place_sum *sum = here->sum;
    struct answer *answer = here->coming;

    here->coming = NULL;
    sum->count += answer->rows.pushed;
    sum->bytes += bytes;
    answer->next = NULL;
    answer->size = bytes;
    if (sum->last == NULL) {
        sum->first = answer;
    } else {
        sum->last->next = answer;
    }
    sum->last = answer;
}

psd_status
psi_sparse_sums_came(struct sparse_sums *sums, uint64_t place, size_t bytes, struct psd_error *err)
{
    struct place *here = &sums->place[place];
    struct answer *answer = here->coming;
    const uint32_t bits = sums->spec->bucket_bits;
    const struct psi_rows_form form = {
        .row_bytes = sums->row_bytes,
        .bucket_bits = bits,
        .first_bucket = psi_bucket_first((uint32_t)place, bits, sums->places),
        .end_bucket = psi_bucket_first((uint32_t)place + 1, bits, sums->places),
    };
    psd_status status = psi_rows_sum_decode(answer->bytes, bytes, &form, &answer->rows, err);
    uint64_t last;

    if (status == PSD_OK && answer->rows.pushed > 0 && psi_sparse_sums_last(sums, place, &last) &&
        !psi_bucket_before(last, psi_load_u64(answer->rows.ids))) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "sum of table %s: id %llu comes behind id %llu",
                          sums->spec->name, (unsigned long long)psi_load_u64(answer->rows.ids),
                          (unsigned long long)last);
    }
    if (status == PSD_OK) {
        append(here, bytes);
    }
    return status;
}

struct place_sum *
psi_sparse_sums_share(const struct sparse_sums *sums, uint64_t place)
{
    struct place_sum *sum = sums->place[place].sum;

    atomic_fetch_add(&sum->users, 1);
    return sum;
}

uint64_t
psi_place_sum_bytes(const struct place_sum *sum)
{
    return sum->bytes;
}

const void *
psi_place_sum_part(const struct place_sum *sum, uint32_t index, size_t *bytes_p, bool *more_p)
{
    const struct answer *answer = sum->first;

    for (; answer != NULL && index > 0; index--) {
        answer = answer->next;
    }
    if (answer == NULL) {
        return NULL;
    }
    *bytes_p = answer->size;
    *more_p = answer->next != NULL;
    return answer->bytes;
}

uint64_t
psi_sparse_sums_count(const struct sparse_sums *sums)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < sums->places; i++) {
        count += sums->place[i].sum == NULL ? 0 : sums->place[i].sum->count;
    }
    return count;
}

static void
collect(const struct sparse_sums *sums, struct sum_row *all)
{
    for (uint32_t i = 0; i < sums->places; i++) {
        const struct place_sum *sum = sums->place[i].sum;

        for (const struct answer *answer = sum == NULL ? NULL : sum->first; answer != NULL;
             answer = answer->next) {
            const struct psi_rows *rows = &answer->rows;

            for (uint32_t k = 0; k < rows->pushed; k++) {
                *all++ = (struct sum_row){.id = psi_load_u64(rows->ids + k * sizeof(uint64_t)),
                                          .row = rows->rows + k * sums->row_bytes};
            }
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
