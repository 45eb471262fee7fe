/*
 * lone_test.c - sums of a job with one worker, which stay in it: bit for bit what servers give, and
 * ended as other operations end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bed.h"

/* One chunk and a bit: the last one is no multiple of anything. */
enum { ELEMENTS = PSD_CHUNK_ELEMENTS + 77, STEPS = 3, DTYPES = 4, POLICIES = 3 };

static const psd_dtype dtypes[DTYPES] = {PSD_F32, PSD_F64, PSD_F16, PSD_BF16};

static size_t
bytes_of(psd_dtype dtype)
{
    return dtype == PSD_F64 ? 8 : dtype == PSD_F32 ? 4 : 2;
}

/* Every kind of bits: where they may, also those of NaN, of any payload, and of infinity. */
static void
fill(psd_dtype dtype, uint64_t step, bool wild, uint8_t *to)
{
    const size_t bytes = bytes_of(dtype);

    awkward(dtype, 0, step, 0, ELEMENTS, to);
    for (size_t i = 0; wild && i < ELEMENTS; i += 5) {
        const uint64_t bits = mix(step, i, bytes);

        memcpy(to + i * bytes, &bits,
               bytes); /* one in 256 (f32) to one in 32 (f16) is not finite */
        if (i % 35 == 0) {
            memset(to + i * bytes, i % 2 == 0 ? 0xff : 0x7f, bytes); /* NaN */
        }
    }
}

/* What came of all the steps of all the tables. */
struct outcome {
    uint8_t *bytes;
    size_t used;
};

static void
note(struct outcome *outcome, const void *bytes, size_t count)
{
    memcpy(outcome->bytes + outcome->used, bytes, count);
    outcome->used += count;
}

enum { WAYS = 4, OUTCOME_BYTES = DTYPES * POLICIES * WAYS * STEPS * ELEMENTS * 8 };

/* Each of these is a way to one sum. */
static psd_status
take_step(psd_table *table, unsigned way, uint64_t step, uint8_t *gradient, uint8_t *values,
          const void *view)
{
    psd_status status;
    psd_op *op;

    switch (way) {
    case 0:
        return push_pull(table, step, gradient, values);
    case 1: /* in place */
        status = push_pull(table, step, gradient, gradient);
        memcpy(values, gradient, ELEMENTS * psd_table_element_bytes(table));
        return status;
    case 2:
        status = push(table, step, gradient);
        return status == PSD_OK ? pull(table, step + 1, values) : status;
    default:
        status = psd_push_pull(
            table, TRANSFER(step, .gradient = gradient, .flags = PSD_TRANSFER_VIEW), &op);
        if (status == PSD_OK) {
            status = psd_wait(op, PSD_FOREVER);
            psd_op_release(op);
        }
        memcpy(values, view, ELEMENTS * psd_table_element_bytes(table));
        return status;
    }
}

static void
train_table(struct worker *worker, psd_dtype dtype, psd_nan_policy policy, unsigned way)
{
    struct outcome *outcome = worker->user;
    uint8_t *gradient = malloc(ELEMENTS * sizeof(double));
    uint8_t *values = malloc(ELEMENTS * sizeof(double));
    const void *view;
    psd_table *table;
    char name[32];

    snprintf(name, sizeof(name), "%d/%d/%u", dtype, policy, way);
    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE(name, dtype, ELEMENTS, .use = PSD_USE_SUM, .nan_policy = policy),
                            &table));
    CHECK_OK(worker, psd_view(table, &view));
    for (uint64_t step = 0; step < STEPS; step++) {
        fill(dtype, step, policy == PSD_NAN_ALLOW || (policy == PSD_NAN_SKIP && step == 1),
             gradient);
        CHECK_OK(worker, take_step(table, way, step, gradient, values, view));
        note(outcome, values, ELEMENTS * bytes_of(dtype));
        CHECK(worker, psd_table_step(table) == step + 1);
    }
    free(gradient);
    free(values);
}

static void
train_all(struct worker *worker)
{
    for (unsigned i = 0; i < DTYPES; i++) {
        for (unsigned policy = 0; policy < POLICIES; policy++) {
            for (unsigned way = 0; way < WAYS && worker->failure[0] == '\0'; way++) {
                train_table(worker, dtypes[i], (psd_nan_policy)policy, way);
            }
        }
    }
}

static struct outcome
run(const char *lone_sums)
{
    struct outcome outcome = {.bytes = malloc(OUTCOME_BYTES)};
    struct bed *bed;

    assert_non_null(outcome.bytes);
    setenv("PSD_LONE_SUMS", lone_sums, 1);
    bed = bed_start(&(struct bed_config){.lanes = 2});
    bed_run(bed, train_all, &outcome);
    bed_finish(bed);
    unsetenv("PSD_LONE_SUMS");
    return outcome;
}

