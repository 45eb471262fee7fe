/*
 * sparse_sum_test.c - sums of rows through the public API: the same bits as a dense sum, whatever the
 * servers, lanes and transport; every step's own, also after cuts and deaths; what is refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sparse_calls.h"
#include "wire/rows.h"

enum {
    WORKERS = 3,
    ROWS = 700, /* some ids need two bytes */
    WIDTH = 5,
    STEPS = BED_SANITIZED ? 4 : 10,
    GIVEN_MAX = 150,
    VICTIM = 1,
    DEATH_STEP = 2,
};

/* What comes back. */
struct sums {
    uint64_t count;
    uint64_t ids[ROWS];
    float rows[ROWS * WIDTH];
};

static psd_status
sum(psd_table *table, const struct psd_rows *rows, struct sums *sums_p)
{
    psd_op *op = NULL;
    psd_status status = psd_sparse_push(table, rows, &op);

    sums_p->count = 0;
    if (status == PSD_OK) {
        status = psd_wait(op, PSD_FOREVER);
    }
    if (status == PSD_OK && psd_sparse_sum_count(op) <= ROWS) {
        sums_p->count = psd_sparse_sum_count(op);
        status = psd_sparse_sum_read(op, sums_p->ids, sums_p->rows);
    }
    psd_op_release(op);
    return status;
}

/* ---- beside a dense sum -------------------------------------------------------------------- */

/* Thread: config is immutable; rank 0 writes digest. */
struct run {
    struct bed_config config;
    psd_reduce reduce;
    bool dies;
    double digest[STEPS]; /* of what came in each step */
};

/* What a worker gives in a step: ids in no order, some of them several times, in some steps none. */
struct given {
    uint32_t count;
    uint64_t ids[GIVEN_MAX];
    float gradients[GIVEN_MAX * WIDTH];
    float dense[ROWS * WIDTH]; /* the same as one gradient of all rows */
};

static uint32_t
count_of(uint32_t rank, uint64_t step)
{
    return mix(rank, step, 2) % 4 == 0 ? 0 : (uint32_t)(mix(rank, step, 1) % GIVEN_MAX);
}

static void
give(struct given *given, uint32_t rank, uint64_t step)
{
    bool seen[ROWS] = {false};

    given->count = count_of(rank, step);
    awkward(PSD_F32, rank, step, 0, given->count * WIDTH, given->gradients);
    memset(given->dense, 0, sizeof(given->dense));
    for (uint32_t i = 0; i < given->count; i++) {
        const uint64_t id = mix(rank, step, 100 + i) % ROWS;

        given->ids[i] = id;
        for (uint32_t c = 0; c < WIDTH; c++) {
            float *dense = &given->dense[id * WIDTH + c];
            const float number = given->gradients[i * WIDTH + c];

            *dense = seen[id] ? *dense + number : number;
        }
        seen[id] = true;
    }
}

/* Which ids anybody gave. */
static void
find_touched(bool *touched, uint64_t step)
{
    memset(touched, 0, ROWS * sizeof(*touched));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        for (uint32_t i = 0; i < count_of(rank, step); i++) {
            touched[mix(rank, step, 100 + i) % ROWS] = true;
        }
    }
}

/* Zeros may differ in their sign: a dense table has those of ranks that lack the row, too. */
static void
compare(struct worker *worker, const struct sums *sums, const float *dense, uint64_t step)
{
    bool touched[ROWS];
    uint64_t at = 0;

    find_touched(touched, step);
    for (uint64_t id = 0; id < ROWS; id++) {
        if (!touched[id]) {
            continue;
        }
        CHECK(worker, at < sums->count && sums->ids[at] == id);
        for (uint32_t c = 0; c < WIDTH && worker->failure[0] == '\0'; c++) {
            CHECK(worker, sums->rows[at * WIDTH + c] == dense[id * WIDTH + c]);
        }
        at++;
    }
    CHECK(worker, at == sums->count);
}

static double
digest_of(const struct sums *sums)
{
    double digest = 0;

    for (uint64_t i = 0; i < sums->count * WIDTH; i++) {
        digest += (double)sums->rows[i] * (double)(1 + i % 97);
    }
    return digest;
}

static void
open_both(struct worker *worker, psd_table **rows_p, psd_table **dense_p)
{
    const struct run *run = worker->user;

    CHECK_OK(worker, psd_sparse_open(
                         worker->context,
                         SPARSE("rows", WIDTH, .use = PSD_USE_SUM, .reduce = run->reduce), rows_p));
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("dense", PSD_F32, ROWS * WIDTH, .use = PSD_USE_SUM,
                                          .reduce = run->reduce),
                                    dense_p));
}

