/*
 * more_test.c - who sends a transfer, and when: many small tensors leave together, and none waits for what does
 * not follow (PSD_TRANSFER_MORE); the library's own thread sends what is left to it (PSD_TRANSFER_BEHIND).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bed.h"

enum { TABLES = 60, ELEMENTS = 16, STEPS = 3 };

static _Thread_local unsigned calls; /* of sendmsg() by this thread */

ssize_t sendmsg(int fd, const struct msghdr *message, int flags);

ssize_t
sendmsg(int fd, const struct msghdr *message, int flags)
{
    calls++;
    return syscall(SYS_sendmsg, fd, message, flags);
}

/* What a worker does with its tables. */
struct more_run {
    struct bed_config config;
    bool in_vain;       /* also of the last one another is said to follow */
    bool polls;         /* psd_test() until they have ended */
    unsigned calls_max; /* of the kernel, to start those of a step; 0: any number */
};

struct tensors {
    psd_table *tables[TABLES];
    psd_op *ops[TABLES];
    float gradients[TABLES][ELEMENTS];
    float values[TABLES][ELEMENTS];
};

static void
open_tables(struct worker *worker, struct tensors *tensors)
{
    for (unsigned i = 0; i < TABLES; i++) {
        char name[16];

        snprintf(name, sizeof(name), "tensor %u", i);
        CHECK_OK(worker, psd_table_open(worker->context,
                                        TABLE(name, PSD_F32, ELEMENTS, .use = PSD_USE_SUM,
                                              .reduce = PSD_REDUCE_SUM),
                                        &tensors->tables[i]));
    }
}

static void
start(struct worker *worker, struct tensors *tensors, uint64_t step)
{
    const struct more_run *run = worker->user;

    for (unsigned i = 0; i < TABLES; i++) {
        const bool more = run->in_vain || i + 1 < TABLES;

        for (unsigned at = 0; at < ELEMENTS; at++) {
            tensors->gradients[i][at] = (float)(i + step * TABLES + worker->rank);
        }
        CHECK_OK(worker, psd_push_pull(tensors->tables[i],
                                       TRANSFER(step, .gradient = tensors->gradients[i],
                                                .values = tensors->values[i],
                                                .flags = more ? PSD_TRANSFER_MORE : 0),
                                       &tensors->ops[i]));
    }
}

static void
finish(struct worker *worker, struct tensors *tensors, uint64_t step)
{
    const struct more_run *run = worker->user;

    if (run->polls) {
        (void)psd_test(tensors->ops[0]);
        CHECK(worker, calls > 0 || !run->config.elsewhere); /* it has sent them itself */
    }
    for (unsigned i = 0; i < TABLES; i++) {
        const float sum = (float)(2 * (i + step * TABLES) + 1);

        while (run->polls && psd_test(tensors->ops[i]) == PSD_PENDING) {
            sched_yield();
        }
        CHECK_OK(worker, psd_wait(tensors->ops[i], PSD_FOREVER));
        psd_op_release(tensors->ops[i]);
        CHECK(worker, tensors->values[i][0] == sum && tensors->values[i][ELEMENTS - 1] == sum);
    }
}

static void
train(struct worker *worker)
{
    const struct more_run *run = worker->user;
    static struct tensors of_rank[2];
    struct tensors *tensors = &of_rank[worker->rank];

    open_tables(worker, tensors);
    for (uint64_t step = 0; step < STEPS; step++) {
        calls = 0;
        start(worker, tensors, step);
        CHECK(worker, run->calls_max == 0 || calls <= run->calls_max);
        finish(worker, tensors, step);
    }
}

static void
run_all(const struct more_run *runs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct more_run run = runs[i];
        struct bed *bed;

        run.config.workers = 2;
        bed = bed_start(&run.config);
        bed_run(bed, train, &run);
        bed_finish(bed);
    }
}

/* If this fails, each of many small tensors costs a call of the kernel, though the program said that others follow. */
static void
test_small_tensors_leave_together(void **state)
{
    const struct more_run runs[] = {
        {.config = {.elsewhere = true, .flat = true}, .calls_max = 4},
        {.config = {.servers = 2, .elsewhere = true, .flat = true}, .calls_max = 8},
        {.config = {.elsewhere = false}},
        {.config = {.elsewhere = true}},
    };

    (void)state;
    run_all(runs, sizeof(runs) / sizeof(runs[0]));
}

