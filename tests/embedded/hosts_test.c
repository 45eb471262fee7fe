/*
 * hosts_test.c - workers of one host push as one: the same bits as each for itself, whatever the
 * type, the memory and the order; who is missing is named; whoever leaves leaves the others going.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "bed.h"

enum { STEPS = BED_SANITIZED ? 4 : 12, CHUNK = PSD_CHUNK_ELEMENTS, COUNT = 10 * CHUNK + 77 };

static const psd_dtype dtypes[] = {PSD_F32, PSD_F64, PSD_F16, PSD_BF16};
static const size_t dtype_bytes[] = {4, 8, 2, 2};

/* One way to train. Thread: rank 0 writes `values` between two meetings; else immutable. */
struct run {
    size_t type; /* into dtypes */
    bool lent;   /* gradients in memory of psd_alloc */
    bool split;  /* push, then pull */
    bool mixed;  /* chunk by chunk, every rank in another order */
    bool flat;
    bool tiny;  /* gradients below the smallest normal number ... */
    bool flush; /* ... in threads that take those for zero, and round towards it */
    uint32_t workers;
    uint8_t *values; /* of rank 0, after the last step */
};

static void
start_ranges(struct worker *worker, psd_table *table, uint64_t step, const uint8_t *gradient,
             uint8_t *values, psd_op **ops)
{
    const struct run *run = worker->user;
    const uint64_t chunks = (COUNT + CHUNK - 1) / CHUNK;

    for (uint64_t i = 0; i < chunks; i++) {
        const uint64_t chunk = (worker->rank % 2 == 0 ? i : chunks - 1 - i);
        const uint64_t first = chunk * CHUNK;
        const size_t at = first * dtype_bytes[run->type];

        CHECK_OK(worker, psd_push_pull(table,
                                       TRANSFER(step, .first = first,
                                                .count = chunk + 1 < chunks ? CHUNK : COUNT - first,
                                                .gradient = gradient + at, .values = values + at),
                                       &ops[i]));
    }
}

#if defined(__x86_64__)
#define FLUSH_AND_ROUND_DOWN UINT32_C(0xffc0) /* all exceptions masked */
#else
#define FLUSH_AND_ROUND_DOWN UINT64_C(0x1c00000)
#endif

/* f32 alone. */
static void
tiny(uint32_t rank, uint64_t step, float *gradient)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        const uint32_t bits = (uint32_t)mix(rank, step, i) & 0x807fffff;

        memcpy(&gradient[i], &bits, sizeof(bits));
    }
}

static void
make_step(struct worker *worker, psd_table *table, uint64_t step, uint8_t *gradient,
          uint8_t *values)
{
    const struct run *run = worker->user;
    psd_op *ops[COUNT / CHUNK + 1];

    if (run->tiny) {
        tiny(worker->rank, step, (float *)(void *)gradient);
    } else {
        awkward(dtypes[run->type], worker->rank, step, 0, COUNT, gradient);
    }
    if (run->mixed) {
        start_ranges(worker, table, step, gradient, values, ops);
        for (size_t i = 0; i <= COUNT / CHUNK && worker->failure[0] == '\0'; i++) {
            CHECK_OK(worker, psd_wait(ops[i], PSD_FOREVER));
            psd_op_release(ops[i]);
        }
    } else if (run->split) {
        CHECK_OK(worker, push(table, step, gradient));
        CHECK_OK(worker, pull(table, step + 1, values));
    } else {
        CHECK_OK(worker, push_pull(table, step, gradient, values));
    }
}

static void
train(struct worker *worker)
{
    struct run *run = worker->user;
    const size_t bytes = COUNT * dtype_bytes[run->type];
    uint8_t *values = malloc(bytes);
    void *gradient = NULL;
    psd_table *table;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", dtypes[run->type], COUNT,
                                          .rule = RULE(.rule = PSD_RULE_MOMENTUM)),
                                    &table));
    if (run->lent) {
        CHECK_OK(worker, psd_alloc(worker->context, bytes, &gradient));
    } else {
        gradient = malloc(bytes);
    }
    CHECK(worker, run->flat || bed_await_route(worker, table));
    if (run->flush) {
        psi_arithmetic_set(FLUSH_AND_ROUND_DOWN);
    }
    for (uint64_t step = 0; step < STEPS && worker->failure[0] == '\0'; step++) {
        make_step(worker, table, step, gradient, values);
    }
    CHECK(worker, !run->flush || (psi_arithmetic_get() & ~63u) == FLUSH_AND_ROUND_DOWN);
    psi_arithmetic_set(PSI_ARITHMETIC_IEEE);
    CHECK(worker, bed_is_routed(worker, table) == !run->flat);
    bed_meet(worker->bed);
    if (worker->rank == 0) {
        memcpy(run->values, values, bytes);
    }
    bed_meet(worker->bed);
    CHECK(worker, memcmp(run->values, values, bytes) == 0);
    if (run->lent) {
        CHECK_OK(worker, psd_free(worker->context, gradient));
    } else {
        free(gradient);
    }
    free(values);
}

