/*
 * worker_train.c - the steps of the training program: gradients, pushes and pulls, weights.
 *
 * What was pulled is compared with the model.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/sparse_rows.h"
#include "client/core/table_view.h"
#include "half.h"
#include "readers.h"
#include "wire/frame.h"
#include "worker_state.h"

enum { PIECE_BYTES = 100000 };

/* ---- tables -------------------------------------------------------------------------------- */

void
train_open(struct worker *worker, unsigned index)
{
    struct psi_spec spec;
    struct psd_error err;
    struct psd_op *op;

    plan_spec(plan_of(worker), index, &spec);
    if (worker_accepted(worker,
                        psi_client_table_open(worker->client, &spec,
                                              plan_of(worker)->table[index].priority, &op, &err),
                        &err, "psi_client_table_open")) {
        (void)worker_remember(worker, op, WHAT_OPEN, index, FLIGHTS_MAX);
    }
}

/* Who is there when the job begins does so with the others. A rank that is given to whoever comes may have been
 * somebody's who asked for another step. */
static void
check_join_step(struct worker *worker, unsigned index, uint64_t step)
{
    const struct plan *plan = plan_of(worker);
    const uint32_t asked = plan->join_step[worker->slot];

    if (asked == 0 || step == plan->load_step || plan->auto_rank ||
        plan->table[index].kind != KIND_ROUNDS ||
        !model_awaits(worker->job->model, index, worker->rank)) {
        return;
    }
    worker->job->sim->counters.asked_joins++;
    if (step != asked) {
        sim_fail(worker->job->sim, "%s asked for step %u, and begins %s with step %llu",
                 worker->node->name, asked, plan->table[index].name, (unsigned long long)step);
    }
}

void
train_opened(struct worker *worker, unsigned index, struct psd_table *table)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    struct held *held = &worker->held[index];

    held->table = table;
    held->bytes = plan->count * psi_dtype_bytes(plan->dtype);
    held->weights = calloc(1, held->bytes);
    psi_assert(held->weights != NULL);
    cargo_create(worker, index);
    held->step = table->next_step[0];
    for (unsigned i = 0; i < FLIGHTS_MAX; i++) {
        worker->flight[i].cargo[index].own = plan->kind == KIND_LEDGER
                                                 ? worker->job->push_number[worker->rank]
                                                 : table->next_step[0];
    }
    sim_trace(worker->job->sim, worker->node->name, "opened %s at step %llu", plan->name,
              (unsigned long long)held->step);
    check_join_step(worker, index, held->step);
    model_joined(worker->job->model, index, worker->rank, held->step);
}

/* Where to go on: bulk-synchronous tables agree on a step. Without any, a stale-synchronous one
 * tells; beside them it catches up by itself. */
