/*
 * sparse_rows.c - an operation on a sparse table, cut up by place.
 *
 * All of it lies in one piece of memory: what goes out, what comes in, and which row of the program
 * each row that comes is. The gradients of an id that was given several times are added in the order
 * in which they stood: in f32, and rounded once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/sparse_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/fail.h"
#include "client/core/sparse_ids.h"
#include "client/core/sparse_sums.h"
#include "shard/bucket.h"
#include "store/half.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/rows.h"

enum { ALIGNMENT = 64, GIVEN_MAX = 1 << 30 };

/* What one place has to do with it. What it is sent lies in parts one behind the other, each a payload
 * with as many rows as one may have, but for the last; that one asks, too: for as many rows as an answer
 * may have. The rest is asked for with one answer after the other. */
struct place_rows {
    struct psi_rows counts; /* only those, of all parts */
    uint32_t parts;
    uint8_t *out;
    size_t out_bytes;
    uint8_t *rest;  /* ids that the last part has no room to ask for, as they travel */
    uint8_t *in;    /* one answer */
    uint32_t came;  /* rows that have */
    uint32_t first; /* of its rows among all that are looked up */
};

struct sparse_rows {
    const struct psi_spec *spec; /* the table's */
    size_t row_bytes;
    uint32_t places;
    uint32_t part_rows; /* pushed in one part */
    uint32_t ask_rows;  /* asked for at once */
    bool pushes;
    uint8_t *values;          /* borrowed */
    uint64_t lookups;         /* rows there */
    uint32_t *at;             /* of all that is looked up, in the order in which it travels */
    uint32_t *begin;          /* in `at`, of each row that comes; one more, the end */
    struct sparse_sums *sums; /* owned; what answers a push to a sum; NULL: it is none */
    struct place_rows place[];
};

/* What both lists are while the rest is made. */
struct sorted {
    struct sparse_ids pushed;
    struct sparse_ids asked;
};

static size_t
aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static uint32_t
place_of(const struct sparse_rows *rows, const struct sparse_id *id)
{
    const uint32_t bits = rows->spec->bucket_bits;

    return psi_bucket_place((uint32_t)(id->mixed >> (64 - bits)), bits, rows->places);
}

static void
count_places(struct sparse_rows *rows, const struct sorted *sorted)
{
    const struct sparse_ids *pushed = &sorted->pushed;
    const struct sparse_ids *asked = &sorted->asked;
    uint32_t before = 0;

    for (uint32_t i = 0; i < pushed->count; i = psi_sparse_ids_end(pushed, i)) {
        rows->place[place_of(rows, &pushed->list[i])].counts.pushed++;
    }
    for (uint32_t i = 0; i < asked->count; i = psi_sparse_ids_end(asked, i)) {
        rows->place[place_of(rows, &asked->list[i])].counts.asked++;
    }
    for (uint32_t p = 0; p < rows->places; p++) {
        rows->place[p].first = before;
        before += rows->place[p].counts.asked;
    }
}

/* ---- parts --------------------------------------------------------------------------------- */

static uint32_t
asked_first(const struct sparse_rows *rows, const struct place_rows *place)
{
    return place->counts.asked < rows->ask_rows ? place->counts.asked : rows->ask_rows;
}

/* Of those that have not come the next. */
static uint32_t
asked_next(const struct sparse_rows *rows, const struct place_rows *place)
{
    const uint32_t left = place->counts.asked - place->came;

    return left < rows->ask_rows ? left : rows->ask_rows;
}

/* Of the part-th: which rows of the place's. Only the last part asks. */
static struct psi_rows
part_counts(const struct sparse_rows *rows, const struct place_rows *place, uint32_t part)
{
    const uint32_t first = part * rows->part_rows;
    const uint32_t left = first < place->counts.pushed ? place->counts.pushed - first : 0;

    return (struct psi_rows){.pushed = left < rows->part_rows ? left : rows->part_rows,
                             .asked = part + 1 == place->parts ? asked_first(rows, place) : 0,
                             .gradients = place->counts.gradients};
}

static size_t
part_bytes(const struct sparse_rows *rows, const struct place_rows *place, uint32_t part)
{
    const struct psi_rows counts = part_counts(rows, place, part);

    return psi_rows_bytes(rows->row_bytes, counts.pushed, counts.asked);
}