static void
run_it(struct run *run)
{
    struct bed *bed = bed_start(&(struct bed_config){
        .workers = run->workers, .servers = 2, .lanes = 2, .flat = run->flat, .elsewhere = true});

    run->values = calloc(COUNT, dtype_bytes[run->type]);
    assert_non_null(run->values);
    bed_run(bed, train, run);
    bed_finish(bed);
}

/* If this fails, what a host adds has other bits, or workers of a host do not find each other. */
static void
test_same_bits_as_each_for_itself(void **state)
{
    (void)state;
    for (size_t type = 0; type < sizeof(dtypes) / sizeof(dtypes[0]); type++) {
        struct run flat = {.type = type, .flat = true, .workers = 3 + (uint32_t)type};
        struct run ways[] = {{.lent = true}, {.split = true}, {.mixed = true}};

        run_it(&flat);
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
            ways[i].type = type;
            ways[i].workers = flat.workers;
            run_it(&ways[i]);
            if (memcmp(ways[i].values, flat.values, COUNT * dtype_bytes[type]) != 0) {
                fail_msg("type %zu, way %zu: not the bits of flat", type, i);
            }
            free(ways[i].values);
        }
        free(flat.values);
    }
}

/* If this fails, the bits depend on how the program has told its threads to compute, or it finds
 * that changed. */
static void
test_same_bits_whatever_the_callers_arithmetic(void **state)
{
    struct run flat = {.tiny = true, .flat = true, .workers = 3};
    struct run flushed = {.tiny = true, .flush = true, .workers = 3};

    (void)state;
    run_it(&flat);
    run_it(&flushed);
    assert_memory_equal(flat.values, flushed.values, COUNT * sizeof(float));
    free(flat.values);
    free(flushed.values);
}

/* Two workers of a 16-bit table would send as many bytes as before: they push for themselves. */
static void
train_narrow(struct worker *worker)
{
    const uint16_t gradient[4] = {0};
    uint16_t values[4];
    psd_table *table;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_BF16, 4), &table));
    for (uint64_t step = 0; step < 20; step++) {
        CHECK_OK(worker, push_pull(table, step, gradient, values));
    }
    CHECK(worker, !bed_is_routed(worker, table));
}

/* If this fails, sums are sent where they are no shorter than what they are made of. */
static void
test_only_where_it_helps(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .elsewhere = true});

    (void)state;
    bed_run(bed, train_narrow, NULL);
    bed_finish(bed);
}

/* Everybody but the last pushes until all go through the host; then the last one is late. */
static void
wait_for_the_late(struct worker *worker)
{
    const float gradient[4] = {1, 2, 3, 4};
    float values[4];
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 4), &table));
    CHECK(worker, bed_await_route(worker, table));
    for (uint64_t step = 0; step < 30; step++) {
        CHECK_OK(worker, push_pull(table, step, gradient, values));
    }
    bed_meet(worker->bed);
    if (worker->rank < 2) {
        CHECK_OK(worker,
                 psd_push_pull(
                     table, TRANSFER(30, .gradient = gradient, .values = values, .timeout_ms = 400),
                     &op));
        CHECK_STATUS(worker, psd_wait(op, PSD_FOREVER), PSD_ERR_TIMEOUT);
        CHECK_SAYS(worker, psd_op_error(op)->text, "waits for worker 2 of this host");
        psd_op_release(op);
    }
    bed_meet(worker->bed);
    /* And then once more, all of them: what was given counts once. */
    CHECK_OK(worker, push_pull(table, 30, gradient, values));
    CHECK_OK(worker, push_pull(table, 31, gradient, values));
}

/* If this fails, a deadline does not tell whom it waited for, or a step cannot be repeated. */
static void
test_names_who_is_missing(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .elsewhere = true});

    (void)state;
    bed_run(bed, wait_for_the_late, NULL);
    bed_finish(bed);
}

/* Rank `leaver` goes after ten steps; the others go on. */
static void
leave_early(struct worker *worker)
{
    const uint32_t leaver = *(const uint32_t *)worker->user;
    const uint64_t steps = worker->rank == leaver ? 10 : 30;
    float gradient[4];
    float values[4];
    psd_table *table;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, 4, .use = PSD_USE_SUM, .reduce = PSD_REDUCE_SUM),
                            &table));
    for (uint64_t step = 0; step < steps; step++) {
        const float expected = step < 10 ? 7 : 7 - (float)(1 << leaver);

        for (size_t i = 0; i < 4; i++) {
            gradient[i] = (float)(1 << worker->rank);
        }
        CHECK_OK(worker, push_pull(table, step, gradient, values));
        CHECK(worker, values[0] == expected && values[3] == expected);
    }
}

/* If this fails, the others wait for a worker of their host that has left, or through it. */
static void
test_others_go_on(void **state)
{
    (void)state;
    for (uint32_t leaver = 0; leaver < 3; leaver++) {
        struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .elsewhere = true});

        bed_run(bed, leave_early, &leaver);
        bed_finish(bed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_as_each_for_itself),
        cmocka_unit_test(test_same_bits_whatever_the_callers_arithmetic),
        cmocka_unit_test(test_only_where_it_helps),
        cmocka_unit_test(test_names_who_is_missing),
        cmocka_unit_test(test_others_go_on),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
