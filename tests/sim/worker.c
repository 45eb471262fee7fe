/*
 * worker.c - the training program of the plan, as a state machine over the client core.
 *
 *   JOIN -> OPEN -> INIT -> FETCH -> PULL -> THINK -> STEP -> EXTRA -> THINK ... -> LEAVE
 *
 * Each state starts its operations and is left when all of them have ended. What was pulled is
 * compared with the model; a gradient is poisoned as soon as the operation that borrowed it has
 * ended, unless it lies in shared memory and nobody knows how that ended.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core.h"
#include "client/state.h"
#include "wire/frame.h"

enum {
    RECORDS_MAX = 64,
    SPOILT_MAX = 256, /* regions of one process */
    POISON = 0xb5,
    SEAL = 0x5a,
    RESTARTS_MAX = 1000,
    PIECE_BYTES = 100000,
    SLACK_MS = 50, /* how late a deadline may be noticed */
};

enum phase { JOIN, OPEN, INIT, FETCH, PULL, THINK, STEP, EXTRA, LEAVE, OVER };

enum what {
    WHAT_OPEN,
    WHAT_INIT,
    WHAT_FETCH,
    WHAT_PUSH,
    WHAT_PULL,
    WHAT_BOTH,
    WHAT_OTHER,
    WHAT_ADD
};

/* An operation under way. */
struct record {
    struct psd_op *op; /* NULL: free */
    enum what what;
    unsigned table;
    uint64_t step;   /* of the table */
    uint64_t number; /* KIND_LEDGER */
    uint64_t deadline_ns;
};

/* A table as the program holds it. */
struct held {
    struct psd_table *table; /* NULL: not open */
    bool ready;              /* its values are here */
    bool valid;              /* the last pull brought all of them */
    bool acted;              /* pushed in this step */
    bool sealed;             /* no operation may write the values: they are all SEAL */
    uint64_t step;           /* the next push */
    uint64_t read_step;      /* of the last pull */
    uint64_t number;         /* KIND_LEDGER: of the last push; of a fetch: its bytes */
    uint64_t own;            /* KIND_SLOTS, KIND_LEDGER: this rank's pushes up to our last one */
    size_t fetched;          /* bytes of the weights a replacement has taken */
    size_t bytes;
    uint8_t *values;
    uint8_t *gradient;
    struct net_region *region; /* what it lies in; NULL: ordinary memory */
    bool spoilt;               /* a server may still read it: not to be used again */
    uint8_t *weights;          /* PSD_USE_SUM */
};

struct worker {
    struct job *job;
    uint32_t slot;
    uint32_t rank; /* UINT32_MAX: not known yet */
    unsigned starts;
    bool start_due;
    bool done;
    bool lost;
    bool left;              /* killed when it had only to say goodbye */
    struct psd_error error; /* why the last process ended */

    struct node *node; /* NULL: no process */
    struct psi_client *client;
    enum phase phase;
    uint64_t step;
    bool stepped; /* `step` is known */
    uint64_t think_until_ns;
    uint64_t pushed_ns; /* when the step's pushes were started */
    uint32_t fetch_from;
    unsigned pending;
    bool given_up; /* by the master */
    struct record record[RECORDS_MAX];
    struct held held[TABLES_MAX];
    struct net_region *spoilt[SPOILT_MAX];
    unsigned spoilt_count;
};

static const struct plan *
plan_of(const struct worker *worker)
{
    return &worker->job->plan;
}

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
    char door[32];
    const struct psi_client_config config = {
        .master_address = "sim://master",
        .rank = plan->auto_rank ? PSI_RANK_AUTO : worker->slot,
        .open_timeout_ms = 120000,
        .op_timeout_ms = plan->op_timeout_ms,
        .window_bytes = plan->window_bytes,
        .checksum = plan->checksum,
        .host = plan->worker_host[worker->slot],
        .door = door,
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
    snprintf(door, sizeof(door), "sim://%s", name);
    worker->node->owner = worker;
    worker->phase = JOIN;
    worker->step = 0;
    worker->stepped = false;
    worker->pending = 0;
    worker->given_up = false;
    memset(worker->record, 0, sizeof(worker->record));
    memset(worker->held, 0, sizeof(worker->held));
    sim_trace(worker->job->sim, name, "starts");
    psi_assert(psi_client_create(&worker->node->env, &config, &worker->client, &err) == PSD_OK);
    net_wake_at(worker->node, 0);
}

