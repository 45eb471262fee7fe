/*
 * tables_test.c - opening tables: what is accepted, what is refused and why, what values begin.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bed.h"
#include "store/half.h"

enum { BIG = 2 * PSD_CHUNK_ELEMENTS + 17 };

static const psd_dtype dtypes[] = {PSD_F32, PSD_F64, PSD_F16, PSD_BF16};
static const size_t dtype_bytes[] = {4, 8, 2, 2};

enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

/* ---- every type --------------------------------------------------------------------------- */

static void
add_ones(struct worker *worker)
{
    static const uint16_t one16[] = {[PSD_F16] = 0x3c00, [PSD_BF16] = 0x3f80};

    for (size_t i = 0; i < DTYPES; i++) {
        const float one_f32[3] = {1, 1, 1};
        const double one_f64[3] = {1, 1, 1};
        const uint16_t half = dtypes[i] == PSD_F16 || dtypes[i] == PSD_BF16 ? one16[dtypes[i]] : 0;
        const uint16_t one_half[3] = {half, half, half};
        const void *ones = dtypes[i] == PSD_F32   ? (const void *)one_f32
                           : dtypes[i] == PSD_F64 ? (const void *)one_f64
                                                  : (const void *)one_half;
        const char *names[] = {"f32", "f64", "f16", "bf16"};
        uint8_t values[3 * 8];
        psd_table *table;

        CHECK_OK(worker, psd_table_open(worker->context,
                                        TABLE(names[i], dtypes[i], 3, .reduce = PSD_REDUCE_MEAN,
                                              .rule = RULE(.rule = PSD_RULE_ADD)),
                                        &table));
        CHECK(worker, psd_table_count(table) == 3);
        CHECK(worker, psd_table_element_bytes(table) == dtype_bytes[i]);
        CHECK(worker, psd_table_step(table) == 0);
        CHECK_OK(worker, push_pull(table, 0, ones, values));
        CHECK(worker, memcmp(values, ones, 3 * dtype_bytes[i]) == 0);
        CHECK(worker, psd_table_step(table) == 1);
    }
}

/* If this fails, a type of numbers does not work at all. */
static void
test_all_dtypes(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, add_ones, NULL);
    bed_finish(bed);
}

/* ---- refusals ----------------------------------------------------------------------------- */

#define SHAPED(...)                                                                                \
    (&(struct psd_table_args){                                                                     \
        .struct_size = sizeof(struct psd_table_args), .name = "w", .dtype = PSD_F32, __VA_ARGS__})

static void
refuse_nonsense(struct worker *worker)
{
    char long_name[PSD_NAME_MAX + 2];
    const struct psd_table_args *bad[] = {
        SHAPED(.dims = 0),
        SHAPED(.dims = 1),
        SHAPED(.dims = 2, .shape = {3, 0}),
        SHAPED(.dims = 9, .shape = {1, 1, 1, 1, 1, 1, 1, 1}),
        SHAPED(.dims = 3, .shape = {UINT64_C(1) << 40, UINT64_C(1) << 40, 16}),
        TABLE(NULL, PSD_F32, 4),
        TABLE("", PSD_F32, 4),
        TABLE("line\nbreak", PSD_F32, 4),
        TABLE("\xff\xfe", PSD_F32, 4),
        TABLE(long_name, PSD_F32, 4),
        TABLE("w", (psd_dtype)0, 4),
        TABLE("w", (psd_dtype)99, 4),
        TABLE("w", PSD_F32, 4, .use = (psd_use)7),
        TABLE("w", PSD_F32, 4, .use = PSD_USE_SUM, .staleness = 1),
        TABLE("w", PSD_F32, 4, .use = PSD_USE_SUM, .rule = RULE(.rule = PSD_RULE_ADAM)),
        TABLE("w", PSD_F32, 4, .use = PSD_USE_SUM, .init = PSD_INIT_UNIFORM, .init_value = 1),
        TABLE("w", PSD_F32, 4, .backup_workers = 1, .staleness = 2),
        TABLE("w", PSD_F32, 4, .backup_workers = 1), /* of one worker */
        TABLE("w", PSD_F32, 4, .rule = RULE(.rule = (psd_rule)99)),
        TABLE("w", PSD_F32, 4, .rule = RULE(.learning_rate = (double)NAN)),
        TABLE("w", PSD_F32, 4, .init = PSD_INIT_CONSTANT, .init_value = (double)INFINITY),
        TABLE("w", PSD_F16, 4, .init = PSD_INIT_CONSTANT, .init_value = 1e6),
        TABLE("w", PSD_F32, 4, .init = PSD_INIT_UNIFORM, .init_value = -1),
        TABLE("w", PSD_F32, 4, .init = PSD_INIT_RANK0), /* no values */
        TABLE("w", PSD_F32, 4, .priority = -1),
        TABLE("w", PSD_F32, 4, .priority = 256),
    };
    psd_table *table = NULL;

    memset(long_name, 'n', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const psd_status status = psd_table_open(worker->context, bad[i], &table);

        if (status != PSD_ERR_INVALID || table != NULL || psd_last_error()->text[0] == '\0') {
            worker_fail(worker, __FILE__, __LINE__, "bad[%zu]: %s: %s", i, psd_status_name(status),
                        psd_last_error()->text);
            return;
        }
    }
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 4), &table));
}

