/*
 * tier_test.c - a table whose rows memory does not all hold has the same bits as one whose rows it
 * does: in lookups, in what is saved, copied and loaded, and in what goes.
 *
 * Each test runs with a cold store in memory, which says what is in it and can be full; and with the real
 * one, where it was built.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shard/bucket.h"
#include "sim/cold_memory.h"
#include "store/kernels.h"
#include "store/sparse/snapshot.h"
#include "store/sparse/sparse_bed.h"

enum {
    BITS = 4,
    BUCKETS = 1 << BITS,
    WIDTH = 5,
    IDS = 700,
    LIST = 120,
    CAPACITY = 160,
    STEPS = 80
};

/* Two tables that hear the same: one has all rows in memory. */
struct pair {
    struct psi_spec spec;
    struct psi_row_policy policy[2];
    struct sparse *store[2]; /* all in memory; not all */
    struct cold_place *place;
    struct cold_memory memory; /* the place, or unused */
    uint64_t random;
    uint64_t step;
};

/* The place of a test. */
static void
open_place(struct pair *pair, void **state)
{
    pair->place = *state == NULL ? cold_memory_place(&pair->memory) : cold_place_create("/var/tmp");
    assert_non_null(pair->place);
}

static void
close_place(struct pair *pair)
{
    if (pair->place != &pair->memory.place) {
        cold_place_destroy(pair->place);
    }
    assert_int_equal(pair->memory.tables, 0);
    assert_int_equal(pair->memory.rows, 0);
}

