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
#include "copies.h"
#include "master/master.h"
#include "readers.h"
#include "resume.h"
#include "saves.h"
#include "scale.h"
#include "server/lane.h"
#include "wire/message.h"
#include "worker.h"

enum {
    START_TIMEOUT_MS = 20000,
    COPY_BYTES = 2048, /* some small sums, or none that is large: rounds wait for room */
    REPLACEMENT_TIMEOUT_MS = 60000,
    WORD_MS = 4000, /* how long psd_run waits for the master to say what a death means */
};

/* ---- log lines ---------------------------------------------------------------------------- */

static void
lane_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    const struct lane_host *host = sink;
    unsigned long long chunks;
    unsigned long long here;
    unsigned long long step;
    unsigned rank;
    char table[16];

    sim_trace(host->job->sim, host->node->name, "%s %s", id, text);
    if (strcmp(id, "GIVEN-LOST") == 0 &&
        sscanf(text,
               "worker %u has left, and does not count in %llu of %llu chunks of step %llu of "
               "table %15s",
               &rank, &chunks, &here, &step, table) == 5) {
        model_note_lost_part(host->job->model, rank, table, chunks, step);
    } else if (strcmp(id, "GIVEN-LOST") == 0 &&
               sscanf(text, "%u more workers have left, and do not count in table %15s", &rank,
                      table) == 2) {
        model_note_lost_more(host->job->model, table);
    }
    if (level == PSI_LOG_WARN && strcmp(id, "READER-GONE") == 0) {
        sim_fail(host->job->sim, "%s: %s", host->node->name, text);
    }
    if (level == PSI_LOG_WARN && strcmp(id, "WORKER-GONE") == 0 &&
        host->node->exiled_until_ns == 0) { /* else it may miss what others know */
        sim_fail(host->job->sim, "%s: %s", host->node->name, text);
    }
}

static bool
may_be_unreached(const struct fault_plan *faults)
{
    return faults->harsh || faults->rifts > 0 || faults->blocks > 0 || faults->freezes > 0 ||
           faults->exiles > 0;
}

/* It was done, and all who had heard so died together, the master and every server with a part: the next master takes it
 * for one that does not come back. docs/failures.md does not promise more. */
static bool
is_done_and_forgotten(const struct job *job, unsigned rank, const char *text)
{
    bool done = false;

    for (uint32_t i = 0; i < job->plan.workers; i++) {
        done = done || (worker_rank(job->worker[i]) == rank && worker_done(job->worker[i]));
    }
    return done && job->sim->counters.master_kills > 0 && job->sim->counters.server_kills > 0 &&
           strstr(text, "not back since the master returned") != NULL;
}

/* A server that sleeps while its copy is killed is waited for, and who is cut off from it does not reach it. */
static bool
may_not_reach(const struct job *job)
{
    return job->plan.faults.rifts > 0 || (job->plan.faults.freezes > 0 && job->copy_missed);
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
    if (strcmp(id, "MEMBER-LOST") == 0 && host != job->master) {
        return; /* nobody hears what it thinks */
    }
    if (strcmp(id, "MEMBER-LOST") == 0 && sscanf(text, "worker %u", &rank) == 1) {
        if (!job->rank_lost[rank] && job->nameless_kills > 0) {
            job->nameless_kills--;
        } else if (!job->rank_lost[rank] && !job->plan.faults.harsh && !host->ending &&
                   !is_done_and_forgotten(job, rank, text) &&
                   !(may_not_reach(job) && strstr(text, "does not reach server") != NULL)) {
            sim_fail(job->sim, "the master gave up a live worker: %s", text);
        }
        job->rank_lost[rank] = true;
        model_rank_lost(job->model, rank);
        for (uint32_t i = 0; i < job->plan.workers; i++) {
            worker_given_up(job->worker[i], rank);
        }
    } else if (strcmp(id, "MEMBER-LOST") == 0) {
        job->server_lost = true;
        if (!may_be_unreached(&job->plan.faults) && strstr(text, "do not reach it") != NULL) {
            sim_fail(job->sim, "the master deposed a server that nothing keeps from workers: %s",
                     text);
        }
    } else if (strcmp(id, "MOVE") == 0 && host == job->master) {
        scale_check_move(job);
    } else if (strcmp(id, "JOB-START") == 0) {
        job->started = true;
    } else if (strcmp(id, "VIEW") == 0) {
        job->has_view = true;
    } else if (sscanf(text, "worker %u counted in %llu of %llu chunks of step %llu of table %15s",
                      &rank, &ahead, &chunks, &step, table) == 5) {
        model_note_partial(job->model, rank, table, ahead, chunks, step);
    } else if (strcmp(id, "WORKER-LATE") == 0 &&
               sscanf(text, "table %15s step %llu", table, &step) == 2) {
        model_note_late(job->model, table, step);
    }
}

/* ---- the master --------------------------------------------------------------------------- */

static void master_told(void *context, const struct psi_tiding *tiding);

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
say_word(const struct job *job, const struct psi_word *word)
{
    if (word->kind == PSI_WORD_ALL || word->kind == PSI_WORD_DONE || word->number != 0) {
        master_heed(job->master->master, word);
        net_wake_at(job->master->node, 0);
    }
}

