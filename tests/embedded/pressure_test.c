/*
 * pressure_test.c - bounded buffers never deadlock, whatever order workers push in.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "bed.h"

enum {
    WORKERS = 4,
    TABLES = 200,
    STEPS = BED_SANITIZED ? 1 : 2,
    KINDS = 5,
    COUNT_MAX = 3 * PSD_CHUNK_ELEMENTS
};

/* Thread: immutable while workers run. */
struct load {
    uint64_t seed;
    uint64_t counts[TABLES];
    float *gradients[WORKERS][KINDS]; /* COUNT_MAX times one number */
};

static void
load_init(struct load *load, uint64_t seed)
{
    load->seed = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned t = 0; t < TABLES; t++) {
        const uint64_t bits = mix(seed, t, 0);

        load->counts[t] =
            t % 12 == 7 ? PSD_CHUNK_ELEMENTS + bits % (2 * PSD_CHUNK_ELEMENTS) : 1 + bits % 3000;
    }
    for (unsigned rank = 0; rank < WORKERS; rank++) {
        for (unsigned kind = 0; kind < KINDS; kind++) {
            load->gradients[rank][kind] = malloc(COUNT_MAX * sizeof(float));
            assert_non_null(load->gradients[rank][kind]);
            for (size_t i = 0; i < COUNT_MAX; i++) {
                load->gradients[rank][kind][i] = (float)((rank + 1) * (kind + 1));
            }
        }
    }
}

static void
load_fini(struct load *load)
{
    for (unsigned rank = 0; rank < WORKERS; rank++) {
        for (unsigned kind = 0; kind < KINDS; kind++) {
            free(load->gradients[rank][kind]);
        }
    }
}

/* Rank 0 forwards, rank 1 backwards, the others at random. */
static void
make_order(const struct load *load, uint32_t rank, uint64_t step, unsigned order[TABLES])
{
    for (unsigned t = 0; t < TABLES; t++) {
        order[t] = rank == 1 ? TABLES - 1 - t : t;
    }
    for (unsigned t = TABLES - 1; t > 0 && rank > 1; t--) {
        const uint64_t other = mix(load->seed, rank * 1000 + step, t) % (t + 1);
        const unsigned swap = order[t];

        order[t] = order[other];
        order[other] = swap;
    }
}

static bool
all_equal(const float *values, uint64_t count, float wanted)
{
    for (uint64_t i = 0; i < count; i++) {
        if (values[i] != wanted) {
            return false;
        }
    }
    return true;
}

static void
push_everything(struct worker *worker)
{
    const struct load *load = worker->user;
    unsigned order[TABLES];
    psd_table *tables[TABLES];
    float *values[TABLES];
    psd_op *op;

    for (unsigned t = 0; t < TABLES; t++) {
        char name[16];

        snprintf(name, sizeof(name), "t%u", t);
        CHECK_OK(worker,
                 psd_table_open(worker->context,
                                TABLE(name, PSD_F32, load->counts[t], .reduce = PSD_REDUCE_SUM,
                                      .rule = RULE(.rule = PSD_RULE_ADD)),
                                &tables[t]));
        values[t] = malloc(load->counts[t] * sizeof(float));
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        make_order(load, worker->rank, step, order);
        for (unsigned i = 0; i < TABLES; i++) {
            const unsigned t = order[i];

            CHECK_OK(worker,
                     psd_push_pull(tables[t],
                                   TRANSFER(step, .values = values[t],
                                            .gradient = load->gradients[worker->rank][t % KINDS]),
                                   &op));
        }
        for (unsigned i = 0; i < TABLES; i++) {
            CHECK_OK(worker, psd_wait_any(worker->context, 60000, &op));
            CHECK_OK(worker, psd_wait(op, 0));
            psd_op_release(op);
        }
        for (unsigned t = 0; t < TABLES; t++) {
            const float wanted = (float)((1 + 2 + 3 + 4) * (t % KINDS + 1) * (step + 1));

            CHECK(worker, all_equal(values[t], load->counts[t], wanted));
        }
    }
    for (unsigned t = 0; t < TABLES; t++) {
        free(values[t]);
    }
}

static void
run_under_pressure(struct bed_config config, uint64_t seed)
{
    struct load load;
    struct bed *bed;

    config.workers = WORKERS;
    config.pool_bytes = config.pool_bytes > 0 ? config.pool_bytes : 1 << 20;
    config.op_timeout_ms = 60000;
    load_init(&load, seed);
    bed = bed_start(&config);
    bed_run(bed, push_everything, &load);
    bed_finish(bed);
    load_fini(&load);
}

/* If this fails, workers that push in different orders can stop the job for good. */
static void
test_small_pool_one_lane(void **state)
{
    (void)state;
    run_under_pressure((struct bed_config){.servers = 1}, 1);
}

/* If this fails, the same happens with several lanes, each with a part of the pool. */
static void
test_small_pool_many_lanes(void **state)
{
    (void)state;
    run_under_pressure((struct bed_config){.servers = 2, .lanes = 3}, 2);
}

/* If this fails, the rule that a step ends before the next one begins makes a deadlock. */
static void
test_small_pool_with_replacements(void **state)
{
    (void)state;
    run_under_pressure((struct bed_config){.servers = 1, .policy = PSI_DEATH_WAIT}, 3);
}

/* If this fails, it happens where only the workers keep their windows small: the server has room
 * for all, and does not see why they stop. */
static void
test_small_windows(void **state)
{
    (void)state;
    run_under_pressure((struct bed_config){.servers = 1, .pool_bytes = 256 << 20}, 4);
}

/* If this fails, it happens when one of them pushes for all. */
static void
test_through_one_worker(void **state)
{
    (void)state;
    run_under_pressure((struct bed_config){.servers = 1, .elsewhere = true}, 5);
    run_under_pressure(
        (struct bed_config){.servers = 1, .elsewhere = true, .pool_bytes = 256 << 20}, 6);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_pool_one_lane),
        cmocka_unit_test(test_small_pool_many_lanes),
        cmocka_unit_test(test_small_pool_with_replacements),
        cmocka_unit_test(test_small_windows),
        cmocka_unit_test(test_through_one_worker),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