/* Pushes that nobody will hear the end of. */
static void
abandon_records(struct worker *worker)
{
    for (unsigned i = 0; i < RECORDS_MAX; i++) {
        worker->record[i].op = NULL;
    }
    worker->pending = 0;
}

/* ---- memory for gradients ----------------------------------------------------------------- */

static void
gradient_create(struct worker *worker, struct held *held)
{
    const ptrdiff_t index = held - worker->held;

    if (worker->node->host != 0 && !plan_of(worker)->table[index].ordinary) {
        held->region = net_region_create(worker->node, held->bytes);
        held->gradient = held->region->segment.base;
    } else {
        held->gradient = malloc(held->bytes);
        psi_assert(held->gradient != NULL);
    }
    held->spoilt = false;
    memset(held->gradient, POISON, held->bytes);
}

static void
gradient_destroy(struct held *held)
{
    if (held->region != NULL) {
        net_region_let_go(held->region);
    } else {
        free(held->gradient);
    }
    held->region = NULL;
    held->gradient = NULL;
}

/* The operations that borrowed it have ended. */
static void
gradient_used(struct worker *worker, struct held *held)
{
    if (!held->spoilt) {
        memset(held->gradient, POISON, held->bytes);
        return;
    }
    psi_assert(worker->spoilt_count < SPOILT_MAX);
    worker->spoilt[worker->spoilt_count++] = held->region;
    gradient_create(worker, held);
}

/* Frees the client and the program's memory, in the order a process would. */
static void
leave_process(struct worker *worker)
{
    struct node *node = worker->node;

    abandon_records(worker);
    psi_client_destroy(worker->client);
    worker->client = NULL;
    for (unsigned i = 0; i < TABLES_MAX; i++) {
        free(worker->held[i].values);
        gradient_destroy(&worker->held[i]);
        free(worker->held[i].weights);
    }
    while (worker->spoilt_count > 0) {
        net_region_let_go(worker->spoilt[--worker->spoilt_count]);
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
    if (worker->start_due && !worker->job->master.ending && !worker->job->master.finished &&
        !worker->job->master.killed) {
        worker->job->sim->counters.replacements++;
        worker_start(worker);
    }
    worker->start_due = false;
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
    return worker->phase == EXTRA && worker->pending > 0 &&
           worker->job->sim->now_ns < worker->pushed_ns + 3 * SIM_MS;
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
worker_was_lost(const struct worker *worker)
{
    return worker->lost;
}

/* ---- operations --------------------------------------------------------------------------- */

static void
remember(struct worker *worker, struct psd_op *op, enum what what, unsigned table, uint64_t step)
{
    unsigned i = 0;

    while (worker->record[i].op != NULL) {
        i++;
        psi_assert(i < RECORDS_MAX);
    }
    worker->record[i] = (struct record){
        .op = op,
        .what = what,
        .table = table,
        .step = step,
        .number = worker->held[table].number,
        .deadline_ns =
            op->deadline_ns == UINT64_MAX ? UINT64_MAX : op->deadline_ns - worker->node->skew_ns,
    };
    worker->pending++;
    worker->job->sim->counters.ops++;
}

/* A call that must not be refused, unless the context is over. */
static bool
accepted(struct worker *worker, psd_status status, const struct psd_error *err, const char *call)
{
    if (status != PSD_OK && psi_client_state(worker->client) != PSI_CLIENT_OVER) {
        sim_fail(worker->job->sim, "%s: %s refused: %s", worker->node->name, call, err->text);
    }
    return status == PSD_OK;
}

static void
transfer(struct worker *worker, unsigned index, enum what what, uint64_t step, uint64_t first,
         uint64_t count)
{
    static const uint8_t types[] = {
        [WHAT_INIT] = PSI_FRAME_INIT,
        [WHAT_PUSH] = PSI_FRAME_PUSH,
        [WHAT_PULL] = PSI_FRAME_PULL,
        [WHAT_BOTH] = PSI_FRAME_PUSH_PULL,
    };
    const struct table_plan *plan = &plan_of(worker)->table[index];
    struct held *held = &worker->held[index];
    const size_t offset = first * psi_dtype_bytes(plan->dtype);
    const bool pushes = what == WHAT_PUSH || what == WHAT_BOTH;
    const struct psi_transfer args = {
        .type = types[what],
        .empty = pushes && plan->kind == KIND_ROUNDS &&
                 plan_is_empty(plan_of(worker), index, worker->rank, step),
        .step = step,
        .first = first,
        .count = count,
        .from = what == WHAT_PULL ? NULL : held->gradient + offset,
        .lent = what != WHAT_PULL && held->region != NULL,
        .to = what == WHAT_PUSH || what == WHAT_INIT ? NULL : held->values + offset,
        .timeout_ms = plan->kind == KIND_LEDGER ? plan_of(worker)->ledger_timeout_ms : 0,
    };
    struct psd_op *op;
    struct psd_error err;

    if (accepted(worker, psi_client_transfer(worker->client, held->table, &args, &op, &err), &err,
                 "a transfer")) {
        remember(worker, op, what, index, step);
    }
}

/* The whole table, in one operation or in several. */
static void
transfer_all(struct worker *worker, unsigned index, enum what what, uint64_t step)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    const uint64_t chunks = plan_chunk_count(plan);

    if (!plan->ranges || chunks == 1) {
        transfer(worker, index, what, step, 0, 0);
        return;
    }
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        transfer(worker, index, what, step, chunk * PSD_CHUNK_ELEMENTS,
                 plan_chunk_elements(plan, chunk));
    }
}