/* If this fails, a sum that stays in its only worker has other bits than one that servers add: in some type, with some
 * policy for NaN, by some way to read it. */
static void
test_bits_are_those_of_servers(void **state)
{
    struct outcome here = run("auto");
    struct outcome there = run("off");

    (void)state;
    assert_int_equal(here.used, there.used);
    for (size_t i = 0; i < here.used; i++) {
        if (here.bytes[i] != there.bytes[i]) {
            fail_msg("byte %zu of %zu: %02x here, %02x from a server", i, here.used, here.bytes[i],
                     there.bytes[i]);
        }
    }
    free(here.bytes);
    free(there.bytes);
}

/* ---- how they end ------------------------------------------------------------------------- */

enum { MANY_STEPS = 200000 };

/* Thread: the worker's; `done` is guarded by lock. */
struct chain {
    psd_table *table;
    uint64_t step;
    float value;
    bool failed;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool done;
};

static void
end_chain(struct chain *chain, bool failed)
{
    pthread_mutex_lock(&chain->lock);
    chain->failed = failed;
    chain->done = true;
    pthread_cond_signal(&chain->over);
    pthread_mutex_unlock(&chain->lock);
}

static void
next_of_chain(psd_op *op, psd_status status, void *user)
{
    struct chain *chain = user;

    if (op != NULL) {
        psd_op_release(op);
    }
    if (status == PSD_OK && chain->step < MANY_STEPS) {
        const uint64_t step = chain->step++; /* it may end before the call returns */

        status = psd_push_pull(chain->table,
                               TRANSFER(step, .gradient = &chain->value, .values = &chain->value,
                                        .done = next_of_chain, .user = chain),
                               &op);
        if (status == PSD_OK) {
            return;
        }
    }
    end_chain(chain, status != PSD_OK);
}

static void
go_from_step_to_step(struct worker *worker)
{
    struct chain chain = {
        .value = 3, .lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1, .use = PSD_USE_SUM),
                                    &chain.table));
    next_of_chain(NULL, PSD_OK, &chain);
    pthread_mutex_lock(&chain.lock);
    while (!chain.done) {
        pthread_cond_wait(&chain.over, &chain.lock);
    }
    pthread_mutex_unlock(&chain.lock);
    CHECK(worker, !chain.failed);
    CHECK(worker, psd_table_step(chain.table) == MANY_STEPS);
    CHECK(worker, chain.value == 3);
}

/* If this fails, a program whose callbacks begin its next step, which ends at once, runs out of stack. */
static void
test_callbacks_do_not_pile_up(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){0});

    (void)state;
    bed_run(bed, go_from_step_to_step, NULL);
    bed_finish(bed);
}

static void
wait_for_any(struct worker *worker)
{
    const float one = 1;
    float values[2] = {0, 0};
    psd_table *table;
    psd_op *ops[2];
    psd_op *op;
    struct pollfd poll_fd = {.events = POLLIN};

    CHECK_OK(worker,
             psd_table_open(worker->context, TABLE("w", PSD_F32, 1, .use = PSD_USE_SUM), &table));
    poll_fd.fd = psd_fd(worker->context);
    CHECK(worker, poll(&poll_fd, 1, 0) == 0);
    CHECK_OK(worker, psd_pull(table, TRANSFER(1, .values = &values[1]), &ops[1]));
    CHECK_STATUS(worker, psd_wait_any(worker->context, 0, &op), PSD_PENDING);
    CHECK_OK(worker,
             psd_push_pull(table, TRANSFER(0, .gradient = &one, .values = &values[0]), &ops[0]));
    CHECK(worker, poll(&poll_fd, 1, 0) == 1);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_OK(worker, psd_wait_any(worker->context, 0, &op));
        CHECK(worker, op == ops[i] && values[i] == 1 && psd_op_outcome(op) == PSD_OUTCOME_DONE);
        psd_op_release(op);
    }
    CHECK(worker, poll(&poll_fd, 1, 0) == 0);
}

/* If this fails, programs that wait for any operation, or for a descriptor, do not hear of one that ended at once. */
static void
test_what_ends_at_once_is_told(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){0});

    (void)state;
    bed_run(bed, wait_for_any, NULL);
    bed_finish(bed);
}

/* ---- large ones ------------------------------------------------------------------------------ */

/* Of many pieces, and no whole number of them. */
enum { LARGE = 50 * PSD_CHUNK_ELEMENTS + 77, LARGE_STEPS = 3, WAIT_MS = 60000 };

