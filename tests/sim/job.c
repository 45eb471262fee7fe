/*
 * job.c - the nodes of a job, driven as the daemons drive their cores, and the verdict on its end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "job.h"

#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/master.h"
#include "server/lane.h"
#include "worker.h"

enum { START_TIMEOUT_MS = 20000, REPLACEMENT_TIMEOUT_MS = 60000 };

/* ---- log lines ---------------------------------------------------------------------------- */

static void
lane_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    const struct lane_host *host = sink;

    sim_trace(host->job->sim, host->node->name, "%s %s", id, text);
    if (level == PSI_LOG_WARN && strcmp(id, "WORKER-GONE") == 0) {
        sim_fail(host->job->sim, "%s: %s", host->node->name, text);
    }
}

/* The master's lines tell who was given up, and how the dead count. */
static void
master_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct master_host *host = sink;
    struct job *job = host->job;
    unsigned long long ahead;
    unsigned long long chunks;
    unsigned long long step;
    unsigned rank;
    char table[16];

    (void)level;
    sim_trace(job->sim, host->node->name, "%s %s", id, text);
    if (strcmp(id, "MEMBER-LOST") == 0 && sscanf(text, "worker %u", &rank) == 1) {
        if (!job->rank_lost[rank] && job->nameless_kills > 0) {
            job->nameless_kills--;
        } else if (!job->rank_lost[rank] && !job->plan.faults.harsh && !host->ending) {
            sim_fail(job->sim, "the master gave up a live worker: %s", text);
        }
        job->rank_lost[rank] = true;
        model_rank_lost(job->model, rank);
        for (uint32_t i = 0; i < job->plan.workers; i++) {
            worker_given_up(job->worker[i], rank);
        }
    } else if (strcmp(id, "MEMBER-LOST") == 0) {
        job->server_lost = true;
    } else if (strcmp(id, "JOB-START") == 0) {
        job->started = true;
    } else if (sscanf(text, "worker %u counted in %llu of %llu chunks of step %llu of table %15s",
                      &rank, &ahead, &chunks, &step, table) == 5) {
        model_note_partial(job->model, rank, table, ahead, chunks, step);
    } else if (strcmp(id, "WORKER-LATE") == 0 &&
               sscanf(text, "table %15s step %llu", table, &step) == 2) {
        model_note_late(job->model, table, step);
    }
}

/* ---- the master --------------------------------------------------------------------------- */

static void
master_settle(struct node *node)
{
    struct master_host *host = node->owner;
    const char *text;

    master_tick(host->master);
    if (master_finished(host->master, &host->exit_code, &text)) {
        host->finished = true;
        host->ending = true;
        snprintf(host->text, sizeof(host->text), "%s", text);
        sim_trace(host->job->sim, node->name, "exits with %d: %s", host->exit_code, text);
        master_destroy(host->master);
        host->master = NULL;
        net_node_gone(node);
        return;
    }
    net_wake_at(node, master_next_ns(host->master));
}

static void
start_master(struct job *job)
{
    const struct plan *plan = &job->plan;
    const struct master_config config = {
        .workers = plan->workers,
        .servers = plan->servers,
        .heartbeat_ms = plan->heartbeat_ms,
        .dead_heartbeats = plan->dead_heartbeats,
        .lost_grace_ms = plan->grace_ms,
        .start_timeout_ms = START_TIMEOUT_MS,
        .replacement_timeout_ms = REPLACEMENT_TIMEOUT_MS,
        .policy = plan->policy,
        .listen_address = "sim://master",
    };
    struct master_host *host = &job->master;
    struct psd_error err;

    host->job = job;
    host->log = (struct psi_log){.write = master_line, .sink = host, .level = PSI_LOG_DEBUG};
    host->node = net_node_create(&job->net, "master");
    host->node->settle = master_settle;
    host->node->owner = host;
    psi_assert(master_create(&host->node->env, &config, &host->log, &host->master, &err) == PSD_OK);
    net_wake_at(host->node, 0);
}

void
job_kill_master(struct job *job)
{
    struct master_host *host = &job->master;

    if (host->master == NULL) {
        return;
    }
    sim_trace(job->sim, host->node->name, "killed");
    job->sim->counters.master_kills++;
    host->killed = true;
    net_node_kill(host->node);
    master_destroy(host->master);
    host->master = NULL;
    net_node_gone(host->node);
}

/* ---- the lanes ---------------------------------------------------------------------------- */