static void
open_table(struct worker *worker, unsigned index)
{
    struct psi_spec spec;
    struct psd_error err;
    struct psd_op *op;

    plan_spec(plan_of(worker), index, &spec);
    if (accepted(worker,
                 psi_client_table_open(worker->client, &spec,
                                       plan_of(worker)->table[index].priority, &op, &err),
                 &err, "psi_client_table_open")) {
        remember(worker, op, WHAT_OPEN, index, 0);
    }
}

static void
opened(struct worker *worker, unsigned index, struct psd_table *table)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    struct held *held = &worker->held[index];

    held->table = table;
    held->bytes = plan->count * psi_dtype_bytes(plan->dtype);
    held->values = malloc(held->bytes);
    held->weights = calloc(1, held->bytes);
    psi_assert(held->values != NULL && held->weights != NULL);
    memset(held->values, POISON, held->bytes);
    gradient_create(worker, held);
    held->step = table->next_step[0];
    held->own =
        plan->kind == KIND_LEDGER ? worker->job->push_number[worker->rank] : table->next_step[0];
    sim_trace(worker->job->sim, worker->node->name, "opened %s at step %llu", plan->name,
              (unsigned long long)held->step);
}

/* ---- what came of them -------------------------------------------------------------------- */

static void
push_ended(struct worker *worker, const struct record *record, psd_outcome outcome)
{
    const enum table_kind kind = plan_of(worker)->table[record->table].kind;
    struct model *model = worker->job->model;

    if (kind == KIND_SLOTS && outcome == PSD_OUTCOME_DONE) {
        model_slot_done(model, record->table, worker->rank, record->step);
    } else if (kind == KIND_LEDGER && !plan_of(worker)->table[record->table].ranges) {
        model_ledger(model, record->table, worker->rank, record->number,
                     outcome == PSD_OUTCOME_DONE          ? LEDGER_DONE
                     : outcome == PSD_OUTCOME_NOT_APPLIED ? LEDGER_NOT_APPLIED
                                                          : LEDGER_UNKNOWN);
    }
}

/* May this operation fail this way while the job goes on? */
static bool
may_fail(const struct worker *worker, const struct record *record, psd_status status)
{
    const struct table_plan *table = &plan_of(worker)->table[record->table];

    if (psi_client_state(worker->client) == PSI_CLIENT_OVER || worker->phase == LEAVE) {
        return true;
    }
    if (record->what == WHAT_FETCH) {
        return status == PSD_ERR_PEER_LOST || status == PSD_ERR_STATE || status == PSD_ERR_BUSY;
    }
    if (record->what == WHAT_OPEN || record->what == WHAT_OTHER || record->what == WHAT_ADD) {
        return false;
    }
    return (status == PSD_ERR_TIMEOUT && table->kind == KIND_LEDGER) ||
           (status == PSD_ERR_DROPPED && table->backup > 0);
}