static void
say_to_master(const struct job *job, enum psi_word_kind kind, uint32_t rank, uint64_t number)
{
    say_word(job, &(struct psi_word){.kind = kind, .rank = rank, .number = number});
}

/* As psd_run does it when another life of the master listens. */
static void
remind(void *object, uint64_t life)
{
    const struct job *job = object;

    if (job->master != job->masters + life || job->master->master == NULL) {
        return;
    }
    for (uint32_t server = 0; server < PROCESSES_MAX; server++) {
        say_to_master(job, PSI_WORD_GONE, server, job->gone[server]);
        for (uint32_t lane = 0; server < job->plan.servers && lane < job->plan.lanes[server];
             lane++) {
            say_word(job, &(struct psi_word){.kind = PSI_WORD_CROSSED,
                                             .rank = server,
                                             .lane = lane,
                                             .number = job->crossed[server][lane]});
        }
    }
    scale_remind(object);
    for (uint32_t rank = 0; rank < job->plan.workers; rank++) {
        if (job->is_done[rank]) {
            say_to_master(job, PSI_WORD_DONE, rank, 0);
        }
    }
    say_to_master(job, PSI_WORD_ALL, 0, 0);
}

/* Half of the masters that return are started by one who does. */
static bool
is_reminded(const struct job *job)
{
    return (job->sim->now_ns * UINT64_C(0x9e3779b97f4a7c15) >> 33) % 2 == 1;
}

/* Another life listens where the last one did, or elsewhere. */
static void
place_master(struct job *job, unsigned life)
{
    const uint64_t drawn = job->sim->now_ns * UINT64_C(0xd6e8feb86659fd93) >> 40;

    if (life == 0) {
        snprintf(job->master_address, sizeof(job->master_address), "sim://master");
    } else if (job->plan.faults.masters_move && drawn % 3 != 0) {
        snprintf(job->master_address, sizeof(job->master_address), "sim://master+%u", life);
        job->sim->counters.master_moves++;
        sim_trace(job->sim, "master", "goes to %s", job->master_address);
    }
    if (life > 0 && job->plan.faults.masters_move) {
        net_tell_master(&job->net, 1 + life, job->master_address);
    }
}

static void
start_master(struct job *job)
{
    const struct plan *plan = &job->plan;
    struct master_config config = {
        .master_grace_ms = plan->master_grace_ms,
        .workers = plan->workers,
        .start_workers = plan->start_workers,
        .servers = plan->servers,
        .heartbeat_ms = plan->heartbeat_ms,
        .dead_heartbeats = plan->dead_heartbeats,
        .lost_grace_ms = plan->grace_ms,
        .server_grace_ms = plan->grace_ms,
        .server_wait_ms = plan->server_wait_ms,
        .server_return_ms = plan->server_return_ms,
        .replicas = plan->replicas,
        .max_servers = plan->max_servers,
        .move_bytes_per_s = plan->move_bytes_per_s,
        .tell = master_told,
        .start_timeout_ms = START_TIMEOUT_MS,
        .replacement_timeout_ms = REPLACEMENT_TIMEOUT_MS,
        .policy = plan->policy,
        .listen_address = job->master_address,
    };
    struct master_host *host = job->master == NULL ? job->masters : job->master + 1;
    const unsigned life = (unsigned)(host - job->masters);
    struct psd_error err;
    char name[24];

    place_master(job, life);
    job->master = host;
    job->master_due = false;
    config.term = plan->master_grace_ms > 0 ? 1 + life : 0;
    snprintf(name, sizeof(name), life > 0 ? "master+%u" : "master", life);
    config.tell_context = host;
    config.checkpoint_steps = plan->checkpoint_steps;
    config.checkpoint_ms = plan->checkpoint_ms;
    config.heeds = life > 0 && is_reminded(job);
    host->job = job;
    host->log = (struct psi_log){.write = master_line, .sink = host, .level = PSI_LOG_DEBUG};
    host->node = net_node_create(&job->net, name);
    host->node->settle = master_settle;
    host->node->owner = host;
    config.disk = job->saves != NULL ? saves_master(job->saves, host->node) : NULL;
    config.resumed = resume_checkpoint(job->resume);
    psi_assert(master_create(&host->node->env, &config, &host->log, &host->master, &err) == PSD_OK);
    if (config.heeds) {
        sim_at(job->sim, job->sim->now_ns + job->sim->now_ns % 50 * SIM_MS, remind, job, life);
    }
    net_wake_at(host->node, 0);
}

/* The next master does not know that they have places. */
static void
note_unheard(const struct master_host *host)
{
    for (unsigned i = 0; i < host->job->lanes; i++) {
        struct lane_host *lane = &host->job->lane[i];

        if (lane->lane != NULL && copies_was_let_in(lane->lane, host->master)) {
            lane->is_unheard = !lane_has_joined(lane->lane);
        }
    }
}

static void
kill_master(struct master_host *host)
{
    sim_trace(host->job->sim, host->node->name, "killed");
    note_unheard(host);
    host->job->sim->counters.master_kills++;
    net_node_kill(host->node);
    master_destroy(host->master);
    host->master = NULL;
    net_node_gone(host->node);
}

void
job_kill_master(struct job *job)
{
    if (job->master->master != NULL) {
        job->master->killed = true;
        kill_master(job->master);
    }
}