static float *
all_of(float value)
{
    float *values = malloc(LARGE * sizeof(*values));

    assert_non_null(values);
    for (size_t i = 0; i < LARGE; i++) {
        values[i] = value;
    }
    return values;
}

static bool
is_all_of(const float *values, float value)
{
    size_t i = 0;

    while (i < LARGE && values[i] == value) {
        i++;
    }
    return i == LARGE;
}

/* Thread: a helper's. */
struct small_steps {
    psd_table *table;
    bool well;
};

static void *
take_small_steps(void *argument)
{
    struct small_steps *steps = argument;
    float value = 5;

    steps->well = true;
    for (uint64_t step = 0; step < 200 && steps->well; step++) {
        steps->well = push_pull(steps->table, step, &value, &value) == PSD_OK && value == 5;
    }
    return NULL;
}

static void
train_beside_another_thread(struct worker *worker)
{
    struct small_steps small = {0};
    float *gradient[2] = {all_of(1), all_of(2)};
    float *values = all_of(-1);
    psd_table *large;
    pthread_t thread;
    psd_op *op[3];

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("large", PSD_F32, LARGE, .use = PSD_USE_SUM), &large));
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("small", PSD_F32, 1, .use = PSD_USE_SUM),
                                    &small.table));
    CHECK(worker, pthread_create(&thread, NULL, take_small_steps, &small) == 0);
    for (uint64_t step = 0; step < 2 * LARGE_STEPS; step += 2) {
        CHECK_OK(worker, psd_push(large, TRANSFER(step, .gradient = gradient[0]), &op[0]));
        CHECK_OK(worker, psd_pull(large, TRANSFER(step + 1, .values = values), &op[1]));
        CHECK_OK(worker, psd_push(large, TRANSFER(step + 1, .gradient = gradient[1]), &op[2]));
        for (unsigned i = 0; i < 3; i++) {
            CHECK_OK(worker, psd_wait(op[i], WAIT_MS));
            psd_op_release(op[i]);
        }
        CHECK(worker, is_all_of(values, 1));
        CHECK_OK(worker, pull(large, step + 2, values));
        CHECK(worker, is_all_of(values, 2));
    }
    pthread_join(thread, NULL);
    CHECK(worker, small.well);
    free(gradient[0]);
    free(gradient[1]);
    free(values);
}

/* If this fails, large sums that are copied while another thread calls the library are not those of their steps, or
 * either thread waits for ever. */
static void
test_large_sums_beside_another_thread(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){0});

    (void)state;
    bed_run(bed, train_beside_another_thread, NULL);
    bed_finish(bed);
}

static void
note_status(psd_op *op, psd_status status, void *user)
{
    (void)op;
    *(psd_status *)user = status;
}

static void
end_while_copying(struct worker *worker)
{
    const bool abandons = *(const bool *)worker->user;
    psd_status status[2] = {PSD_PENDING, PSD_PENDING};
    float *gradient = all_of(3);
    float *values = all_of(-1);
    psd_table *table;
    psd_op *op[2];

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, LARGE, .use = PSD_USE_SUM),
                                    &table));
    CHECK_OK(worker,
             psd_push(table,
                      TRANSFER(0, .gradient = gradient, .done = note_status, .user = &status[0]),
                      &op[0]));
    CHECK_OK(worker,
             psd_pull(table, TRANSFER(1, .values = values, .done = note_status, .user = &status[1]),
                      &op[1]));
    if (abandons) {
        psd_abandon(worker->context);
    } else {
        CHECK_OK(worker, psd_close(worker->context));
    }
    worker->context = NULL;
    for (unsigned i = 0; i < 2; i++) { /* it may have been copied by then */
        CHECK(worker, status[i] == PSD_OK || (abandons && status[i] == PSD_ERR_CLOSED));
    }
    CHECK(worker, abandons || is_all_of(values, 3));
    free(gradient);
    free(values);
}

/* If this fails, psd_close() loses large sums that are being copied, or memory of the program is touched after psd_close()
 * or psd_abandon(), which a sanitizer sees. */
static void
test_a_context_may_end_meanwhile(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        bool abandons = i == 1;
        struct bed *bed = bed_start(&(struct bed_config){0});

        bed_run(bed, end_while_copying, &abandons);
        if (abandons) {
            bed_stop(bed);
        } else {
            bed_finish(bed);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_servers),
        cmocka_unit_test(test_callbacks_do_not_pile_up),
        cmocka_unit_test(test_what_ends_at_once_is_told),
        cmocka_unit_test(test_large_sums_beside_another_thread),
        cmocka_unit_test(test_a_context_may_end_meanwhile),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