void
train_find_step(struct worker *worker)
{
    const bool loads = plan_of(worker)->load_step > 0 && !plan_of(worker)->resumes;
    const bool half_loaded = loads && worker->load_stage == 0;
    uint64_t step = UINT64_MAX;
    uint64_t stale = 0;

    if (worker->stepped) {
        return;
    }
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        const struct held *held = &worker->held[i];
        const enum table_kind kind = plan_of(worker)->table[i].kind;

        if (held->table != NULL && kind == KIND_ROUNDS) {
            if (step != UINT64_MAX && held->step != step && !half_loaded) {
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
    worker->ended = worker->step;
    worker->stepped = true;
}

bool
train_takes_part(const struct worker *worker, unsigned index)
{
    const struct plan *plan = plan_of(worker);
    const struct held *held = &worker->held[index];

    return held->table != NULL && (plan->table[index].kind == KIND_LEDGER
                                       ? worker->job->push_number[worker->rank] < plan->pushes_max
                                       : held->step < plan_leaves_at(plan, worker->rank));
}

/* ---- transfers ----------------------------------------------------------------------------- */

/* Some callers read sums where the library has them. Not drawn: no other choice of a seed depends on
 * it. */
static bool
is_viewed(const struct worker *worker, unsigned index, enum what what)
{
    const struct plan *plan = plan_of(worker);

    return what == WHAT_BOTH && plan->table[index].use == PSD_USE_SUM &&
           plan->table[index].width == 0 && (plan->seed + worker->rank + index) % 3 == 0;
}

static void *
values_at(const struct worker *worker, unsigned flight, unsigned index, enum what what)
{
    if (what == WHAT_PUSH || what == WHAT_INIT) {
        return NULL;
    }
    return is_viewed(worker, index, what) ? psi_table_view(worker->held[index].table)->base
                                          : worker->flight[flight].cargo[index].values;
}

static void
copy_view(struct worker *worker, const struct record *record, const struct psi_transfer *transfer)
{
    const struct held *held = &worker->held[record->table];
    const size_t element_bytes = psi_dtype_bytes(plan_of(worker)->table[record->table].dtype);
    const size_t offset = transfer->first * element_bytes;

    memcpy(worker->flight[record->flight].cargo[record->table].values + offset,
           psi_table_view(held->table)->base + offset, transfer->count * element_bytes);
}

/* The operation has brought what it was to bring. A small sum that stays in this process was there at once,
 * and was copied then: that of a later step may have come since. */
void
train_viewed(struct worker *worker, const struct record *record, const struct psd_op *op)
{
    if (plan_is_sparse_sum(&plan_of(worker)->table[record->table])) {
        rows_summed(worker, record, op);
    } else if (op->transfer.to_view && !record->viewed) {
        copy_view(worker, record, &op->transfer);
    }
}

static void
transfer(struct worker *worker, unsigned flight, unsigned index, enum what what, uint64_t first,
         uint64_t count)
{
    uint8_t *to = values_at(worker, flight, index, what);
    static const uint8_t types[] = {
        [WHAT_INIT] = PSI_FRAME_INIT,
        [WHAT_PUSH] = PSI_FRAME_PUSH,
        [WHAT_PULL] = PSI_FRAME_PULL,
        [WHAT_BOTH] = PSI_FRAME_PUSH_PULL,
    };
    const struct table_plan *plan = &plan_of(worker)->table[index];
    const struct cargo *cargo = &worker->flight[flight].cargo[index];
    const size_t offset = first * psi_dtype_bytes(plan->dtype);
    const bool pushes = what == WHAT_PUSH || what == WHAT_BOTH;
    struct psi_transfer args = {
        .type = types[what],
        .empty = pushes && plan->kind == KIND_ROUNDS &&
                 plan_is_empty(plan_of(worker), index, worker->rank, cargo->step),
        .step = what == WHAT_PULL ? cargo->read_step : cargo->step,
        .first = first,
        .count = count,
        .from = what == WHAT_PULL ? NULL : cargo->gradient + offset,
        .lent = what != WHAT_PULL && cargo->region != NULL,
        .to = to != NULL ? to + offset : NULL,
        .to_view = is_viewed(worker, index, what),
        .timeout_ms = plan->kind == KIND_LEDGER ? plan_of(worker)->ledger_timeout_ms : 0,
    };
    struct psd_op *op;
    struct psd_error err;

    if (plan->width > 0) {
        rows_transfer(worker, flight, index, &args);
    }
    if (!worker_accepted(
            worker,
            psi_client_transfer(worker->client, worker->held[index].table, &args, &op, &err), &err,
            "a transfer")) {
        psi_sparse_rows_free(args.rows);
    } else {
        struct record *record = worker_remember(worker, op, what, index, flight);

        record->step = args.step;
        record->number = cargo->number;
        record->viewed = args.to_view && op->ended;
        if (record->viewed) {
            copy_view(worker, record, &op->transfer);
        }
    }
}

/* The whole table, in one operation or in several. */
static void
transfer_all(struct worker *worker, unsigned flight, unsigned index, enum what what)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    const uint64_t chunks = plan_chunk_count(plan);

    if (!plan->ranges || chunks == 1) {
        transfer(worker, flight, index, what, 0, 0);
        return;
    }
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        transfer(worker, flight, index, what, chunk * PSD_CHUNK_ELEMENTS,
                 plan_chunk_elements(plan, chunk));
    }
}