static void
lane_settle(struct node *node)
{
    struct lane_host *host = node->owner;
    const char *text;

    lane_tick(host->lane);
    model_observe(host->job->model, host->lane);
    if (lane_finished(host->lane, &host->exit_code, &text)) {
        host->finished = true;
        snprintf(host->text, sizeof(host->text), "%s", text);
        sim_trace(host->job->sim, node->name, "exits with %d: %s", host->exit_code, text);
        model_final(host->job->model, host->lane);
        lane_destroy(host->lane);
        host->lane = NULL;
        net_node_gone(node);
        return;
    }
    net_wake_at(node, lane_next_ns(host->lane));
}

static void
start_lane(struct job *job, uint32_t server, uint32_t index)
{
    struct lane_host *host = &job->lane[job->lanes++];
    char name[24];
    char address[PSI_ADDRESS_BYTES];
    struct psd_error err;

    snprintf(name, sizeof(name), "server%u.%u", server, index);
    snprintf(address, sizeof(address), "sim://%s", name);
    host->job = job;
    host->server = server;
    host->index = index;
    host->log = (struct psi_log){.write = lane_line, .sink = host, .level = PSI_LOG_DEBUG};
    host->node = net_node_create(&job->net, name);
    host->node->host = job->plan.server_host[server];
    host->node->settle = lane_settle;
    host->node->owner = host;

    const struct lane_config config = {
        .server = server,
        .lane = index,
        .lanes = job->plan.lanes[server],
        .master_address = "sim://master",
        .listen_address = address,
        .memory_max = 1u << 30,
        .pool_bytes = job->plan.pool_bytes,
        .start_timeout_ms = START_TIMEOUT_MS,
        .kernel = psi_kernel_level_best(),
        .checksum = job->plan.checksum,
        .lends = host->node->host != 0,
    };

    psi_assert(lane_create(&host->node->env, &config, &host->log, &host->lane, &err) == PSD_OK);
    net_wake_at(host->node, 0);
}

static void
kill_lane(struct lane_host *host)
{
    sim_trace(host->job->sim, host->node->name, "killed");
    host->killed = true;
    net_node_kill(host->node);
    lane_destroy(host->lane);
    host->lane = NULL;
    net_node_gone(host->node);
}

void
job_kill_server(struct job *job, uint32_t server)
{
    job->sim->counters.server_kills++;
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == server && job->lane[i].lane != NULL) {
            kill_lane(&job->lane[i]);
        }
    }
}

/* ---- all of it ---------------------------------------------------------------------------- */

void
job_start(struct job *job, struct sim *sim, const struct plan *plan)
{
    memset(job, 0, sizeof(*job));
    job->sim = sim;
    job->plan = *plan;
    net_init(&job->net, sim);
    job->net.weather = plan->weather;
    job->model = model_create(sim, &job->plan);
    start_master(job);
    for (uint32_t server = 0; server < plan->servers; server++) {
        for (uint32_t lane = 0; lane < plan->lanes[server]; lane++) {
            start_lane(job, server, lane);
        }
    }
    for (uint32_t i = 0; i < plan->workers; i++) {
        job->worker[i] = worker_create(job, i);
        worker_start(job->worker[i]);
    }
}

bool
job_over(const struct job *job)
{
    if (job->master.master != NULL) {
        return false;
    }
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].lane != NULL) {
            return false;
        }
    }
    for (uint32_t i = 0; i < job->plan.workers; i++) {
        if (worker_runs(job->worker[i]) || worker_may_come(job->worker[i])) {
            return false;
        }
    }
    return true;
}

void
job_stop(struct job *job)
{
    for (uint32_t i = 0; i < job->plan.workers; i++) {
        if (worker_runs(job->worker[i])) {
            net_node_kill(worker_node(job->worker[i]));
        }
        worker_destroy(job->worker[i]);
    }
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].lane != NULL) {
            kill_lane(&job->lane[i]);
        }
    }
    if (job->master.master != NULL) {
        net_node_kill(job->master.node);
        master_destroy(job->master.master);
        net_node_gone(job->master.node);
    }
    net_fini(&job->net);
    model_destroy(job->model);
}

/* ---- the verdict -------------------------------------------------------------------------- */

static bool
any_lane_killed(const struct job *job)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].killed) {
            return true;
        }
    }
    return false;
}