static struct sparse *
make(struct pair *pair, unsigned which, uint64_t memory_max)
{
    const struct sparse_layout layout = {.spec = &pair->spec,
                                         .policy = &pair->policy[which],
                                         .bucket_bits = BITS,
                                         .bucket_count = BUCKETS,
                                         .memory_max = memory_max,
                                         .cold = pair->place,
                                         .level = psi_kernel_level_best()};
    struct psd_error err = {0};
    struct sparse *store;

    psi_row_policy_fill(&pair->policy[which], BITS);
    if (sparse_create(&layout, &store, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    return store;
}

static void
begin(struct pair *pair, void **state, psd_rule rule, struct psi_row_policy policy)
{
    *pair = (struct pair){.spec = bed_spec(rule, WIDTH), .random = 5};
    open_place(pair, state);
    pair->policy[0] = policy;
    pair->policy[1] = policy;
    pair->policy[1].capacity_rows = CAPACITY;
    pair->policy[1].full = PSI_FULL_SPILL;
    pair->policy[1].admit_counters = policy.admit_after > 1 ? 1024 : 0;
    pair->policy[0].admit_counters = pair->policy[1].admit_counters;
    pair->store[0] = make(pair, 0, 0);
    pair->store[1] = make(pair, 1, 0);
}

static void
end(struct pair *pair)
{
    sparse_destroy(pair->store[0]);
    sparse_destroy(pair->store[1]);
    close_place(pair);
}

/* Ids near 0 come more often than others. */
static size_t
draw_ids(struct pair *pair, uint64_t ids[LIST])
{
    const size_t count = bed_below(&pair->random, LIST);

    for (size_t i = 0; i < count; i++) {
        ids[i] = bed_below(&pair->random, 1 + bed_below(&pair->random, IDS));
    }
    return bed_sort(ids, count);
}

static void
push(struct pair *pair, unsigned which, const uint64_t *ids, size_t count, const float *gradients)
{
    const struct sparse_outcome outcome =
        bed_apply(pair->store[which], ids, gradients, count, pair->step);

    assert_false(outcome.not_finite);
    assert_int_equal(outcome.refused, 0);
    (void)sparse_close_step(pair->store[which], pair->step);
    assert_true(sparse_is_sound(pair->store[which]));
}

/* A step of both. */
static void
step(struct pair *pair)
{
    float gradients[LIST * WIDTH];
    uint64_t ids[LIST];
    const size_t count = draw_ids(pair, ids);

    for (size_t i = 0; i < count * WIDTH; i++) {
        gradients[i] = bed_number(&pair->random);
    }
    for (unsigned which = 0; which < 2; which++) {
        push(pair, which, ids, count, gradients);
    }
    pair->step++;
}

static struct sparse_memory
memory_of(const struct sparse *store)
{
    struct sparse_memory memory;

    sparse_memory(store, &memory);
    return memory;
}

static void
assert_same_rows(const struct bed_rows *a, const struct bed_rows *b, size_t states)
{
    const struct sparse_rows *one = &a->rows;
    const struct sparse_rows *other = &b->rows;

    assert_int_equal(one->count, other->count);
    if (one->count > 0) {
        assert_memory_equal(one->ids, other->ids, one->count * sizeof(uint64_t));
        assert_memory_equal(one->values, other->values, one->count * WIDTH * sizeof(float));
        assert_memory_equal(one->steps, other->steps, one->count * sizeof(uint32_t));
        assert_memory_equal(one->counts, other->counts, one->count * sizeof(uint32_t));
    }
    if (one->count * states > 0) {
        assert_memory_equal(one->state, other->state, one->count * states * sizeof(float));
    }
}

static void
assert_same_buckets(const struct pair *pair)
{
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) {
        const struct sparse_bucket one = sparse_bucket_info(pair->store[0], bucket);
        const struct sparse_bucket other = sparse_bucket_info(pair->store[1], bucket);

        assert_memory_equal(&one, &other, sizeof(one));
    }
}

/* All rows, those since a step, and what buckets remember; `batch` rows at a time. */
static void
assert_same_saved(const struct pair *pair, uint32_t since, size_t batch)
{
    struct bed_rows rows[2];

    for (unsigned which = 0; which < 2; which++) {
        rows[which] = bed_save(pair->store[which], BITS, since, batch, &pair->spec);
    }
    assert_same_rows(&rows[0], &rows[1], sparse_state_numbers(pair->store[0]));
    bed_free(&rows[0]);
    bed_free(&rows[1]);
    assert_same_buckets(pair);
}

static void
assert_same_looked_up(struct pair *pair)
{
    uint64_t ids[LIST];
    const size_t count = draw_ids(pair, ids);
    float values[2][LIST * WIDTH];

    for (unsigned which = 0; which < 2; which++) {
        sparse_lookup(pair->store[which], ids, count, values[which]);
    }
    assert_memory_equal(values[0], values[1], count * WIDTH * psi_dtype_bytes(pair->spec.dtype));
}

static void
train(struct pair *pair)
{
    for (unsigned i = 0; i < STEPS; i++) {
        step(pair);
        assert_same_looked_up(pair);
        if (i % 8 == 0) {
            assert_same_saved(pair, (uint32_t)bed_below(&pair->random, pair->step),
                              1 + bed_below(&pair->random, 40));
        }
        assert_true(memory_of(pair->store[1]).rows - memory_of(pair->store[1]).cold_rows <=
                    CAPACITY);
    }
    assert_same_saved(pair, 0, 64);
}

static const struct psi_row_policy policies[] = {
    {0},
    {.idle_steps = 6, .sweep_every = 4},
    {.norm_min = 1.5, .sweep_every = 3},
    {.admit_after = 2, .admit_window = 8},
};

/* If this fails, a row that leaves memory and comes back has lost something, or a row is forgotten
 * that only the disk has. */
static void
test_same_bits_as_in_memory(void **state)
{
    static const psd_rule rules[] = {PSD_RULE_SGD, PSD_RULE_ADAGRAD, PSD_RULE_ADAM};

    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        for (size_t j = 0; j < sizeof(rules) / sizeof(rules[0]); j++) {
            struct pair pair;

            begin(&pair, state, rules[j], policies[i]);
            train(&pair);
            assert_true(memory_of(pair.store[1]).cold_writes > 0);
            assert_true(memory_of(pair.store[1]).cold_reads > 0);
            if (i == 0) {
                assert_true(memory_of(pair.store[1]).cold_writes > 200);
                assert_true(memory_of(pair.store[1]).cold_reads > 200);
                assert_true(memory_of(pair.store[1]).cold_rows > IDS / 2);
            }
            end(&pair);
        }
    }
}

