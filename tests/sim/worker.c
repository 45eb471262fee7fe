/*
 * worker.c - one worker's processes: how they begin, the states of the training program, how they
 * end.
 *
 *   JOIN -> OPEN -> INIT -> FETCH -> PULL -> THINK -> STEP -> EXTRA -> THINK ... -> LEAVE
 *
 * Each state starts its operations and is left when all of them have ended; but a step may begin
 * while earlier ones are in flight, as many as the plan allows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "worker_state.h"

enum { RESTARTS_MAX = 1000 };

static void settle(struct node *node);

/* ---- a process ---------------------------------------------------------------------------- */

struct worker *
worker_create(struct job *job, uint32_t slot)
{
    struct worker *worker = calloc(1, sizeof(*worker));

    psi_assert(worker != NULL);
    worker->job = job;
    worker->slot = slot;
    worker->rank = UINT32_MAX;
    return worker;
}

void
worker_start(struct worker *worker)
{
    const struct plan *plan = plan_of(worker);
    char host_address[32];
    const struct psi_client_config config = {
        .master_address = "sim://master",
        .rank = plan->auto_rank ? PSI_RANK_AUTO : worker->slot,
        .open_timeout_ms = 120000,
        .op_timeout_ms = plan->op_timeout_ms,
        .join_step = plan->join_step[worker->slot],
        .window_bytes = plan->window_bytes,
        .checksum = plan->checksum,
        .lone_sums = plan->lone_sums,
        .host = plan->worker_host[worker->slot],
        .host_address = host_address,
    };
    char name[24];
    struct psd_error err;

    psi_assert(worker->node == NULL);
    snprintf(name, sizeof(name), "worker%u.%u", worker->slot, ++worker->starts);
    worker->start_due = false;
    worker->rank = plan->auto_rank ? UINT32_MAX : worker->slot;
    worker->node = net_node_create(&worker->job->net, name);
    worker->node->host = plan->worker_host[worker->slot];
    worker->node->settle = settle;
    worker->node->keeps_neighbours = true;
    snprintf(host_address, sizeof(host_address), "sim://%s", name);
    worker->node->owner = worker;
    worker->phase = JOIN;
    worker->step = 0;
    worker->stepped = false;
    worker->ended = 0;
    worker->saved = 0;
    worker->load_stage = 0;
    worker->pending = 0;
    worker->given_up = false;
    worker->barrier_passed = worker->job->barrier_passed;
    worker->passed = 0;
    memset(worker->record, 0, sizeof(worker->record));
    memset(worker->held, 0, sizeof(worker->held));
    memset(worker->flight, 0, sizeof(worker->flight));
    sim_trace(worker->job->sim, name, "starts");
    psi_assert(psi_client_create(&worker->node->env, &config, &worker->client, &err) == PSD_OK);
    net_wake_at(worker->node, 0);
}

/* Frees the client and the program's memory, in the order a process would. */
static void
leave_process(struct worker *worker)
{
    struct node *node = worker->node;

    worker_abandon_records(worker);
    psi_client_destroy(worker->client);
    worker->client = NULL;
    cargo_destroy(worker);
    for (unsigned i = 0; i < TABLES_MAX; i++) {
        free(worker->held[i].weights);
        free(worker->held[i].parts);
    }
    memset(worker->held, 0, sizeof(worker->held));
    net_node_gone(node);
    worker->node = NULL;
}

void
worker_destroy(struct worker *worker)
{
    if (worker->node != NULL) {
        leave_process(worker);
    }
    free(worker);
}

static void
start_now(void *object, uint64_t argument)
{
    struct worker *worker = object;

    (void)argument;
    if (worker->start_due && !worker->job->master->ending && !worker->job->master->finished &&
        !worker->job->master->killed) {
        worker->job->sim->counters.replacements += worker->starts > 0;
        worker_start(worker);
    }
    worker->start_due = false;
}

void
worker_start_later(struct worker *worker, uint64_t after_ns)
{
    struct sim *sim = worker->job->sim;

    worker->start_due = true;
    sim_at(sim, sim->now_ns + after_ns, start_now, worker, 0);
}

/* Somebody watches the processes: in a job that waits for replacements they are started again, and
 * so they are before the start. */
static void
start_again(struct worker *worker)
{
    struct job *job = worker->job;
    struct sim *sim = job->sim;

    if (worker->starts < RESTARTS_MAX && !worker->done &&
        (plan_of(worker)->policy == PSI_DEATH_WAIT || !job->started)) {
        worker->start_due = true;
        sim_at(sim, sim->now_ns + rng_between(&sim->rng, 1, 300) * SIM_MS, start_now, worker, 0);
    }
}