/* All servers have heard that the job ended well: nobody is left who could use a master. */
static bool
have_lanes_left(const struct job *job)
{
    bool well = false;

    for (unsigned i = 0; i < job->lanes; i++) {
        const struct lane_host *lane = &job->lane[i];

        if (lane->lane != NULL && !lane->is_standby) {
            return false;
        }
        well = well || (lane->finished && !lane->is_standby && lane->exit_code == 0);
    }
    return well;
}

static void
end_without_master(struct job *job)
{
    job->master_due = false;
    job->master->finished = true;
    job->master->ending = true;
}

static void
start_master_again(void *object, uint64_t argument)
{
    struct job *job = object;

    (void)argument;
    if (have_lanes_left(job)) {
        end_without_master(job);
        return;
    }
    job->sim->counters.master_lives++;
    job->last_fault_ns = job->sim->now_ns; /* until then all may have stood still */
    start_master(job);
}

static void
cut_off_master(void *object, uint64_t argument)
{
    struct master_host *host = object;

    (void)argument;
    if (host->master != NULL) {
        net_cut_node(host->node, SIM_MS);
    }
}

static void
kill_deposed(void *object, uint64_t argument)
{
    struct master_host *host = object;

    (void)argument;
    if (host->master != NULL) {
        kill_master(host);
    }
}

/* Some hear the next one while others hear this one still, for less than its patience. */
static void
depose_master(struct job *job)
{
    struct master_host *host = job->master;
    const uint64_t now_ns = job->sim->now_ns;

    sim_trace(job->sim, host->node->name, "deposed");
    host->node->hidden = true;
    net_cut_some_of(host->node, 50, SIM_MS);
    sim_at(job->sim, now_ns + rng_below(&job->sim->rng, job->plan.grace_ms * SIM_MS / 3),
           cut_off_master, host, 0);
    sim_at(job->sim, now_ns + rng_between(&job->sim->rng, 1, 10) * SIM_S, kill_deposed, host, 0);
}

/* As psd_run does it. One that has said that the job is over is not missed. */
void
job_end_master_life(struct job *job)
{
    struct master_host *host = job->master;

    if (host->master == NULL || host->ending || host + 1 == job->masters + LIVES_MAX) {
        return;
    }
    job->master_due = true;
    if (job->plan.faults.masters_overlap && rng_chance(&job->sim->rng, 60)) {
        depose_master(job);
        start_master_again(job, 0);
        return;
    }
    kill_master(host);
    sim_at(job->sim, job->sim->now_ns + rng_below(&job->sim->rng, 2000 * SIM_MS),
           start_master_again, job, 0);
}

/* ---- the lanes ---------------------------------------------------------------------------- */

/* With the last lane that has a place, the process ends. */
static void
stop_standby(struct job *job, uint32_t server)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == server && job->lane[i].lane != NULL &&
            !job->lane[i].is_standby) {
            return;
        }
    }
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == server && job->lane[i].lane != NULL) {
            lane_stop(job->lane[i].lane, PSI_EXIT_INTERNAL, "all others have ended");
            net_wake_at(job->lane[i].node, 0);
        }
    }
}

/* Another life of the master has come too late to hear anything. */
static void
end_idle_master(struct job *job)
{
    if (job->master != job->masters && job->master->master != NULL && have_lanes_left(job)) {
        kill_master(job->master);
        end_without_master(job);
    }
}

static bool
saw_it_through(const struct lane_host *lane)
{
    return lane->finished && !lane->is_standby && lane->exit_code == PSI_EXIT_OK;
}

/* Has another lane of its process seen the job through? */
static bool
is_over_next_to(const struct job *job, const struct lane_host *lane)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        const struct lane_host *other = &job->lane[i];

        if (other->server == lane->server && other->life == lane->life && saw_it_through(other)) {
            return true;
        }
    }
    return false;
}

static void
lane_settle(struct node *node)
{
    struct lane_host *host = node->owner;
    const char *text;
    uint32_t server;
    uint32_t index;

    if (host->is_standby && lane_took_place(host->lane, &server, &index)) {
        host->is_standby = false;
        host->is_guest = true;
        host->place_server = server;
        host->place_index = index;
        sim_trace(host->job->sim, node->name, "is lane %u of server %u", index, server);
    }
    if (lane_stands_by_now(host->lane, &server, &index)) {
        host->is_standby = true;
        sim_trace(host->job->sim, node->name, "stands by");
    }
    lane_tick(host->lane);
    model_observe(host->job->model, host->lane);
    if (lane_finished(host->lane, &host->exit_code, &text)) {
        host->finished = true;
        host->finished_ns = host->job->sim->now_ns;
        host->joined = lane_has_joined(host->lane);
        host->gave_place = copies_has_given(host->lane);
        host->was_over = is_over_next_to(host->job, host);
        host->is_no_loss = lane_guest_is_no_loss(host->lane, host->was_over);
        snprintf(host->text, sizeof(host->text), "%s", text);
        sim_trace(host->job->sim, node->name, "exits with %d: %s", host->exit_code, text);
        if (host->exit_code == PSI_EXIT_OK && !host->job->is_ending) {
            host->job->is_ending = true;
            copies_check_end(host->job);
        }
        /* A job that has used the global step ends when that is lost with a server: it says so. */
        model_final(host->job->model, host->lane,
                    host->job->copy_missed && host->exit_code != PSI_EXIT_OK);
        lane_destroy(host->lane);
        host->lane = NULL;
        net_node_gone(node);
        stop_standby(host->job, host->server);
        end_idle_master(host->job);
        return;
    }
    net_wake_at(node, lane_next_ns(host->lane));
}

