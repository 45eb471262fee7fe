/*
 * faults.c - what goes wrong, and when: cuts, clogs, pauses, deaths, at random times.
 *
 * Unless the plan is harsh, no silence lasts as long as the job's patience: then nobody may be
 * given up but those who were killed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "faults.h"

#include <limits.h>

#include "peek.h"
#include "scale.h"
#include "worker.h"

enum { PATIENCE = 1000 }; /* how often a kill looks for a worker in the middle of a step */

static void
note(struct job *job)
{
    job->last_fault_ns = job->sim->now_ns;
}

static struct node *
some_node(struct job *job)
{
    const uint64_t pick = rng_below(&job->sim->rng, 1 + job->lanes + job->plan.workers);

    if (pick == 0) {
        return job->master->master != NULL ? job->master->node : NULL;
    }
    if (pick <= job->lanes) {
        return job->lane[pick - 1].lane != NULL ? job->lane[pick - 1].node : NULL;
    }
    return worker_node(job->worker[pick - 1 - job->lanes]);
}

/* One connection, or all of a node at once. */
static void
cut_link(void *object, uint64_t argument)
{
    struct job *job = object;
    struct rng *rng = &job->sim->rng;
    const bool half_open = rng_chance(rng, 30);
    const uint64_t half_open_ns = (job->plan.faults.harsh ? 1500 : 400) * SIM_MS;
    const uint64_t silence_ns = half_open ? half_open_ns : SIM_MS;
    struct node *node = rng_chance(rng, 10) ? some_node(job) : NULL;

    (void)argument;
    note(job);
    job->sim->counters.cuts++;
    job->sim->counters.half_open += half_open;
    if (node != NULL) {
        net_cut_node(node, silence_ns);
    } else {
        (void)net_cut_some(&job->net, silence_ns);
    }
}

static void
cut_neighbour(void *object, uint64_t argument)
{
    struct job *job = object;

    (void)argument;
    note(job);
    if (net_cut_neighbour(&job->net, SIM_MS)) {
        job->sim->counters.neighbour_cuts++;
    }
}

static void
clog_link(void *object, uint64_t argument)
{
    struct job *job = object;

    (void)argument;
    note(job);
    if (net_clog_some(&job->net, job->sim->now_ns + rng_between(&job->sim->rng, 5, 300) * SIM_MS)) {
        job->sim->counters.clogs++;
    }
}

static void
pause_node(void *object, uint64_t argument)
{
    struct job *job = object;
    struct node *node = some_node(job);
    const uint64_t longest_ms = job->plan.faults.harsh ? 2500 : 300;

    (void)argument;
    note(job);
    if (node != NULL) {
        job->sim->counters.pauses++;
        net_node_pause(node,
                       job->sim->now_ns + rng_between(&job->sim->rng, 1, longest_ms) * SIM_MS);
    }
}

/* How often a rank may die in a job that waits for its replacements. Each death may leave it a step
 * further behind in a stale table than in a sum beside it. If that is more than the table bears, the
 * others wait for its push, and it for their weights of the step behind that: docs/failures.md. */
static unsigned
deaths_max(const struct plan *plan)
{
    unsigned deaths = UINT_MAX;
    bool sums = false;

    for (unsigned i = 0; i < plan->table_count; i++) {
        const struct table_plan *table = &plan->table[i];

        sums = sums || (table->kind == KIND_ROUNDS && table->use == PSD_USE_SUM);
        if (table->kind == KIND_SLOTS && table->staleness < deaths) {
            deaths = table->staleness;
        }
    }
    return sums && plan->policy == PSI_DEATH_WAIT ? deaths : UINT_MAX;
}

