/*
 * replace_test.c - a worker dies: the job fails, goes on without it, or waits for a replacement,
 * and then ends in the same bits as a run without a death.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "bed.h"

enum {
    WORKERS = 3,
    STEPS = 6,
    VICTIM = 1,
    DEATH_STEP = 3,
    BIG = (BED_SANITIZED ? 1 : 2) * PSD_CHUNK_ELEMENTS + 5
};

/* ---- policy: fail ------------------------------------------------------------------------- */

static void
die_or_be_told(struct worker *worker)
{
    const float one = 1;
    psd_table *table;

    CHECK_OK(worker, psd_table_open(worker->context, TABLE("w", PSD_F32, 1), &table));
    CHECK_OK(worker, push(table, 0, &one));
    if (worker->rank == VICTIM) {
        psd_abandon(worker->context);
    } else {
        CHECK_STATUS(worker, push(table, 1, &one), PSD_ERR_PEER_LOST);
        CHECK_SAYS(worker, psd_last_error()->text, "worker 1");
        CHECK_STATUS(worker, psd_close(worker->context), PSD_ERR_PEER_LOST);
    }
    worker->context = NULL;
}

/* If this fails, a job whose policy is to fail does not, or does not say who died. */
static void
test_fail(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .servers = 2});

    (void)state;
    bed_run(bed, die_or_be_told, NULL);
    bed_finish_failed(bed, PSI_EXIT_WORKER_LOST);
}

/* ---- policy: continue --------------------------------------------------------------------- */

static void
go_on_without(struct worker *worker)
{
    const float gradient[2] = {(float)(worker->rank + 1), 1};
    float values[2];
    psd_table *table;
    psd_op *op;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, 2, .rule = RULE(.rule = PSD_RULE_ADD)), &table));
    for (uint64_t step = 0; step < 3; step++) {
        CHECK_OK(worker, push_pull(table, step, gradient, values));
        CHECK(worker, values[0] == 2 * (float)(step + 1) && values[1] == (float)(step + 1));
    }
    if (worker->rank == VICTIM) {
        psd_abandon(worker->context);
        worker->context = NULL;
        return;
    }
    CHECK_OK(worker,
             psd_push_pull(table, TRANSFER(3, .gradient = gradient, .values = values), &op));
    CHECK_OK(worker, psd_wait(op, PSD_FOREVER)); /* ends when the death is known */
    psd_op_release(op);
    CHECK(worker, values[0] == 8 && values[1] == 4); /* (1 + 3) / 2 and 1: two of them */
    CHECK_OK(worker, psd_barrier(worker->context, 15000));
    CHECK_OK(worker, push_pull(table, 4, gradient, values));
    CHECK(worker, values[0] == 10 && values[1] == 5);
}

/* If this fails, the death of one worker stops the others, or changes what they compute. */
static void
test_continue(void **state)
{
    struct bed *bed = bed_start(
        &(struct bed_config){.workers = WORKERS, .servers = 2, .policy = PSI_DEATH_CONTINUE});

    (void)state;
    bed_run(bed, go_on_without, NULL);
    bed_finish(bed);
}

/* The victim gives its first chunk and dies before the others give theirs. */
static void
leave_half_a_step(struct worker *worker)
{
    float *gradient = malloc(BIG * sizeof(float));
    float *values = malloc(BIG * sizeof(float));
    psd_table *table;
    psd_table *probe; /* has a chunk on every server: ends when all know of the death */
    psd_op *op;

    for (size_t i = 0; i < BIG; i++) {
        gradient[i] = 1;
    }
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, BIG, .reduce = PSD_REDUCE_SUM,
                                          .rule = RULE(.rule = PSD_RULE_ADD)),
                                    &table));
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("probe", PSD_F32, BIG), &probe));
    CHECK_OK(worker, push_pull(table, 0, gradient, values));
    if (worker->rank == VICTIM) {
        CHECK_OK(worker, psd_push(table,
                                  TRANSFER(1, .gradient = gradient, .count = PSD_CHUNK_ELEMENTS,
                                           .timeout_ms = 100),
                                  &op));
        CHECK_STATUS(worker, psd_wait(op, PSD_FOREVER), PSD_ERR_TIMEOUT);
        psd_abandon(worker->context);
        worker->context = NULL;
    } else {
        CHECK_OK(worker, push(probe, 0, gradient));
        CHECK_OK(worker, push_pull(table, 1, gradient, values));
        for (size_t i = 0; i < BIG; i++) {
            CHECK(worker, values[i] == 3 + 2); /* closed nowhere, so dropped everywhere */
        }
    }
    free(gradient);
    free(values);
}