/* Those that come have as many as the first. */
static uint32_t
lanes_of(const struct job *job, uint32_t server)
{
    return job->plan.lanes[server < job->plan.servers ? server : 0];
}

static void
start_lane(struct job *job, uint32_t server, uint32_t index, bool is_standby)
{
    psi_assert(job->lanes < HOSTS_MAX);
    struct lane_host *host = &job->lane[job->lanes++];
    const unsigned life = job->life[server];
    char name[24];
    char address[PSI_ADDRESS_BYTES];
    struct psd_error err;

    if (life > 0) {
        snprintf(name, sizeof(name), "server%u.%s%u+%u", server, is_standby ? "s" : "", index,
                 life);
    } else {
        snprintf(name, sizeof(name), "server%u.%s%u", server, is_standby ? "s" : "", index);
    }
    index %= lanes_of(job, server);
    host->is_standby = is_standby;
    host->place_server = server;
    host->place_index = index;
    host->life = life;
    snprintf(address, sizeof(address), "sim://%s", name);
    host->job = job;
    host->server = server;
    host->index = index;
    host->log = (struct psi_log){.write = lane_line, .sink = host, .level = PSI_LOG_DEBUG};
    host->node = net_node_create(&job->net, name);
    host->node->host = server < job->plan.servers ? job->plan.server_host[server] : 0;
    host->node->settle = lane_settle;
    host->node->owner = host;

    const struct lane_config config = {
        .server = server,
        .lane = index,
        .lanes = lanes_of(job, server),
        .is_standby = is_standby,
        .process = (uint64_t)(life + 1) << PSI_PROCESS_INDEX_BITS | server,
        .master_address = "sim://master",
        .listen_address = address,
        .memory_max = 1u << 30,
        .pool_bytes = job->plan.pool_bytes,
        .rows_part_bytes = job->plan.rows_part_bytes,
        .copy_bytes = job->plan.pool_bytes == 1 ? COPY_BYTES : 0,
        .start_timeout_ms = START_TIMEOUT_MS,
        .kernel = psi_kernel_level_best(),
        .checksum = job->plan.checksum,
        .lends = host->node->host != 0,
        .lends_state = job->plan.replicas > 0,
        .cold = cold_memory_place(&host->cold),
        .disk = job->saves != NULL ? saves_lane(job->saves, host->node) : NULL,
        .source = resume_source(job->resume),
        .snapshot_bytes = job->plan.snapshot_bytes,
    };

    host->cold.is_full = sim_mix(job->plan.seed, server, index, life) % 8 == 0;
    psi_assert(lane_create(&host->node->env, &config, &host->log, &host->lane, &err) == PSD_OK);
    net_wake_at(host->node, 0);
}

/* Where servers come and go, any of them may be the last, and have all places. */
static uint32_t
standbys_of(const struct job *job, uint32_t server)
{
    uint32_t places = 0;

    for (uint32_t i = 0; i < job->plan.servers; i++) {
        places += job->plan.lanes[i];
    }
    if (job->plan.max_servers > 0) {
        return places + job->plan.replicas * lanes_of(job, server);
    }
    return job->plan.server_wait_ms > 0 ? (1 + job->plan.replicas) * lanes_of(job, server) : 0;
}

static void
start_lanes(struct job *job, uint32_t server)
{
    for (uint32_t lane = 0; lane < lanes_of(job, server); lane++) {
        start_lane(job, server, lane, false);
    }
    for (uint32_t lane = 0; lane < standbys_of(job, server); lane++) {
        start_lane(job, server, lane, true);
    }
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

bool
job_server_runs(const struct job *job, uint32_t server)
{
    unsigned running = 0;

    for (unsigned i = 0; i < job->lanes; i++) {
        running +=
            job->lane[i].server == server && job->lane[i].lane != NULL && !job->lane[i].is_standby;
    }
    return running >= lanes_of(job, server);
}

static void
kill_lanes(struct job *job, uint32_t server)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == server && job->lane[i].lane != NULL) {
            kill_lane(&job->lane[i]);
        }
    }
}

/* As psd_run does it. The one before is dead, or was only silent: then it is ended first. */
static void
start_server_again(void *object, uint64_t server)
{
    struct job *job = object;

    if ((job->master->master == NULL && !job->master_due) || job->life[server] + 1 == LIVES_MAX) {
        return;
    }
    scale_check_restart(job, (uint32_t)server);
    kill_lanes(job, (uint32_t)server);
    job->sim->counters.server_lives++;
    job->life[server]++;
    start_lanes(job, (uint32_t)server);
}

void
job_start_server(struct job *job, uint32_t server)
{
    bool had_any = false;

    for (unsigned i = 0; i < job->lanes; i++) {
        had_any = had_any || job->lane[i].server == server;
    }
    job->life[server] += had_any;
    job->is_out[server] = false;
    start_lanes(job, server);
}