/* A sum job needs one worker that has the weights: the last one is left alone. */
static bool
may_die(const struct job *job, uint32_t slot)
{
    const uint32_t last = job->plan.workers - 1;

    if (plan_is_elastic(&job->plan)) { /* the last ones join, and others may leave */
        return slot > 0 && worker_runs(job->worker[slot]) &&
               worker_deaths(job->worker[slot]) < deaths_max(&job->plan);
    }
    return worker_runs(job->worker[slot]) &&
           worker_deaths(job->worker[slot]) < deaths_max(&job->plan) &&
           !(job->plan.policy == PSI_DEATH_WAIT && slot == last && last > 0);
}

/* The interesting moment is in the middle of a step: most kills wait for one, for a while. */
static void
kill_worker(void *object, uint64_t patience)
{
    struct job *job = object;
    const uint32_t workers = job->plan.workers;
    const uint32_t first = (uint32_t)rng_below(&job->sim->rng, workers);

    note(job);
    for (uint32_t i = 0; i < workers; i++) {
        const uint32_t slot = (first + i) % workers;

        if (may_die(job, slot) && (patience == 0 || worker_is_pushing(job->worker[slot]))) {
            worker_kill(job->worker[slot]);
            return;
        }
    }
    if (patience > 0) {
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, SIM_MS), kill_worker, job,
               patience - 1);
    }
}

static void
kill_server(void *object, uint64_t argument)
{
    struct job *job = object;

    (void)argument;
    note(job);
    job_kill_server(job, (uint32_t)rng_below(&job->sim->rng, job->plan.servers));
}

/* The process of any server that there may be. */
static uint32_t
some_server(struct job *job)
{
    return (uint32_t)rng_below(&job->sim->rng, job->plan.max_servers > 0 ? job->plan.max_servers
                                                                         : job->plan.servers);
}

static void end_server_life(void *object, uint64_t argument);

/* Most deaths wait until the server has a whole copy: without, the job ends, and shows little. */
static void
end_copied_server(struct job *job, uint32_t server, uint64_t patience)
{
    if (!job->has_view || job->master->master == NULL) {
        return;
    }
    if (job_is_copied(job, server) || (patience == 0 && rng_chance(&job->sim->rng, 10))) {
        job_kill_server(job, server);
    } else if (patience > 0) {
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 5 * SIM_MS), end_server_life,
               job, patience - 1);
    }
}

/* It is started again when the master misses it. */
static void
end_server_life(void *object, uint64_t argument)
{
    struct job *job = object;
    const uint32_t server = some_server(job);

    note(job);
    if (job->plan.replicas > 0) {
        end_copied_server(job, server, argument);
    } else if (job->has_view && job_server_runs(job, server)) {
        job_kill_server(job, server);
    }
}

/* The master takes it for dead, and its copy has its places: what it still says must not count. */
static void
exile_server(void *object, uint64_t patience)
{
    struct job *job = object;
    const uint32_t server = some_server(job);

    note(job);
    if (job->has_view && job->master->master != NULL && job_is_copied(job, server)) {
        job_exile_server(job, server);
    } else if (patience > 0) {
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 5 * SIM_MS), exile_server,
               job, patience - 1);
    }
}

/* All of its threads sleep, and the master takes it for dead: what it says when it wakes up, before it
 * hears so, must not count. */
static void
freeze_server(void *object, uint64_t patience)
{
    struct job *job = object;
    const uint32_t server = some_server(job);

    note(job);
    if (job->has_view && job->master->master != NULL && job_is_copied(job, server)) {
        job_freeze_server(job, server);
    } else if (patience > 0) {
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 5 * SIM_MS), freeze_server,
               job, patience - 1);
    }
}

static void
end_of_block(void *object, uint64_t argument)
{
    (void)argument;
    note(object);
}

/* Shorter than a lane's patience with its copy, or longer: then the server goes on alone, and what it
 * or the copy had said arrives when it must not count any more. */
static void
block_link(void *object, uint64_t patience)
{
    struct job *job = object;
    const uint64_t dead_ms = job->plan.heartbeat_ms * job->plan.dead_heartbeats;
    const uint64_t until_ns =
        job->sim->now_ns + rng_between(&job->sim->rng, 10, 3 * dead_ms) * SIM_MS;

    note(job);
    if (net_block_some(&job->net, until_ns)) {
        job->sim->counters.blocks++;
        sim_at(job->sim, until_ns, end_of_block, job, 0);
    } else if (patience > 0) {
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 5 * SIM_MS), block_link, job,
               patience - 1);
    }
}