/* If this fails, half a step of a dead worker gets into the model. */
static void
test_continue_drops_half_a_step(void **state)
{
    struct bed *bed = bed_start(
        &(struct bed_config){.workers = WORKERS, .servers = 2, .policy = PSI_DEATH_CONTINUE});

    (void)state;
    bed_run(bed, leave_half_a_step, NULL);
    bed_finish(bed);
}

/* ---- policy: wait for a replacement ------------------------------------------------------- */

enum { TABLES = 2 };

static const uint64_t counts[TABLES] = {BIG, 500};

/* Where the victim dies in step DEATH_STEP. */
enum death { DEATH_NONE, DEATH_BEFORE, DEATH_BETWEEN, DEATH_AFTER_SUBMIT, DEATH_AFTER_STEP };

/* Thread: `death` immutable; values written by rank 0. */
struct training {
    enum death death;
    float *values[TABLES];
};

/* A gradient that depends on the values: computed on another version it has other bits. */
static void
compute(uint32_t rank, uint64_t step, size_t t, const float *values, float *gradient)
{
    awkward(PSD_F32, rank, step * TABLES + t, 0, counts[t], gradient);
    for (uint64_t i = 0; i < counts[t]; i++) {
        gradient[i] = gradient[i] * 0.001f + values[i] * 0.125f;
    }
}

/* One step of both tables. False: the worker is dead now. */
static bool
train_step(struct worker *worker, psd_table **tables, uint64_t step, float **values,
           float **gradients)
{
    const struct training *training = worker->user;
    const bool dies = training->death != DEATH_NONE && worker->rank == VICTIM &&
                      step == DEATH_STEP && psd_incarnation(worker->context) == 1;
    psd_op *ops[TABLES] = {NULL};
    psd_status status = PSD_OK;

    for (size_t t = 0; t < TABLES; t++) {
        compute(worker->rank, step, t, values[t], gradients[t]);
    }
    if (dies && training->death == DEATH_BEFORE) {
        return false;
    }
    for (size_t t = 0; t < TABLES && status == PSD_OK; t++) {
        status = psd_push_pull(
            tables[t], TRANSFER(step, .gradient = gradients[t], .values = values[t]), &ops[t]);
        if (dies && training->death == DEATH_BETWEEN) {
            (void)psd_wait(ops[t], PSD_FOREVER); /* table 0 closes: all others have given it */
            return false;
        }
    }
    if (dies && training->death == DEATH_AFTER_SUBMIT) {
        return false;
    }
    for (size_t t = 0; t < TABLES && status == PSD_OK; t++) {
        status = psd_wait(ops[t], PSD_FOREVER);
        psd_op_release(ops[t]);
    }
    if (status != PSD_OK) {
        worker_fail(worker, __FILE__, __LINE__, "step %u: %s", (unsigned)step,
                    psd_last_error()->text);
    }
    return status == PSD_OK && !(dies && training->death == DEATH_AFTER_STEP);
}

static void
train(struct worker *worker)
{
    const struct training *training = worker->user;
    float *gradients[TABLES];
    float *values[TABLES];
    psd_table *tables[TABLES];
    uint64_t step;
    bool alive = true;

    for (size_t t = 0; t < TABLES; t++) {
        gradients[t] = malloc(counts[t] * sizeof(float));
        values[t] = malloc(counts[t] * sizeof(float));
        CHECK_OK(worker, psd_table_open(worker->context,
                                        TABLE(t == 0 ? "big" : "small", PSD_F32, counts[t],
                                              .init = PSD_INIT_NORMAL, .init_value = 1, .seed = t,
                                              .rule = RULE(.rule = PSD_RULE_ADAM)),
                                        &tables[t]));
    }
    step = psd_table_step(tables[0]);
    CHECK(worker, step == psd_table_step(tables[1]));
    for (size_t t = 0; t < TABLES; t++) {
        CHECK_OK(worker, pull(tables[t], step, values[t]));
    }
    for (; step < STEPS && alive; step++) {
        alive = train_step(worker, tables, step, values, gradients);
    }
    if (!alive) {
        psd_abandon(worker->context);
        worker->context = NULL;
    }
    for (size_t t = 0; t < TABLES; t++) {
        if (worker->rank == 0 && alive) {
            memcpy(training->values[t], values[t], counts[t] * sizeof(float));
        }
        free(gradients[t]);
        free(values[t]);
    }
    if (!alive) {
        bed_next_turn(worker->bed); /* a replacement may come */
    }
}

