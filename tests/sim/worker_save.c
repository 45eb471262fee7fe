/*
 * worker_save.c - saves in mid-run, and jobs that begin with a load: what psd_save() and psd_load()
 * ask of the servers, all parts of it compared with the model.
 *
 * One worker after the other saves. It has pulled a step and not pushed it, so that tables that
 * meet in rounds stand still, and others do not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "wire/frame.h"
#include "worker_state.h"

/* ---- save ---------------------------------------------------------------------------------- */

bool
save_is_due(const struct worker *worker)
{
    const struct plan *plan = plan_of(worker);

    return plan->save_every > 0 && worker->step > worker->saved &&
           worker->step % plan->save_every == 0 &&
           worker->step / plan->save_every % plan->workers == worker->rank;
}

static void
save_table(struct worker *worker, unsigned index)
{
    struct held *held = &worker->held[index];
    const struct table_plan *plan = &plan_of(worker)->table[index];
    struct psi_transfer transfer = {.type = PSI_FRAME_STATE_PULL, .step = held->step};
    struct psd_error err;
    struct psd_op *op;

    free(held->parts);
    held->parts = malloc(plan->count * plan_parts(plan).bytes);
    psi_assert(held->parts != NULL);
    transfer.to = held->parts;
    if (worker_accepted(worker,
                        psi_client_transfer(worker->client, held->table, &transfer, &op, &err),
                        &err, "a save")) {
        struct record *record = worker_remember(worker, op, WHAT_SAVE, index, FLIGHTS_MAX);

        record->step = held->step;
        record->number =
            plan->kind == KIND_LEDGER ? worker->job->push_number[worker->rank] : held->step;
    }
}

void
save_begin(struct worker *worker)
{
    worker->saved = worker->step;
    worker->job->sim->counters.saves++;
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        if (worker->held[i].table != NULL && plan_of(worker)->table[i].use == PSD_USE_UPDATE) {
            save_table(worker, i);
        }
    }
}

void
save_ended(struct worker *worker, const struct record *record, uint64_t updates)
{
    const struct model_saved saved = {
        .parts = worker->held[record->table].parts,
        .step = record->step,
        .updates = updates,
        .rank = worker->rank,
        .own = record->number,
    };

    if (!worker->given_up) {
        model_check_saved(worker->job->model, record->table, &saved);
    }
}

/* ---- load ---------------------------------------------------------------------------------- */

static void
send_part(struct worker *worker, unsigned index, unsigned part)
{
    const struct plan *plan = plan_of(worker);
    struct held *held = &worker->held[index];
    uint8_t *values = held->parts + (part == PLAN_PART_VALUE ? 0 : held->bytes);
    const struct psi_transfer transfer = {
        .type = PSI_FRAME_STATE_PUSH,
        .part = (uint8_t)part,
        .step = plan->load_step,
        .updates = plan->load_step,
        .from = values,
    };
    struct psd_error err;
    struct psd_op *op;

    plan_loaded(plan, index, part, 0, plan->table[index].count, values);
    if (worker_accepted(worker,
                        psi_client_transfer(worker->client, held->table, &transfer, &op, &err),
                        &err, "a load")) {
        (void)worker_remember(worker, op, WHAT_OTHER, index, FLIGHTS_MAX);
    }
}

/* As from a file: the value last, which makes a loaded chunk count. */
static void
send_tables(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        struct held *held = &worker->held[i];

        free(held->parts);
        held->parts = malloc(2 * held->bytes);
        psi_assert(held->parts != NULL);
        if (plan_parts(&plan_of(worker)->table[i]).state > 0) {
            send_part(worker, i, PLAN_PART_STATE);
        }
        send_part(worker, i, PLAN_PART_VALUE);
    }
}

static void
meet(struct worker *worker)
{
    struct psd_error err;
    struct psd_op *op;

    if (worker_accepted(worker, psi_client_load_barrier(worker->client, &op, &err), &err,
                        "a load's barrier")) {
        (void)worker_remember(worker, op, WHAT_OTHER, 0, FLIGHTS_MAX);
    }
}

/* An empty pull of the first chunk: its answer says at which step the table is. */
static void
ask_for_steps(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        const struct psi_transfer transfer = {
            .type = PSI_FRAME_PULL,
            .empty = true,
            .count = plan_of(worker)->table[i].count < PSD_CHUNK_ELEMENTS ? 0 : PSD_CHUNK_ELEMENTS,
        };
        struct psd_error err;
        struct psd_op *op;

        if (worker_accepted(
                worker,
                psi_client_transfer(worker->client, worker->held[i].table, &transfer, &op, &err),
                &err, "a table's step")) {
            (void)worker_remember(worker, op, WHAT_LOAD, i, FLIGHTS_MAX);
        }
    }
}

void
load_ended(struct worker *worker, const struct record *record, uint64_t step)
{
    const struct psd_table *table = worker->held[record->table].table;

    if (step != plan_of(worker)->load_step) {
        sim_fail(worker->job->sim, "%s: table %s is at step %llu after a load of step %llu",
                 worker->node->name, plan_of(worker)->table[record->table].name,
                 (unsigned long long)step, (unsigned long long)plan_of(worker)->load_step);
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        table->next_step[chunk] = step;
    }
}

/* The stages of psd_load(). True: one has begun; false: there is none, or all are over. */
bool
load_goes_on(struct worker *worker)
{
    if (plan_of(worker)->load_step == 0 || plan_of(worker)->resumes) {
        return false;
    }
    switch (worker->load_stage++) {
    case 0:
        worker->load_is_over = psi_client_load_is_over(worker->client);
        if (worker->rank == 0 && !worker->load_is_over) {
            send_tables(worker);
        }
        return true;
    case 1:
    case 3:
        meet(worker);
        return true;
    case 2:
        if (!worker->load_is_over) {
            ask_for_steps(worker);
        }
        return true;
    case 4:
        for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
            worker->held[i].step = worker->held[i].table->next_step[0];
        }
        worker->stepped = false;
        train_find_step(worker);
        return false;
    default:
        return false;
    }
}