/* If this fails, rows of 16 bits come from the disk with other bits than from memory. */
static void
test_narrow_rows(void **state)
{
    struct pair pair;

    begin(&pair, state, PSD_RULE_ADAGRAD, (struct psi_row_policy){0});
    pair.spec.dtype = PSD_BF16;
    train(&pair);
    end(&pair);
}

/* Rows of these ids that are not touched any more. */
static void
push_ids(struct pair *pair, uint64_t first, uint64_t end, float number)
{
    for (uint64_t id = first; id < end; id++) {
        float gradient[WIDTH];

        for (unsigned i = 0; i < WIDTH; i++) {
            gradient[i] = number;
        }
        for (unsigned which = 0; which < 2; which++) {
            push(pair, which, &id, 1, gradient);
        }
    }
    pair->step++;
}

/* If this fails, a row that went because it was idle is found in the cold store later, as it once
 * was. */
static void
test_a_row_that_went_stays_away(void **state)
{
    struct pair pair;
    uint64_t ids[IDS];
    float values[2][IDS * WIDTH];

    begin(&pair, state, PSD_RULE_ADAM, (struct psi_row_policy){.idle_steps = 3, .sweep_every = 1});
    push_ids(&pair, 0, IDS, 1); /* most go to the disk */
    assert_true(memory_of(pair.store[1]).cold_rows >= IDS - CAPACITY);
    for (unsigned i = 0; i < 3; i++) {
        push_ids(&pair, 0, 40, 1); /* ... from where these come back */
    }
    for (unsigned i = 0; i < 8; i++) {
        push_ids(&pair, 1000, 1001, 1); /* all others are idle */
    }
    assert_int_equal(memory_of(pair.store[1]).rows, 1);
    assert_int_equal(memory_of(pair.store[0]).rows, 1);
    push_ids(&pair, 2000, 2000 + IDS, 1); /* the same buckets have others on the disk */
    for (uint64_t id = 0; id < IDS; id++) {
        ids[id] = id;
    }
    assert_int_equal(bed_sort(ids, IDS), IDS);
    for (unsigned which = 0; which < 2; which++) {
        sparse_lookup(pair.store[which], ids, IDS, values[which]);
    }
    assert_memory_equal(values[0], values[1], sizeof(values[0]));
    push_ids(&pair, 0, IDS, 1); /* they come anew: with state and counts of new rows */
    assert_same_saved(&pair, 0, 64);
    end(&pair);
}

/* If this fails, what was cleared is there again. */
static void
test_cleared_buckets_are_empty(void **state)
{
    struct pair pair;

    begin(&pair, state, PSD_RULE_ADAGRAD, (struct psi_row_policy){0});
    push_ids(&pair, 0, IDS, 1);
    push_ids(&pair, 0, 50, 1);
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket += 2) {
        sparse_clear(pair.store[0], bucket);
        sparse_clear(pair.store[1], bucket);
    }
    assert_same_saved(&pair, 0, 64);
    train(&pair);
    end(&pair);
}

/* If this fails, a copy, a move or a resumed job lacks rows, or does not keep to its bound. */
static void
test_saved_rows_are_loaded(void **state)
{
    struct pair pair;
    struct bed_rows rows;

    begin(&pair, state, PSD_RULE_ADAM, (struct psi_row_policy){0});
    train(&pair);
    rows = bed_save(pair.store[1], BITS, 0, 64, &pair.spec);
    sparse_destroy(pair.store[1]);
    pair.store[1] = make(&pair, 1, 0);
    for (size_t at = 0; at < rows.rows.count; at += 50) {
        const size_t count = rows.rows.count - at < 50 ? rows.rows.count - at : 50;

        for (unsigned again = 0; again < 2; again++) { /* over those that have left memory, too */
            assert_true(
                sparse_load(pair.store[1],
                            &(struct sparse_rows){.count = count,
                                                  .ids = rows.rows.ids + at,
                                                  .values = rows.rows.values + at * WIDTH,
                                                  .state = rows.rows.state + at * 2 * (size_t)WIDTH,
                                                  .steps = rows.rows.steps + at,
                                                  .counts = rows.rows.counts + at}));
        }
    }
    bed_free(&rows);
    assert_true(memory_of(pair.store[1]).rows - memory_of(pair.store[1]).cold_rows <= CAPACITY);
    sparse_begin_at(pair.store[1], pair.step);
    train(&pair);
    end(&pair);
}