static void
rank_lost(struct worker *worker)
{
    worker->lost = true;
    if (worker->rank != UINT32_MAX) {
        worker->job->rank_lost[worker->rank] = true;
        worker->job->rank_deaths[worker->rank]++;
        model_rank_lost(worker->job->model, worker->rank);
    } else {
        worker->job->nameless_kills++;
    }
}

void
worker_kill(struct worker *worker)
{
    sim_trace(worker->job->sim, worker->node->name, "killed");
    worker->job->sim->counters.worker_kills++;
    rank_lost(worker);
    worker->left = worker->left || worker->phase == LEAVE;
    net_node_kill(worker->node);
    leave_process(worker);
    start_again(worker);
}

unsigned
worker_deaths(const struct worker *worker)
{
    return worker->rank < worker->job->plan.workers ? worker->job->rank_deaths[worker->rank] : 0;
}

void
worker_given_up(struct worker *worker, uint32_t rank)
{
    if (worker != NULL && worker->node != NULL && worker->rank == rank) {
        worker->given_up = true;
    }
}

bool
worker_runs(const struct worker *worker)
{
    return worker->node != NULL;
}

bool
worker_is_pushing(const struct worker *worker)
{
    for (unsigned i = 0; i < FLIGHTS_MAX; i++) {
        const struct flight *flight = &worker->flight[i];

        if (flight->busy && flight->pending > 0 &&
            worker->job->sim->now_ns < flight->pushed_ns + 3 * SIM_MS) {
            return true;
        }
    }
    return false;
}

bool
worker_may_come(const struct worker *worker)
{
    return worker->start_due;
}

bool
worker_done(const struct worker *worker)
{
    return worker->done || worker->left;
}

uint32_t
worker_rank(const struct worker *worker)
{
    return worker->rank;
}

struct node *
worker_node(const struct worker *worker)
{
    return worker->node;
}

const struct psd_error *
worker_error(const struct worker *worker)
{
    return &worker->error;
}

bool
worker_came(const struct worker *worker)
{
    return worker->came;
}

bool
worker_was_lost(const struct worker *worker)
{
    return worker->lost;
}

bool
worker_was_killed_leaving(const struct worker *worker)
{
    return worker->left;
}

const char *
worker_phase(const struct worker *worker)
{
    static const char *const names[] = {
        "joins",  "opens",  "gives initial values", "fetches", "pulls", "meets", "thinks", "trains",
        "leaves", "is over"};

    return names[worker->phase];
}

/* ---- states ------------------------------------------------------------------------------- */

/* Is the table needed by now, and not open? */
static bool
is_due(const struct worker *worker, unsigned index)
{
    return worker->held[index].table == NULL &&
           plan_of(worker)->table[index].opened_at <= (worker->stepped ? worker->step : 0);
}

static bool
some_table_is_due(const struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        if (is_due(worker, i)) {
            return true;
        }
    }
    return false;
}

static void
open_tables(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        if (is_due(worker, i)) {
            train_open(worker, i);
        }
    }
}

static bool
all_steps_begun(const struct worker *worker)
{
    bool any = false;

    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        any = any || (plan_of(worker)->table[i].kind != KIND_LEDGER && train_takes_part(worker, i));
    }
    return !any && worker->step >= plan_leaves_at(plan_of(worker), worker->rank);
}

static bool
leaves_early(const struct worker *worker)
{
    return plan_leaves_at(plan_of(worker), worker->rank) < plan_of(worker)->steps;
}

static void
do_extras(struct worker *worker)
{
    struct psd_error err;
    struct psd_op *op;

    together_meet(worker);
    if (worker->ended % 7 == 3 &&
        worker_accepted(worker, psi_client_nodes(worker->client, &op, &err), &err, "nodes")) {
        (void)worker_remember(worker, op, WHAT_OTHER, 0, FLIGHTS_MAX);
    }
}

static void
leave(struct worker *worker)
{
    struct psd_error err;
    struct psd_op *op;

    worker->phase = LEAVE;
    worker->job->rank_left[worker->rank] = true;
    worker->job->sim->counters.early_leaves += leaves_early(worker);
    if (worker_accepted(worker, psi_client_bye(worker->client, &op, &err), &err, "bye")) {
        (void)worker_remember(worker, op, WHAT_OTHER, 0, FLIGHTS_MAX);
    }
}