static void
run_training(struct training *training, struct bed_config config, worker_fn run)
{
    struct bed *bed;
    struct worker replacement = {0};
    bool well = true;

    config.workers = WORKERS;
    config.policy = PSI_DEATH_WAIT;
    bed = bed_start(&config);
    bed_start_workers(bed, run, training);
    if (training->death != DEATH_NONE) {
        bed_wait_turn(bed, 1);
        well = bed_run_one(bed, VICTIM, run, training, &replacement);
    }
    if (!well) { /* now: the others wait for it, and then fail for that */
        print_error("death %d: the replacement: %s\n", (int)training->death, replacement.failure);
    }
    bed_join_workers(bed);
    if (!well) {
        bed_stop(bed);
        fail_msg("death %d: the replacement failed", (int)training->death);
    }
    bed_finish(bed);
}

static void
training_init(struct training *training, enum death death)
{
    training->death = death;
    for (size_t t = 0; t < TABLES; t++) {
        training->values[t] = calloc(counts[t], sizeof(float));
        assert_non_null(training->values[t]);
    }
}

static void
training_fini(struct training *training)
{
    for (size_t t = 0; t < TABLES; t++) {
        free(training->values[t]);
    }
}

static void
compare_with_undisturbed(worker_fn run, const enum death *deaths, size_t count)
{
    struct training undisturbed;

    training_init(&undisturbed, DEATH_NONE);
    run_training(&undisturbed, (struct bed_config){.servers = 2}, run);
    for (size_t i = 0; i < count; i++) {
        struct training disturbed;

        training_init(&disturbed, deaths[i]);
        run_training(&disturbed, (struct bed_config){.servers = i % 2 == 0 ? 2 : 1, .lanes = 2},
                     run);
        for (size_t t = 0; t < TABLES; t++) {
            if (memcmp(undisturbed.values[t], disturbed.values[t], counts[t] * sizeof(float)) !=
                0) {
                fail_msg("death %d changed the bits of table %zu", (int)deaths[i], t);
            }
        }
        training_fini(&disturbed);
    }
    training_fini(&undisturbed);
}

/* If this fails, a death changes the result of a training on update tables. */
static void
test_wait_update_tables(void **state)
{
    static const enum death deaths[] = {DEATH_BEFORE, DEATH_BETWEEN, DEATH_AFTER_SUBMIT,
                                        DEATH_AFTER_STEP};

    (void)state;
    compare_with_undisturbed(train, deaths, sizeof(deaths) / sizeof(deaths[0]));
}

/* ---- the same with sum tables: the workers hold the state --------------------------------- */

/* One step: publish, push, take back, apply. False: dead. */
static bool
local_step(struct worker *worker, psd_table *table, uint64_t step, float *weights, float *gradient)
{
    const struct training *training = worker->user;
    const struct psd_state states[] = {{"weights", weights, counts[0] * sizeof(float)}};
    const bool dies = training->death != DEATH_NONE && worker->rank == VICTIM &&
                      step == DEATH_STEP && psd_incarnation(worker->context) == 1;
    psd_status status =
        psd_state_publish(worker->context, step, states, sizeof(struct psd_state), 1);
    psd_op *op;

    compute(worker->rank, step, 0, weights, gradient);
    if (dies && training->death == DEATH_BEFORE) {
        return false;
    }
    if (status == PSD_OK) {
        status =
            psd_push_pull(table, TRANSFER(step, .gradient = gradient, .values = gradient), &op);
    }
    if (dies && training->death == DEATH_AFTER_SUBMIT) {
        return false;
    }
    if (status == PSD_OK) {
        status = psd_wait(op, PSD_FOREVER);
        psd_op_release(op);
    }
    if (status == PSD_OK) {
        status = psd_state_publish(worker->context, step, NULL, sizeof(struct psd_state), 0);
    }
    if (status != PSD_OK) {
        worker_fail(worker, __FILE__, __LINE__, "step %u: %s", (unsigned)step,
                    psd_last_error()->text);
        return false;
    }
    for (uint64_t i = 0; i < counts[0]; i++) {
        weights[i] -= 0.01f * gradient[i];
    }
    return true;
}

