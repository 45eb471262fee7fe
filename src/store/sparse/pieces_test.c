/*
 * pieces_test.c - a sparse table is copied piece by piece while it goes on, and the copy has the same
 * bits: rows, their state, what is counted for admission, what each bucket remembers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "sim/cold_memory.h"
#include "store/sparse/kind.h"
#include "store/sparse/pieces.h"
#include "store/sparse/sparse_bed.h"
#include "store/sum.h"

enum { WIDTH = 3, IDS = 400, PLACES = 3, PLACE = 1, PIECES_MAX = 100000, PIECE_BYTES = 1 << 20 };

/* A table, and how it goes on. */
struct trained {
    struct psi_spec spec;
    struct store *store;
    struct cold_memory cold; /* of a table that memory does not hold */
    uint64_t step;
    uint32_t current;
};

static struct trained
create(const struct psd_sparse_args *asked)
{
    struct psd_sparse_args args = *asked;
    struct trained trained = {0};

    args.struct_size = sizeof(args);
    args.name = "e";
    args.width = WIDTH;
    args.init = PSD_INIT_UNIFORM;
    args.init_value = 1;
    assert_int_equal(psi_spec_init_sparse(&trained.spec, &args, 2, NULL), PSD_OK);
    return trained;
}

static void
make(struct trained *trained)
{
    const struct store_layout layout = {
        .spec = &trained->spec,
        .chunks = 1,
        .first_chunk = PLACE,
        .chunks_in_all = PLACES,
        .cold = cold_memory_place(&trained->cold),
        .level = psi_kernel_level_best(),
    };
    struct psd_error err;

    if (store_sparse.create(&layout, &trained->store, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
}

/* Ids of that place, in order; other ones in every step. */
static size_t
draw_ids(const struct trained *trained, uint64_t *random, uint64_t *ids)
{
    const uint32_t bits = trained->spec.bucket_bits;
    size_t count = 0;

    for (unsigned i = 0; i < IDS; i++) {
        const uint64_t id = bed_below(random, IDS);

        if (psi_bucket_place(psi_bucket_of(id, bits), bits, PLACES) == PLACE) {
            ids[count++] = id;
        }
    }
    return bed_sort(ids, count);
}

/* What is told to a copy of it: the list, up to where it has the buckets. */
static void
apply(struct trained *trained, const struct store_rows *rows, bool is_sum)
{
    const struct leaf leaf = {.is_sum = is_sum, .data = rows};
    struct store_trouble trouble;
    const struct store_change change = {.leaves = &leaf,
                                        .leaf_count = 1,
                                        .update = trained->step + 1,
                                        .step = trained->step,
                                        .from = trained->current,
                                        .to = 1 - trained->current,
                                        .was_checked = is_sum,
                                        .trouble = &trouble};

    assert_int_equal(store_sparse.apply(trained->store, 0, &change), STORE_OK);
    trained->step++;
    trained->current = 1 - trained->current;
}

static void
train(struct trained *trained, uint64_t *random)
{
    uint64_t ids[IDS];
    float gradients[IDS * WIDTH];
    const size_t count = draw_ids(trained, random, ids);
    uint16_t halves[IDS * WIDTH];
    const bool is_half = trained->spec.dtype == PSD_F16;

    for (size_t i = 0; i < count * WIDTH; i++) {
        gradients[i] = bed_number(random);
        halves[i] = (uint16_t)(0x3000 + bed_below(random, 1024)); /* 1/8 to 1/4 */
    }
    apply(trained,
          &(struct store_rows){
              .ids = ids, .rows = is_half ? (void *)halves : gradients, .count = (uint32_t)count},
          false);
}

/* The copy makes the last change of the table, as far as it has the buckets. */
static void
follow(struct trained *copy, const struct trained *owner, const struct store_walk *walk)
{
    struct store_rows rows = store_sparse.merged(owner->store);
    uint32_t told = 0;

    while (
        told < rows.count &&
        (walk->is_done || psi_bucket_of(rows.ids[told], owner->spec.bucket_bits) < walk->bucket)) {
        told++;
    }
    rows.count = told;
    apply(copy, &rows, true);
}

/* All that a table has, in one run of bytes. */
static size_t
dump(const struct trained *trained, uint8_t **bytes_p)
{
    struct store_walk walk = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;

    while (!walk.is_done) {
        bytes = realloc(bytes, size + PIECE_BYTES);
        assert_non_null(bytes);
        size += store_sparse.piece(trained->store, &walk, bytes + size, PIECE_BYTES);
    }
    *bytes_p = bytes;
    return size;
}

static void
assert_same(const struct trained *a, const struct trained *b)
{
    uint8_t *one;
    uint8_t *other;
    const size_t size = dump(a, &one);

    assert_int_equal(size, dump(b, &other));
    assert_memory_equal(one, other, size);
    free(one);
    free(other);
}

static void
destroy(struct trained *trained)
{
    store_sparse.destroy(trained->store);
}

/* Copies it in pieces of that room, with a step between them where one may come. */
static void
copy_while_it_goes_on(const struct psd_sparse_args *args, size_t room)
{
    struct trained owner = create(args);
    struct trained copy = create(args);
    struct store_walk walk = {0};
    uint8_t *piece = aligned_alloc(64, PIECE_BYTES);
    uint64_t random = 7;
    unsigned pieces = 0;
    unsigned between = 0;

    make(&owner);
    make(&copy);
    for (unsigned i = 0; i < 30; i++) {
        train(&owner, &random);
    }
    while (!walk.is_done) {
        const size_t bytes = store_sparse.piece(owner.store, &walk, piece, room);
        struct psd_error err;

        assert_true(bytes <= room && ++pieces < PIECES_MAX);
        if (store_sparse.take(copy.store, piece, bytes, &err) != PSD_OK) {
            fail_msg("%s", err.text);
        }
        copy.step = owner.step;
        copy.current = owner.current;
        if (!walk.is_within && !walk.is_done && pieces % 4 == 1) {
            train(&owner, &random);
            follow(&copy, &owner, &walk);
            between++;
        }
    }
    assert_true(room == PIECE_BYTES || between > 2);
    assert_same(&owner, &copy);
    for (unsigned i = 0; i < 10; i++) {
        train(&owner, &random);
        follow(&copy, &owner, &walk);
    }
    assert_same(&owner, &copy);
    free(piece);
    destroy(&owner);
    destroy(&copy);
}

static void
copy_both_ways(const struct psd_sparse_args *args)
{
    copy_while_it_goes_on(args, PIECE_BYTES);
    copy_while_it_goes_on(args, 512);
    copy_while_it_goes_on(args, 128); /* of a row each */
}

/* If this fails, a copy that joins a running job has other rows, or other state of a rule. */
static void
test_a_copy_has_the_same_rows(void **state)
{
    static const psd_rule rules[] = {PSD_RULE_SGD, PSD_RULE_ADAGRAD, PSD_RULE_ADAM};

    (void)state;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = rules[i]};

        copy_both_ways(&(struct psd_sparse_args){.dtype = PSD_F32, .rule = &rule});
        copy_both_ways(&(struct psd_sparse_args){.dtype = PSD_F16, .rule = &rule});
    }
}