/* What comes next, now that nothing but steps in flight is under way. False: these have to end. */
static bool
think(struct worker *worker)
{
    struct sim *sim = worker->job->sim;
    const bool in_flight = worker_in_flight(worker) > 0;

    if (all_steps_begun(worker)) {
        if (in_flight) {
            worker->phase = EXTRA;
        } else if (leaves_early(worker) || !together_meets_last(worker)) {
            leave(worker);
        }
        return true;
    }
    if (some_table_is_due(worker)) {
        worker->phase = in_flight ? EXTRA : OPEN;
        if (!in_flight) {
            open_tables(worker);
        }
        return true;
    }
    if (save_is_due(worker)) {
        worker->phase = in_flight ? EXTRA : THINK;
        if (!in_flight) {
            save_begin(worker);
        }
        return true;
    }
    worker->think_until_ns = sim->now_ns + rng_below(&sim->rng, plan_of(worker)->think_max_ns + 1);
    worker->phase = STEP;
    return true;
}

/* The oldest step in flight ends, or another begins beside it. False: neither can be. */
static bool
go_on(struct worker *worker)
{
    const unsigned depth = plan_depth(plan_of(worker));

    if (worker->flight[worker->ended % depth].pending == 0) {
        train_end_step(worker);
        worker->phase = THINK;
        do_extras(worker);
        return true;
    }
    if (worker_in_flight(worker) < depth && !all_steps_begun(worker) &&
        !some_table_is_due(worker) && !save_is_due(worker)) {
        worker->phase = THINK;
        return true;
    }
    return false;
}

/* On to the next state. False: nothing to do before something happens. */
static bool
advance(struct worker *worker)
{
    switch (worker->phase) {
    case JOIN:
        if (psi_client_state(worker->client) != PSI_CLIENT_RUNNING) {
            return false;
        }
        together_begin(worker);
        worker->job->rank_came[worker->rank] = true;
        worker->came = true;
        worker->job->sim->counters.joins +=
            worker->slot >= plan_of(worker)->start_workers && plan_is_elastic(plan_of(worker));
        open_tables(worker);
        worker->phase = OPEN;
        return true;
    case OPEN:
        train_find_step(worker);
        train_give_initial_values(worker);
        together_meet(worker); /* a replacement: those that its step comes behind */
        worker->phase = INIT;
        return true;
    case INIT:
    case FETCH:
        if (load_goes_on(worker)) {
            return true;
        }
        if (train_fetch_weights(worker)) {
            worker->phase = FETCH;
            return true;
        }
        train_pull(worker);
        worker->phase = PULL;
        return true;
    case PULL:
        train_pulled(worker);
        worker->phase = THINK;
        return true;
    case THINK:
        return think(worker);
    case STEP:
        if (worker->job->sim->now_ns < worker->think_until_ns) {
            return false;
        }
        train_begin_step(worker);
        worker->phase = EXTRA;
        return true;
    case EXTRA:
        return go_on(worker);
    case LEAVE:
        worker->done = true;
        model_rank_left(worker->job->model, worker->rank);
        worker->phase = OVER;
        return false;
    case OVER:
        break;
    }
    return false;
}

/* Has all that the state has to wait for ended? Steps in flight are EXTRA's own business. */
static bool
may_advance(const struct worker *worker)
{
    const bool training = worker->phase == THINK || worker->phase == STEP || worker->phase == EXTRA;

    return worker->pending == 0 && (training || worker->flight[0].pending == 0) &&
           psi_client_state(worker->client) != PSI_CLIENT_OVER && !worker->job->sim->failed;
}

/* The process ends: by itself, or because the job told it to. */
static void
process_over(struct worker *worker)
{
    struct sim *sim = worker->job->sim;

    worker->error = *psi_client_error(worker->client);
    sim_trace(sim, worker->node->name, "%s%s",
              worker->done ? "done" : "over: ", worker->done ? "" : worker->error.text);
    if (!worker->done) {
        rank_lost(worker);
        sim->counters.fenced += worker->error.status == PSD_ERR_FENCED;
    }
    leave_process(worker);
    start_again(worker);
}

static void
settle(struct node *node)
{
    struct worker *worker = node->owner;
    bool more = true;

    while (more && !worker->job->sim->failed) {
        psi_client_tick(worker->client);
        if (worker->rank == UINT32_MAX && psi_client_job(worker->client)->workers > 0) {
            worker->rank = psi_client_job(worker->client)->rank;
        }
        more = worker_collect(worker);
        while (may_advance(worker) && advance(worker)) {
            more = true;
        }
    }
    if (worker->phase == OVER || psi_client_state(worker->client) == PSI_CLIENT_OVER) {
        if (worker->phase == LEAVE) {
            worker->done = true; /* it had nothing left to do */
        }
        process_over(worker);
        return;
    }
    uint64_t next_ns = psi_client_next_ns(worker->client);

    if (worker->phase == STEP && worker->pending == 0 &&
        worker->think_until_ns + node->skew_ns < next_ns) {
        next_ns = worker->think_until_ns + node->skew_ns;
    }
    net_wake_at(node, next_ns);
}