static void
train_locally(struct worker *worker)
{
    const struct training *training = worker->user;
    float *weights = malloc(counts[0] * sizeof(float));
    float *gradient = malloc(counts[0] * sizeof(float));
    const struct psd_state states[] = {{"weights", weights, counts[0] * sizeof(float)}};
    psd_table *table;
    uint64_t step;
    bool alive = true;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("g", PSD_F32, counts[0], .use = PSD_USE_SUM), &table));
    step = psd_table_step(table);
    if (psd_incarnation(worker->context) > 1) {
        CHECK_OK(worker,
                 psd_state_fetch(worker->context, step, states, sizeof(struct psd_state), 1));
    } else {
        awkward(PSD_F32, 0, 77, 0, counts[0], weights);
    }
    for (; step < STEPS && alive; step++) {
        alive = local_step(worker, table, step, weights, gradient);
    }
    if (worker->rank == 0 && alive) {
        memcpy(training->values[0], weights, counts[0] * sizeof(float));
    }
    if (!alive && worker->failure[0] == '\0') {
        psd_abandon(worker->context);
        worker->context = NULL;
        bed_next_turn(worker->bed);
    } else if (alive) { /* stay, so that a late replacement finds the last state */
        CHECK_OK(worker, psd_barrier(worker->context, 20000));
    }
    free(weights);
    free(gradient);
}

/* If this fails, a replacement of a sum job starts from other weights than the one that died. */
static void
test_wait_sum_tables(void **state)
{
    static const enum death deaths[] = {DEATH_BEFORE, DEATH_AFTER_SUBMIT};

    (void)state;
    compare_with_undisturbed(train_locally, deaths, sizeof(deaths) / sizeof(deaths[0]));
}

static void
fetch_wrongly(struct worker *worker)
{
    uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct psd_state right[] = {{"weights", data, sizeof(data)}};
    const struct {
        struct psd_state state;
        uint64_t later;
    } newer = {{"weights", data, sizeof(data)}, 1};
    const struct psd_state wrong_size[] = {{"weights", data, 4}};
    const struct psd_state wrong_name[] = {{"weight", data, sizeof(data)}};
    const struct psd_state no_name[] = {{NULL, data, sizeof(data)}};

    if (worker->rank == 0) {
        CHECK_OK(worker, psd_state_publish(worker->context, 5, right, sizeof(struct psd_state), 1));
        CHECK_STATUS(worker, psd_state_publish(worker->context, 5, NULL, 1, 0), PSD_ERR_INVALID);
        CHECK_STATUS(worker, psd_state_publish(worker->context, 5, &newer.state, sizeof(newer), 1),
                     PSD_ERR_INVALID);
        CHECK_SAYS(worker, psd_last_error()->text, "struct psd_state");
        CHECK_STATUS(worker,
                     psd_state_publish(worker->context, 5, NULL, sizeof(struct psd_state), 1),
                     PSD_ERR_INVALID);
        CHECK_STATUS(worker,
                     psd_state_publish(worker->context, 5, no_name, sizeof(struct psd_state), 1),
                     PSD_ERR_INVALID);
        CHECK_OK(worker, psd_state_publish(worker->context, 5, right, sizeof(struct psd_state), 1));
        bed_meet(worker->bed);
    } else {
        memset(data, 0, sizeof(data));
        bed_meet(worker->bed);
        CHECK_STATUS(worker,
                     psd_state_fetch(worker->context, 5, wrong_size, sizeof(struct psd_state), 1),
                     PSD_ERR_MISMATCH);
        CHECK_SAYS(worker, psd_last_error()->text, "weights");
        CHECK_STATUS(worker,
                     psd_state_fetch(worker->context, 5, wrong_name, sizeof(struct psd_state), 1),
                     PSD_ERR_MISMATCH);
        CHECK_STATUS(worker,
                     psd_state_fetch(worker->context, 5, no_name, sizeof(struct psd_state), 1),
                     PSD_ERR_INVALID);
        CHECK(worker, data[0] == 0 && data[7] == 0);
        CHECK_OK(worker, psd_state_fetch(worker->context, 5, right, sizeof(struct psd_state), 1));
        CHECK(worker, data[0] == 1 && data[7] == 8);
        CHECK_STATUS(worker,
                     psd_state_fetch(worker->context, 6, right, sizeof(struct psd_state), 1),
                     PSD_ERR_TIMEOUT);
        CHECK_SAYS(worker, psd_last_error()->text, "worker 0");
    }
    bed_meet(worker->bed);
}