static void
check_deadline(struct worker *worker, const struct record *record)
{
    struct sim *sim = worker->job->sim;
    uint64_t latest_ns = record->deadline_ns;

    if (latest_ns == UINT64_MAX) {
        return;
    }
    if (latest_ns < worker->node->paused_until_ns) {
        latest_ns = worker->node->paused_until_ns;
    }
    if (sim->now_ns > latest_ns + SLACK_MS * SIM_MS) {
        sim_fail(sim, "%s: an operation on table %s has not ended %llu ms after its deadline",
                 worker->node->name, plan_of(worker)->table[record->table].name,
                 (unsigned long long)((sim->now_ns - latest_ns) / SIM_MS));
    }
}

static void
record_ended(struct worker *worker, struct record *record, struct psd_op *op)
{
    struct sim *sim = worker->job->sim;
    struct held *held = &worker->held[record->table];
    const psd_status status = psi_op_status(op);
    const psd_outcome outcome = op->outcome;

    check_deadline(worker, record);
    if (status != PSD_OK && op->error.text[0] == '\0') {
        sim_fail(sim, "%s: an operation failed without a word", worker->node->name);
    }
    if ((status == PSD_OK) != (outcome == PSD_OUTCOME_DONE)) {
        sim_fail(sim, "%s: status %d but outcome %d", worker->node->name, status, outcome);
    }
    if (status != PSD_OK && !may_fail(worker, record, status)) {
        sim_fail(sim, "%s: %s", worker->node->name, op->error.text);
    }
    if (status != PSD_OK) {
        sim_trace(sim, worker->node->name, "failed: %s", op->error.text);
        held->valid = false;
        sim->counters.unknown_ops += outcome == PSD_OUTCOME_UNKNOWN;
        held->spoilt = held->spoilt || (outcome == PSD_OUTCOME_UNKNOWN && held->region != NULL &&
                                        record->what != WHAT_PULL);
        sim->counters.dropped_pushes += status == PSD_ERR_DROPPED;
    }
    if (record->what == WHAT_OPEN && status == PSD_OK) {
        opened(worker, record->table, psi_op_table(op));
    } else if (record->what == WHAT_PUSH || record->what == WHAT_BOTH) {
        push_ended(worker, record, outcome);
    } else if (record->what == WHAT_ADD && status == PSD_OK) {
        model_step_done(worker->job->model);
    } else if (record->what == WHAT_FETCH && status == PSD_OK) {
        held->fetched += record->number;
    } else if (record->what == WHAT_FETCH) {
        worker->fetch_from = (worker->fetch_from + 1) % plan_of(worker)->workers;
    }
    record->op = NULL;
    worker->pending--;
}

static bool
collect(struct worker *worker)
{
    bool any = false;
    struct psd_op *op;

    while ((op = psi_client_next_done(worker->client)) != NULL) {
        for (unsigned i = 0; i < RECORDS_MAX; i++) {
            if (worker->record[i].op == op) {
                record_ended(worker, &worker->record[i], op);
            }
        }
        psi_op_free(op);
        any = true;
    }
    return any;
}

void
worker_check_deadlines(struct worker *worker)
{
    for (unsigned i = 0; worker->node != NULL && i < RECORDS_MAX; i++) {
        if (worker->record[i].op != NULL) {
            check_deadline(worker, &worker->record[i]);
        }
    }
}

/* ---- the program -------------------------------------------------------------------------- */

/* What was pulled at a step is the version of that step; with backup workers, or a later one. */
static void
check_rounds(struct worker *worker, unsigned index)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    const struct held *held = &worker->held[index];
    const size_t element_bytes = psi_dtype_bytes(plan->dtype);

    for (uint64_t chunk = 0; chunk < plan_chunk_count(plan); chunk++) {
        const uint8_t *have = held->values + chunk * PSD_CHUNK_ELEMENTS * element_bytes;
        const size_t bytes = plan_chunk_elements(plan, chunk) * element_bytes;
        uint64_t version = held->read_step;
        const void *want = model_version(worker->job->model, index, chunk, version);

        while (want != NULL && memcmp(have, want, bytes) != 0) {
            want = plan->backup > 0 ? model_version(worker->job->model, index, chunk, ++version)
                                    : NULL;
        }
        if (want == NULL) {
            sim_fail(worker->job->sim,
                     "%s pulled table %s at step %llu: chunk %llu is not what "
                     "the model says",
                     worker->node->name, plan->name, (unsigned long long)held->read_step,
                     (unsigned long long)chunk);
            return;
        }
    }
}

