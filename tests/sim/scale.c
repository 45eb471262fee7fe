/*
 * scale.c - servers that come to a job that runs, and servers that leave it.
 *
 * A process of a server is known by its index: those from plan.servers on have no places of their own. What the
 * oracle expects of the job does not change; here it is looked at only that no more moves than may.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "scale.h"

#include "copies.h"
#include "master/master.h"
#include "peek.h"
#include "wire/message.h"

enum {
    PATIENCE = 400
}; /* how often somebody who wants to scale looks for a moment at which it can be done */

static uint64_t
process_of(const struct job *job, uint32_t index)
{
    return (uint64_t)(job->life[index] + 1) << PSI_PROCESS_INDEX_BITS | index;
}

static bool
runs(const struct job *job, uint32_t index)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == index && job->lane[i].lane != NULL) {
            return true;
        }
    }
    return false;
}

static bool
is_present(const struct job *job, uint32_t index)
{
    return runs(job, index) && !job->is_leaving[index];
}

static uint32_t
count_present(const struct job *job)
{
    uint32_t count = 0;

    for (uint32_t index = 0; index < job->plan.max_servers; index++) {
        count += is_present(job, index);
    }
    return count;
}

static void
say_leave(struct job *job, uint32_t index)
{
    if (job->is_leaving[index] && job->master->master != NULL) {
        master_heed(job->master->master, &(struct psi_word){.kind = PSI_WORD_LEAVE,
                                                            .rank = index,
                                                            .number = process_of(job, index)});
        net_wake_at(job->master->node, 0);
    }
}

void
scale_remind(struct job *job)
{
    for (uint32_t index = 0; index < job->plan.max_servers; index++) {
        say_leave(job, index);
    }
}

/* The index of a process that is not wanted so far; PROCESSES_MAX: there is none. */
static uint32_t
find_free(const struct job *job)
{
    for (uint32_t index = 0; index < job->plan.max_servers; index++) {
        if (job->is_out[index] && job->life[index] + 1 < LIVES_MAX) {
            return index;
        }
    }
    return PROCESSES_MAX;
}

static void
scale_one(struct job *job)
{
    const uint32_t fewest = job->plan.replicas > 0 ? 2 : 1;
    const uint32_t present = count_present(job);
    const uint32_t free_index = find_free(job);
    uint32_t index = (uint32_t)rng_below(&job->sim->rng, job->plan.max_servers);

    if (free_index < PROCESSES_MAX && (present <= fewest || rng_chance(&job->sim->rng, 60))) {
        job->sim->counters.servers_came++;
        job_start_server(job, free_index);
        return;
    }
    while (present > fewest && !is_present(job, index)) {
        index = (index + 1) % job->plan.max_servers;
    }
    if (present > fewest) {
        sim_trace(job->sim, "psd_run", "server %u is to leave", index);
        job->is_leaving[index] = true;
        say_leave(job, index);
    }
}

static void
scale(void *object, uint64_t patience)
{
    struct job *job = object;

    if (job->is_ending || job->master->ending) {
        return;
    }
    if (job->has_view && job->master->master != NULL) {
        scale_one(job);
    } else if (patience > 0) {
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 5 * SIM_MS), scale, job,
               patience - 1);
    }
}

/* Has a lane of it a place, which the master may not know yet? Without copies that is the only one that has it. */
static bool
has_taken_a_place(const struct job *job, uint32_t index)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == index && job->lane[i].lane != NULL && job->lane[i].is_guest) {
            return true;
        }
    }
    return false;
}

/* A server that has no place yet dies while it is about to get one: nothing may be lost. */
static void
kill_target(void *object, uint64_t patience)
{
    struct job *job = object;
    uint32_t index;

    if (job->is_ending || job->master->ending) {
        return;
    }
    if (job->master->master != NULL && peek_is_moving_to_empty(job->master->master, &index) &&
        runs(job, index) && !has_taken_a_place(job, index)) {
        job->sim->counters.target_kills++;
        job_kill_server(job, index);
        if (!job->is_leaving[index]) {
            sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 300 * SIM_MS),
                   job_start_server_later, job, index);
        }
    } else if (patience > 0) {
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 5 * SIM_MS), kill_target, job,
               patience - 1);
    }
}

void
scale_schedule(struct job *job)
{
    const struct plan *plan = &job->plan;

    for (unsigned i = 0; i < plan->scales; i++) {
        sim_at(job->sim, rng_between(&job->sim->rng, plan->faults.from_ns, plan->faults.until_ns),
               scale, job, PATIENCE);
    }
    for (unsigned i = 0; i < plan->faults.target_kills; i++) {
        sim_at(job->sim, rng_between(&job->sim->rng, plan->faults.from_ns, plan->faults.until_ns),
               kill_target, job, PATIENCE);
    }
}

/* As psd_run does it: the process has nothing more, and is ended. */
static void
end_process(void *object, uint64_t process)
{
    struct job *job = object;
    const uint32_t index = (uint32_t)(process & ((1u << PSI_PROCESS_INDEX_BITS) - 1));

    if (process_of(job, index) == process && job->is_leaving[index]) {
        job->is_leaving[index] = false;
        job->sim->counters.servers_left++;
        job_end_server(job, index);
    }
}

void
scale_told(struct job *job, const struct psi_tiding *tiding)
{
    if (tiding->kind == PSI_TIDING_MOVED) {
        job->sim->counters.places_moved++;
    } else if (tiding->kind == PSI_TIDING_DRAINED) {
        if (peek_has_places(job->master->master, tiding->life)) {
            sim_fail(job->sim, "server %u is said to have nothing, and has a place", tiding->rank);
        }
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 50 * SIM_MS), end_process,
               job, tiding->life);
    } else if (tiding->kind == PSI_TIDING_JOINED && job->is_leaving[tiding->rank]) {
        say_leave(job, tiding->rank); /* it was started again meanwhile */
    }
}

/* The place has no other copy from now on. If its server has died, and the master does not know yet, it is too late:
 * docs/elastic.md promises no more. */
static void
note_gap(struct job *job, uint64_t owner)
{
    const uint32_t index = (uint32_t)(owner & ((1u << PSI_PROCESS_INDEX_BITS) - 1));

    if (job->plan.replicas > 0 && (!runs(job, index) || process_of(job, index) != owner)) {
        job->copy_missed = true;
    }
}

void
scale_check_move(struct job *job)
{
    const struct peek_move move = peek_move(job->master->master);

    note_gap(job, move.owner);

    if (!move.is_from_leaving && move.bytes * 10 * move.staying > 12 * move.all_bytes) {
        sim_fail(job->sim, "%llu of %llu bytes move to server %u, one of %u that stay",
                 (unsigned long long)move.bytes, (unsigned long long)move.all_bytes, move.to,
                 move.staying);
    }
}

/* Only where the master knows it: one that was deposed, and does not know, still takes places for its own. */
void
scale_check_restart(struct job *job, uint32_t index)
{
    if (job->plan.replicas > 0 && job->master->master != NULL && runs(job, index) &&
        peek_has_places(job->master->master, process_of(job, index)) &&
        !copies_check_kill(job, index)) {
        job->copy_missed = true;
    }
}