/* If this fails, state of another shape, or of another step, is taken for ours. */
static void
test_fetch_checks_names_sizes_and_steps(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .op_timeout_ms = 500});

    (void)state;
    bed_run(bed, fetch_wrongly, NULL);
    bed_finish(bed);
}

/* The first worker that is asked does not come to that step before the others do. */
static void
fetch_from_the_next(struct worker *worker)
{
    uint32_t data = 7;
    const struct psd_state states[] = {{"weights", &data, sizeof(data)}};

    if (worker->rank == 1) {
        CHECK_OK(worker,
                 psd_state_publish(worker->context, 5, states, sizeof(struct psd_state), 1));
        bed_meet(worker->bed);
    } else {
        data = 0;
        bed_meet(worker->bed);
    }
    if (worker->rank == 2) {
        CHECK_OK(worker, psd_state_fetch(worker->context, 5, states, sizeof(struct psd_state), 1));
        CHECK(worker, data == 7);
    }
    bed_meet(worker->bed);
}

/* If this fails, a replacement asks a worker that waits for the replacement, and both wait for
 * ever. */
static void
test_fetch_asks_another_worker(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 3, .op_timeout_ms = 10000});

    (void)state;
    bed_run(bed, fetch_from_the_next, NULL);
    bed_finish(bed);
}

/* If this fails, a job waits for ever for a replacement that does not come. */
static void
test_wait_for_nobody(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){
        .workers = WORKERS, .policy = PSI_DEATH_WAIT, .replacement_timeout_ms = 200});

    (void)state;
    bed_run(bed, die_or_be_told, NULL);
    bed_finish_failed(bed, PSI_EXIT_WORKER_LOST);
}

/* ---- what a replacement counts for itself ------------------------------------------------- */

enum { ADDS_BEFORE = 7, ADDS_AFTER = 7 };

static void
add_die_add(struct worker *worker)
{
    const bool replacement = psd_incarnation(worker->context) > 1;
    uint64_t step = 0;

    if (worker->rank == VICTIM && !replacement) {
        for (uint64_t i = 1; i <= ADDS_BEFORE; i++) {
            CHECK_OK(worker, psd_global_step(worker->context, 1, &step));
            CHECK(worker, step == i);
        }
        psd_abandon(worker->context);
        worker->context = NULL;
        bed_next_turn(worker->bed);
    } else if (worker->rank == VICTIM) {
        for (uint64_t i = 1; i <= ADDS_AFTER; i++) {
            CHECK_OK(worker, psd_global_step(worker->context, 1, &step));
            CHECK(worker, step == ADDS_BEFORE + i);
        }
        bed_next_turn(worker->bed);
    } else {
        bed_wait_turn(worker->bed, 2);
        CHECK_OK(worker, psd_global_step(worker->context, 0, &step));
        CHECK(worker, step == ADDS_BEFORE + ADDS_AFTER);
    }
}

/* If this fails, a replacement is told what its predecessor's additions to the global step made. */
static void
test_global_step_of_a_replacement(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .policy = PSI_DEATH_WAIT});
    struct worker replacement = {0};
    bool well;

    (void)state;
    bed_start_workers(bed, add_die_add, NULL);
    bed_wait_turn(bed, 1);
    well = bed_run_one(bed, VICTIM, add_die_add, NULL, &replacement);
    if (!well) {
        bed_stop(bed);
        fail_msg("the replacement: %s", replacement.failure);
    }
    bed_join_workers(bed);
    bed_finish(bed);
}

