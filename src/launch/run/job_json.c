/*
 * job_json.c - a job as a JSON document.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/job_json.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "launch/page/feed.h"
#include "launch/rules/watch_scale.h"
#include "launch/run/end_text.h"
#include "launch/run/failovers.h"
#include "launch/run/redundancy.h"
#include "launch/run/report.h"
#include "launch/run/scale_servers.h"
#include "launch/system/whole_file.h"
#include "launch/text/json_text.h"

static json_t *
moment(uint64_t wall_ms)
{
    const time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    char stamp[40];
    size_t used;

    if (wall_ms == 0) {
        return json_null();
    }
    localtime_r(&seconds, &parts);
    used = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(stamp + used, sizeof(stamp) - used, ".%03u", (unsigned)(wall_ms % 1000));
    return json_string(stamp);
}

static const char *
machine_state(const struct host *host)
{
    if (host->lost) {
        return "lost";
    }
    switch (host->state) {
    case HOST_AWAY:
    case HOST_CALLING:
        return "booting";
    case HOST_GONE:
        return "left";
    default:
        return "connected";
    }
}

static json_t *
tell_machine(const struct run *run, const struct host *host)
{
    const struct layout_machine *machine = host->machine;
    json_t *value = json_object();

    json_object_set_new(value, "name", json_text(machine->name));
    json_object_set_new(value, "hostname", json_text(host->hostname));
    json_object_set_new(value, "address", json_text(host->address));
    json_object_set_new(value, "state", json_string(machine_state(host)));
    json_object_set_new(value, "here", json_boolean(machine->here));
    json_object_set_new(value, "cores", json_integer(host->cores));
    json_object_set_new(value, "master",
                        json_boolean(run->layout->machine_of[0] == (uint32_t)(host - run->hosts)));
    json_object_set_new(value, "servers", json_integer(machine->servers));
    json_object_set_new(value, "workers", json_integer(machine->workers));
    json_object_set_new(value, "cause",
                        json_boolean(end_text_is_machine(run, (uint32_t)(host - run->hosts))));
    json_object_set_new(value, "clock_ahead_ms", json_integer((json_int_t)host->clock_ahead_ms));
    return value;
}

/* "", scheduled, running, done, failed, stopped, left */
static const char *
process_state(const struct run *run, uint32_t slot)
{
    const struct watch_slot *state = &run->watch.slots[slot];
    const struct process *process = &run->processes[slot];

    if (!state->ordered) {
        return "";
    }
    if (state->alive) {
        return "running";
    }
    if (process->start_ms == 0 && process->error == 0) {
        return "scheduled";
    }
    if (state->asked) {
        return "stopped";
    }
    if (state->has_left ||
        (state->is_leaving && role_of_slot(slot, run->plan->servers) == LAUNCH_WORKER)) {
        return "left"; /* it was asked to; a server had nothing any more */
    }
    return process->error != 0 || state->code != 0 || state->signal != 0 ? "failed" : "done";
}

static void
tell_node(json_t *value, const struct psd_node *node, uint64_t last_step)
{
    const uint64_t step = node->step > last_step ? node->step : last_step;
    const bool is_known = !isnan(node->steps_per_s);

    json_object_set_new(value, "step",
                        is_known || step > 0 ? json_integer((json_int_t)step) : json_null());
    json_object_set_new(value, "steps_per_s",
                        is_known ? json_real(node->steps_per_s) : json_null());
    if (node->value_name[0] != '\0') {
        json_object_set_new(value, "value_name", json_text(node->value_name));
        json_object_set_new(value, "value", json_real(node->value));
    }
    json_object_set_new(value, "address", json_text(node->address));
}

/* What the master says about a process, or NULL. */
static const struct psd_node *
find_node(const struct psd_node *nodes, size_t count, enum launch_role role, uint32_t rank)
{
    static const psd_role roles[] = {[LAUNCH_MASTER] = PSD_ROLE_MASTER,
                                     [LAUNCH_SERVER] = PSD_ROLE_SERVER,
                                     [LAUNCH_WORKER] = PSD_ROLE_WORKER};

    for (size_t i = 0; i < count; i++) {
        if (nodes[i].role == roles[role] && nodes[i].rank == rank) {
            return &nodes[i];
        }
    }
    return NULL;
}