/* ---- what was pulled ----------------------------------------------------------------------- */

/* A read may be of a later version than its step where the job does not wait for this worker, or
 * where it has pushed on meanwhile and asked again after a cut. */
static bool
may_be_later(const struct worker *worker, unsigned index)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];

    return plan->backup > 0 || (plan->split && plan_depth(plan_of(worker)) > 1);
}

static void
check_rounds(struct worker *worker, unsigned index, const struct cargo *cargo)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    const size_t element_bytes = psi_dtype_bytes(plan->dtype);

    for (uint64_t chunk = 0; chunk < plan_chunk_count(plan); chunk++) {
        const uint8_t *have = cargo->values + plan_chunk_first(plan, chunk) * element_bytes;
        const size_t bytes = plan_chunk_elements(plan, chunk) * element_bytes;
        /* With backup workers a replacement begins at a step its rank has given, before a load. */
        uint64_t version = plan->backup > 0 && cargo->read_step < plan_of(worker)->load_step
                               ? plan_of(worker)->load_step
                               : cargo->read_step;
        const void *want;

        if (plan_is_lone(plan_of(worker), index)) {
            model_kept(worker->job->model, index, chunk, version);
        }
        want = model_version(worker->job->model, index, chunk, version);
        while (want != NULL && memcmp(have, want, bytes) != 0) {
            want = may_be_later(worker, index)
                       ? model_version(worker->job->model, index, chunk, ++version)
                       : NULL;
        }
        if (want == NULL) {
            sim_fail(worker->job->sim,
                     "%s pulled table %s at step %llu: chunk %llu is not what "
                     "the model says",
                     worker->node->name, plan->name, (unsigned long long)cargo->read_step,
                     (unsigned long long)chunk);
            return;
        }
        model_told(worker->job->model, index, chunk, version, worker->rank);
        readers_note(worker->job->readers, index, chunk, version);
    }
}

static void
check_pulled(struct worker *worker, unsigned index, const struct cargo *cargo)
{
    struct held *held = &worker->held[index];
    const struct table_plan *plan = &plan_of(worker)->table[index];

    if (held->table == NULL || !cargo->valid || worker->job->sim->failed) {
        return;
    }
    if (worker->given_up && worker->node->host != 0) {
        return; /* it will be told that it is out of the job */
    }
    if (plan->kind == KIND_ROUNDS) {
        check_rounds(worker, index, cargo);
    } else {
        model_check_slots(worker->job->model, index, worker->rank, cargo->own, cargo->read_step,
                          cargo->values);
    }
    held->ready = true;
}

/* ---- before the first step ----------------------------------------------------------------- */

void
train_give_initial_values(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        const struct held *held = &worker->held[i];
        struct cargo *cargo = &worker->flight[0].cargo[i];

        if (worker->rank == 0 && held->table != NULL && !held->ready &&
            plan_of(worker)->table[i].init == PSD_INIT_RANK0) {
            plan_initial(plan_of(worker), i, 0, plan_of(worker)->table[i].count, cargo->gradient);
            cargo->step = 0;
            transfer(worker, 0, i, WHAT_INIT, 0, 0);
        }
    }
}

/* A replacement in a sum job takes the weights from a live worker, piece by piece. */
bool
train_fetch_weights(struct worker *worker)
{
    const bool comes_late =
        psi_client_job(worker->client)->incarnation > 1 || plan_is_elastic(plan_of(worker));
    const bool replaces = comes_late && worker->step > 0 && worker->step < plan_of(worker)->steps;
    struct psd_error err;
    struct psd_op *op;

    for (unsigned i = 0; i < plan_of(worker)->table_count && replaces; i++) {
        const struct held *held = &worker->held[i];
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
        if (worker_accepted(worker,
                            psi_client_share_pull(worker->client, &share,
                                                  held->weights + held->fetched, &op, &err),
                            &err, "psi_client_share_pull")) {
            worker_remember(worker, op, WHAT_FETCH, i, FLIGHTS_MAX)->number = share.bytes;
        }
        return true;
    }
    return false;
}