/* ---- Snapshots ---- */

/* By id: what a snapshot has handed over. */
struct taken {
    bool has[IDS];
    float values[IDS][WIDTH];
    uint32_t counts[IDS];
    size_t count;
};

static void
take(void *self, const struct sparse_rows *rows)
{
    struct taken *taken = self;

    for (size_t i = 0; i < rows->count; i++) {
        const uint64_t id = rows->ids[i];

        assert_true(id < IDS);
        assert_false(taken->has[id]);
        taken->has[id] = true;
        taken->count++;
        taken->counts[id] = rows->counts[i];
        memcpy(taken->values[id], rows->values + i * WIDTH, sizeof(taken->values[id]));
    }
}

/* If this fails, a checkpoint lacks rows that only the disk has, or has those as they were later that
 * came back while it was written. */
static void
test_snapshot_while_rows_move(void **state)
{
    struct pair pair;
    static struct taken taken[2];
    bool more[2] = {true, true};

    begin(&pair, state, PSD_RULE_ADAGRAD,
          (struct psi_row_policy){.idle_steps = 30, .sweep_every = 2});
    for (unsigned i = 0; i < 40; i++) {
        step(&pair);
    }
    memset(taken, 0, sizeof(taken));
    for (unsigned which = 0; which < 2; which++) {
        const struct sparse_snapshot_args args = {
            .since = 10, .until = (uint32_t)pair.step, .take = take, .self = &taken[which]};

        assert_int_equal(sparse_snapshot_begin(pair.store[which], &args, NULL), PSD_OK);
    }
    while (more[0] || more[1]) {
        for (unsigned which = 0; which < 2; which++) {
            more[which] = more[which] && sparse_snapshot_go_on(pair.store[which], 500);
        }
        step(&pair);
    }
    sparse_snapshot_end(pair.store[0]);
    sparse_snapshot_end(pair.store[1]);
    assert_true(taken[0].count > CAPACITY);
    assert_memory_equal(&taken[0], &taken[1], sizeof(taken[0]));
    train(&pair);
    end(&pair);
}

/* ---- What cannot be written ---- */

/* If this fails, rows are lost when the disk is full, or rows stay in memory for ever when it is not any
 * more. */
static void
test_a_full_disk_loses_nothing(void **state)
{
    struct pair pair;

    begin(&pair, state, PSD_RULE_ADAM, (struct psi_row_policy){0});
    for (unsigned i = 0; i < 30; i++) {
        step(&pair);
    }
    pair.memory.is_full = true;
    for (unsigned i = 0; i < 30; i++) {
        step(&pair);
        assert_same_looked_up(&pair);
    }
    assert_non_null(memory_of(pair.store[1]).cold_full);
    assert_true(memory_of(pair.store[1]).rows - memory_of(pair.store[1]).cold_rows > CAPACITY);
    assert_same_saved(&pair, 0, 64);
    pair.memory.is_full = false;
    for (unsigned i = 0; i < 600; i++) {
        step(&pair);
    }
    assert_null(memory_of(pair.store[1]).cold_full);
    train(&pair);
    end(&pair);
}