/* Where the rows of a server's sparse tables are, when some are on its disk. */
static void
tell_rows(const struct run *run, uint32_t server, json_t *value)
{
    static const struct {
        const char *name;
        enum psi_metric metric;
    } counts[] = {{"rows_in_memory", PSI_METRIC_ROWS_HOT},
                  {"rows_on_disk", PSI_METRIC_ROWS_COLD},
                  {"bytes_on_disk", PSI_METRIC_COLD_BYTES}};

    if (run->feed == NULL || feed_server_metric(run->feed, server, PSI_METRIC_COLD_BYTES) == 0) {
        return;
    }
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        json_object_set_new(
            value, counts[i].name,
            json_integer((json_int_t)feed_server_metric(run->feed, server, counts[i].metric)));
    }
}

static json_t *
tell_process(const struct run *run, uint32_t slot, const struct psd_node *nodes, size_t count)
{
    const enum launch_role role = role_of_slot(slot, run->plan->servers);
    const uint32_t rank = role_index(slot, run->plan->servers);
    const struct process *process = &run->processes[slot];
    const struct watch_slot *state = &run->watch.slots[slot];
    const struct host *host = &run->hosts[run->layout->machine_of[slot]];
    const struct psd_node *node = find_node(nodes, count, role, rank);
    const bool ended = process->end_ms != 0 && !state->alive; /* else that was an earlier life */
    json_t *value = json_object();

    json_object_set_new(value, "name", json_string(process->name));
    json_object_set_new(value, "role", json_string(plan_task(run->plan, slot).name));
    json_object_set_new(value, "rank", json_integer(rank));
    json_object_set_new(value, "machine", json_text(host->machine->name));
    json_object_set_new(value, "hostname", json_text(host->hostname));
    json_object_set_new(value, "pid", json_integer(process->pid));
    json_object_set_new(value, "state", json_string(process_state(run, slot)));
    json_object_set_new(value, "started", moment(process->start_ms));
    json_object_set_new(value, "ended", moment(ended ? process->end_ms : 0));
    json_object_set_new(value, "code",
                        ended && state->signal == 0 ? json_integer(state->code) : json_null());
    json_object_set_new(value, "signal",
                        ended && state->signal != 0 ? json_integer(state->signal) : json_null());
    json_object_set_new(value, "restarts", json_integer(state->restarts));
    if (state->counts) {
        json_object_set_new(value, "counts_from", json_integer((json_int_t)process->counts_from));
    }
    if (process->left_at > 0) {
        json_object_set_new(value, "counts_until", json_integer((json_int_t)process->left_at));
    }
    json_object_set_new(value, "cause", json_boolean(end_text_is_process(run, slot)));
    json_object_set_new(value, "command",
                        json_text(process->command != NULL ? process->command : ""));
    if (role == LAUNCH_SERVER && !run->watch.config.foreign) {
        redundancy_tell_process(run, slot, value);
        tell_rows(run, rank, value);
    }
    if (node != NULL) {
        tell_node(value, node, process->last_step);
    } else if (role == LAUNCH_WORKER) {
        json_object_set_new(value, "step", json_integer((json_int_t)process->last_step));
    }
    return value;
}

static const char *
job_state(const struct run *run)
{
    static const char *const names[] = {
        [WATCH_GATHERING] = "gathering", [WATCH_STARTING] = "starting",
        [WATCH_RUNNING] = "running",     [WATCH_LEAVING] = "leaving",
        [WATCH_ASKING] = "failing",      [WATCH_STOPPING] = "stopping",
        [WATCH_ENDING] = "ending",       [WATCH_ENDED] = "ended"};

    return names[run->watch.phase];
}

/* What is known of every job. */
static json_t *
begin(const struct run_args *args, const char *state, const char *directory)
{
    json_t *job = json_object();

    json_object_set_new(job, "name", json_text(args->job));
    json_object_set_new(job, "version", json_string(PSD_VERSION));
    json_object_set_new(job, "pid", json_integer(getpid()));
    json_object_set_new(job, "state", json_string(state));
    json_object_set_new(job, "command", json_text(args->command));
    json_object_set_new(job, "arguments", json_text(args->arguments));
    json_object_set_new(job, "directory", json_text(directory));
    return job;
}