static void
train(struct worker *worker)
{
    struct run *run = worker->user;
    struct given *given = calloc(1, sizeof(*given));
    struct sums *sums = calloc(1, sizeof(*sums));
    psd_table *rows = NULL;
    psd_table *dense = NULL;
    psd_op *op = NULL;

    open_both(worker, &rows, &dense);
    for (uint64_t step = rows == NULL ? STEPS : psd_table_step(rows);
         step < STEPS && worker->failure[0] == '\0'; step++) {
        give(given, worker->rank, step);
        CHECK_OK(worker,
                 psd_push_pull(
                     dense, TRANSFER(step, .gradient = given->dense, .values = given->dense), &op));
        if (run->dies && worker->rank == VICTIM && step == DEATH_STEP &&
            psd_incarnation(worker->context) == 1) {
            psd_abandon(worker->context);
            worker->context = NULL;
            bed_next_turn(worker->bed); /* another may come */
            break;
        }
        CHECK_OK(worker, sum(rows,
                             ROWS_OF(step, .push_count = given->count, .push_ids = given->ids,
                                     .gradients = given->gradients),
                             sums));
        CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
        psd_op_release(op);
        compare(worker, sums, given->dense, step);
        if (worker->rank == 0) {
            run->digest[step] = digest_of(sums);
        }
    }
    free(given);
    free(sums);
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

/* If this fails, a sum of rows lacks some, has some of another step, is not what a dense one would be,
 * or has other bits with other servers. */
static void
test_same_as_a_dense_sum(void **state)
{
    static const struct bed_config configs[] = {
        {.servers = 1},
        {.servers = 1, .lanes = 4},
        {.servers = 2, .elsewhere = true},
        {.servers = 3, .lanes = 2},
        {.servers = 2, .lanes = 2, .security = BED_SEALED},
        {.servers = 2, .scalar = true, .pool_bytes = 1 << 20},
    };
    static const psd_reduce reduces[] = {PSD_REDUCE_SUM, PSD_REDUCE_MEAN};

    (void)state;
    for (size_t r = 0; r < sizeof(reduces) / sizeof(reduces[0]); r++) {
        struct run reference = {.config = configs[0], .reduce = reduces[r]};

        run_it(&reference);
        for (size_t i = 1; i < sizeof(configs) / sizeof(configs[0]); i++) {
            struct run other = {.config = configs[i], .reduce = reduces[r]};

            run_it(&other);
            assert_memory_equal(other.digest, reference.digest, sizeof(other.digest));
        }
    }
}

/* If this fails, a worker that is killed and replaced in the middle of a step changes a sum, or gets
 * that of another step. */
static void
test_replacement_gets_the_same_sums(void **state)
{
    struct run reference = {.config = {.servers = 2}};
    struct run killed = {
        .config = {.workers = WORKERS, .servers = 2, .lanes = 2, .policy = PSI_DEATH_WAIT},
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
    assert_memory_equal(killed.digest, reference.digest, sizeof(killed.digest));
}

/* ---- one thing at a time ------------------------------------------------------------------- */

static void
go_on_without(struct worker *worker)
{
    const uint64_t ids[] = {UINT64_MAX, worker->rank};
    const float gradients[] = {(float)(worker->rank + 1), 1};
    struct sums *sums = calloc(1, sizeof(*sums));
    psd_table *table;

    CHECK_OK(worker, psd_sparse_open(worker->context, SPARSE("e", 1, .use = PSD_USE_SUM), &table));
    for (uint64_t step = 0; step < 5; step++) {
        if (worker->rank == VICTIM && step == 3) {
            psd_abandon(worker->context);
            worker->context = NULL;
            break;
        }
        CHECK_OK(worker,
                 sum(table, ROWS_OF(step, .push_count = 2, .push_ids = ids, .gradients = gradients),
                     sums));
        CHECK(worker, sums->count == (step < 3 ? 4 : 3)); /* one of each, and that of all */
        CHECK(worker, sums->ids[sums->count - 1] == UINT64_MAX && sums->ids[0] == 0);
        CHECK(worker, sums->rows[sums->count - 1] == 2); /* (1 + 2 + 3) / 3, then (1 + 3) / 2 */
        CHECK(worker, sums->rows[0] == (step < 3 ? 1.0f / 3 : 0.5f));
    }
    free(sums);
}

/* If this fails, a job does not go on when a worker dies, or a mean is divided by the dead, or by those
 * who had the row. */
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
    float numbers[64];
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker,
             psd_sparse_open(worker->context,
                             SPARSE("e", 1, .use = PSD_USE_SUM, .reduce = PSD_REDUCE_SUM), &table));
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint64_t i = 0; i < 64; i++) {
            ids[i] = step * 64 + i;
            numbers[i] = (float)(step + 1);
        }
        CHECK_OK(worker,
                 psd_sparse_push(
                     table, ROWS_OF(step, .push_count = 64, .push_ids = ids, .gradients = numbers),
                     &op));
        bed_cut(worker, (uint32_t)(step + worker->rank) % 2);
        CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
        CHECK(worker, psd_sparse_sum_count(op) == 64);
        if (psd_sparse_sum_count(op) == 64) {
            CHECK_OK(worker, psd_sparse_sum_read(op, ids, numbers));
        }
        psd_op_release(op);
        for (uint64_t i = 0; i < 64; i++) {
            CHECK(worker, ids[i] == step * 64 + i && numbers[i] == (float)(2 * (step + 1)));
        }
    }
}

