/*
 * loss_test.c - a server or the master goes: every pending call of every worker ends soon, and says
 * who was lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "bed.h"

enum { WORKERS = 4, LIMIT_MS = 1000, BIG = 3 * PSD_CHUNK_ELEMENTS };

/* What a worker is doing when it happens; one kind per rank, so that all are there. */
struct disaster {
    const char *names; /* what the message must contain */
    _Atomic uint64_t at_ms;
};

static void
check_end(struct worker *worker, psd_status status, const char *text)
{
    const struct disaster *disaster = worker->user;
    const uint64_t took_ms = bed_now_ms() - disaster->at_ms;

    if (status != PSD_ERR_PEER_LOST || strstr(text, disaster->names) == NULL) {
        worker_fail(worker, __FILE__, __LINE__, "%s: %s", psd_status_name(status), text);
    } else if (took_ms > LIMIT_MS) {
        worker_fail(worker, __FILE__, __LINE__, "%llu ms", (unsigned long long)took_ms);
    }
}

/* All block for ever, unless the loss ends it. */
static void
block(struct worker *worker, psd_table *table, float *memory)
{
    psd_op *op;
    psd_status status;

    if (worker->rank == 0) {
        CHECK_OK(worker, psd_push(table, TRANSFER(0, .gradient = memory), &op));
        bed_next_turn(worker->bed);
        status = psd_wait(op, PSD_FOREVER);
        CHECK(worker, psd_op_outcome(op) == PSD_OUTCOME_UNKNOWN);
        check_end(worker, status, psd_op_error(op)->text);
        psd_op_release(op);
    } else if (worker->rank == 1) {
        bed_next_turn(worker->bed);
        status = psd_barrier(worker->context, PSD_FOREVER);
        check_end(worker, status, psd_last_error()->text);
    } else if (worker->rank == 2) {
        CHECK_OK(worker, psd_pull(table, TRANSFER(1, .values = memory), &op));
        bed_next_turn(worker->bed);
        CHECK_OK(worker, psd_wait_any(worker->context, PSD_FOREVER, &op));
        check_end(worker, psd_op_error(op)->status, psd_op_error(op)->text);
        psd_op_release(op);
    } else {
        bed_next_turn(worker->bed);
        status = psd_wait_any(worker->context, PSD_FOREVER, &op); /* nothing is under way */
        check_end(worker, status, psd_last_error()->text);
    }
}

static void
be_surprised(struct worker *worker)
{
    const struct disaster *disaster = worker->user;
    float *memory = calloc(BIG, sizeof(float));
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, BIG), &table));
    block(worker, table, memory);
    if (worker->failure[0] == '\0') { /* from now on every call says the same */
        CHECK_STATUS(worker, psd_push(table, TRANSFER(1, .gradient = memory), &op),
                     PSD_ERR_PEER_LOST);
        CHECK_SAYS(worker, psd_last_error()->text, disaster->names);
        CHECK_STATUS(worker, psd_barrier(worker->context, 1000), PSD_ERR_PEER_LOST);
        CHECK_STATUS(worker, psd_close(worker->context), PSD_ERR_PEER_LOST);
        worker->context = NULL;
    }
    free(memory);
}

/* If this fails, workers hang when a server is killed. */
static void
test_server_killed(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .servers = 2, .lanes = 2});
    struct disaster disaster = {.names = "server 1"};

    (void)state;
    bed_start_workers(bed, be_surprised, &disaster);
    bed_wait_turn(bed, WORKERS);
    disaster.at_ms = bed_now_ms();
    bed_kill_server(bed, 1);
    bed_join_workers(bed);
    bed_finish_failed(bed, PSI_EXIT_SERVER_LOST);
}

/* If this fails, a server that is told to stop leaves its workers waiting. */
static void
test_server_terminated(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .servers = 2});
    struct disaster disaster = {.names = "server 0"};

    (void)state;
    bed_start_workers(bed, be_surprised, &disaster);
    bed_wait_turn(bed, WORKERS);
    disaster.at_ms = bed_now_ms();
    bed_terminate_server(bed, 0);
    bed_join_workers(bed);
    bed_finish_failed(bed, PSI_EXIT_SIGTERM);
}

/* If this fails, nobody notices that the master is gone. */
static void
test_master_killed(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){
        .workers = WORKERS, .servers = 2, .heartbeat_ms = 50, .dead_heartbeats = 12});
    struct disaster disaster = {.names = "master"};

    (void)state;
    bed_start_workers(bed, be_surprised, &disaster);
    bed_wait_turn(bed, WORKERS);
    disaster.at_ms = bed_now_ms();
    bed_kill_master(bed);
    bed_join_workers(bed);
    bed_stop(bed);
}

static void
go_on(struct worker *worker)
{
    const float one = 1;
    float value = 0;
    psd_table *table;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, 1, .reduce = PSD_REDUCE_SUM,
                                          .rule = RULE(.rule = PSD_RULE_ADD)),
                                    &table));
    bed_meet(worker->bed);
    if (worker->rank == 0) {
        bed_kill_master(worker->bed);
    }
    bed_meet(worker->bed);
    for (uint64_t step = 0; step < 20; step++) {
        CHECK_OK(worker, push_pull(table, step, &one, &value));
        CHECK(worker, value == 2 * (float)(step + 1));
    }
    bed_meet(worker->bed);
    psd_abandon(worker->context);
    worker->context = NULL;
}

/* If this fails, steps stop the moment the master is away. */
static void
test_steps_go_on_while_the_master_is_away(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, go_on, NULL);
    bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_killed),
        cmocka_unit_test(test_server_terminated),
        cmocka_unit_test(test_master_killed),
        cmocka_unit_test(test_steps_go_on_while_the_master_is_away),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
