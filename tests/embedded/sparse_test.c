/*
 * sparse_test.c - sparse tables through the public API: the same bits as a dense table, whatever the
 * servers, lanes and transport; rows by id in any order; steps and deaths as of any table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sparse_calls.h"

enum {
    WORKERS = 3,
    ROWS = 600,
    WIDTH = 5,
    STEPS = BED_SANITIZED ? 4 : 10,
    GIVEN_MAX = 200,
    VICTIM = 1,
    DEATH_STEP = 2,
};

/* ---- beside a dense table ------------------------------------------------------------------ */

/* What a worker does in a step: ids in no order, some of them several times. */
struct given {
    uint32_t count;
    uint64_t ids[GIVEN_MAX];
    float values[GIVEN_MAX * WIDTH];
    float gradients[GIVEN_MAX * WIDTH];
    float dense[ROWS * WIDTH]; /* the same as one gradient of all rows */
};

static void
choose_ids(struct given *given, uint32_t rank, uint64_t step)
{
    given->count = (uint32_t)(mix(rank, step, 1) % GIVEN_MAX);
    if (mix(rank, step, 2) % 5 == 0) {
        given->count = 0; /* nothing for any row: it still pushes */
    }
    for (uint32_t i = 0; i < given->count; i++) {
        given->ids[i] = mix(rank, step, 100 + i) % ROWS;
    }
}

/* It depends on the values: of another version it has other bits. */
static void
compute(struct given *given, uint32_t rank, uint64_t step)
{
    bool seen[ROWS] = {false};

    awkward(PSD_F32, rank, step, 0, given->count * WIDTH, given->gradients);
    memset(given->dense, 0, sizeof(given->dense));
    for (uint32_t i = 0; i < given->count; i++) {
        float *dense = given->dense + given->ids[i] * WIDTH;
        float *gradient = given->gradients + i * WIDTH;

        for (uint32_t c = 0; c < WIDTH; c++) {
            gradient[c] = gradient[c] * 0.001f + given->values[i * WIDTH + c] * 0.125f;
            dense[c] = seen[given->ids[i]] ? dense[c] + gradient[c] : gradient[c];
        }
        seen[given->ids[i]] = true;
    }
}

/* Thread: config and rule are immutable; rank 0 writes values. */
struct run {
    struct bed_config config;
    psd_rule rule;
    bool dies; /* one worker, in the middle of a step, and another takes its place */
    float values[ROWS * WIDTH];
};

static void
open_both(struct worker *worker, psd_table **rows_p, psd_table **dense_p)
{
    const struct run *run = worker->user;

    CHECK_OK(worker, psd_sparse_open(worker->context,
                                     SPARSE("rows", WIDTH, .rule = RULE(.rule = run->rule),
                                            .init = PSD_INIT_UNIFORM, .init_value = 1, .seed = 7),
                                     rows_p));
    CHECK(worker, psd_sparse_width(*rows_p) == WIDTH);
    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("dense", PSD_F32, ROWS * WIDTH, .rule = RULE(.rule = run->rule),
                                  .init = PSD_INIT_UNIFORM, .init_value = 1, .seed = 7),
                            dense_p));
    CHECK(worker, psd_sparse_width(*dense_p) == 0);
}

/* One step of both. Values of the next step's ids come with the push in every other step. */
static void
train_step(struct worker *worker, psd_table *rows, psd_table *dense, struct given *given,
           struct given *next, uint64_t step, bool dies)
{
    psd_op *op = NULL;

    compute(given, worker->rank, step);
    choose_ids(next, worker->rank, step + 1);
    if (step % 2 == 0) {
        CHECK_OK(worker, psd_sparse_push_lookup(
                             rows,
                             ROWS_OF(step, .push_count = given->count, .push_ids = given->ids,
                                     .gradients = given->gradients, .lookup_count = next->count,
                                     .lookup_ids = next->ids, .values = next->values),
                             &op));
    } else {
        CHECK_OK(worker,
                 psd_sparse_push(rows,
                                 ROWS_OF(step, .push_count = given->count, .push_ids = given->ids,
                                         .gradients = given->gradients),
                                 &op));
    }
    if (dies) {
        (void)psd_wait(op, PSD_FOREVER); /* its round closes: all others give theirs */
        return;
    }
    CHECK_OK(worker, push(dense, step, given->dense));
    CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
    psd_op_release(op);
    if (step % 2 != 0) {
        CHECK_OK(worker, run_rows(psd_sparse_lookup, rows,
                                  ROWS_OF(step + 1, .lookup_count = next->count,
                                          .lookup_ids = next->ids, .values = next->values)));
    }
}