void
job_start_server_later(void *object, uint64_t server)
{
    struct job *job = object;

    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == server && job->lane[i].lane != NULL) {
            return;
        }
    }
    start_server_again(object, server);
}

/* As psd_run does it, too: the master may have heard nothing of a life that ended. */
static void
start_missing_server(void *object, uint64_t life_of_server)
{
    struct job *job = object;
    const uint32_t server = (uint32_t)(life_of_server % PROCESSES_MAX);

    if (job->is_missing[server] && job->life[server] == life_of_server / PROCESSES_MAX) {
        start_server_again(job, server);
    }
}

bool
job_is_copied(struct job *job, uint32_t server)
{
    bool runs = false;

    for (unsigned i = 0; i < job->lanes; i++) {
        runs = runs || (job->lane[i].server == server && job->lane[i].lane != NULL);
    }
    return runs && copies_check_kill(job, server);
}

void
job_exile_server(struct job *job, uint32_t server)
{
    const uint64_t until_ns =
        job->sim->now_ns + (job->plan.grace_ms + rng_between(&job->sim->rng, 10, 3000)) * SIM_MS;

    job->sim->counters.exiles++;
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == server && job->lane[i].lane != NULL) {
            net_exile(job->lane[i].node, until_ns);
        }
    }
}

/* As psd_run does it, sooner or later: the next life may be there already. */
static void
tell_gone(void *object, uint64_t life)
{
    struct job *job = object;
    if (job->master->master != NULL) {
        say_to_master(job, PSI_WORD_GONE, (uint32_t)(life & ((1u << PSI_PROCESS_INDEX_BITS) - 1)),
                      life);
    }
}

/* Half of the time. Numbers of its own: jobs in which no server dies stay what they were. */
static void
tell_gone_later(struct job *job, uint32_t server)
{
    const uint64_t number = (job->sim->now_ns + server) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    const uint64_t late_ms = number % 8 == 1 ? 2000 : 50;

    const uint64_t process = (uint64_t)(job->life[server] + 1) << PSI_PROCESS_INDEX_BITS | server;

    job->gone[server] = process;
    if (number % 2 == 1) {
        sim_at(job->sim, job->sim->now_ns + number / 8 % late_ms * SIM_MS, tell_gone, job, process);
    }
}

void
job_freeze_server(struct job *job, uint32_t server)
{
    const uint64_t dead_ms = job->plan.heartbeat_ms * job->plan.dead_heartbeats;
    const uint64_t until_ns =
        job->sim->now_ns +
        (dead_ms + job->plan.grace_ms + rng_between(&job->sim->rng, 10, 3000)) * SIM_MS;

    job->sim->counters.freezes++;
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].server == server && job->lane[i].lane != NULL) {
            net_node_pause(job->lane[i].node, until_ns);
            job->lane[i].node->exiled_until_ns = until_ns; /* not to be counted on */
        }
    }
}

void
job_part_from_server(struct job *job, uint32_t server, struct node *node, uint64_t silence_ns,
                     uint64_t until_ns)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        struct node *lane = job->lane[i].node;

        if (job->lane[i].server == server && job->lane[i].lane != NULL &&
            (node->host == 0 || node->host != lane->host)) {
            net_part(node, lane, silence_ns, until_ns);
        }
    }
}

void
job_part_from_copy(struct job *job, uint32_t server, uint64_t silence_ns, uint64_t until_ns)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        const struct lane *owner = job->lane[i].lane;

        for (unsigned j = 0; owner != NULL && job->lane[i].server == server && j < job->lanes;
             j++) {
            if (copies_are_pair(owner, job->lane[j].lane)) {
                net_part(job->lane[i].node, job->lane[j].node, silence_ns, until_ns);
            }
        }
    }
}

/* The master has said that the server has nothing any more: does each of its lanes know so, or is it about to be told? */
static void
check_nothing(const struct job *job, const struct lane_host *host)
{
    const struct lane *lane = host->lane;

    if (!lane_has_nothing(lane) && !copies_has_given(lane) && lane_has_joined(lane) &&
        host->node->exiled_until_ns == 0) {
        sim_fail(job->sim,
                 "%s is to end, since its server has nothing, and takes a place for its own",
                 host->node->name);
    }
}

void
job_end_server(struct job *job, uint32_t server)
{
    job->is_out[server] = true;
    tell_gone_later(job, server);
    for (unsigned i = 0; i < job->lanes; i++) {
        struct lane_host *host = &job->lane[i];

        if (host->server == server && host->lane != NULL) {
            check_nothing(job, host);
            kill_lane(host);
            host->killed = false;
            host->ended = true;
        }
    }
}

void
job_kill_server(struct job *job, uint32_t server)
{
    tell_gone_later(job, server);
    job->sim->counters.server_kills++;
    if (job->plan.replicas > 0 && !copies_check_kill(job, server)) {
        job->copy_missed = true;
    }
    kill_lanes(job, server);
    if (job->is_missing[server]) {
        sim_at(job->sim, job->sim->now_ns + WORD_MS * SIM_MS, start_missing_server, job,
               (uint64_t)job->life[server] * PROCESSES_MAX + server);
    }
}