/* If this fails, rows count twice, or not at all, or come with another step's sum, when connections are
 * cut and pushes repeated. */
static void
test_cut_connections(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, push_through_cuts, NULL);
    bed_finish(bed);
}

static void
add_halves(struct worker *worker)
{
    static const uint64_t ids[] = {5, 6, 5};
    static const uint16_t ones[] = {0x3c00, 0x3c00, 0x3c00};
    struct psd_sparse_args args = *SPARSE("h", 1, .use = PSD_USE_SUM, .reduce = PSD_REDUCE_SUM);
    uint16_t rows[2] = {0};
    uint64_t got[2] = {0};
    psd_table *table;
    psd_op *op;

    args.dtype = PSD_F16;
    CHECK_OK(worker, psd_sparse_open(worker->context, &args, &table));
    CHECK_OK(worker,
             psd_sparse_push(table, ROWS_OF(0, .push_count = 3, .push_ids = ids, .gradients = ones),
                             &op));
    CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
    CHECK(worker, psd_sparse_sum_count(op) == 2);
    CHECK_OK(worker, psd_sparse_sum_read(op, got, rows));
    CHECK(worker, got[0] == 5 && got[1] == 6);
    CHECK(worker, rows[0] == 0x4400 && rows[1] == 0x4000); /* 4 and 2 */
    psd_op_release(op);
}

/* If this fails, rows of two bytes are added or answered as something else. */
static void
test_halves(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 1});

    (void)state;
    bed_run(bed, add_halves, NULL);
    bed_finish(bed);
}

/* ---- larger than a frame ------------------------------------------------------------------- */

enum { MANY = PSI_ROWS_MAX + 60000 }; /* in one lane: more ids than a frame may have */

struct many {
    uint64_t ids[MANY];
    float numbers[MANY];
};

/* Half of the ids are those of the other worker, too. The connection is cut while they leave. */
static void
push_many(struct worker *worker)
{
    struct many *many = malloc(sizeof(*many));
    const uint64_t first = worker->rank * (MANY / 2);
    uint64_t wrong = 0;
    psd_table *table = NULL;
    psd_op *op = NULL;

    CHECK_OK(worker,
             psd_sparse_open(worker->context,
                             SPARSE("e", 1, .use = PSD_USE_SUM, .reduce = PSD_REDUCE_SUM), &table));
    for (uint64_t i = 0; i < MANY; i++) {
        many->ids[i] = first + i;
        many->numbers[i] = (float)((first + i) % 1000);
    }
    CHECK_OK(worker, psd_sparse_push(table,
                                     ROWS_OF(0, .push_count = MANY, .push_ids = many->ids,
                                             .gradients = many->numbers),
                                     &op));
    free(many);
    bed_cut(worker, 0);
    CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
    CHECK(worker, psd_sparse_sum_count(op) == MANY + MANY / 2);
    if (worker->failure[0] == '\0') {
        uint64_t *ids = malloc((MANY + MANY / 2) * sizeof(*ids));
        float *rows = malloc((MANY + MANY / 2) * sizeof(*rows));

        CHECK_OK(worker, psd_sparse_sum_read(op, ids, rows));
        for (uint64_t i = 0; i < MANY + MANY / 2; i++) {
            const float times = i >= MANY / 2 && i < MANY ? 2 : 1;

            wrong += ids[i] != i || rows[i] != times * (float)(i % 1000);
        }
        CHECK(worker, wrong == 0);
        free(ids);
        free(rows);
    }
    psd_op_release(op);
}

/* If this fails, what does not fit a frame does not arrive, or twice, or not as a whole; or a lane
 * whose pool is smaller than it has no room for it. */