void
train_fetched(struct worker *worker, const struct record *record, psd_status status)
{
    if (status == PSD_OK) {
        worker->held[record->table].fetched += record->number;
    } else {
        worker->fetch_from = (worker->fetch_from + 1) % plan_of(worker)->workers;
    }
}

/* Who joins behind the last step has nothing to read: the others may wait for it in a barrier there,
 * and make no value of that step. If none does, all of them leave, and then it is made of nothing. */
static bool
comes_behind_all(const struct worker *worker, const struct held *held)
{
    const struct plan *plan = plan_of(worker);

    return held->step > plan->steps && (plan->end_barriers > 0 || plan->barrier_every > 0);
}

void
train_pull(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        const struct held *held = &worker->held[i];
        struct cargo *cargo = &worker->flight[0].cargo[i];

        if (held->table != NULL && !held->ready &&
            plan_of(worker)->table[i].use == PSD_USE_UPDATE && !comes_behind_all(worker, held)) {
            cargo_check_seal(worker, i, cargo);
            cargo->valid = true;
            cargo->read_step = held->step;
            transfer_all(worker, 0, i, WHAT_PULL);
        }
    }
}

void
train_pulled(struct worker *worker)
{
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        const struct held *held = &worker->held[i];
        struct cargo *cargo = &worker->flight[0].cargo[i];

        if (held->table != NULL) {
            cargo_used(worker, i, cargo);
        }
        if (!held->ready && plan_of(worker)->table[i].use == PSD_USE_UPDATE &&
            !comes_behind_all(worker, held)) {
            check_pulled(worker, i, cargo);
        }
    }
}

/* ---- a step -------------------------------------------------------------------------------- */

static void
set_slot(const struct table_plan *table, struct cargo *cargo, uint64_t index, float amount)
{
    if (table->dtype == PSD_F16) {
        ((uint16_t *)(void *)cargo->gradient)[index] = sim_half(amount);
    } else {
        ((float *)(void *)cargo->gradient)[index] = amount;
    }
}

static void
fill_gradient(struct worker *worker, unsigned index, struct cargo *cargo)
{
    const struct plan *plan = plan_of(worker);
    const struct table_plan *table = &plan->table[index];
    const struct held *held = &worker->held[index];

    if (table->kind == KIND_ROUNDS) {
        plan_gradient(plan, index, worker->rank, cargo->step, 0, table->count,
                      table->use == PSD_USE_SUM ? held->weights : cargo->values, cargo->gradient);
        return;
    }
    memset(cargo->gradient, 0, held->bytes);
    for (uint64_t chunk = 0; chunk < plan_chunk_count(table); chunk++) {
        const uint64_t first = plan_chunk_first(table, chunk);

        set_slot(table, cargo, first + plan_slot(plan, table, worker->rank, cargo->number), 1);
        if (table->kind == KIND_LEDGER) {
            set_slot(table, cargo, first + plan_hot_slot(plan, table),
                     plan_hot_amount(worker->rank, cargo->number));
        }
    }
}

/* Offers the weights of sum tables, as they are at the start of the oldest step that has not ended,
 * to replacements; or withdraws them. */
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
    if (plan_of(worker)->policy == PSI_DEATH_WAIT || plan_is_elastic(plan_of(worker))) {
        (void)worker_accepted(
            worker, psi_client_publish(worker->client, worker->ended, states, count, &err), &err,
            "psi_client_publish");
    }
}