static void
check_pulled(struct worker *worker, unsigned index)
{
    struct held *held = &worker->held[index];
    const struct table_plan *plan = &plan_of(worker)->table[index];

    if (held->table == NULL || !held->valid || worker->job->sim->failed) {
        return;
    }
    if (worker->given_up && worker->node->host != 0) {
        return; /* it will be told that it is out of the job */
    }
    if (plan->kind == KIND_ROUNDS) {
        check_rounds(worker, index);
    } else {
        model_check_slots(worker->job->model, index, worker->rank, held->own, held->read_step,
                          (const float *)(const void *)held->values);
    }
    held->ready = true;
}

static void
fill_gradient(struct worker *worker, unsigned index)
{
    const struct plan *plan = plan_of(worker);
    const struct table_plan *table = &plan->table[index];
    struct held *held = &worker->held[index];
    float *gradient = (float *)(void *)held->gradient;

    if (table->kind == KIND_ROUNDS) {
        plan_gradient(plan, index, worker->rank, held->step, 0, table->count,
                      table->use == PSD_USE_SUM ? held->weights : held->values, held->gradient);
        return;
    }
    memset(held->gradient, 0, held->bytes);
    for (uint64_t chunk = 0; chunk < plan_chunk_count(table); chunk++) {
        float *slots = gradient + chunk * PSD_CHUNK_ELEMENTS;
        const uint64_t number = table->kind == KIND_LEDGER ? held->number : held->step;

        slots[plan_slot(plan, table, worker->rank, number)] = 1;
        if (table->kind == KIND_LEDGER) {
            slots[plan_hot_slot(plan, table)] = plan_hot_amount(worker->rank, number);
        }
    }
}

/* Offers the weights of sum tables, as they are at the start of the step, to replacements. */
static void
publish(struct worker *worker, bool offer)
{
    struct psd_state states[TABLES_MAX];
    struct psd_error err;
    size_t count = 0;

    for (unsigned i = 0; offer && i < plan_of(worker)->table_count; i++) {
        if (plan_of(worker)->table[i].use == PSD_USE_SUM && worker->held[i].table != NULL) {
            states[count++] = (struct psd_state){.name = plan_of(worker)->table[i].name,
                                                 .data = worker->held[i].weights,
                                                 .bytes = worker->held[i].bytes};
        }
    }
    if (plan_of(worker)->policy == PSI_DEATH_WAIT) {
        (void)accepted(worker,
                       psi_client_publish(worker->client, worker->step, states, count, &err), &err,
                       "psi_client_publish");
    }
}

static bool
takes_part(const struct worker *worker, unsigned index)
{
    const struct plan *plan = plan_of(worker);
    const struct held *held = &worker->held[index];

    return held->table != NULL && (plan->table[index].kind == KIND_LEDGER
                                       ? worker->job->push_number[worker->rank] < plan->pushes_max
                                       : held->step < plan->steps);
}

/* A pull that failed has let go of the memory: nothing arrives there any more. */
static void
check_seal(struct worker *worker, unsigned index)
{
    struct held *held = &worker->held[index];

    for (size_t i = 0; held->sealed && i < held->bytes; i++) {
        if (held->values[i] != SEAL) {
            sim_fail(worker->job->sim,
                     "%s: table %s: a pull wrote to its memory after it had ended",
                     worker->node->name, plan_of(worker)->table[index].name);
            return;
        }
    }
    held->sealed = false;
}

static void
push_table(struct worker *worker, unsigned index)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    struct held *held = &worker->held[index];

    check_seal(worker, index);
    held->number =
        plan->kind == KIND_LEDGER ? worker->job->push_number[worker->rank]++ : held->step;
    held->own = held->number + 1;
    fill_gradient(worker, index);
    if (plan->kind != KIND_ROUNDS) {
        model_ledger(worker->job->model, index, worker->rank, held->number, LEDGER_UNKNOWN);
    }
    held->acted = true;
    held->valid = true;
    held->read_step = held->step + 1;
    if (plan->split) {
        transfer_all(worker, index, WHAT_PUSH, held->step);
        transfer_all(worker, index, WHAT_PULL, held->read_step);
    } else {
        transfer_all(worker, index, WHAT_BOTH, held->step);
    }
}

static void
add_global_step(struct worker *worker)
{
    struct psd_error err;
    struct psd_op *op;

    if (plan_of(worker)->step_adds &&
        accepted(worker, psi_client_step_add(worker->client, 1, &op, &err), &err, "step_add")) {
        remember(worker, op, WHAT_ADD, 0, 0);
        model_step_asked(worker->job->model);
    }
}