/* Those that are only thought dead should have time to speak before they are killed. */
static bool
is_late(const struct job *job)
{
    return job->plan.faults.exiles > 0 || job->plan.faults.freezes > 0 ||
           job->plan.faults.rifts > 0;
}

static void
master_told(void *context, const struct psi_tiding *tiding)
{
    struct master_host *host = context;
    struct job *job = host->job;

    if (tiding->kind == PSI_TIDING_END) {
        host->ending = true; /* psd_run ends the job, too, and misses nobody any more */
        host->ending_ns = job->sim->now_ns;
        return;
    }
    if (tiding->kind == PSI_TIDING_DONE) {
        job->is_done[tiding->rank] = true;
    }
    if (tiding->role != PSI_TIDING_SERVER || host != job->master) {
        return; /* psd_run starts the next life when it has heard the last word of this one */
    }
    scale_told(job, tiding);
    if (tiding->kind == PSI_TIDING_CROSSED) {
        job->crossed[tiding->rank][tiding->lane] = tiding->life;
    } else if (tiding->kind == PSI_TIDING_JOINED || tiding->kind == PSI_TIDING_HOSTED) {
        job->is_missing[tiding->rank] = false;
    } else if (tiding->kind == PSI_TIDING_COPIED) {
        job->sim->counters.promotions++;
    } else if (tiding->kind == PSI_TIDING_AWAITED && !job->plan.faults.server_stays_away) {
        job->is_missing[tiding->rank] = true;
        sim_at(job->sim,
               job->sim->now_ns + rng_below(&job->sim->rng, (is_late(job) ? 3000 : 300) * SIM_MS),
               start_server_again, job, tiding->rank);
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
    if (plan->checkpoint_steps > 0 || plan->checkpoint_ms > 0) {
        job->saves = saves_create(job);
    }
    job->resume = resume_create(&job->plan);
    job->readers = readers_create(job);
    sim->counters.resumed += job->resume != NULL;
    start_master(job);
    for (uint32_t server = 0; server < plan->servers; server++) {
        start_lanes(job, server);
    }
    for (uint32_t server = plan->servers; server < PROCESSES_MAX; server++) {
        job->is_out[server] = true;
    }
    for (uint32_t i = 0; i < plan->workers; i++) {
        job->worker[i] = worker_create(job, i);
        if (plan->join_ms[i] == 0) {
            worker_start(job->worker[i]);
        } else {
            worker_start_later(job->worker[i], plan->join_ms[i] * SIM_MS);
        }
    }
}

bool
job_over(const struct job *job)
{
    for (unsigned i = 0; i < LIVES_MAX; i++) {
        if (job->masters[i].master != NULL) {
            return false;
        }
    }
    if (job->master_due) {
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
    readers_destroy(job->readers);
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
    for (unsigned i = 0; i < LIVES_MAX; i++) {
        if (job->masters[i].master != NULL) {
            kill_master(&job->masters[i]);
        }
    }
    if (job->saves != NULL) {
        saves_destroy(job->saves);
    }
    resume_destroy(job->resume);
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

static bool
has_had_all_lives(const struct job *job)
{
    for (uint32_t server = 0; server < job->plan.servers; server++) {
        if (job->life[server] + 1 == LIVES_MAX) {
            return true;
        }
    }
    return false;
}

/* A life of the master that had a successor, and did not know, has ended the job for those whom it
 * still reached: the successor misses them. */
static bool
deposed_has_ended_it(const struct job *job)
{
    for (const struct master_host *host = job->masters; host != job->master; host++) {
        if (host->finished && host->exit_code != PSI_EXIT_OK &&
            host->exit_code != PSI_EXIT_FENCED) {
            return true;
        }
    }
    return false;
}

/* Lanes that stood by to the end, in a server that was there to the end. */
static uint32_t
count_room(const struct job *job, uint32_t server)
{
    uint32_t room = 0;
    bool was_there = false;

    for (unsigned i = 0; i < job->lanes; i++) {
        const struct lane_host *lane = &job->lane[i];
        const bool is_of_it = lane->server == server && !lane->killed;

        room += is_of_it && lane->is_standby && lane->finished_ns >= job->master->ending_ns;
        was_there = was_there || (is_of_it && !lane->is_standby && !lane->is_guest &&
                                  lane->finished && lane->exit_code == job->master->exit_code);
    }
    return was_there ? room : 0;
}

/* A place was handed over, and the master died before the new holder had heard that it was let in: no life of the
 * master knows that one (docs/elastic.md). */
static bool
holder_was_not_let_in(const struct job *job)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].is_unheard && !job->lane[i].joined) {
            return true;
        }
    }
    return false;
}

/* The server that the master names was not started again, and others could not take its part. */
static bool
is_without_host(const struct job *job)
{
    const char *name = strstr(job->master->text, "server "); /* it may name a lane of it */
    uint32_t room = 0;
    uint32_t lost;

    if (!job->plan.faults.server_stays_away || name == NULL ||
        sscanf(name, "server %u", &lost) != 1) {
        return false;
    }
    for (uint32_t server = 0; server < job->plan.servers; server++) {
        room += server != lost ? count_room(job, server) : 0;
    }
    return room < job->plan.lanes[lost];
}