/* Some workers and a server, or a server and its copy; all of them reach everybody else. */
static void
make_rift(void *object, uint64_t argument)
{
    struct job *job = object;
    struct rng *rng = &job->sim->rng;
    const uint32_t server = (uint32_t)rng_below(rng, job->plan.servers);
    const uint64_t silence_ns =
        (uint64_t)job->plan.heartbeat_ms * job->plan.dead_heartbeats * SIM_MS;
    const uint64_t until_ns = job->sim->now_ns + rng_below(rng, 5 * silence_ns);

    (void)argument;
    note(job);
    if (!job->has_view || job->master->master == NULL) {
        return;
    }
    job->sim->counters.rifts++;
    if (job->plan.replicas > 0 && rng_chance(rng, 50)) {
        job_part_from_copy(job, server, silence_ns, until_ns);
        return;
    }
    for (uint32_t slot = 0; slot < job->plan.workers; slot++) {
        struct node *node = worker_node(job->worker[slot]);

        if (node != NULL && rng_chance(rng, 60)) {
            job_part_from_server(job, server, node, silence_ns, until_ns);
        }
    }
}

static void
kill_master(void *object, uint64_t argument)
{
    (void)argument;
    note(object);
    job_kill_master(object);
}

/* It is started again by whoever saw it die. The interesting moment is in the middle of a change of
 * view: most deaths wait for one, for a while. */
static void
end_master_life(void *object, uint64_t patience)
{
    struct job *job = object;

    note(job);
    if (patience == 0 || (job->master->master != NULL && peek_is_changing(job->master->master))) {
        job_end_master_life(job);
    } else {
        sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 5 * SIM_MS), end_master_life,
               job, patience - 1);
    }
}

static void
schedule(struct job *job, unsigned count, sim_event_fn fault)
{
    const struct fault_plan *faults = &job->plan.faults;

    for (unsigned i = 0; i < count; i++) {
        const uint64_t at_ns = rng_between(&job->sim->rng, faults->from_ns, faults->until_ns);
        const bool patient = rng_chance(&job->sim->rng, 70);

        sim_at(job->sim, at_ns, fault, job, patient ? PATIENCE : 0);
    }
}

/* All within a few milliseconds: the second comes before the first is noticed. */
static void
schedule_together(struct job *job, unsigned count, sim_event_fn fault)
{
    const struct fault_plan *faults = &job->plan.faults;
    const uint64_t at_ns = rng_between(&job->sim->rng, faults->from_ns, faults->until_ns);

    for (unsigned i = 0; i < count; i++) {
        sim_at(job->sim, at_ns + rng_below(&job->sim->rng, 20 * SIM_MS), fault, job, PATIENCE);
    }
}

void
faults_schedule(struct job *job)
{
    const struct fault_plan *faults = &job->plan.faults;

    job->last_fault_ns = faults->until_ns;
    schedule(job, faults->cuts, cut_link);
    schedule(job, faults->neighbour_cuts, cut_neighbour);
    schedule(job, faults->clogs, clog_link);
    schedule(job, faults->pauses, pause_node);
    if (faults->together) {
        schedule_together(job, faults->worker_kills, kill_worker);
    } else {
        schedule(job, faults->worker_kills, kill_worker);
    }
    schedule(job, faults->kill_server, kill_server);
    schedule(job, faults->kill_master, kill_master);
    schedule(job, faults->server_lives, end_server_life);
    schedule(job, faults->exiles, exile_server);
    schedule(job, faults->freezes, freeze_server);
    schedule(job, faults->blocks, block_link);
    schedule(job, faults->rifts, make_rift);
    schedule(job, faults->master_lives, end_master_life);
    scale_schedule(job);
}