static void
begin_step(struct worker *worker)
{
    worker->pushed_ns = worker->job->sim->now_ns;
    publish(worker, true);
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        worker->held[i].acted = false;
        if (takes_part(worker, i)) {
            push_table(worker, i);
        }
    }
    add_global_step(worker); /* beside the pushes: its number is one of theirs */
    psi_client_report(worker->client, worker->step, "loss", 0.5);
}

static uint64_t
table_step(const struct psd_table *table)
{
    uint64_t step = table->next_step[0];

    for (uint64_t chunk = 1; chunk < table->chunk_count; chunk++) {
        step = table->next_step[chunk] > step ? table->next_step[chunk] : step;
    }
    return step;
}

static void
add_weights(const struct table_plan *plan, struct held *held)
{
    for (uint64_t i = 0; i < plan->count; i++) {
        if (plan->dtype == PSD_F64) {
            ((double *)(void *)held->weights)[i] += ((const double *)(void *)held->values)[i];
        } else {
            ((float *)(void *)held->weights)[i] += ((const float *)(void *)held->values)[i];
        }
    }
}

static void
end_step(struct worker *worker)
{
    publish(worker, false);
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        const struct table_plan *plan = &plan_of(worker)->table[i];
        struct held *held = &worker->held[i];

        if (held->table == NULL || !held->acted) {
            continue;
        }
        gradient_used(worker, held);
        check_pulled(worker, i);
        if (!held->valid && plan->kind == KIND_LEDGER) {
            memset(held->values, SEAL, held->bytes);
            held->sealed = true;
        }
        if (plan->use == PSD_USE_SUM) {
            add_weights(plan, held);
        }
        held->step = plan->backup > 0 ? table_step(held->table) : held->step + 1;
    }
    worker->job->sim->counters.steps++;
}

/* ---- states ------------------------------------------------------------------------------- */

/* Tables that this step needs and that are not open yet. */
static bool
open_tables(struct worker *worker)
{
    bool any = false;

    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        if (worker->held[i].table == NULL &&
            plan_of(worker)->table[i].opened_at <= (worker->stepped ? worker->step : 0)) {
            open_table(worker, i);
            any = true;
        }
    }
    return any;
}

/* Where to go on: bulk-synchronous tables agree on a step. Without any, a stale-synchronous one
 * tells; beside them it catches up by itself. */
static void
find_step(struct worker *worker)
{
    uint64_t step = UINT64_MAX;
    uint64_t stale = 0;

    if (worker->stepped) {
        return;
    }
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        const struct held *held = &worker->held[i];
        const enum table_kind kind = plan_of(worker)->table[i].kind;

        if (held->table != NULL && kind == KIND_ROUNDS) {
            if (step != UINT64_MAX && held->step != step && plan_of(worker)->table[i].backup == 0) {
                sim_fail(worker->job->sim, "%s is told to go on at step %llu, and at step %llu",
                         worker->node->name, (unsigned long long)step,
                         (unsigned long long)held->step);
            }
            step = held->step < step ? held->step : step;
        } else if (held->table != NULL && kind == KIND_SLOTS) {
            stale = held->step;
        }
    }
    worker->step = step == UINT64_MAX ? stale : step;
    worker->stepped = true;
}

static void
give_initial_values(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        struct held *held = &worker->held[i];

        if (worker->rank == 0 && held->table != NULL && !held->ready &&
            plan_of(worker)->table[i].init == PSD_INIT_RANK0) {
            plan_initial(plan_of(worker), i, 0, plan_of(worker)->table[i].count, held->gradient);
            transfer(worker, i, WHAT_INIT, 0, 0, 0);
        }
    }
}

/* A replacement in a sum job takes the weights from a live worker, piece by piece. True: asked. */
static bool
fetch_weights(struct worker *worker)
{
    const bool replaces = psi_client_job(worker->client)->incarnation > 1 && worker->step > 0 &&
                          worker->step < plan_of(worker)->steps;
    struct psd_error err;
    struct psd_op *op;

    for (unsigned i = 0; i < plan_of(worker)->table_count && replaces; i++) {
        struct held *held = &worker->held[i];
        const size_t left = held->bytes - held->fetched;
        struct psi_share share = {
            .step = worker->step, .total = held->bytes, .offset = held->fetched};

        if (plan_of(worker)->table[i].use != PSD_USE_SUM || left == 0) {
            continue;
        }
        if (worker->fetch_from == worker->rank) {
            worker->fetch_from = (worker->fetch_from + 1) % plan_of(worker)->workers;
        }
        share.from = worker->fetch_from;
        share.bytes = left < PIECE_BYTES ? (uint32_t)left : PIECE_BYTES;
        snprintf(share.name, sizeof(share.name), "%s", plan_of(worker)->table[i].name);
        if (accepted(worker,
                     psi_client_share_pull(worker->client, &share, held->weights + held->fetched,
                                           &op, &err),
                     &err, "psi_client_share_pull")) {
            held->number = share.bytes;
            remember(worker, op, WHAT_FETCH, i, worker->step);
        }
        return true;
    }
    return false;
}