/* ... or has ended it well, as lanes have heard, and the successor finds nobody but those who stood by. */
static bool
deposed_has_ended_it_well(const struct job *job)
{
    return job->is_ending && job->master != job->masters;
}

static bool
has_backup_workers(const struct job *job)
{
    for (uint32_t i = 0; i < job->plan.table_count; i++) {
        if (job->plan.table[i].backup > 0) {
            return true;
        }
    }
    return false;
}

static bool
are_all_lost(const struct job *job)
{
    uint32_t lost = 0;

    for (uint32_t rank = 0; rank < job->plan.workers; rank++) {
        lost += job->rank_lost[rank];
    }
    return lost == job->plan.workers;
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
        if (job->copy_missed || deposed_has_ended_it_well(job) || holder_was_not_let_in(job)) {
            return true;
        }
        if (job->plan.server_wait_ms > 0 && job->has_view) {
            return has_had_all_lives(job) || is_without_host(job) || deposed_has_ended_it(job);
        }
        return any_lane_killed(job) || deposed_has_ended_it(job) ||
               (job->server_lost && job->plan.faults.harsh);
    case PSI_EXIT_MASTER_LOST: /* with all who knew: not while there are workers */
        return job->plan.faults.master_lives > 0 &&
               (deposed_has_ended_it(job) ||
                (any_lane_killed(job) &&
                 (has_backup_workers(job) || job->plan.policy == PSI_DEATH_WAIT ||
                  plan_is_elastic(&job->plan) || are_all_lost(job) ||
                  strstr(job->master->text, "had not heard of all") != NULL)));
    case PSI_EXIT_START_TIMEOUT: /* of a master that returned: nobody is left */
        if (job->plan.faults.master_lives > 0 &&
            (any_lane_killed(job) || deposed_has_ended_it(job))) {
            return true;
        }
        return (any_lane_killed(job) || job->plan.faults.harsh ||
                (job->plan.faults.master_lives > 0 && job->sim->counters.worker_kills > 0)) &&
               model_rounds(job->model) == 0;
    default:
        return false;
    }
}

/* A life of the master let it in, and died before others had heard so; the next has let another lane into its place, and
 * all was over before it had found that one. Where others of its process have heard so, that makes nothing of it. */
static bool
was_forgotten(const struct job *job, const struct lane_host *forgotten)
{
    bool has_heir = false;

    for (unsigned i = 0; i < job->lanes; i++) {
        const struct lane_host *lane = &job->lane[i];

        has_heir =
            has_heir || (saw_it_through(lane) && lane->place_server == forgotten->place_server &&
                         lane->place_index == forgotten->place_index);
    }
    return has_heir && job->master != job->masters &&
           forgotten->exit_code == PSI_EXIT_MASTER_LOST &&
           (!forgotten->is_guest || !forgotten->was_over || forgotten->is_no_loss);
}

/* A lane that is cut off while a job fails may not hear of what: it hears of a lost master, or, if it
 * has never met it, of none; or of what an earlier life of the master thinks, which may end it alone:
 * its copy then takes its part. Nor does the master wait for one that is cut off and has no place any
 * more, also if the job ends well. */
static bool
may_miss_the_end(const struct job *job, const struct lane_host *lane)
{
    const bool never_met = lane->exit_code == PSI_EXIT_START_TIMEOUT && !lane->joined;

    return job->plan.faults.harsh || deposed_has_ended_it(job) || was_forgotten(job, lane) ||
           (lane->exit_code == PSI_EXIT_OK && deposed_has_ended_it_well(job)) ||
           (lane->gave_place &&
            (lane->exit_code == PSI_EXIT_MASTER_LOST || lane->exit_code == PSI_EXIT_REFUSED)) ||
           (job->master->exit_code != PSI_EXIT_OK &&
            (lane->exit_code == PSI_EXIT_MASTER_LOST || never_met));
}

/* The place of another lane of this life was still that of a life that had died: with the first lane
 * that is refused the process ends. */
static bool
is_half(const struct job *job, const struct lane_host *lane)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        const struct lane_host *other = &job->lane[i];

        if (other->server == lane->server && other->life == lane->life &&
            other->exit_code == PSI_EXIT_REFUSED) {
            return true;
        }
    }
    return false;
}

