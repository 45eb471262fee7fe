/*
 * worker_ops.c - a worker's operations: under way, with the memory they borrow, and ended.
 *
 * A gradient is poisoned as soon as the operation that borrowed it has ended, unless it lies in
 * shared memory and nobody knows how that ended.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "worker_state.h"

enum { SLACK_MS = 50 }; /* how late a deadline may be noticed */

/* ---- memory ------------------------------------------------------------------------------- */

static void
gradient_create(struct worker *worker, unsigned index, struct cargo *cargo)
{
    const size_t bytes = worker->held[index].bytes;

    if (worker->node->host != 0 && !plan_of(worker)->table[index].ordinary) {
        cargo->region = net_region_create(worker->node, bytes);
        cargo->gradient = cargo->region->segment.base;
    } else {
        cargo->gradient = malloc(bytes);
        psi_assert(cargo->gradient != NULL);
    }
    cargo->spoilt = false;
    memset(cargo->gradient, POISON, bytes);
}

void
cargo_create(struct worker *worker, unsigned index)
{
    for (unsigned i = 0; i < plan_depth(plan_of(worker)); i++) {
        struct cargo *cargo = &worker->flight[i].cargo[index];

        cargo->values = malloc(worker->held[index].bytes);
        psi_assert(cargo->values != NULL);
        memset(cargo->values, POISON, worker->held[index].bytes);
        gradient_create(worker, index, cargo);
    }
}

void
cargo_destroy(struct worker *worker)
{
    for (unsigned i = 0; i < FLIGHTS_MAX; i++) {
        for (unsigned t = 0; t < TABLES_MAX; t++) {
            struct cargo *cargo = &worker->flight[i].cargo[t];

            free(cargo->values);
            if (cargo->region != NULL) {
                net_region_let_go(cargo->region);
            } else {
                free(cargo->gradient);
            }
        }
    }
    memset(worker->flight, 0, sizeof(worker->flight));
    while (worker->spoilt_count > 0) {
        net_region_let_go(worker->spoilt[--worker->spoilt_count]);
    }
}

/* The operations that borrowed it have ended. */
void
cargo_used(struct worker *worker, unsigned index, struct cargo *cargo)
{
    if (!cargo->spoilt) {
        memset(cargo->gradient, POISON, worker->held[index].bytes);
        return;
    }
    psi_assert(worker->spoilt_count < SPOILT_MAX);
    worker->spoilt[worker->spoilt_count++] = cargo->region;
    gradient_create(worker, index, cargo);
}

/* A pull that failed has let go of the memory: nothing arrives there any more. */
void
cargo_check_seal(struct worker *worker, unsigned index, struct cargo *cargo)
{
    for (size_t i = 0; cargo->sealed && i < worker->held[index].bytes; i++) {
        if (cargo->values[i] != SEAL) {
            sim_fail(worker->job->sim,
                     "%s: table %s: a pull wrote to its memory after it had ended",
                     worker->node->name, plan_of(worker)->table[index].name);
            return;
        }
    }
    cargo->sealed = false;
}

/* ---- under way ---------------------------------------------------------------------------- */

struct record *
worker_remember(struct worker *worker, struct psd_op *op, enum what what, unsigned table,
                unsigned flight)
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
        .flight = flight,
        .deadline_ns =
            op->deadline_ns == UINT64_MAX ? UINT64_MAX : op->deadline_ns - worker->node->skew_ns,
    };
    if (flight < FLIGHTS_MAX) {
        worker->flight[flight].pending++;
    } else {
        worker->pending++;
    }
    worker->job->sim->counters.ops++;
    return &worker->record[i];
}

bool
worker_accepted(struct worker *worker, psd_status status, const struct psd_error *err,
                const char *call)
{
    if (status != PSD_OK && psi_client_state(worker->client) != PSI_CLIENT_OVER) {
        sim_fail(worker->job->sim, "%s: %s refused: %s", worker->node->name, call, err->text);
    }
    return status == PSD_OK;
}