static void
push_table(struct worker *worker, unsigned flight, unsigned index)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    struct held *held = &worker->held[index];
    struct cargo *cargo = &worker->flight[flight].cargo[index];

    cargo_check_seal(worker, index, cargo);
    cargo->step = held->step;
    cargo->number =
        plan->kind == KIND_LEDGER ? worker->job->push_number[worker->rank]++ : cargo->step;
    cargo->own = cargo->number + 1;
    fill_gradient(worker, index, cargo);
    if (plan->kind != KIND_ROUNDS) {
        model_ledger(worker->job->model, index, worker->rank, cargo->number, LEDGER_UNKNOWN);
    }
    cargo->acted = true;
    cargo->valid = true;
    cargo->read_step = cargo->step + 1;
    held->step++;
    if (plan->split) {
        transfer_all(worker, flight, index, WHAT_PUSH);
        transfer_all(worker, flight, index, WHAT_PULL);
    } else {
        transfer_all(worker, flight, index, WHAT_BOTH);
    }
}

void
train_begin_step(struct worker *worker)
{
    const unsigned index = (unsigned)(worker->step % plan_depth(plan_of(worker)));
    struct flight *flight = &worker->flight[index];

    psi_assert(!flight->busy);
    flight->busy = true;
    flight->step = worker->step;
    flight->pushed_ns = worker->job->sim->now_ns;
    if (worker->step == worker->ended) {
        publish(worker, true);
    }
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        flight->cargo[i].acted = false;
        if (train_takes_part(worker, i)) {
            push_table(worker, index, i);
        }
    }
    together_add(worker, index); /* beside the pushes: its number is one of theirs */
    (void)psi_client_report(worker->client, worker->step, "loss", 0.5, NULL);
    worker->step++;
}

static void
add_weights(const struct table_plan *plan, struct held *held, const struct cargo *cargo)
{
    for (uint64_t i = 0; i < plan->count; i++) {
        if (plan->dtype == PSD_F64) {
            ((double *)(void *)held->weights)[i] += ((const double *)(void *)cargo->values)[i];
        } else {
            ((float *)(void *)held->weights)[i] += ((const float *)(void *)cargo->values)[i];
        }
    }
}

static void
end_table(struct worker *worker, unsigned index, struct cargo *cargo)
{
    const struct table_plan *plan = &plan_of(worker)->table[index];
    struct held *held = &worker->held[index];

    cargo_used(worker, index, cargo);
    check_pulled(worker, index, cargo);
    if (!cargo->valid && plan->kind == KIND_LEDGER) {
        memset(cargo->values, SEAL, held->bytes);
        cargo->sealed = true;
    }
    if (plan->use == PSD_USE_SUM) {
        add_weights(plan, held, cargo);
    }
    if (plan->backup > 0) {
        held->step = psi_table_step(held->table);
    }
}

/* Tables with backup workers are at one step when a step has ended: all have as many. */
static void
check_group(struct worker *worker, const struct flight *flight)
{
    const struct plan *plan = plan_of(worker);

    for (unsigned i = 1; i < plan->table_count && plan->table[0].backup > 0; i++) {
        if (flight->cargo[0].acted && flight->cargo[i].acted &&
            worker->held[0].step != worker->held[i].step) {
            sim_fail(worker->job->sim, "%s: table %s is at step %llu, and table %s at step %llu",
                     worker->node->name, plan->table[0].name,
                     (unsigned long long)worker->held[0].step, plan->table[i].name,
                     (unsigned long long)worker->held[i].step);
        }
    }
}

/* The oldest has ended. */
void
train_end_step(struct worker *worker)
{
    struct flight *flight = &worker->flight[worker->ended % plan_depth(plan_of(worker))];

    psi_assert(flight->busy && flight->step == worker->ended && flight->pending == 0);
    publish(worker, false);
    for (unsigned i = 0; i < plan_of(worker)->table_count; i++) {
        if (worker->held[i].table != NULL && flight->cargo[i].acted) {
            end_table(worker, i, &flight->cargo[i]);
        }
    }
    check_group(worker, flight);
    flight->busy = false;
    worker->ended++;
    if (worker->ended < worker->step) {
        publish(worker, true);
    }
    worker->job->sim->counters.steps++;
}