enum { BARRIERS_BEFORE = 3, BARRIERS_AFTER = 2, NOBODY_MS = 100 };

static void
await_death_of_victim(struct worker *worker)
{
    const uint64_t deadline_ms = bed_now_ms() + 20000;
    struct psd_node nodes[2 + WORKERS] = {{0}};
    size_t count;

    do {
        CHECK_OK(worker,
                 psd_nodes(worker->context, nodes, sizeof(struct psd_node), 2 + WORKERS, &count));
    } while (nodes[2 + VICTIM].state != PSD_NODE_LOST && bed_now_ms() < deadline_ms);
    CHECK(worker, nodes[2 + VICTIM].state == PSD_NODE_LOST);
}

/* At a barrier to which not everybody comes, until we are told who is missing: the master may take
 * longer to answer than we wait. */
static void
meet_in_vain(struct worker *worker, const char *missing)
{
    const uint64_t deadline_ms = bed_now_ms() + 20000;

    do {
        CHECK_STATUS(worker, psd_barrier(worker->context, NOBODY_MS), PSD_ERR_TIMEOUT);
    } while (strstr(psd_last_error()->text, missing) == NULL && bed_now_ms() < deadline_ms);
    CHECK_SAYS(worker, psd_last_error()->text, missing);
}

/* The victim is the first at the fourth barrier, and dies there. */
static void
meet_and_die(struct worker *worker)
{
    CHECK_STATUS(worker, psd_barrier(worker->context, NOBODY_MS), PSD_ERR_TIMEOUT);
    psd_abandon(worker->context);
    worker->context = NULL;
    bed_next_turn(worker->bed);
}

/* The others come to it, and it is not over: the victim has not stayed. */
static void
meet_without_victim(struct worker *worker)
{
    bed_wait_turn(worker->bed, 1);
    await_death_of_victim(worker);
    meet_in_vain(worker, "worker 1");
    bed_next_turn(worker->bed);
    bed_wait_turn(worker->bed, WORKERS + 1);
    CHECK_OK(worker, psd_barrier(worker->context, 20000)); /* the fourth again */
}

/* The fourth is the replacement's first; to the fifth nobody else has come. */
static void
meet_as_replacement(struct worker *worker)
{
    CHECK_OK(worker, psd_barrier(worker->context, 20000));
    meet_in_vain(worker, "worker 0");
    bed_next_turn(worker->bed);
}

static void
meet_die_meet(struct worker *worker)
{
    const bool replacement = psd_incarnation(worker->context) > 1;

    for (unsigned i = 0; i < BARRIERS_BEFORE && !replacement; i++) {
        CHECK_OK(worker, psd_barrier(worker->context, 20000));
    }
    if (worker->rank != VICTIM) {
        meet_without_victim(worker);
    } else if (replacement) {
        meet_as_replacement(worker);
    } else {
        meet_and_die(worker);
    }
    for (unsigned i = 0; i < BARRIERS_AFTER && worker->context != NULL; i++) {
        CHECK_OK(worker, psd_barrier(worker->context, 20000));
    }
}

/* If this fails, a replacement passes barriers that nobody else comes to, and the others wait until
 * it has passed as many as they. */
static void
test_barriers_of_a_replacement(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = WORKERS, .policy = PSI_DEATH_WAIT});
    struct worker replacement = {0};
    bool well;

    (void)state;
    bed_start_workers(bed, meet_die_meet, NULL);
    bed_wait_turn(bed, WORKERS);
    well = bed_run_one(bed, VICTIM, meet_die_meet, NULL, &replacement);
    bed_join_workers(bed);
    if (!well) {
        bed_stop(bed);
        fail_msg("the replacement: %s", replacement.failure);
    }
    bed_finish(bed);
}

/* ---- the old incarnation ------------------------------------------------------------------ */

enum { CHILD_FENCED = 0, CHILD_TIME_S = 60 };

