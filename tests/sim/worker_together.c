/*
 * worker_together.c - what a worker does with all others: barriers and the global step, from
 * several threads at once. What the calls return is compared with what must be.
 *
 * A program that barriers only order is the same on every worker: before step c it has come to
 * T * (c / every) of them, T being its threads, less those before the step it was loaded at. A
 * replacement owes those that were not over when it came.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "server/state.h"
#include "worker_state.h"

static unsigned
threads_of(const struct plan *plan)
{
    return plan->threads > 1 ? plan->threads : 1;
}

/* ---- the global step ---------------------------------------------------------------------- */

/* Does the lane count it, or has done so, and not heard yet that another does? */
static bool
counts(const struct lane *lane)
{
    return lane != NULL && !lane->config.is_standby && lane->joined && lane->config.server == 0 &&
           lane->config.lane == 0;
}

/* The highest that it is on any of these; 0 while there is none. */
static uint64_t
global_step(const struct job *job)
{
    uint64_t step = 0;

    for (unsigned i = 0; i < job->lanes; i++) {
        if (counts(job->lane[i].lane) && job->lane[i].lane->global.value > step) {
            step = job->lane[i].lane->global.value;
        }
    }
    return step;
}

static bool
is_counted(const struct job *job)
{
    bool any = false;

    for (unsigned i = 0; i < job->lanes; i++) {
        any = any || counts(job->lane[i].lane);
    }
    return any;
}

/* What it is at least. Where servers have copies, additions may be made that nobody was told of, and
 * be lost: their workers make them again. */
static uint64_t
certain_step(const struct job *job)
{
    return job->plan.replicas > 0 || job->plan.max_servers > 0 ? model_steps(job->model)
                                                               : global_step(job);
}

static void
add(struct worker *worker, unsigned flight, uint64_t addend)
{
    struct psd_error err;
    struct psd_op *op;

    if (worker_accepted(worker, psi_client_step_add(worker->client, addend, &op, &err), &err,
                        "step_add")) {
        struct record *record = worker_remember(worker, op, WHAT_ADD, 0, flight);

        record->addend = addend;
        record->at_call = certain_step(worker->job);
        model_step_asked(worker->job->model, addend);
    }
}

/* Each thread adds one; with several of them, one only looks. */
void
together_add(struct worker *worker, unsigned flight)
{
    const struct plan *plan = plan_of(worker);

    for (unsigned i = 0; plan->step_adds && i < threads_of(plan); i++) {
        add(worker, flight, 1);
    }
    if (plan->step_adds && threads_of(plan) > 1) {
        add(worker, flight, 0);
    }
}

/* Between call and return the step was this, once; and no two additions were told the same. */
void
together_added(struct worker *worker, const struct record *record, uint64_t value)
{
    const struct job *job = worker->job;
    const uint64_t lowest = record->at_call + record->addend;

    if (value < lowest || (is_counted(job) && value > global_step(job))) {
        sim_fail(job->sim,
                 "%s added %llu to the global step and was told %llu: it was %llu before and is "
                 "%llu now",
                 worker->node->name, (unsigned long long)record->addend, (unsigned long long)value,
                 (unsigned long long)record->at_call, (unsigned long long)global_step(job));
    }
    model_step_done(job->model, record->addend, value);
}

/* ---- barriers ------------------------------------------------------------------------------ */

static uint64_t
barriers_before(const struct plan *plan, uint64_t step)
{
    if (plan->barrier_every == 0 || plan->table[0].backup > 0 || step < plan->load_step) {
        return 0;
    }
    step =
        step < plan->steps ? step : plan->steps; /* who joins behind the last meets nobody there */
    return threads_of(plan) * (step / plan->barrier_every - plan->load_step / plan->barrier_every);
}

/* Begins barriers, at most so many, until it has come to `target` of them. True: some began. */
static bool
meet_up_to(struct worker *worker, uint64_t target, unsigned most)
{
    struct job *job = worker->job;
    struct psd_error err;
    struct psd_op *op;
    unsigned begun = 0;

    while (worker->barrier_base + worker->client->barrier[PSI_BARRIER_CALLED] < target &&
           begun < most &&
           worker_accepted(worker, psi_client_barrier(worker->client, 0, &op, &err), &err,
                           "barrier")) {
        struct record *record = worker_remember(worker, op, WHAT_BARRIER, 0, FLIGHTS_MAX);

        record->number = worker->barrier_base + op->control.frame.seq;
        if (job->barrier_reached[worker->rank] < record->number) {
            job->barrier_reached[worker->rank] = record->number;
        }
        begun++;
    }
    return begun > 0;
}

/* How many barriers everybody knows to be over who was there when the process began. A master that
 * returned knows of those that a worker has passed who is there still, and of no others. */
static uint64_t
barriers_known(const struct worker *worker)
{
    const struct job *job = worker->job;
    uint64_t known = 0;

    if (job->sim->counters.master_lives == 0) {
        return worker->barrier_passed;
    }
    for (uint32_t i = 0; i < job->plan.workers; i++) {
        const struct worker *other = job->worker[i];

        if (worker_runs(other) && !other->given_up && other->passed > known &&
            !(plan_is_elastic(&job->plan) && job->rank_left[other->rank])) {
            known = other->passed;
        }
    }
    return known < worker->barrier_passed ? known : worker->barrier_passed;
}

void
together_begin(struct worker *worker)
{
    const uint64_t known = barriers_known(worker);

    worker->barrier_base = worker->client->job.barriers;
    if (worker->barrier_base < known) {
        sim_fail(worker->job->sim, "%s counts its barriers from %llu, the job has passed %llu",
                 worker->node->name, (unsigned long long)worker->barrier_base,
                 (unsigned long long)known);
    }
    if (plan_is_elastic(plan_of(worker)) &&
        worker->job->barrier_reached[worker->rank] < worker->barrier_base) {
        worker->job->barrier_reached[worker->rank] = worker->barrier_base; /* over before it came */
    }
}

void
together_meet(struct worker *worker)
{
    (void)meet_up_to(worker, barriers_before(plan_of(worker), worker->ended), UINT32_MAX);
}

bool
together_meets_last(struct worker *worker)
{
    const struct plan *plan = plan_of(worker);

    return plan->end_barriers > 0 && meet_up_to(worker,
                                                barriers_before(plan, plan->steps) +
                                                    (uint64_t)threads_of(plan) * plan->end_barriers,
                                                threads_of(plan));
}

/* Whoever is still expected has come to it, in one life or another. */
void
together_met(struct worker *worker, const struct record *record)
{
    struct job *job = worker->job;

    if (worker->passed < record->number) {
        worker->passed = record->number;
    }
    if (job->barrier_passed < record->number) {
        job->barrier_passed = record->number;
    }
    for (uint32_t rank = 0; rank < job->plan.workers; rank++) {
        const bool out = job->rank_left[rank] ||
                         (job->rank_lost[rank] && job->plan.policy != PSI_DEATH_WAIT) ||
                         (plan_is_elastic(&job->plan) && !job->rank_came[rank]);

        if (!out && job->barrier_reached[rank] < record->number) {
            sim_fail(job->sim,
                     "%s has passed barrier %llu, but worker %u has come to %llu of them only",
                     worker->node->name, (unsigned long long)record->number, rank,
                     (unsigned long long)job->barrier_reached[rank]);
        }
    }
}