/* If this fails, a job whose disk is full ends without a word on that. */
static void
test_a_full_disk_and_no_memory_refuse(void **state)
{
    struct pair pair;
    struct psd_error err = {0};
    struct sparse_outcome outcome = {0};
    uint64_t id = 0;
    const float gradient[WIDTH] = {1};

    begin(&pair, state, PSD_RULE_ADAM, (struct psi_row_policy){0});
    sparse_destroy(pair.store[1]);
    pair.store[1] = make(&pair, 1, 1 << 20);
    pair.memory.is_full = true;
    for (; outcome.refused == 0 && id < 100000; id++) {
        outcome = bed_apply(pair.store[1], &id, gradient, 1, id);
    }
    assert_int_equal(outcome.refused, 1);
    assert_int_equal(sparse_refusal(pair.store[1], &err), PSD_ERR_TOO_BIG);
    if (strstr(err.text, "No space left") == NULL || strstr(err.text, "embedding") == NULL) {
        fail_msg("%s", err.text);
    }
    end(&pair);
}

/* If this fails, rows that went because they were idle come back, since their records are still
 * there. */
static void
test_what_cannot_be_removed_ends_the_table(void **state)
{
    struct pair pair;
    struct psd_error err = {0};

    begin(&pair, state, PSD_RULE_ADAM, (struct psi_row_policy){.idle_steps = 3, .sweep_every = 1});
    push_ids(&pair, 0, IDS, 1);
    pair.memory.is_full = true;
    (void)sparse_close_step(pair.store[1], pair.step + 20);
    assert_false(sparse_is_sound(pair.store[1]));
    assert_int_equal(sparse_refusal(pair.store[1], &err), PSD_ERR_IO);
    if (strstr(err.text, "No space left") == NULL ||
        strstr(err.text, "cannot be removed") == NULL) {
        fail_msg("%s", err.text);
    }
    end(&pair);
}

/* If this fails, a table that wants more than memory is opened where there is nothing else. */
static void
test_without_a_place(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_SGD, WIDTH);
    struct psi_row_policy policy = {.capacity_rows = CAPACITY, .full = PSI_FULL_SPILL};
    struct sparse_layout layout = {.spec = &spec,
                                   .policy = &policy,
                                   .bucket_bits = BITS,
                                   .bucket_count = BUCKETS,
                                   .level = psi_kernel_level_best()};
    struct cold_place *place = cold_place_create("/nowhere/at/all");
    struct psd_error err = {0};
    struct sparse *store;

    (void)state;
    psi_row_policy_fill(&policy, BITS);
    assert_int_equal(sparse_create(&layout, &store, &err), PSD_ERR_INVALID);
    assert_non_null(strstr(err.text, "embedding"));
    layout.cold = place;
    assert_int_not_equal(sparse_create(&layout, &store, &err), PSD_OK);
#ifdef PSI_HAVE_LMDB
    if (strstr(err.text, "/nowhere/at/all") == NULL || strstr(err.text, "--cold_dir") == NULL) {
        fail_msg("%s", err.text);
    }
#else
    assert_non_null(strstr(err.text, "liblmdb-dev"));
#endif
    cold_place_destroy(place);
}

#ifdef PSI_HAVE_LMDB

static int
with_files(void **state)
{
    static int files;

    *state = &files;
    return 0;
}

#define BOTH(test)                                                                                 \
    cmocka_unit_test(test),                                                                        \
    {                                                                                              \
        .name = #test "_in_files", .test_func = (test), .setup_func = with_files                   \
    }
#else
#define BOTH(test) cmocka_unit_test(test)
#endif

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_same_bits_as_in_memory),
        BOTH(test_narrow_rows),
        BOTH(test_a_row_that_went_stays_away),
        BOTH(test_cleared_buckets_are_empty),
        BOTH(test_saved_rows_are_loaded),
        BOTH(test_snapshot_while_rows_move),
        cmocka_unit_test(test_a_full_disk_loses_nothing),
        cmocka_unit_test(test_a_full_disk_and_no_memory_refuse),
        cmocka_unit_test(test_what_cannot_be_removed_ends_the_table),
        cmocka_unit_test(test_without_a_place),
    };

    return cmocka_run_group_tests_name("store_sparse_tier", tests, NULL, NULL);
}