static json_t *
build(struct run *run)
{
    json_t *job = begin(run->args, job_state(run), run->gather.directory);
    json_t *machines = json_array();
    json_t *processes = json_array();
    struct psd_node *nodes = calloc(run->slots, sizeof(*nodes));
    const size_t count = nodes != NULL ? status_nodes(&run->status, nodes, run->slots) : 0;
    char cause[1024] = "";

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        json_array_append_new(machines, tell_machine(run, &run->hosts[i]));
    }
    for (uint32_t slot = run->watch.config.masterless ? 1 : 0; slot < run->slots; slot++) {
        if (!watch_server_is_out(&run->watch, slot) || run->watch.slots[slot].ordered) {
            json_array_append_new(processes, tell_process(run, slot, nodes, count));
        }
    }
    free(nodes);
    end_text(run, cause, sizeof(cause));
    json_object_set_new(job, "logs", json_text(run->directory));
    json_object_set_new(job, "master", json_text(run->master));
    json_object_set_new(job, "began", moment(run->began_wall_ms));
    json_object_set_new(job, "ended",
                        run->watch.phase == WATCH_ENDED ? moment(run->ended_wall_ms) : json_null());
    json_object_set_new(job, "exit_code",
                        run->watch.phase == WATCH_ENDED ? json_integer(watch_exit_code(&run->watch))
                                                        : json_null());
    json_object_set_new(job, "cause", cause[0] != '\0' ? json_text(cause) : json_null());
    json_object_set_new(job, "result",
                        run->result[0] != '\0' ? json_text(run->result) : json_null());
    json_object_set_new(job, "readers", json_integer(status_readers(&run->status)));
    json_object_set_new(job, "attempt", json_integer(run->args->attempt));
    if (run->plan->replicas_why[0] != '\0') {
        json_object_set_new(job, "replicas", json_integer(run->plan->replicas));
        json_object_set_new(job, "replicas_why", json_string(run->plan->replicas_why));
        json_object_set_new(job, "redundancy", redundancy_json(run));
    }
    json_object_set_new(job, "failovers", failovers_json(run));
    if (run->watch.config.may_scale_servers) {
        json_object_set_new(job, "moves", scale_servers_json(run));
    }
    json_object_set_new(job, "machines", machines);
    json_object_set_new(job, "processes", processes);
    return job;
}

/* Takes the job. */
static char *
dump(json_t *job)
{
    char *document = json_dumps(job, JSON_INDENT(2));

    json_decref(job);
    return document;
}

char *
job_json_text(struct run *run)
{
    return dump(build(run));
}

/* All but the logs: they are files, and long. What is long is neither built twice nor indented. */
char *
job_json_with_feed(struct run *run)
{
    struct feed_since since = {.logs = UINT64_MAX - 1};
    char *job = job_json_text(run);
    char *feed = run->feed != NULL ? feed_json(run->feed, &since) : strdup("null");
    char *document = NULL;

    if (job != NULL && feed != NULL &&
        asprintf(&document, "%.*s,\n  \"feed\": %s\n}", (int)strlen(job) - 2, job, feed) < 0) {
        document = NULL;
    }
    free(job);
    free(feed);
    return document;
}

char *
job_json_waiting(const struct run_args *args, const char *state)
{
    char here[4096];
    json_t *job = begin(args, state, getcwd(here, sizeof(here)) != NULL ? here : "/");

    json_object_set_new(job, "logs", json_null());
    json_object_set_new(job, "machines", json_array());
    json_object_set_new(job, "processes", json_array());
    return dump(job);
}

psd_status
job_json_write(struct run *run, struct psd_error *err)
{
    char *document = dump(build(run));
    char path[4096];
    psd_status status;

    snprintf(path, sizeof(path), "%s/result.json", run->directory);
    status = document != NULL ? whole_file_write(AT_FDCWD, path, document, err)
                              : psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %s", path);
    free(document);
    return status;
}