/* If this fails, a table that makes no sense is created, or a good one is not afterwards. */
static void
test_nonsense_is_refused(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, refuse_nonsense, NULL);
    bed_finish(bed);
}

static void
odd_struct_sizes(struct worker *worker)
{
    struct {
        struct psd_table_args args;
        uint8_t newer[64]; /* fields of a later version */
    } later = {.args = *TABLE("later", PSD_F32, 4), .newer = {[63] = 1}};
    struct psd_table_args args = *TABLE("w", PSD_F32, 4);
    psd_table *table = NULL;

    args.struct_size = 0;
    CHECK_STATUS(worker, psd_table_open(worker->context, &args, &table), PSD_ERR_INVALID);
    args.struct_size = 7;
    CHECK_STATUS(worker, psd_table_open(worker->context, &args, &table), PSD_ERR_INVALID);
    args.struct_size = SIZE_MAX;
    CHECK_STATUS(worker, psd_table_open(worker->context, &args, &table), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_table_open(worker->context, NULL, &table), PSD_ERR_INVALID);
    CHECK(worker, table == NULL);

    /* An older program knows only the fields up to `use`, and leaves rubbish behind them. */
    args.struct_size = offsetof(struct psd_table_args, use);
    args.use = (psd_use)99;
    args.staleness = 77;
    CHECK_OK(worker, psd_table_open(worker->context, &args, &table));
    later.args.struct_size = sizeof(later);
    CHECK_STATUS(worker, psd_table_open(worker->context, &later.args, &table), PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "struct psd_table_args");
    later.newer[63] = 0;
    CHECK_OK(worker, psd_table_open(worker->context, &later.args, &table));
}

/* If this fails, programs compiled with another version of the header misbehave. */
static void
test_struct_sizes_of_other_versions(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, odd_struct_sizes, NULL);
    bed_finish(bed);
}

static void
disagree(struct worker *worker)
{
    const struct psd_table_args *mine[] = {
        TABLE("shape", PSD_F32, worker->rank == 0 ? 10 : 12),
        TABLE("type", worker->rank == 0 ? PSD_F32 : PSD_F64, 10),
        TABLE("rule", PSD_F32, 10, .rule = RULE(.learning_rate = worker->rank == 0 ? 0.5 : 0.25)),
        TABLE("clock", PSD_F32, 10, .staleness = worker->rank == 0 ? 0 : 3),
        TABLE("use", PSD_F32, 10, .use = worker->rank == 0 ? PSD_USE_UPDATE : PSD_USE_SUM),
    };
    const char *words[] = {"shape", "dtype", "learning_rate", "staleness", "use"};
    const char *first[] = {"f32[10]", "f32[10]", "0.5", "staleness=0", "update"};
    const char *second[] = {"f32[12]", "f64[10]", "0.25", "staleness=3", "sum"};
    psd_table *table = NULL;

    for (size_t i = 0; i < sizeof(mine) / sizeof(mine[0]); i++) {
        bed_wait_turn(worker->bed, 2 * i + worker->rank);
        if (worker->rank == 0) {
            CHECK_OK(worker, psd_table_open(worker->context, mine[i], &table));
        } else {
            CHECK_STATUS(worker, psd_table_open(worker->context, mine[i], &table),
                         PSD_ERR_MISMATCH);
            CHECK_SAYS(worker, psd_last_error()->text, words[i]);
            CHECK_SAYS(worker, psd_last_error()->text, "worker 0");
            CHECK_SAYS(worker, psd_last_error()->text, "worker 1");
            CHECK_SAYS(worker, psd_last_error()->text, first[i]);
            CHECK_SAYS(worker, psd_last_error()->text, second[i]);
            CHECK(worker, table == NULL);
        }
        bed_next_turn(worker->bed);
    }
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("shape", PSD_F32, 10), &table));
}

/* If this fails, workers with different models train on, or cannot tell what differs. */
static void
test_mismatch_names_both_sides(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, disagree, NULL);
    bed_finish(bed);
}