/* A worker in a process of its own, that will be stopped: pushes until it is told not to. */
static int
be_stopped(int address_fd, int ready_fd)
{
    const float one = 1;
    char address[72] = "";
    psd_context *context;
    psd_table *table;
    psd_status status;
    uint64_t step = 0;

    alarm(CHILD_TIME_S);
    if (read(address_fd, address, sizeof(address)) != (ssize_t)sizeof(address) ||
        psd_open(&(struct psd_open_args){.struct_size = sizeof(struct psd_open_args),
                                         .master_address = address,
                                         .rank = "1",
                                         .op_timeout_ms = 20000},
                 &context) != PSD_OK ||
        psd_table_open(context, TABLE("w", PSD_F32, 1, .rule = RULE(.rule = PSD_RULE_ADD)),
                       &table) != PSD_OK) {
        return 1;
    }
    do {
        status = push(table, step, &one);
        if (step == 3 && write(ready_fd, "3", 1) != 1) {
            return 2;
        }
        step++;
    } while (status == PSD_OK);
    psd_abandon(context);
    return status == PSD_ERR_FENCED ? CHILD_FENCED : 3;
}

static void
keep_stepping(struct worker *worker)
{
    const float one = 1;
    float value = 0;
    psd_table *table;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, 1, .rule = RULE(.rule = PSD_RULE_ADD)), &table));
    CHECK(worker, worker->rank == 0 || psd_incarnation(worker->context) == 2);
    for (uint64_t step = psd_table_step(table); step < 200; step++) {
        CHECK_OK(worker, push_pull(table, step, &one, &value));
        CHECK(worker, value == (float)(step + 1)); /* the mean of ones */
    }
}

static pid_t
start_child(int address_pipe[2], int ready_pipe[2])
{
    pid_t child;

    assert_int_equal(pipe(address_pipe), 0);
    assert_int_equal(pipe(ready_pipe), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(be_stopped(address_pipe[0], ready_pipe[1]));
    }
    return child;
}

struct first_worker {
    struct bed *bed;
    struct worker worker;
};

static void *
run_first_worker(void *argument)
{
    struct first_worker *first = argument;

    (void)bed_run_one(first->bed, 0, keep_stepping, NULL, &first->worker);
    return NULL;
}

/* If this fails, a worker that was stopped, replaced and woke up goes on pushing. */
static void
test_old_incarnation_is_fenced(void **state)
{
    struct first_worker first = {0};
    struct worker replacement;
    pthread_t thread;
    int address_pipe[2];
    int ready_pipe[2];
    char address[72] = "";
    char ready;
    psd_status opened;
    int how;
    const pid_t child = start_child(address_pipe, ready_pipe); /* before there are threads */
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2,
                                                     .servers = 2,
                                                     .policy = PSI_DEATH_WAIT,
                                                     .heartbeat_ms = 50,
                                                     .dead_heartbeats = 10});

    (void)state;
    first.bed = bed;
    snprintf(address, sizeof(address), "%s", bed_address(bed));
    assert_int_equal(write(address_pipe[1], address, sizeof(address)), sizeof(address));
    assert_int_equal(pthread_create(&thread, NULL, run_first_worker, &first), 0);
    assert_int_equal(read(ready_pipe[0], &ready, 1), 1);
    assert_int_equal(kill(child, SIGSTOP), 0);
    do { /* still held by the stopped one, until its heartbeats are missed */
        opened = bed_open(bed, "1", &replacement.context);
    } while (opened == PSD_ERR_REFUSED);
    assert_int_equal(opened, PSD_OK);
    replacement = (struct worker){.bed = bed, .rank = 1, .context = replacement.context};
    assert_int_equal(kill(child, SIGCONT), 0);
    keep_stepping(&replacement);
    assert_string_equal(replacement.failure, "");
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), CHILD_FENCED);
    assert_ok(psd_close(replacement.context));
    pthread_join(thread, NULL);
    assert_string_equal(first.worker.failure, "");
    bed_finish(bed);
    for (size_t i = 0; i < 2; i++) {
        close(address_pipe[i]);
        close(ready_pipe[i]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_incarnation_is_fenced),
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_continue_drops_half_a_step),
        cmocka_unit_test(test_wait_update_tables),
        cmocka_unit_test(test_wait_sum_tables),
        cmocka_unit_test(test_global_step_of_a_replacement),
        cmocka_unit_test(test_barriers_of_a_replacement),
        cmocka_unit_test(test_fetch_checks_names_sizes_and_steps),
        cmocka_unit_test(test_fetch_asks_another_worker),
        cmocka_unit_test(test_wait_for_nobody),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