/* If this fails, a copy lets other rows come than its owner: it counts from the start. */
static void
test_a_copy_counts_on_for_admission(void **state)
{
    (void)state;
    copy_while_it_goes_on(
        &(struct psd_sparse_args){.dtype = PSD_F32, .admit_after = 20, .admit_window = 16},
        PIECE_BYTES);
    copy_while_it_goes_on(
        &(struct psd_sparse_args){.dtype = PSD_F32, .admit_after = 20, .admit_window = 16}, 512);
    copy_both_ways(&(struct psd_sparse_args){.dtype = PSD_F32, .admit_share = 0.2});
}

/* If this fails, other rows go in a copy than in its owner. */
static void
test_the_same_rows_go(void **state)
{
    (void)state;
    copy_both_ways(&(struct psd_sparse_args){.dtype = PSD_F32, .idle_steps = 3, .sweep_every = 2});
    copy_both_ways(&(struct psd_sparse_args){
        .dtype = PSD_F32, .capacity_rows = 1024, .full = PSD_FULL_OLDEST});
    copy_both_ways(&(struct psd_sparse_args){.dtype = PSD_F32, .norm_min = 0.9, .sweep_every = 5});
}

/* If this fails, a copy lacks rows that its owner has on the disk only, or has old ones of those that came
 * back into memory. */
