/*
 * bits_test.c - results are the same bits, whatever the servers, lanes, kernels, order of arrival,
 * buffers, death policy or security.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "bed.h"

enum {
    WORKERS = 5,
    STEPS = BED_SANITIZED ? 4 : 20,
    TABLES = 6,
    SHIFT = 7,
    CHUNK = PSD_CHUNK_ELEMENTS
};

enum arrival { RISING, FALLING, MIXED };

static const struct {
    const char *name;
    psd_dtype dtype;
    size_t bytes;
    uint64_t count;
    psd_use use;
    psd_rule rule;
} tables[TABLES] = {
    {"momentum f32", PSD_F32, 4, CHUNK + 17, PSD_USE_UPDATE, PSD_RULE_MOMENTUM},
    {"adam f16", PSD_F16, 2, 1000, PSD_USE_UPDATE, PSD_RULE_ADAM},
    {"sgd bf16", PSD_BF16, 2, 5003, PSD_USE_UPDATE, PSD_RULE_SGD},
    {"adagrad f64", PSD_F64, 8, 777, PSD_USE_UPDATE, PSD_RULE_ADAGRAD},
    {"sum f32", PSD_F32, 4, 300, PSD_USE_SUM, PSD_RULE_SGD},
    {"sum f16", PSD_F16, 2, 301, PSD_USE_SUM, PSD_RULE_SGD},
};

/* Gradients of all ranks and tables; a step takes them from a place of its own.
 * Thread: immutable once filled. */
struct gradients {
    uint8_t *data[WORKERS][TABLES];
};

/* One run. Thread: rank 0 writes values, the others read them after a meeting. */
struct run {
    struct bed_config config;
    enum arrival arrival;
    const struct gradients *gradients;
    uint8_t *values; /* of all steps, one after the other */
};

static size_t
step_bytes(void)
{
    size_t bytes = 0;

    for (size_t t = 0; t < TABLES; t++) {
        bytes += tables[t].count * tables[t].bytes;
    }
    return bytes;
}

static const uint8_t *
gradient_of(const struct run *run, uint32_t rank, size_t t, uint64_t step)
{
    return run->gradients->data[rank][t] + step * SHIFT * tables[t].bytes;
}

static uint64_t
position(const struct run *run, uint32_t rank, uint64_t step)
{
    switch (run->arrival) {
    case RISING:
        return rank;
    case FALLING:
        return WORKERS - 1 - rank;
    case MIXED:
        return (rank * 3 + step) % WORKERS;
    }
    return 0;
}

/* One step: everybody submits in turn, then all wait. */
static void
run_step(struct worker *worker, psd_table **handles, uint64_t step, uint8_t *values)
{
    const struct run *run = worker->user;
    psd_op *ops[TABLES];
    size_t at = 0;

    bed_wait_turn(worker->bed, step * WORKERS + position(run, worker->rank, step));
    for (size_t t = 0; t < TABLES; t++) {
        CHECK_OK(worker,
                 psd_push_pull(handles[t],
                               TRANSFER(step, .values = values + at,
                                        .gradient = gradient_of(run, worker->rank, t, step)),
                               &ops[t]));
        at += tables[t].count * tables[t].bytes;
    }
    bed_next_turn(worker->bed);
    for (size_t t = 0; t < TABLES; t++) {
        CHECK_OK(worker, psd_wait(ops[t], PSD_FOREVER));
        psd_op_release(ops[t]);
    }
}

static void
train(struct worker *worker)
{
    const struct run *run = worker->user;
    uint8_t *mine = malloc(step_bytes());
    psd_table *handles[TABLES];

    for (size_t t = 0; t < TABLES; t++) {
        struct psd_rule_args rule = *RULE(.rule = tables[t].rule);
        struct psd_table_args args = *TABLE(tables[t].name, tables[t].dtype, tables[t].count,
                                            .use = tables[t].use, .rule = &rule);

        if (args.use == PSD_USE_UPDATE) {
            args.init = PSD_INIT_UNIFORM;
            args.init_value = 1;
            args.seed = t;
            rule.clip_value = 1000;
            rule.weight_decay = 0.001;
        }
        CHECK_OK(worker, psd_table_open(worker->context, &args, &handles[t]));
    }
    for (uint64_t step = 0; step < STEPS && worker->failure[0] == '\0'; step++) {
        uint8_t *values = run->values + step * step_bytes();

        run_step(worker, handles, step, worker->rank == 0 ? values : mine);
        bed_meet(worker->bed);
        CHECK(worker, worker->rank == 0 || memcmp(mine, values, step_bytes()) == 0);
        bed_meet(worker->bed);
    }
    free(mine);
}