/* What the master may exit with, given what was done to the job. */
static bool
code_is_right(const struct job *job, int code)
{
    bool worker_lost = false;

    for (uint32_t rank = 0; rank < job->plan.workers; rank++) {
        worker_lost = worker_lost || job->rank_lost[rank];
    }
    switch (code) {
    case PSI_EXIT_OK:
        return true; /* the workers are checked one by one */
    case PSI_EXIT_WORKER_LOST:
        return worker_lost;
    case PSI_EXIT_SERVER_LOST:
        return any_lane_killed(job) || (job->server_lost && job->plan.faults.harsh);
    case PSI_EXIT_START_TIMEOUT:
        return (any_lane_killed(job) || job->plan.faults.harsh) && model_rounds(job->model) == 0;
    default:
        return false;
    }
}

/* A lane that is cut off while a job fails may not hear of what: it hears of a lost master. */
static bool
may_miss_the_end(const struct job *job, const struct lane_host *lane)
{
    return job->plan.faults.harsh ||
           (job->master.exit_code != PSI_EXIT_OK && lane->exit_code == PSI_EXIT_MASTER_LOST);
}

static void
judge_lane(struct job *job, const struct lane_host *lane)
{
    const struct master_host *master = &job->master;
    const bool master_gone = master->killed;

    if (lane->killed) {
        return;
    }
    if (master_gone
            ? lane->exit_code != PSI_EXIT_MASTER_LOST &&
                  lane->exit_code != PSI_EXIT_START_TIMEOUT && !code_is_right(job, lane->exit_code)
            : lane->exit_code != master->exit_code && !may_miss_the_end(job, lane)) {
        sim_fail(job->sim, "%s exits with %d (%s), the master %s %d (%s)", lane->node->name,
                 lane->exit_code, lane->text, master_gone ? "was killed:" : "with",
                 master->exit_code, master->text);
    }
}

static bool
names_the_lost(const struct job *job, const char *text)
{
    bool worker_lost = false;

    for (uint32_t rank = 0; rank < job->plan.workers; rank++) {
        worker_lost = worker_lost || job->rank_lost[rank];
    }
    return (job->master.killed && strstr(text, "master") != NULL) ||
           (any_lane_killed(job) && strstr(text, "server") != NULL) ||
           (worker_lost && strstr(text, "worker") != NULL);
}

/*
 * A worker that is killed while it says goodbye has done its part, and the master may know. Where
 * ranks are given as workers come, the process that is started in its place then takes the rank of
 * another dead one, and that one's own replacement finds no rank left.
 */
static bool
rank_may_be_taken(const struct job *job, const struct worker *worker)
{
    bool killed_at_goodbye = false;

    for (uint32_t i = 0; i < job->plan.workers; i++) {
        killed_at_goodbye = killed_at_goodbye || worker_was_killed_leaving(job->worker[i]);
    }
    return job->plan.auto_rank && killed_at_goodbye &&
           worker_error(worker)->status == PSD_ERR_REFUSED;
}

/* A worker that did not get to the end was told why, by name. */
static void
judge_worker(struct job *job, const struct worker *worker, uint32_t slot)
{
    const struct psd_error *error = worker_error(worker);
    if (worker_done(worker)) {
        return;
    }
    if (job->master.exit_code == PSI_EXIT_OK && !job->master.killed &&
        !(worker_was_lost(worker) && job->plan.policy == PSI_DEATH_CONTINUE) &&
        !rank_may_be_taken(job, worker)) {
        sim_fail(job->sim, "worker %u did not finish, but the job ended well (%s)", slot,
                 error->text);
    }
    if (error->status == PSD_OK || error->status == PSD_ERR_REFUSED ||
        strncmp(error->text, "join the job", 12) == 0) {
        return; /* killed, or a process that came when all was over */
    }
    if (!names_the_lost(job, error->text) && !job->plan.faults.harsh) {
        sim_fail(job->sim, "worker %u was told \"%s\", which names nothing that was lost", slot,
                 error->text);
    }
}

void
job_judge(struct job *job)
{
    struct sim *sim = job->sim;

    if (!job->master.killed && !code_is_right(job, job->master.exit_code)) {
        sim_fail(sim, "the master exits with %d: %s", job->master.exit_code, job->master.text);
    }
    for (unsigned i = 0; i < job->lanes; i++) {
        judge_lane(job, &job->lane[i]);
    }
    for (uint32_t i = 0; i < job->plan.workers; i++) {
        judge_worker(job, job->worker[i], i);
    }
    model_end(job->model);
    sim->counters.rounds += model_rounds(job->model);
    if (!job->master.killed && job->master.exit_code == PSI_EXIT_OK) {
        sim->counters.jobs_finished++;
    } else {
        sim->counters.jobs_failed++;
    }
}