/* All rows, in no order that a server has. */
static void
compare(struct worker *worker, psd_table *rows, psd_table *dense, uint64_t step, float *values)
{
    static const uint64_t stride = 7; /* has no factor in common with ROWS */
    float *expected = malloc(ROWS * WIDTH * sizeof(float));
    float *shuffled = malloc(ROWS * WIDTH * sizeof(float));
    uint64_t *ids = malloc(ROWS * sizeof(*ids));

    for (uint64_t i = 0; i < ROWS; i++) {
        ids[i] = i * stride % ROWS;
    }
    CHECK_OK(worker, pull(dense, step, expected));
    CHECK_OK(worker,
             run_rows(psd_sparse_lookup, rows,
                      ROWS_OF(step, .lookup_count = ROWS, .lookup_ids = ids, .values = shuffled)));
    for (uint64_t i = 0; i < ROWS; i++) {
        memcpy(values + ids[i] * WIDTH, shuffled + i * WIDTH, WIDTH * sizeof(float));
    }
    for (uint64_t i = 0; i < ROWS * WIDTH; i++) {
        if (memcmp(&values[i], &expected[i], sizeof(float)) != 0) {
            worker_fail(worker, __FILE__, __LINE__, "row %u column %u: %a, of the dense table %a",
                        (unsigned)(i / WIDTH), (unsigned)(i % WIDTH), (double)values[i],
                        (double)expected[i]);
            break;
        }
    }
    free(expected);
    free(shuffled);
    free(ids);
}

static void
train(struct worker *worker)
{
    struct run *run = worker->user;
    struct given *given = calloc(2, sizeof(*given));
    float *own = malloc(sizeof(run->values));
    psd_table *rows;
    psd_table *dense;
    uint64_t first;

    open_both(worker, &rows, &dense);
    if (worker->failure[0] != '\0') {
        return;
    }
    first = psd_table_step(rows);
    CHECK(worker, psd_table_step(dense) == first);
    choose_ids(&given[first % 2], worker->rank, first);
    CHECK_OK(worker, run_rows(psd_sparse_lookup, rows,
                              ROWS_OF(first, .lookup_count = given[first % 2].count,
                                      .lookup_ids = given[first % 2].ids,
                                      .values = given[first % 2].values)));
    for (uint64_t step = first; step < STEPS && worker->failure[0] == '\0'; step++) {
        const bool dies = run->dies && worker->rank == VICTIM && step == DEATH_STEP &&
                          psd_incarnation(worker->context) == 1;

        train_step(worker, rows, dense, &given[step % 2], &given[(step + 1) % 2], step, dies);
        if (dies) {
            psd_abandon(worker->context);
            worker->context = NULL;
            bed_next_turn(worker->bed); /* another may come */
            break;
        }
    }
    if (worker->context != NULL && worker->failure[0] == '\0') {
        compare(worker, rows, dense, STEPS, worker->rank == 0 ? run->values : own);
    }
    free(given);
    free(own);
}

static void
check_same(const struct run *run, const struct run *reference, size_t number)
{
    if (memcmp(run->values, reference->values, sizeof(run->values)) != 0) {
        fail_msg("run %zu has other bits", number);
    }
}

static void
run_it(struct run *run)
{
    struct bed *bed;

    run->config.workers = WORKERS;
    bed = bed_start(&run->config);
    bed_run(bed, train, run);
    bed_finish(bed);
}

/* If this fails, a sparse table is not what a dense one would be: rows get lost or mixed up, a mean
 * is divided by another number, or gradients are added in another order. */
static void
test_same_bits_as_a_dense_table(void **state)
{
    static const struct bed_config configs[] = {
        {.servers = 1},
        {.servers = 1, .lanes = 4},
        {.servers = 2, .elsewhere = true},
        {.servers = 3, .lanes = 2},
        {.servers = 2, .lanes = 2, .security = BED_SEALED},
        {.servers = 2, .scalar = true, .pool_bytes = 1 << 20},
    };
    static const psd_rule rules[] = {PSD_RULE_SGD, PSD_RULE_ADAGRAD};

    (void)state;
    for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++) {
        struct run reference = {.config = configs[0], .rule = rules[r]};

        run_it(&reference);
        for (size_t i = 1; i < sizeof(configs) / sizeof(configs[0]); i++) {
            struct run other = {.config = configs[i], .rule = rules[r]};

            run_it(&other);
            check_same(&other, &reference, i);
        }
    }
}