/* All before the last have the same length. */
static uint8_t *
part_base(const struct sparse_rows *rows, const struct place_rows *place, uint32_t part)
{
    return place->out + part * aligned(psi_rows_bytes(rows->row_bytes, rows->part_rows, 0));
}

static void
count_parts(struct sparse_rows *rows, const struct sparse_given *given)
{
    rows->part_rows = psi_rows_part(rows->row_bytes, given->part_bytes);
    rows->ask_rows = psi_rows_ask_max(rows->row_bytes, given->answer_bytes);
    for (uint32_t p = 0; p < rows->places; p++) {
        struct place_rows *place = &rows->place[p];
        const uint32_t pushed = place->counts.pushed;

        place->parts = pushed == 0 ? 1 : (pushed + rows->part_rows - 1) / rows->part_rows;
        if (part_bytes(rows, place, place->parts - 1) > PSI_FRAME_CHUNK_MAX) {
            place->parts++; /* which asks, and has no row */
        }
    }
}

/* Gives each piece its place from `base` on, which may only be asked about, and returns how much that
 * is in all. */
static size_t
lay_out(struct sparse_rows *rows, uint8_t *base, const struct sorted *sorted)
{
    size_t used = 0;

    for (uint32_t p = 0; p < rows->places; p++) {
        struct place_rows *place = &rows->place[p];

        place->out = base + used;
        place->out_bytes = (size_t)(part_base(rows, place, place->parts - 1) - place->out) +
                           part_bytes(rows, place, place->parts - 1);
        used += aligned(place->out_bytes);
        place->in = base + used;
        used += aligned(psi_rows_value_bytes(rows->row_bytes, asked_first(rows, place)));
    }
    for (uint32_t p = 0; p < rows->places; p++) {
        struct place_rows *place = &rows->place[p];

        place->rest = base + used;
        used += aligned((place->counts.asked - asked_first(rows, place)) * sizeof(uint64_t));
    }
    rows->at = (uint32_t *)(void *)(base + used);
    used += aligned(sorted->asked.count * sizeof(*rows->at));
    rows->begin = (uint32_t *)(void *)(base + used);
    used += aligned((sorted->asked.unique + 1u) * sizeof(*rows->begin));
    return used;
}

/* ---- adding -------------------------------------------------------------------------------- */

static void
add_f32(uint8_t *to, const uint8_t *more, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++) {
        float sum;
        float part;

        memcpy(&sum, to + i * sizeof(sum), sizeof(sum));
        memcpy(&part, more + i * sizeof(part), sizeof(part));
        sum += part;
        memcpy(to + i * sizeof(sum), &sum, sizeof(sum));
    }
}

static float
load_half(const uint8_t *at, psd_dtype dtype)
{
    uint16_t half;

    memcpy(&half, at, sizeof(half));
    return dtype == PSD_F16 ? float_from_f16(half) : float_from_bf16(half);
}

/* Column by column, so that each is rounded once. */
static void
add_halves(uint8_t *to, const uint8_t *gradients, const struct sparse_id *ids, uint32_t count,
           const struct psi_spec *spec)
{
    const size_t row_bytes = spec->width * sizeof(uint16_t);

    for (uint32_t i = 0; i < spec->width; i++) {
        float sum =
            load_half(gradients + ids[0].at * row_bytes + i * sizeof(uint16_t), spec->dtype);
        uint16_t half;

        for (uint32_t k = 1; k < count; k++) {
            sum += load_half(gradients + ids[k].at * row_bytes + i * sizeof(half), spec->dtype);
        }
        half = spec->dtype == PSD_F16 ? f16_from_float(sum) : bf16_from_float(sum);
        memcpy(to + i * sizeof(half), &half, sizeof(half));
    }
}