static void
pull_tables(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        struct held *held = &worker->held[i];

        if (held->table != NULL && !held->ready &&
            plan_of(worker)->table[i].use == PSD_USE_UPDATE) {
            check_seal(worker, i);
            held->valid = true;
            held->read_step = held->step;
            transfer_all(worker, i, WHAT_PULL, held->read_step);
        }
    }
}

static void
pulled_tables(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        struct held *held = &worker->held[i];

        if (held->table != NULL) {
            gradient_used(worker, held);
        }
        if (!held->ready && plan_of(worker)->table[i].use == PSD_USE_UPDATE) {
            check_pulled(worker, i);
        }
    }
}

static bool
all_steps_done(const struct worker *worker)
{
    bool any = false;

    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        any = any || (plan_of(worker)->table[i].kind != KIND_LEDGER && takes_part(worker, i));
    }
    return !any && worker->step >= plan_of(worker)->steps;
}

static void
do_extras(struct worker *worker)
{
    const struct plan *plan = plan_of(worker);
    struct psd_error err;
    struct psd_op *op;

    if (plan->barrier_every > 0 && worker->step % plan->barrier_every == 0 &&
        plan->table[0].backup == 0 &&
        accepted(worker, psi_client_barrier(worker->client, 0, &op, &err), &err, "barrier")) {
        remember(worker, op, WHAT_OTHER, 0, 0);
    }
    if (worker->step % 7 == 3 &&
        accepted(worker, psi_client_nodes(worker->client, &op, &err), &err, "nodes")) {
        remember(worker, op, WHAT_OTHER, 0, 0);
    }
}

static void
think(struct worker *worker)
{
    struct sim *sim = worker->job->sim;

    if (all_steps_done(worker)) {
        struct psd_error err;
        struct psd_op *op;

        worker->phase = LEAVE;
        if (accepted(worker, psi_client_bye(worker->client, &op, &err), &err, "bye")) {
            remember(worker, op, WHAT_OTHER, 0, 0);
        }
        return;
    }
    if (open_tables(worker)) {
        worker->phase = OPEN;
        return;
    }
    worker->think_until_ns = sim->now_ns + rng_below(&sim->rng, plan_of(worker)->think_max_ns + 1);
    worker->phase = STEP;
}

/* All operations of the state have ended: on to the next. False: nothing to do before something
 * happens. */
static bool
advance(struct worker *worker)
{
    switch (worker->phase) {
    case JOIN:
        if (psi_client_state(worker->client) != PSI_CLIENT_RUNNING) {
            return false;
        }
        (void)open_tables(worker);
        worker->phase = OPEN;
        return true;
    case OPEN:
        find_step(worker);
        give_initial_values(worker);
        worker->phase = INIT;
        return true;
    case INIT:
    case FETCH:
        if (fetch_weights(worker)) {
            worker->phase = FETCH;
            return true;
        }
        pull_tables(worker);
        worker->phase = PULL;
        return true;
    case PULL:
        pulled_tables(worker);
        worker->phase = THINK;
        return true;
    case THINK:
        think(worker);
        return true;
    case STEP:
        if (worker->job->sim->now_ns < worker->think_until_ns) {
            return false;
        }
        begin_step(worker);
        worker->phase = EXTRA;
        return true;
    case EXTRA:
        end_step(worker);
        worker->step++;
        worker->phase = THINK;
        do_extras(worker);
        return true;
    case LEAVE:
        worker->done = true;
        worker->phase = OVER;
        return false;
    case OVER:
        break;
    }
    return false;
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
        more = collect(worker);
        while (worker->pending == 0 && psi_client_state(worker->client) != PSI_CLIENT_OVER &&
               !worker->job->sim->failed && advance(worker)) {
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