/* If this fails, a worker that is killed and replaced in the middle of a step leaves other bits: rows
 * count twice or not at all, or its replacement reads those of the next step. */
static void
test_replacement_leaves_the_same_bits(void **state)
{
    struct run reference = {.config = {.servers = 2}, .rule = PSD_RULE_ADAGRAD};
    struct run killed = {
        .config = {.workers = WORKERS, .servers = 2, .lanes = 2, .policy = PSI_DEATH_WAIT},
        .rule = PSD_RULE_ADAGRAD,
        .dies = true};
    struct worker replacement;
    struct bed *bed;

    (void)state;
    run_it(&reference);
    bed = bed_start(&killed.config);
    bed_start_workers(bed, train, &killed);
    bed_wait_turn(bed, 1);
    assert_true(bed_run_one(bed, VICTIM, train, &killed, &replacement));
    bed_join_workers(bed);
    bed_finish(bed);
    check_same(&killed, &reference, 1);
}

/* ---- one thing at a time ------------------------------------------------------------------- */

static void
look_at_nothing(struct worker *worker)
{
    static const uint64_t ids[] = {UINT64_MAX, 0, 5, UINT64_MAX, UINT64_C(1) << 63};
    float first[5];
    float again[5];
    psd_table *table;
    psd_table *dense;
    float six[6];

    CHECK_OK(worker,
             psd_sparse_open(worker->context,
                             SPARSE("e", 1, .init = PSD_INIT_NORMAL, .init_value = 1, .seed = 3),
                             &table));
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("d", PSD_F32, 6, .init = PSD_INIT_NORMAL, .init_value = 1,
                                          .seed = 3),
                                    &dense));
    CHECK_OK(worker, pull(dense, 0, six));
    CHECK_OK(worker, run_rows(psd_sparse_lookup, table,
                              ROWS_OF(0, .lookup_count = 5, .lookup_ids = ids, .values = first)));
    CHECK(worker, first[1] == six[0] && first[2] == six[5] && first[0] == first[3]);
    CHECK_OK(worker, run_rows(psd_sparse_push, table, ROWS_OF(0, .push_count = 0)));
    CHECK_OK(worker, run_rows(psd_sparse_lookup, table,
                              ROWS_OF(1, .lookup_count = 5, .lookup_ids = ids, .values = again)));
    CHECK(worker, memcmp(first, again, sizeof(first)) == 0);
    CHECK_OK(worker, run_rows(psd_sparse_lookup, table, ROWS_OF(1, .lookup_count = 0)));
}

/* If this fails, an id without a row has not its initial value, which is that of a dense table; or a
 * step without any row does not count, or never ends. */
static void
test_ids_without_rows(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2, .lanes = 2});

    (void)state;
    bed_run(bed, look_at_nothing, NULL);
    bed_finish(bed);
}

/* Everybody gives 1 to a row of its own, and to one of all; all see what the staleness lets them. */
static void
push_stale(struct worker *worker)
{
    const uint32_t staleness = *(const uint32_t *)worker->user;
    const uint64_t ids[] = {1000, worker->rank};
    const float ones[] = {1, 1};
    float values[2];
    psd_table *table;

    CHECK_OK(worker, psd_sparse_open(
                         worker->context,
                         SPARSE("e", 1, .rule = RULE(.rule = PSD_RULE_ADD), .staleness = staleness),
                         &table));
    for (uint64_t step = 0; step < STEPS; step++) {
        CHECK_OK(worker, run_rows(psd_sparse_push_lookup, table,
                                  ROWS_OF(step, .push_count = 2, .push_ids = ids, .gradients = ones,
                                          .lookup_count = 2, .lookup_ids = ids, .values = values)));
        CHECK(worker, values[1] == (float)(step + 1));
        CHECK(worker, values[0] >= (float)(step + 1) && values[0] <= (float)(WORKERS * STEPS));
        CHECK(worker, staleness == PSD_STALENESS_UNBOUNDED || step < staleness ||
                          values[0] >= (float)(WORKERS * (step + 1 - staleness)));
    }
    CHECK_OK(worker, psd_barrier(worker->context, 15000));
    CHECK_OK(worker,
             run_rows(psd_sparse_lookup, table,
                      ROWS_OF(STEPS, .lookup_count = 1, .lookup_ids = ids, .values = values)));
    CHECK(worker, values[0] == (float)(WORKERS * STEPS));
}