static void
judge_lane(struct job *job, const struct lane_host *lane)
{
    const struct master_host *master = job->master;
    const bool master_gone = master->killed;

    if (lane->killed || lane->ended || lane->is_standby ||
        ((lane->life > 0 || lane->server >= job->plan.servers) &&
         (lane->exit_code == PSI_EXIT_REFUSED || lane->exit_code == PSI_EXIT_START_TIMEOUT))) {
        return; /* the latter came when all was over */
    }
    if (lane->life > 0 && lane->exit_code == PSI_EXIT_FENCED &&
        (is_half(job, lane) || (job->plan.faults.master_lives > 0 &&
                                (strstr(lane->text, "has another life") != NULL ||
                                 strstr(lane->text, "has to begin another life") != NULL)))) {
        return; /* or a master that had not met it has let another into its place, or had heard of its
                 * predecessor's end alone: psd_run starts the next, and the job goes on */
    }
    if (job->plan.max_servers > 0 && job->sim->counters.master_kills > 1 &&
        lane->exit_code == PSI_EXIT_FENCED &&
        strstr(lane->text, "not back since the master returned") != NULL) {
        return; /* a place beside it was handed over, and two lives of the master did not learn it:
                 * docs/elastic.md */
    }
    if (is_late(job) &&
        (lane->exit_code == PSI_EXIT_FENCED || lane->exit_code == PSI_EXIT_MASTER_LOST ||
         lane->exit_code == PSI_EXIT_REFUSED)) {
        return; /* its copy has its place */
    }
    if (lane->is_guest && lane->is_no_loss &&
        (lane->exit_code == PSI_EXIT_FENCED || lane->exit_code == PSI_EXIT_REFUSED ||
         !lane->joined)) {
        return; /* the server whose place it has was lost again, or started again first */
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
    return (job->sim->counters.master_kills > 0 && strstr(text, "master") != NULL) ||
           (any_lane_killed(job) && strstr(text, "server") != NULL) ||
           (worker_lost && strstr(text, "worker") != NULL);
}

/*
 * A worker that is killed while it says goodbye has done its part, and the master may know. Where
 * ranks are given as workers come, the process that is started in its place then takes the rank of
 * another dead one, and that one's own replacement finds no rank left, or no master any more.
 */
static bool
rank_may_be_taken(const struct job *job, const struct worker *worker)
{
    bool killed_at_goodbye = false;

    for (uint32_t i = 0; i < job->plan.workers; i++) {
        killed_at_goodbye = killed_at_goodbye || worker_was_killed_leaving(job->worker[i]);
    }
    return job->plan.auto_rank && killed_at_goodbye &&
           (worker_error(worker)->status == PSD_ERR_REFUSED ||
            strncmp(worker_error(worker)->text, "join the job", 12) == 0);
}

/* As many as it takes had come before it, and all was over. */
static bool
came_too_late(const struct job *job, const struct worker *worker)
{
    return plan_is_elastic(&job->plan) && !worker_came(worker);
}

/*
 * Where a job may grow and ranks are given as workers come, one that joins may take the rank of a dead one;
 * that one's own replacement then waits for a rank until all is over. Or the one that was given up for dead
 * wakes up then, and finds no master. As many as began have finished all the same.
 */
static bool
newcomer_has_its_rank(const struct job *job, const struct worker *worker)
{
    const struct psd_error *error = worker_error(worker);
    uint32_t finished = 0;

    for (uint32_t i = 0; i < job->plan.workers; i++) {
        finished += worker_done(job->worker[i]);
    }
    return plan_is_elastic(&job->plan) && job->plan.auto_rank &&
           finished >= job->plan.start_workers &&
           (error->status == PSD_ERR_REFUSED ||
            (worker_was_lost(worker) && strncmp(error->text, "master", 6) == 0));
}

/* A worker that did not get to the end was told why, by name. */
static void
judge_worker(struct job *job, const struct worker *worker, uint32_t slot)
{
    const struct psd_error *error = worker_error(worker);

    if (worker_done(worker)) {
        return;
    }
    job->sim->counters.refused_joins += strstr(error->text, "(join_step)") != NULL;
    if (job->master->exit_code == PSI_EXIT_OK && !job->master->killed &&
        !(worker_was_lost(worker) &&
          (job->plan.policy == PSI_DEATH_CONTINUE || job->plan.join_ms[slot] > 0)) &&
        !came_too_late(job, worker) && !rank_may_be_taken(job, worker) &&
        !newcomer_has_its_rank(job, worker)) {
        sim_fail(job->sim, "worker %u did not finish, but the job ended well (%s)", slot,
                 error->text);
    }
    if (error->status == PSD_OK || error->status == PSD_ERR_REFUSED ||
        strncmp(error->text, "join the job", 12) == 0) {
        return; /* killed, or a process that came when all was over */
    }
    if (job->master->exit_code != PSI_EXIT_OK && error->status == PSD_ERR_PEER_LOST &&
        strncmp(error->text, "master", 6) == 0) {
        return; /* cut off while the job failed: it may not hear of what */
    }
    if (came_too_late(job, worker) && error->status == PSD_ERR_PEER_LOST &&
        strncmp(error->text, "master", 6) == 0) {
        return; /* cut off while it was about to join: nobody waits for it at the end */
    }
    if (!names_the_lost(job, error->text) && !job->plan.faults.harsh &&
        !deposed_has_ended_it(job)) {
        sim_fail(job->sim, "worker %u was told \"%s\", which names nothing that was lost", slot,
                 error->text);
    }
}

void
job_judge(struct job *job)
{
    struct sim *sim = job->sim;

    if (!job->master->killed && !code_is_right(job, job->master->exit_code)) {
        sim_fail(sim, "the master exits with %d: %s", job->master->exit_code, job->master->text);
    }
    for (unsigned i = 0; i < job->lanes; i++) {
        judge_lane(job, &job->lane[i]);
    }
    for (uint32_t i = 0; i < job->plan.workers; i++) {
        judge_worker(job, job->worker[i], i);
    }
    model_end(job->model);
    sim->counters.rounds += model_rounds(job->model);
    if (!job->master->killed && job->master->exit_code == PSI_EXIT_OK) {
        sim->counters.jobs_finished++;
    } else {
        sim->counters.jobs_failed++;
    }
}