static void
run_it(struct run *run)
{
    struct bed *bed;

    run->config.workers = WORKERS;
    run->values = calloc(STEPS, step_bytes());
    assert_non_null(run->values);
    bed = bed_start(&run->config);
    bed_run(bed, train, run);
    bed_finish(bed);
}

static void
fill_gradients(struct gradients *gradients)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        for (size_t t = 0; t < TABLES; t++) {
            const uint64_t count = tables[t].count + STEPS * SHIFT;

            gradients->data[rank][t] = malloc(count * tables[t].bytes);
            assert_non_null(gradients->data[rank][t]);
            awkward(tables[t].dtype, rank, t, 0, count, gradients->data[rank][t]);
        }
    }
}

static void
free_gradients(struct gradients *gradients)
{
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        for (size_t t = 0; t < TABLES; t++) {
            free(gradients->data[rank][t]);
        }
    }
}

/* The mean of five, along the tree: ((0 + 1) + (2 + 3)) + 4. */
static void
check_sums(const struct run *run)
{
    const size_t sum_table = 4;
    size_t before = 0;

    for (size_t t = 0; t < sum_table; t++) {
        before += tables[t].count * tables[t].bytes;
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint8_t *values = run->values + step * step_bytes() + before;

        for (size_t i = 0; i < tables[sum_table].count; i++) {
            float g[WORKERS];
            float mean;

            for (uint32_t rank = 0; rank < WORKERS; rank++) {
                memcpy(&g[rank], gradient_of(run, rank, sum_table, step) + 4 * i, 4);
            }
            mean = (((g[0] + g[1]) + (g[2] + g[3])) + g[4]) / 5.0f;
            assert_memory_equal(&mean, values + 4 * i, 4);
        }
    }
}

/* If this fails, two runs of one training differ, or the sum is not taken along the tree. */
static void
test_bits_do_not_depend_on_the_job(void **state)
{
    struct gradients gradients;
    struct run reference = {.config = {.servers = 1}, .gradients = &gradients};
    struct run others[] = {
        {.config = {.servers = 1}, .arrival = FALLING},
        {.config = {.servers = 1, .scalar = true}, .arrival = MIXED},
        {.config = {.servers = 2}},
        {.config = {.servers = 3}, .arrival = FALLING},
        {.config = {.servers = 1, .lanes = 4}, .arrival = MIXED},
        {.config = {.servers = 3, .lanes = 4}, .arrival = FALLING},
        {.config = {.servers = 2, .lanes = 2, .scalar = true}},
        {.config = {.servers = 1, .pool_bytes = 1 << 20}, .arrival = FALLING},
        {.config = {.servers = 2, .policy = PSI_DEATH_WAIT}, .arrival = MIXED},
        {.config = {.servers = 2, .lanes = 2, .security = BED_SEALED}, .arrival = FALLING},
        {.config = {.servers = 1, .security = BED_INSECURE}, .arrival = MIXED},
        {.config = {.servers = 2, .flat = true}, .arrival = MIXED},
        {.config = {.servers = 2, .elsewhere = true}, .arrival = MIXED},
    };

    (void)state;
    fill_gradients(&gradients);
    run_it(&reference);
    check_sums(&reference);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        others[i].gradients = &gradients;
        run_it(&others[i]);
        for (uint64_t step = 0; step < STEPS; step++) {
            const size_t at = step * step_bytes();

            if (memcmp(reference.values + at, others[i].values + at, step_bytes()) != 0) {
                fail_msg("run %zu differs from step %u on", i, (unsigned)step);
            }
        }
        free(others[i].values);
    }
    free(reference.values);
    free_gradients(&gradients);
}

int
main(void)
{
    const struct CMUnitTest tests_of_bits[] = {
        cmocka_unit_test(test_bits_do_not_depend_on_the_job),
    };

    bed_begin();
    return cmocka_run_group_tests(tests_of_bits, NULL, NULL);
}