/* The rows of one id. */
static void
add_rows(const struct sparse_rows *rows, uint8_t *to, const uint8_t *gradients,
         const struct sparse_id *ids, uint32_t count)
{
    const struct psi_spec *spec = rows->spec;

    if (count > 1 && psi_dtype_bytes(spec->dtype) == sizeof(uint16_t)) {
        add_halves(to, gradients, ids, count, spec);
        return;
    }
    memcpy(to, gradients + ids[0].at * rows->row_bytes, rows->row_bytes);
    for (uint32_t k = 1; k < count; k++) {
        add_f32(to, gradients + ids[k].at * rows->row_bytes, spec->width);
    }
}

/* ---- making -------------------------------------------------------------------------------- */

/* Rows of one part from the i-th of all ids on. Returns where the next one begins. */
static uint32_t
write_part(const struct sparse_rows *rows, const struct place_rows *place, uint32_t part,
           const struct sparse_ids *pushed, uint32_t i, const struct sparse_given *given)
{
    const struct psi_rows counts = part_counts(rows, place, part);
    const struct psi_rows_room room =
        psi_rows_encode(part_base(rows, place, part), rows->row_bytes, &counts);

    for (uint32_t row = 0; row < counts.pushed; row++) {
        const uint32_t end = psi_sparse_ids_end(pushed, i);

        psi_store_u64(room.ids + row * sizeof(uint64_t), given->push_ids[pushed->list[i].at]);
        add_rows(rows, room.rows + row * rows->row_bytes, given->gradients, &pushed->list[i],
                 end - i);
        i = end;
    }
    return i;
}

static void
write_pushed(struct sparse_rows *rows, const struct sparse_ids *pushed,
             const struct sparse_given *given)
{
    uint32_t i = 0;

    for (uint32_t p = 0; p < rows->places; p++) {
        for (uint32_t part = 0; part < rows->place[p].parts; part++) {
            i = write_part(rows, &rows->place[p], part, pushed, i, given);
        }
    }
}

static void
write_asked(struct sparse_rows *rows, const struct sparse_ids *asked, const uint64_t *given)
{
    uint32_t i = 0;

    for (uint32_t p = 0; p < rows->places; p++) {
        const struct place_rows *place = &rows->place[p];
        const uint32_t first = asked_first(rows, place);
        uint8_t *ids = place->out + place->out_bytes - first * sizeof(uint64_t);

        for (uint32_t row = 0; row < place->counts.asked; row++) {
            const uint32_t end = psi_sparse_ids_end(asked, i);
            uint8_t *id = row < first ? ids + row * sizeof(uint64_t)
                                      : place->rest + (row - first) * sizeof(uint64_t);

            psi_store_u64(id, given[asked->list[i].at]);
            rows->begin[place->first + row] = i;
            for (; i < end; i++) {
                rows->at[i] = asked->list[i].at;
            }
        }
    }
    rows->begin[asked->unique] = i;
}

static psd_status
check_given(const struct psi_spec *spec, const struct sparse_given *given, struct psd_error *err)
{
    const uint64_t most =
        given->push_count > given->lookup_count ? given->push_count : given->lookup_count;

    return most <= GIVEN_MAX ? PSD_OK
                             : psi_fail(err, PSD_ERR_TOO_BIG, "sparse table %s: %llu ids",
                                        spec->name, (unsigned long long)most);
}

static void
fill(struct sparse_rows *rows, const struct sorted *sorted, const struct sparse_given *given)
{
    const psi_arithmetic mode = psi_arithmetic_enter();

    write_pushed(rows, &sorted->pushed, given);
    write_asked(rows, &sorted->asked, given->lookup_ids);
    psi_arithmetic_leave(mode);
}