/* If this fails, a transfer waits for ever, or until a heartbeat is due, when what was to follow does not. */
static void
test_who_waits_does_not_wait_for_more(void **state)
{
    const struct more_run runs[] = {
        {.config = {.elsewhere = true, .flat = true}, .in_vain = true},
        {.config = {.elsewhere = true, .flat = true}, .in_vain = true, .polls = true},
        {.config = {.elsewhere = false}, .in_vain = true, .polls = true},
    };

    (void)state;
    run_all(runs, sizeof(runs) / sizeof(runs[0]));
}

static void
start_two(struct worker *worker)
{
    static float large[PSD_CHUNK_ELEMENTS / 2];
    const float small = 1.0f;
    float value = 0.0f;
    psd_table *tables[2];
    psd_op *ops[2];

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("small", PSD_F32, 1), &tables[0]));
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("large", PSD_F32, PSD_CHUNK_ELEMENTS / 2), &tables[1]));
    calls = 0;
    CHECK_OK(worker, psd_push_pull(tables[0],
                                   TRANSFER(0, .gradient = &small, .values = &value,
                                            .flags = PSD_TRANSFER_MORE),
                                   &ops[0]));
    CHECK(worker, calls == 0);
    CHECK_OK(worker, psd_push(tables[1], TRANSFER(0, .gradient = large, .flags = PSD_TRANSFER_MORE),
                              &ops[1]));
    CHECK(worker, calls > 0);
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(worker, psd_wait(ops[i], PSD_FOREVER));
        psd_op_release(ops[i]);
    }
}

/* If this fails, a large tensor stays here, where it could be on its way already. */
static void
test_large_tensors_leave_at_once(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.elsewhere = true});

    (void)state;
    bed_run(bed, start_two, NULL);
    bed_finish(bed);
}

/* Of the last transfer that ended; its callback runs on the library's thread. */
static atomic_uint ended;

static void
note_end(psd_op *op, psd_status status, void *user)
{
    (void)op;
    (void)user;
    if (status == PSD_OK) {
        atomic_fetch_add(&ended, 1);
    }
}

/* Nobody calls the library meanwhile. */
static void
start_behind(struct worker *worker)
{
    enum { DEADLINE_MS = 20000, EACH = 3 };
    static float gradient[PSD_CHUNK_ELEMENTS];
    static float values[EACH][PSD_CHUNK_ELEMENTS];
    const uint64_t until_ms = bed_now_ms() + DEADLINE_MS;
    psd_table *tables[EACH];
    psd_op *ops[EACH];

    for (unsigned i = 0; i < EACH; i++) {
        char name[16];

        gradient[0] = 1.0f;
        snprintf(name, sizeof(name), "behind %u", i);
        CHECK_OK(worker, psd_table_open(worker->context,
                                        TABLE(name, PSD_F32, PSD_CHUNK_ELEMENTS,
                                              .rule = RULE(.rule = PSD_RULE_ADD)),
                                        &tables[i]));
    }
    calls = 0;
    for (unsigned i = 0; i < EACH; i++) {
        CHECK_OK(worker, psd_push_pull(tables[i],
                                       TRANSFER(0, .gradient = gradient, .values = values[i],
                                                .flags = PSD_TRANSFER_BEHIND, .done = note_end),
                                       &ops[i]));
    }
    while (atomic_load(&ended) < EACH && bed_now_ms() < until_ms) {
        sched_yield();
    }
    CHECK(worker, atomic_load(&ended) == EACH); /* within 20 s */
    CHECK(worker, calls == 0);
    for (unsigned i = 0; i < EACH; i++) {
        CHECK(worker, values[i][0] == 1.0f);
        psd_op_release(ops[i]);
    }
}

/* If this fails, a thread that has no time sends and wakes servers all the same; or nobody sends what it left to the
 * library's own thread. */
static void
test_what_is_left_to_the_librarys_thread(void **state)
{
    for (unsigned elsewhere = 0; elsewhere < 2; elsewhere++) {
        struct bed *bed = bed_start(&(struct bed_config){.elsewhere = elsewhere != 0});

        (void)state;
        atomic_store(&ended, 0);
        bed_run(bed, start_behind, NULL);
        bed_finish(bed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_tensors_leave_together),
        cmocka_unit_test(test_who_waits_does_not_wait_for_more),
        cmocka_unit_test(test_large_tensors_leave_at_once),
        cmocka_unit_test(test_what_is_left_to_the_librarys_thread),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