/* If this fails, gradients of a table with staleness get lost or count twice, or a worker sees
 * less than it may rely on. */
static void
test_staleness(void **state)
{
    static const uint32_t all[] = {2, PSD_STALENESS_UNBOUNDED};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .servers = 2});

        bed_run(bed, push_stale, (void *)(uintptr_t)&all[i]);
        bed_finish(bed);
    }
}

static void
go_on_without(struct worker *worker)
{
    const uint64_t ids[] = {7, 8 + worker->rank};
    const float gradients[] = {(float)(worker->rank + 1), 1};
    float values[2];
    psd_table *table;

    CHECK_OK(worker, psd_sparse_open(worker->context,
                                     SPARSE("e", 1, .rule = RULE(.rule = PSD_RULE_ADD)), &table));
    for (uint64_t step = 0; step < 5; step++) {
        if (worker->rank == VICTIM && step == 3) {
            psd_abandon(worker->context);
            worker->context = NULL;
            return;
        }
        CHECK_OK(worker,
                 run_rows(psd_sparse_push_lookup, table,
                          ROWS_OF(step, .push_count = 2, .push_ids = ids, .gradients = gradients,
                                  .lookup_count = 2, .lookup_ids = ids, .values = values)));
        /* (1 + 2 + 3) / 3, then (1 + 3) / 2 */
        CHECK(worker, values[0] == 2 * (float)(step + 1));
        if (step == 2) {
            CHECK(worker, fabsf(values[1] - 1) < 1e-6f); /* a third, three times */
        }
    }
    CHECK(worker, fabsf(values[1] - 2) < 1e-6f);
}

/* If this fails, a job does not go on when a worker dies, or a mean still divides by the dead; or it
 * divides by those who had the row. */
static void
test_continue(void **state)
{
    struct bed *bed = bed_start(
        &(struct bed_config){.workers = WORKERS, .servers = 2, .policy = PSI_DEATH_CONTINUE});

    (void)state;
    bed_run(bed, go_on_without, NULL);
    bed_finish(bed);
}

static void
push_through_cuts(struct worker *worker)
{
    uint64_t ids[64];
    float ones[64];
    float values[64];
    psd_table *table;
    psd_op *op;

    for (uint64_t i = 0; i < 64; i++) {
        ids[i] = i;
        ones[i] = 1;
    }
    CHECK_OK(worker, psd_sparse_open(worker->context,
                                     SPARSE("e", 1, .rule = RULE(.rule = PSD_RULE_ADD),
                                            .staleness = *(const uint32_t *)worker->user),
                                     &table));
    for (uint64_t step = 0; step < STEPS; step++) {
        CHECK_OK(worker, psd_sparse_push_lookup(table,
                                                ROWS_OF(step, .push_count = 64, .push_ids = ids,
                                                        .gradients = ones, .lookup_count = 64,
                                                        .lookup_ids = ids, .values = values),
                                                &op));
        bed_cut(worker, (uint32_t)(step + worker->rank) % 2);
        CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
        psd_op_release(op);
    }
    CHECK_OK(worker, psd_barrier(worker->context, 15000));
    CHECK_OK(worker,
             run_rows(psd_sparse_lookup, table,
                      ROWS_OF(STEPS, .lookup_count = 64, .lookup_ids = ids, .values = values)));
    for (uint64_t i = 0; i < 64; i++) {
        CHECK(worker, values[i] == (float)(STEPS * (*(const uint32_t *)worker->user == 0 ? 1 : 2)));
    }
}

/* If this fails, rows count twice, or not at all, when connections are cut and pushes repeated. */
static void
test_cut_connections(void **state)
{
    static const uint32_t all[] = {0, 3, PSD_STALENESS_UNBOUNDED};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

        bed_run(bed, push_through_cuts, (void *)(uintptr_t)&all[i]);
        bed_finish(bed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests_of_sparse[] = {
        cmocka_unit_test(test_same_bits_as_a_dense_table),
        cmocka_unit_test(test_replacement_leaves_the_same_bits),
        cmocka_unit_test(test_ids_without_rows),
        cmocka_unit_test(test_staleness),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_cut_connections),
    };

    bed_begin();
    return cmocka_run_group_tests(tests_of_sparse, NULL, NULL);
}
