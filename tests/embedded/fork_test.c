/*
 * fork_test.c - a forked child must not use its parent's context, and cannot hurt it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bed.h"

enum { CHILD_OK = 0, CHILD_TIME_S = 30 };

struct handles {
    psd_context *context;
    psd_table *table;
    psd_op *pending; /* under way when the fork happens */
    psd_op *ended;
};

/* Every call. Returns the number of the first that does not say PSD_ERR_FORKED, or CHILD_OK. */
static int
use_everything(const struct handles *handles)
{
    const float one = 1;
    float value = 0;
    const struct psd_state states = {"w", &value, sizeof(value)};
    psd_table *table;
    psd_op *op;
    uint64_t step;
    size_t count;
    psd_context *context = handles->context;
    int number = 0;

#define FORKED(call)                                                                               \
    do {                                                                                           \
        number++;                                                                                  \
        if ((call) != PSD_ERR_FORKED || psd_last_error()->status != PSD_ERR_FORKED) {              \
            return number;                                                                         \
        }                                                                                          \
    } while (0)

    FORKED(psd_table_open(context, TABLE("other", PSD_F32, 1), &table));
    FORKED(psd_push(handles->table, TRANSFER(1, .gradient = &one), &op));
    FORKED(psd_pull(handles->table, TRANSFER(1, .values = &value), &op));
    FORKED(psd_push_pull(handles->table, TRANSFER(1, .gradient = &one, .values = &value), &op));
    FORKED(psd_wait(handles->pending, PSD_FOREVER));
    FORKED(psd_test(handles->ended));
    FORKED(psd_wait_any(context, PSD_FOREVER, &op));
    FORKED(psd_barrier(context, PSD_FOREVER));
    FORKED(psd_global_step(context, 1, &step));
    FORKED(psd_report(context, 1, "loss", 1));
    FORKED(psd_nodes(context, NULL, sizeof(struct psd_node), 0, &count));
    FORKED(psd_save(context, "/nowhere", 1));
    FORKED(psd_load(context, "/nowhere", &step));
    FORKED(psd_state_publish(context, 1, &states, sizeof(struct psd_state), 1));
    FORKED(psd_state_fetch(context, 1, &states, sizeof(struct psd_state), 1));
#undef FORKED
    if (psd_fd(context) != -1 || psd_last_error()->status != PSD_ERR_FORKED) {
        return ++number;
    }
    /* These have no status to return: they must not block, and not touch anything. */
    (void)psd_table_step(handles->table);
    (void)psd_op_outcome(handles->pending);
    (void)psd_rank(context);
    psd_op_release(handles->pending);
    psd_op_release(handles->ended);
    psd_abandon(context);
    return psd_close(context) == PSD_ERR_FORKED ? CHILD_OK : ++number;
}

static void
fork_in_the_middle(struct worker *worker)
{
    const float one = 1;
    float value = 0;
    struct handles handles = {.context = worker->context};

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, 1, .reduce = PSD_REDUCE_SUM,
                                          .rule = RULE(.rule = PSD_RULE_ADD)),
                                    &handles.table));
    if (worker->rank == 1) {
        CHECK_OK(worker, push(handles.table, 0, &one));
        bed_wait_turn(worker->bed, 1);
        CHECK_OK(worker, push_pull(handles.table, 1, &one, &value));
        CHECK(worker, value == 4);
        return;
    }
    CHECK_OK(worker, psd_push(handles.table, TRANSFER(0, .gradient = &one), &handles.ended));
    CHECK_OK(worker, psd_wait(handles.ended, PSD_FOREVER));
    CHECK_OK(worker, psd_push_pull(handles.table, TRANSFER(1, .gradient = &one, .values = &value),
                                   &handles.pending));
    for (unsigned i = 0; i < 20; i++) { /* the library's thread may hold its lock at any time */
        int how = -1;
        const pid_t child = fork();

        CHECK(worker, child >= 0);
        if (child == 0) {
            alarm(CHILD_TIME_S);
            _exit(use_everything(&handles));
        }
        CHECK(worker, waitpid(child, &how, 0) == child);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != CHILD_OK) {
            worker_fail(worker, __FILE__, __LINE__, "child %u: wait status 0x%x", i, how);
            return;
        }
    }
    bed_next_turn(worker->bed);
    CHECK_OK(worker, psd_wait(handles.pending, PSD_FOREVER));
    CHECK(worker, value == 4);
    psd_op_release(handles.pending);
    psd_op_release(handles.ended);
}

/* If this fails, data loaders that fork hang, or spoil their parent's training. */
static void
test_fork(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, fork_in_the_middle, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