static void
test_more_than_a_frame_holds(void **state)
{
    static const struct bed_config configs[] = {
        {.workers = 2},
        {.workers = 2, .elsewhere = true, .pool_bytes = 1 << 20},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        struct bed *bed = bed_start(&configs[i]);

        bed_run(bed, push_many, NULL);
        bed_finish(bed);
    }
}

static void
train_many(struct worker *worker)
{
    static const uint64_t few[] = {0, MANY - 1, MANY};
    struct many *many = malloc(sizeof(*many));
    float values[3];
    psd_table *table = NULL;

    CHECK_OK(worker, psd_sparse_open(worker->context,
                                     SPARSE("e", 1, .rule = RULE(.rule = PSD_RULE_ADD)), &table));
    for (uint64_t i = 0; i < MANY; i++) {
        many->ids[i] = i;
        many->numbers[i] = 3;
    }
    for (uint64_t step = 0; step < 2; step++) {
        CHECK_OK(worker, run_rows(psd_sparse_push_lookup, table,
                                  ROWS_OF(step, .push_count = MANY, .push_ids = many->ids,
                                          .gradients = many->numbers, .lookup_count = 3,
                                          .lookup_ids = few, .values = values)));
        CHECK(worker, values[0] == (float)(3 * (step + 1)) && values[1] == values[0]);
        CHECK(worker, values[2] == 0);
    }
    free(many);
}

/* If this fails, rows that are kept do not get all of a push that does not fit a frame, or get it
 * twice. */
static void
test_many_rows_are_trained(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, train_many, NULL);
    bed_finish(bed);
}

/* ---- refused ------------------------------------------------------------------------------- */

static void
refuse(struct worker *worker)
{
    static const uint64_t ids[] = {3};
    static const struct psd_rule_args rule = {.struct_size = sizeof(rule),
                                              .rule = PSD_RULE_ADAGRAD};
    float values[] = {1};
    psd_table *table;
    psd_op *op;

    CHECK_STATUS(worker,
                 psd_sparse_open(worker->context,
                                 SPARSE("e", 1, .use = PSD_USE_SUM, .capacity_rows = 9), &table),
                 PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "capacity_rows: a sum keeps no rows");
    CHECK_STATUS(
        worker,
        psd_sparse_open(worker->context, SPARSE("e", 1, .use = PSD_USE_SUM, .rule = &rule), &table),
        PSD_ERR_INVALID);
    CHECK_STATUS(worker,
                 psd_sparse_open(worker->context,
                                 SPARSE("e", 1, .use = PSD_USE_SUM, .staleness = 1), &table),
                 PSD_ERR_INVALID);
    CHECK_STATUS(worker,
                 psd_sparse_open(worker->context,
                                 SPARSE("e", 1, .use = PSD_USE_SUM, .backup_workers = 1), &table),
                 PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "would never see its sum");
    CHECK_OK(worker, psd_sparse_open(worker->context, SPARSE("e", 1, .use = PSD_USE_SUM), &table));
    CHECK_STATUS(
        worker,
        psd_sparse_lookup(table, ROWS_OF(0, .lookup_count = 1, .lookup_ids = ids, .values = values),
                          &op),
        PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "keeps no rows to look up");
    CHECK_OK(worker,
             psd_sparse_push(
                 table, ROWS_OF(0, .push_count = 1, .push_ids = ids, .gradients = values), &op));
    CHECK_OK(worker, psd_wait(op, PSD_FOREVER));
    CHECK_STATUS(worker, psd_sparse_sum_read(op, NULL, values), PSD_ERR_INVALID);
    psd_op_release(op);
    CHECK(worker, psd_sparse_sum_count(NULL) == 0);
    CHECK_STATUS(worker, psd_sparse_sum_read(NULL, NULL, NULL), PSD_ERR_STATE);
    values[0] = NAN;
    CHECK_STATUS(worker,
                 psd_sparse_push(
                     table, ROWS_OF(1, .push_count = 1, .push_ids = ids, .gradients = values), &op),
                 PSD_ERR_NOT_FINITE);
}

/* If this fails, a sum is opened with what it has no use for, or asked for what it does not have. */
static void
test_what_is_refused(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, refuse, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests_of_sums[] = {
        cmocka_unit_test(test_same_as_a_dense_sum),
        cmocka_unit_test(test_replacement_gets_the_same_sums),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_cut_connections),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_more_than_a_frame_holds),
        cmocka_unit_test(test_many_rows_are_trained),
        cmocka_unit_test(test_what_is_refused),
    };

    bed_begin();
    return cmocka_run_group_tests(tests_of_sums, NULL, NULL);
}