static void
open_too_much(struct worker *worker)
{
    const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float values[8];
    psd_table *table = NULL;

    CHECK_STATUS(worker, psd_table_open(worker->context, TABLE("huge", PSD_F32, 64 << 20), &table),
                 PSD_ERR_TOO_BIG);
    CHECK_SAYS(worker, psd_last_error()->text, "huge");
    CHECK_SAYS(worker, psd_last_error()->text, "server");
    CHECK_SAYS(worker, psd_last_error()->text, " MiB");
    CHECK(worker, table == NULL);
    CHECK_STATUS(worker,
                 psd_table_open(worker->context, TABLE("vast", PSD_F64, UINT64_C(1) << 55), &table),
                 PSD_ERR_TOO_BIG);
    CHECK_SAYS(worker, psd_last_error()->text, "vast");
    bed_meet(worker->bed);
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("huge", PSD_F32, 8), &table));
    CHECK_OK(worker, push_pull(table, 0, ones, values));
    CHECK(worker, values[7] == -0.01f);
}

/* If this fails, a table beyond the memory kills a server, hurts the job, or blocks its name. */
static void
test_too_big_names_need_and_limit(void **state)
{
    struct bed *bed = bed_start(
        &(struct bed_config){.workers = 2, .servers = 2, .lanes = 2, .memory_max = 8 << 20});

    (void)state;
    bed_run(bed, open_too_much, NULL);
    bed_finish(bed);
}

static void
fill_up(struct worker *worker)
{
    char name[16];
    psd_table *table;
    psd_status status = PSD_OK;
    unsigned opened = 0;

    while (status == PSD_OK && opened < 100) {
        snprintf(name, sizeof(name), "t%u", opened);
        status = psd_table_open(worker->context, TABLE(name, PSD_F32, PSD_CHUNK_ELEMENTS), &table);
        opened += status == PSD_OK;
    }
    CHECK_STATUS(worker, status, PSD_ERR_TOO_BIG);
    CHECK(worker, opened >= 12 && opened <= 16); /* 256 KiB each */
}

/* If this fails, the memory limit counts each table alone, not all together. */
static void
test_tables_share_the_limit(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.memory_max = 4 << 20});

    (void)state;
    bed_run(bed, fill_up, NULL);
    bed_finish(bed);
}

/* ---- opening ------------------------------------------------------------------------------ */

static void
open_in_any_order(struct worker *worker)
{
    enum { TABLES = 60 };
    psd_table *tables[TABLES];
    psd_table *again;
    char name[32];
    float value;

    for (unsigned i = 0; i < TABLES; i++) {
        const unsigned which = worker->rank == 0   ? i
                               : worker->rank == 1 ? TABLES - 1 - i
                                                   : (i * 7) % TABLES;
        const float one = (float)which;

        snprintf(name, sizeof(name), "couche-é-%u", which);
        CHECK_OK(worker, psd_table_open(worker->context,
                                        TABLE(name, PSD_F32, 1, .rule = RULE(.rule = PSD_RULE_ADD),
                                              .init = PSD_INIT_CONSTANT, .init_value = one),
                                        &tables[which]));
        CHECK_OK(worker, psd_table_open(worker->context,
                                        TABLE(name, PSD_F32, 1, .rule = RULE(.rule = PSD_RULE_ADD),
                                              .init = PSD_INIT_CONSTANT, .init_value = one),
                                        &again));
        CHECK(worker, again == tables[which]);
    }
    for (unsigned i = 0; i < TABLES; i++) {
        CHECK_OK(worker, pull(tables[i], 0, &value));
        CHECK(worker, value == (float)i);
    }
}

/* If this fails, workers must open tables in one order, or names get mixed up. */
static void
test_tables_open_in_any_order(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 3});

    (void)state;
    bed_run(bed, open_in_any_order, NULL);
    bed_finish(bed);
}

/* ---- initial values ----------------------------------------------------------------------- */

static void
begin_with_rank0(struct worker *worker)
{
    for (size_t i = 0; i < DTYPES; i++) {
        const size_t bytes = BIG * dtype_bytes[i];
        uint8_t *given = malloc(bytes);
        uint8_t *values = calloc(1, bytes);
        struct psd_table_args args = *TABLE("w", dtypes[i], BIG, .init = PSD_INIT_RANK0);
        char name[8];
        psd_table *table;

        snprintf(name, sizeof(name), "w%zu", i);
        args.name = name;
        awkward(dtypes[i], 0, 99, 0, BIG, given);
        if (worker->rank == 0) {
            args.values = given;
        } else if (i % 2 == 0) {
            args.values = "ignored: not rank 0";
        }
        CHECK_OK(worker, psd_table_open(worker->context, &args, &table));
        CHECK_OK(worker, pull(table, 0, values));
        CHECK(worker, memcmp(values, given, bytes) == 0);
        free(given);
        free(values);
    }
}

/* If this fails, workers begin with other values than rank 0 gave. */
static void
test_initial_values_of_rank_0_reach_everybody(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .servers = 2, .lanes = 2});

    (void)state;
    bed_run(bed, begin_with_rank0, NULL);
    bed_finish(bed);
}

