/*
 * feeding.c - tells the feed what psd_run knows of its job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/feeding.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/monotonic.h"
#include "launch/page/feed.h"
#include "launch/run/end_text.h"
#include "launch/run/failovers.h"

enum { LOOK_MS = 250 };

/* ---- what happens, as it happens ----------------------------------------------------------- */

static void
heard_line(void *context, const char *process, bool is_error, const char *text, size_t bytes)
{
    const struct run *run = context;

    feed_log(run->feed, process, is_error, text, bytes);
}

/* All that psd_run tells people is worth telling those who watch. */
static void
heard_word(void *context, enum console_kind kind, const char *text)
{
    static const enum feed_kind kinds[] = {
        [CONSOLE_NOTE] = FEED_NOTE, [CONSOLE_LOSS] = FEED_LOSS, [CONSOLE_FAILOVER] = FEED_FAILOVER};
    const struct run *run = context;

    feed_event(run->feed, kinds[kind], "%s", text);
}

/* Who wants to see the curves elsewhere gets the job all the same. */
static void
begin_board(struct run *run)
{
    struct psd_error err;

    if (run->args->tensorboard != NULL &&
        tensorboard_open(&run->args->shown->board, run->args->tensorboard, run->args->job,
                         run->began_wall_ms / 1000, &err) != PSD_OK) {
        console_say(&run->console, "%s; the job goes on without", err.text);
    }
}

static void
write_board(struct run *run)
{
    struct tensorboard *board = &run->args->shown->board;
    struct psd_error err;

    if (board->directory[0] != '\0' && tensorboard_write(board, run->feed, &err) != PSD_OK) {
        console_say(&run->console, "%s; no more is written there", err.text);
        board->directory[0] = '\0';
    }
}

void
feeding_begin(struct run *run)
{
    const struct feed_job job = {
        .name = run->args->job,
        .id = run->args->job,
        .command = run->args->command,
        .log_directory = run->directory != NULL ? run->directory : "",
        .started_unix_ms = run->began_wall_ms,
        .workers = run->plan->workers,
        .servers = run->plan->servers,
    };
    struct shown *shown = run->args->shown;
    const bool again = shown->feed != NULL;

    if (run->args->unwatched) {
        return;
    }
    if (again) {
        feed_again(shown->feed, job.workers, job.servers);
    } else {
        shown->feed = feed_create(&job);
    }
    shown->run = run;
    run->feed = shown->feed;
    if (run->feed == NULL) {
        console_say(&run->console, "no memory for what is shown of the job; it goes on without");
        return;
    }
    run->listener = (struct output_listener){.line = heard_line, .context = run};
    run->console.listener = (struct console_listener){.said = heard_word, .context = run};
    if (!again) {
        begin_board(run);
    }
    feed_event(run->feed, FEED_START, "job %s is started%s: %u worker%s, %u server%s", job.name,
               again ? " again" : "", job.workers, job.workers == 1 ? "" : "s", job.servers,
               job.servers == 1 ? "" : "s");
}

/* ---- what is looked up --------------------------------------------------------------------- */

static enum feed_state
state_of(const struct run *run, uint32_t slot)
{
    const struct watch_slot *state = &run->watch.slots[slot];
    const struct process *process = &run->processes[slot];

    if (state->alive) {
        return state->doomed_ms != 0 ? FEED_LOST : FEED_RUNNING; /* it counts as dead */
    }
    if (process->start_ms == 0 && process->error == 0) {
        return FEED_STARTING;
    }
    return process->error != 0 || ((state->code != 0 || state->signal != 0) && !state->asked)
               ? FEED_FAILED
               : FEED_ENDED;
}

static const char *
host_of(const struct run *run, uint32_t slot)
{
    const struct host *host = &run->hosts[run->layout->machine_of[slot]];

    return host->hostname[0] != '\0' ? host->hostname : host->machine->name;
}