static void
test_rows_that_memory_does_not_hold(void **state)
{
    static const uint64_t capacities[] = {1, 300};

    (void)state;
    for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
        copy_both_ways(&(struct psd_sparse_args){
            .dtype = PSD_F32, .capacity_rows = capacities[i], .full = PSD_FULL_SPILL});
        copy_both_ways(&(struct psd_sparse_args){.dtype = PSD_F32,
                                                 .capacity_rows = capacities[i],
                                                 .full = PSD_FULL_SPILL,
                                                 .idle_steps = 3,
                                                 .sweep_every = 2});
    }
}

/* If this fails, a server that is given a damaged piece crashes, or takes it for rows. */
static void
test_a_piece_that_is_none(void **state)
{
    const struct psd_sparse_args args = {.dtype = PSD_F32, .admit_after = 2, .admit_window = 16};
    struct trained owner = create(&args);
    struct trained copy = create(&args);
    struct store_walk walk = {0};
    uint8_t *piece = aligned_alloc(64, PIECE_BYTES);
    uint8_t *wrong = aligned_alloc(64, PIECE_BYTES);
    struct piece_section *section = (void *)(wrong + sizeof(struct piece_head));
    uint64_t *ids = (void *)(section + 1);
    uint64_t random = 7;
    struct psd_error err;
    size_t bytes;

    (void)state;
    make(&owner);
    make(&copy);
    for (unsigned i = 0; i < 30; i++) {
        train(&owner, &random);
    }
    bytes = store_sparse.piece(owner.store, &walk, piece, PIECE_BYTES);
#define ASSERT_WRONG(size, change, says)                                                           \
    do {                                                                                           \
        memcpy(wrong, piece, bytes);                                                               \
        change;                                                                                    \
        assert_int_equal(store_sparse.take(copy.store, wrong, size, &err), PSD_ERR_PROTOCOL);      \
        if (strstr(err.text, says) == NULL) {                                                      \
            fail_msg("\"%s\" is not in \"%s\"", says, err.text);                                   \
        }                                                                                          \
    } while (0)
    ASSERT_WRONG(bytes, ((struct piece_head *)wrong)->step = 0, "a row of a later step");
    ASSERT_WRONG(8, (void)0, "at least");
    ASSERT_WRONG(sizeof(struct piece_head) + 8, (void)0, "behind its sections");
    ASSERT_WRONG(bytes - 8, (void)0, "than it has bytes for");
    ASSERT_WRONG(bytes, section->count = UINT32_MAX, "more rows than");
    ASSERT_WRONG(bytes, section->kind = 9, "no such section");
    ASSERT_WRONG(bytes, section->bucket = 0, "not a bucket of this lane");
    ASSERT_WRONG(bytes, section->bucket++, "another lane's bucket");
    ASSERT_WRONG(bytes, ids[0]++, "bucket");
    ASSERT_WRONG(bytes, (section->kind = PIECE_COUNTERS, section->from = 1u << 24),
                 "not its counters");
    ASSERT_WRONG(bytes, (section->kind = PIECE_COUNTERS, section->count = UINT32_MAX),
                 "more counters");
    ASSERT_WRONG(bytes, (section->kind = PIECE_BEFORE, section->count = UINT32_MAX),
                 "version before");
    ASSERT_WRONG(bytes, (section->kind = PIECE_BEFORE, section->from = 5), "not the next rows");
    assert_int_equal(store_sparse.take(copy.store, piece, bytes, &err), PSD_OK);
    ASSERT_WRONG(bytes, ((struct piece_head *)wrong)->step = 1, "of step 1, after 29");
#undef ASSERT_WRONG
    free(piece);
    free(wrong);
    destroy(&owner);
    destroy(&copy);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_has_the_same_rows),
        cmocka_unit_test(test_a_copy_counts_on_for_admission),
        cmocka_unit_test(test_the_same_rows_go),
        cmocka_unit_test(test_rows_that_memory_does_not_hold),
        cmocka_unit_test(test_a_piece_that_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