static const struct psd_table_args *
initial_args(size_t index)
{
    static const struct {
        const char *name;
        psd_init init;
        double value;
    } kinds[] = {{"zero", PSD_INIT_ZERO, 0},
                 {"constant", PSD_INIT_CONSTANT, -1.25},
                 {"uniform", PSD_INIT_UNIFORM, 0.5},
                 {"normal", PSD_INIT_NORMAL, 2}};
    static _Thread_local struct psd_table_args args;

    if (index == sizeof(kinds) / sizeof(kinds[0])) {
        return NULL;
    }
    args = *TABLE(kinds[index].name, PSD_F32, BIG, .init = kinds[index].init,
                  .init_value = kinds[index].value, .seed = 42);
    return &args;
}

static void
read_initial(struct worker *worker)
{
    float *values = worker->user;
    const struct psd_table_args *args;
    psd_table *table;

    for (size_t i = 0; (args = initial_args(i)) != NULL; i++) {
        CHECK_OK(worker, psd_table_open(worker->context, args, &table));
        CHECK_OK(worker, pull(table, 0, values + i * BIG));
    }
}

/* If this fails, a model starts differently on another number of servers, or not as asked. */
static void
test_initial_values_do_not_depend_on_servers(void **state)
{
    const size_t count = 4 * (size_t)BIG;
    float *one = calloc(count, sizeof(*one));
    float *three = calloc(count, sizeof(*three));
    double sum = 0;
    struct bed *bed;

    (void)state;
    assert_non_null(one);
    assert_non_null(three);
    bed = bed_start(&(struct bed_config){.servers = 1});
    bed_run(bed, read_initial, one);
    bed_finish(bed);
    bed = bed_start(&(struct bed_config){.servers = 3, .lanes = 2});
    bed_run(bed, read_initial, three);
    bed_finish(bed);

    assert_memory_equal(one, three, count * sizeof(*one));
    for (size_t i = 0; i < BIG; i++) {
        assert_true(one[i] == 0.0f && one[BIG + i] == -1.25f);
        assert_true(one[2 * BIG + i] >= -0.5f && one[2 * BIG + i] < 0.5f);
        sum += (double)one[3 * BIG + i] * (double)one[3 * BIG + i];
    }
    assert_true(sum / BIG > 3.8 && sum / BIG < 4.2);
    assert_true(memcmp(one + 2 * BIG, one + 2 * BIG + PSD_CHUNK_ELEMENTS, 4096) != 0);
    free(one);
    free(three);
}

/* ---- from several threads ----------------------------------------------------------------- */

enum { OPENERS = 8 };

struct opener {
    psd_context *context;
    pthread_t thread;
    psd_status status;
    psd_table *table;
};

static const float threaded_values[4] = {1, 2, 3, 4};

static void *
open_threaded(void *argument)
{
    struct opener *opener = argument;

    opener->status = psd_table_open(
        opener->context, TABLE("w", PSD_F32, 4, .init = PSD_INIT_RANK0, .values = threaded_values),
        &opener->table);
    return NULL;
}

static void
open_from_threads(struct worker *worker)
{
    struct opener openers[OPENERS];
    float values[4] = {0};

    for (unsigned i = 0; i < OPENERS; i++) {
        openers[i] = (struct opener){.context = worker->context};
        CHECK(worker, pthread_create(&openers[i].thread, NULL, open_threaded, &openers[i]) == 0);
    }
    for (unsigned i = 0; i < OPENERS; i++) {
        pthread_join(openers[i].thread, NULL);
    }
    for (unsigned i = 0; i < OPENERS; i++) {
        CHECK_OK(worker, openers[i].status);
        CHECK(worker, openers[i].table == openers[0].table);
    }
    CHECK_OK(worker, pull(openers[0].table, 0, values));
    CHECK(worker, memcmp(values, threaded_values, sizeof(values)) == 0);
}

/* If this fails, threads of a worker that open one table at once wait for ever, or get two. */
static void
test_threads_open_one_table(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2, .lanes = 2});

    (void)state;
    bed_run(bed, open_from_threads, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_dtypes),
        cmocka_unit_test(test_nonsense_is_refused),
        cmocka_unit_test(test_struct_sizes_of_other_versions),
        cmocka_unit_test(test_mismatch_names_both_sides),
        cmocka_unit_test(test_too_big_names_need_and_limit),
        cmocka_unit_test(test_tables_share_the_limit),
        cmocka_unit_test(test_tables_open_in_any_order),
        cmocka_unit_test(test_initial_values_of_rank_0_reach_everybody),
        cmocka_unit_test(test_initial_values_do_not_depend_on_servers),
        cmocka_unit_test(test_threads_open_one_table),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