static void
look_at_processes(const struct run *run)
{
    static const psd_role roles[] = {[LAUNCH_MASTER] = PSD_ROLE_MASTER,
                                     [LAUNCH_SERVER] = PSD_ROLE_SERVER,
                                     [LAUNCH_WORKER] = PSD_ROLE_WORKER};

    for (uint32_t slot = run->watch.config.masterless ? 1 : 0; slot < run->slots; slot++) {
        const enum launch_role role = role_of_slot(slot, run->plan->servers);
        const uint32_t index = role_index(slot, run->plan->servers);
        const char *words[] = {
            [LAUNCH_MASTER] = "master", [LAUNCH_SERVER] = "server", [LAUNCH_WORKER] = "worker"};
        char name[32];

        snprintf(name, sizeof(name), role == LAUNCH_MASTER ? "%s" : "%s %u", words[role], index);
        feed_process(run->feed, slot,
                     &(struct feed_process){.name = name,
                                            .role = roles[role],
                                            .index = index,
                                            .host = host_of(run, slot),
                                            .machine = run->layout->machine_of[slot],
                                            .pid = run->processes[slot].pid,
                                            .state = state_of(run, slot)});
    }
}

/* Of the machine that psd_run itself is on. */
static void
look_at_load(const struct run *run)
{
    double load;

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        const struct host *host = &run->hosts[i];

        if (host->machine->here && getloadavg(&load, 1) == 1) {
            feed_load(run->feed, host->hostname[0] != '\0' ? host->hostname : host->machine->name,
                      load, psi_usable_cores());
            return;
        }
    }
}

static enum feed_phase
phase_of(const struct run *run)
{
    switch (run->watch.phase) {
    case WATCH_GATHERING:
    case WATCH_STARTING:
        return FEED_PHASE_STARTING;
    case WATCH_RUNNING:
        return FEED_PHASE_RUNNING;
    case WATCH_ENDED:
        return FEED_PHASE_ENDED;
    default:
        return FEED_PHASE_ENDING;
    }
}

/* As soon as it is known why the job ends, not only when it has ended. */
static void
look_at_cause(const struct run *run)
{
    char text[1024] = "";
    uint32_t who = UINT32_MAX;

    if (run->watch.cause == WATCH_CAUSE_NONE) {
        return;
    }
    end_text(run, text, sizeof(text));
    for (uint32_t slot = 0; slot < run->slots; slot++) {
        who = end_text_is_process(run, slot) ? slot : who;
    }
    if (text[0] != '\0') {
        feed_cause(run->feed, text, who < run->slots ? run->processes[who].name : "",
                   run->watch.cause_code, run->watch.cause == WATCH_CAUSE_INTERRUPT);
    }
}

void
feeding_look(struct run *run, uint64_t now_ms)
{
    char survived[128];

    if (run->feed == NULL || now_ms < run->feeding_ms) {
        return;
    }
    run->feeding_ms = now_ms + LOOK_MS;
    feed_phase(run->feed, phase_of(run));
    failovers_survived(run, survived, sizeof(survived));
    feed_survived(run->feed, survived);
    look_at_processes(run);
    look_at_load(run);
    look_at_cause(run);
    write_board(run);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void
write_curves(struct run *run)
{
    char path[4096 + 16];
    FILE *stream;

    if (run->directory == NULL) {
        return;
    }
    snprintf(path, sizeof(path), "%s/scalars.csv", run->directory);
    stream = fopen(path, "we");
    if (stream == NULL || !feed_csv(run->feed, stream)) {
        console_say(&run->console, "write %s: %s", path, strerror(errno));
    }
    if (stream != NULL) {
        fclose(stream);
    }
}

void
feeding_end(struct run *run)
{
    if (run->feed == NULL) {
        return;
    }
    feeding_look(run, UINT64_MAX);
    if (run->watch.cause == WATCH_CAUSE_INTERRUPT) {
        feed_event(run->feed, FEED_END, "the job was stopped");
    } else {
        feed_event(run->feed, FEED_END, "the job has ended with code %d",
                   watch_exit_code(&run->watch));
    }
    write_curves(run);
    run->console.listener = (struct console_listener){0};
}