/* Counts first, in memory for the struct alone: what the rest takes follows from that. */
static psd_status
make(const struct psi_spec *spec, uint32_t places, const struct sparse_given *given,
     const struct sorted *sorted, bool pushes, struct sparse_rows **rows_p, struct psd_error *err)
{
    const size_t head = aligned(sizeof(struct sparse_rows) + places * sizeof(struct place_rows));
    struct sparse_rows *rows = aligned_alloc(ALIGNMENT, head);
    struct sparse_rows *whole = NULL;
    psd_status status = PSD_OK;

    if (rows != NULL) {
        memset(rows, 0, head);
        rows->spec = spec;
        rows->row_bytes = spec->width * psi_dtype_bytes(spec->dtype);
        rows->places = places;
        rows->pushes = pushes;
        rows->values = given->values;
        rows->lookups = given->lookup_count;
        count_places(rows, sorted);
        for (uint32_t p = 0; p < places; p++) {
            rows->place[p].counts.gradients = pushes && !given->adds_nothing;
        }
        count_parts(rows, given);
        whole = aligned_alloc(ALIGNMENT, head + lay_out(rows, (uint8_t *)rows, sorted));
    }
    if (whole != NULL) {
        memcpy(whole, rows, head);
        (void)lay_out(whole, (uint8_t *)whole + head, sorted);
        fill(whole, sorted, given);
        *rows_p = whole;
    } else {
        status =
            psi_fail(err, PSD_ERR_NO_MEMORY, "sparse table %s: no memory for %llu rows", spec->name,
                     (unsigned long long)(given->push_count + given->lookup_count));
    }
    free(rows);
    return status;
}

static psd_status
expect_sums(struct sparse_rows **rows_p, struct psd_error *err)
{
    struct sparse_rows *rows = *rows_p;
    const struct psi_spec *spec = rows->spec;

    rows->sums = psi_sparse_sums_create(spec, rows->places);
    if (rows->sums != NULL) {
        return PSD_OK;
    }
    psi_sparse_rows_free(rows);
    *rows_p = NULL;
    return psi_fail(err, PSD_ERR_NO_MEMORY, "sparse table %s: no memory for a sum", spec->name);
}

psd_status
psi_sparse_rows_create(const struct psi_spec *spec, uint32_t places, uint8_t type,
                       const struct sparse_given *given, struct sparse_rows **rows_p,
                       struct psd_error *err)
{
    const bool pushes = psi_frame_has_gradient(type);
    const bool asks = psi_frame_wants_value(type);
    const uint32_t push_count = pushes && !given->adds_nothing ? (uint32_t)given->push_count : 0;
    struct sorted sorted = {0};
    psd_status status = check_given(spec, given, err);

    if (status != PSD_OK) {
        return status;
    }
    if (!psi_sparse_ids_sort(&sorted.pushed, given->push_ids, push_count, spec->bucket_bits) ||
        !psi_sparse_ids_sort(&sorted.asked, given->lookup_ids,
                             asks ? (uint32_t)given->lookup_count : 0, spec->bucket_bits)) {
        status =
            psi_fail(err, PSD_ERR_NO_MEMORY, "sparse table %s: no memory to sort ids", spec->name);
    } else {
        status = make(spec, places, given, &sorted, pushes, rows_p, err);
    }
    psi_sparse_ids_fini(&sorted.pushed);
    psi_sparse_ids_fini(&sorted.asked);
    if (status == PSD_OK && psi_spec_is_sparse_sum(spec)) {
        status = expect_sums(rows_p, err);
    }
    return status;
}

void
psi_sparse_rows_free(struct sparse_rows *rows)
{
    if (rows != NULL) {
        psi_sparse_sums_free(rows->sums);
    }
    free(rows);
}

/* ---- using --------------------------------------------------------------------------------- */

uint32_t
psi_sparse_rows_parts(const struct sparse_rows *rows, uint64_t place)
{
    return rows->place[place].parts;
}

struct sparse_piece
psi_sparse_rows_out(const struct sparse_rows *rows, uint64_t place, uint32_t part)
{
    const struct place_rows *here = &rows->place[place];

    return (struct sparse_piece){part_base(rows, here, part), part_bytes(rows, here, part)};
}

size_t
psi_sparse_rows_out_bytes(const struct sparse_rows *rows, uint64_t place)
{
    return rows->place[place].out_bytes;
}

struct sparse_piece
psi_sparse_rows_all_out(const struct sparse_rows *rows)
{
    const struct place_rows *last = &rows->place[rows->places - 1];

    return (struct sparse_piece){rows->place[0].out,
                                 (size_t)(last->out - rows->place[0].out) + last->out_bytes};
}

struct sparse_gradients
psi_sparse_rows_gradients(const struct sparse_rows *rows, uint64_t place, uint32_t part)
{
    const struct place_rows *here = &rows->place[place];
    const struct psi_rows counts = part_counts(rows, here, part);
    const uint8_t *ids = part_base(rows, here, part) + PSI_ROWS_HEAD_BYTES;

    return (struct sparse_gradients){.ids = ids,
                                     .numbers = ids + counts.pushed * sizeof(uint64_t),
                                     .count = (uint64_t)counts.pushed * rows->spec->width};
}