void
worker_abandon_records(struct worker *worker)
{
    for (unsigned i = 0; i < RECORDS_MAX; i++) {
        worker->record[i].op = NULL;
    }
    worker->pending = 0;
}

unsigned
worker_in_flight(const struct worker *worker)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FLIGHTS_MAX; i++) {
        count += worker->flight[i].busy;
    }
    return count;
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
    switch (record->what) {
    case WHAT_FETCH:
        return status == PSD_ERR_PEER_LOST || status == PSD_ERR_STATE || status == PSD_ERR_BUSY;
    case WHAT_OPEN:
    case WHAT_OTHER:
    case WHAT_ADD:
    case WHAT_BARRIER:
    case WHAT_LOAD:
        return false;
    case WHAT_SAVE: /* the others went on without us, or this is a step that is repeated */
        return status == PSD_ERR_STEP &&
               (table->backup > 0 || psi_client_job(worker->client)->incarnation > 1);
    default:
        return (status == PSD_ERR_TIMEOUT && table->kind == KIND_LEDGER) ||
               (status == PSD_ERR_DROPPED && table->backup > 0);
    }
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
record_failed(struct worker *worker, const struct record *record, const struct psd_op *op)
{
    struct sim *sim = worker->job->sim;
    const psd_status status = psi_op_status(op);

    if (op->error.text[0] == '\0') {
        sim_fail(sim, "%s: an operation failed without a word", worker->node->name);
    }
    if (!may_fail(worker, record, status)) {
        sim_fail(sim, "%s: %s", worker->node->name, op->error.text);
    }
    sim_trace(sim, worker->node->name, "failed: %s", op->error.text);
    sim->counters.unknown_ops += op->outcome == PSD_OUTCOME_UNKNOWN;
    sim->counters.dropped_pushes += status == PSD_ERR_DROPPED;
    if (record->flight < FLIGHTS_MAX) {
        struct cargo *cargo = &worker->flight[record->flight].cargo[record->table];

        cargo->valid = false;
        cargo->spoilt = cargo->spoilt || (op->outcome == PSD_OUTCOME_UNKNOWN &&
                                          cargo->region != NULL && record->what != WHAT_PULL);
    }
}

static void
record_ended(struct worker *worker, struct record *record, struct psd_op *op)
{
    const psd_status status = psi_op_status(op);
    const psd_outcome outcome = op->outcome;

    check_deadline(worker, record);
    if ((status == PSD_OK) != (outcome == PSD_OUTCOME_DONE)) {
        sim_fail(worker->job->sim, "%s: status %d but outcome %d", worker->node->name, status,
                 outcome);
    }
    if (status != PSD_OK) {
        record_failed(worker, record, op);
    }
    if (record->what == WHAT_OPEN && status == PSD_OK) {
        train_opened(worker, record->table, psi_op_table(op));
    } else if (record->what == WHAT_PUSH || record->what == WHAT_BOTH) {
        push_ended(worker, record, outcome);
        if (status == PSD_OK) {
            train_viewed(worker, record, op);
        }
    } else if (record->what == WHAT_ADD && status == PSD_OK) {
        together_added(worker, record, psi_op_value(op));
    } else if (record->what == WHAT_BARRIER && status == PSD_OK) {
        together_met(worker, record);
    } else if (record->what == WHAT_SAVE && status == PSD_OK) {
        save_ended(worker, record, psi_op_updates(op));
    } else if (record->what == WHAT_LOAD && status == PSD_OK) {
        load_ended(worker, record, psi_op_value(op));
    } else if (record->what == WHAT_FETCH) {
        train_fetched(worker, record, status);
    }
    record->op = NULL;
    if (record->flight < FLIGHTS_MAX) {
        worker->flight[record->flight].pending--;
    } else {
        worker->pending--;
    }
}

bool
worker_collect(struct worker *worker)
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