bool
psi_sparse_rows_concern(const struct sparse_rows *rows, uint64_t place)
{
    return rows->pushes || rows->place[place].counts.asked > 0;
}

struct sparse_piece
psi_sparse_rows_in(const struct sparse_rows *rows, uint64_t place)
{
    const struct place_rows *here = &rows->place[place];

    return (struct sparse_piece){here->in,
                                 psi_rows_value_bytes(rows->row_bytes, asked_next(rows, here))};
}

bool
psi_sparse_rows_fit(const struct sparse_rows *rows, uint64_t place, size_t bytes)
{
    return rows->sums != NULL ? bytes >= PSI_ROWS_HEAD_BYTES && bytes <= PSI_FRAME_CHUNK_MAX
                              : bytes == psi_sparse_rows_in(rows, place).bytes;
}

void
psi_sparse_rows_begin(struct sparse_rows *rows, uint64_t place)
{
    rows->place[place].came = 0;
    if (rows->sums != NULL) {
        psi_sparse_sums_begin(rows->sums, place);
    }
}

void *
psi_sparse_rows_into(const struct sparse_rows *rows, uint64_t place, size_t bytes)
{
    return rows->sums != NULL ? psi_sparse_sums_room(rows->sums, place, bytes)
                              : rows->place[place].in;
}

psd_status
psi_sparse_rows_came(struct sparse_rows *rows, uint64_t place, const void *payload, size_t bytes,
                     struct psd_error *err)
{
    struct place_rows *here = &rows->place[place];
    const uint32_t count = asked_next(rows, here);
    const uint32_t first = here->first + here->came;
    const uint8_t *from = NULL;
    psd_status status;

    if (rows->sums != NULL) {
        return psi_sparse_sums_came(rows->sums, place, bytes, err);
    }
    status = psi_rows_value_decode(payload, bytes, rows->row_bytes, count, &from, err);
    if (status != PSD_OK) {
        return status;
    }
    for (uint32_t row = first; row < first + count; row++) {
        for (uint32_t i = rows->begin[row]; i < rows->begin[row + 1]; i++) {
            memcpy(rows->values + rows->at[i] * rows->row_bytes, from, rows->row_bytes);
        }
        from += rows->row_bytes;
    }
    here->came += count;
    return PSD_OK;
}

bool
psi_sparse_rows_borrow(const struct sparse_rows *rows, const void *base, size_t bytes)
{
    const uint8_t *other = base;

    return rows->values != NULL && rows->values < other + bytes &&
           other < rows->values + rows->lookups * rows->row_bytes;
}

bool
psi_sparse_rows_has_rest(const struct sparse_rows *rows, uint64_t place)
{
    return rows->sums == NULL && rows->place[place].came < rows->place[place].counts.asked;
}

bool
psi_sparse_rows_in_parts(const struct sparse_rows *rows)
{
    for (uint32_t p = 0; p < rows->places; p++) {
        if (rows->place[p].counts.asked > rows->ask_rows) {
            return true;
        }
    }
    return false;
}

uint32_t
psi_sparse_rows_ask(const struct sparse_rows *rows, uint64_t place, uint8_t *ids_p)
{
    const struct place_rows *here = &rows->place[place];
    const uint32_t count = rows->sums != NULL ? 1 : asked_next(rows, here);
    uint64_t last = 0;

    if (rows->sums != NULL && !psi_sparse_sums_last(rows->sums, place, &last)) {
        return 0;
    }
    if (ids_p != NULL && rows->sums != NULL) {
        psi_store_u64(ids_p, last);
    } else if (ids_p != NULL && count > 0) {
        memcpy(ids_p, here->rest + (here->came - rows->ask_rows) * sizeof(uint64_t),
               count * sizeof(uint64_t));
    }
    return count;
}

const struct sparse_sums *
psi_sparse_rows_sums(const struct sparse_rows *rows)
{
    return rows->sums;
}
