/*
 * coordinate.c - rank 0 of several psd_run that make up one job: waits for the others, runs the job
 * with them, and tells them how it ended.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/signalfd.h>

#include "base/descriptors.h"
#include "base/exit_code.h"
#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/run/together.h"
#include "launch/run/visitors.h"
#include "launch/system/reach.h"
#include "launch/system/signal_fd.h"

enum {
    TELL_MS = 10000, /* between two lines about waiting */
    BEAT_MS = 1000,
    SETTLE_MS = 1000, /* by which news of a lost psd_run may be later than that of its processes */
    MISSING_BYTES = 300,
};

static void
beat(void *context)
{
    struct together *together = context;
    struct psd_error err = {0};

    if (together->rendezvous != NULL && rendezvous_beat(together->rendezvous, &err) != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        raise(SIGTERM); /* leaves in good order */
    }
}

/* Whether others can reach this machine by IPv6 alone. */
static bool
has_v6_alone(void)
{
    struct words words = {0};
    bool v4 = false;
    bool v6 = false;

    reach_addresses(&words, NULL);
    for (size_t i = 0; i < words.count; i++) { /* "address=INTERFACE ADDRESS" */
        const char *address = strchr(words.list[i], ' ');

        if (address != NULL && strncmp(address, " 127.", 5) != 0 && strcmp(address, " ::1") != 0) {
            v4 = v4 || strchr(address, ':') == NULL;
            v6 = v6 || strchr(address, ':') != NULL;
        }
    }
    words_fini(&words);
    return v6 && !v4;
}

static psd_status
open_join(struct together *together, int secret_fd, struct psd_error *err)
{
    const struct launch_options *options = together->options;
    const bool v6 = has_v6_alone();
    const struct join_config config = {
        .size = together->size,
        .address = v6 ? "::" : "0.0.0.0",
        .first_port = (uint16_t)(together->port != 0 ? together->port : options->first_port),
        .last_port = (uint16_t)(together->port != 0 ? together->port : options->last_port),
        .secret_fd = secret_fd};
    uint16_t port = 0;
    psd_status status = PSD_OK;

    if (together->meet != NULL) { /* before anything is open that its porter would keep open */
        status = slurm_meet_answer(together->meet, secret_fd, err);
    }
    status = status == PSD_OK ? join_open(&config, &together->join, &port, err) : status;
    if (status == PSD_OK && together->meet != NULL) {
        slurm_meet_tell(together->meet, port);
    }
    if (status == PSD_OK && together->rendezvous != NULL) {
        status = rendezvous_publish(together->rendezvous,
                                    together->advertised[0] != '\0' ? together->advertised : NULL,
                                    v6, port, err);
    }
    return status;
}

/* How many workers are there; UINT32_MAX: a server is not. */
static uint32_t
count_workers(const struct together *together)
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < together->size; rank++) {
        const bool serves = together_task(together, rank).role == LAUNCH_SERVER;

        if (serves && !join_is_present(together->join, rank)) {
            return UINT32_MAX;
        }
        count += !serves && join_is_present(together->join, rank);
    }
    return count;
}

static void
tell_progress(const struct together *together, uint64_t left_ms)
{
    const char *hint = together_hint(together);
    const char *last;
    const uint32_t strangers = join_strangers(together->join, &last);
    char missing[MISSING_BYTES];

    if (strangers > 0) {
        fprintf(stderr, "psd_run: %u attempt%s to join failed; the last one: %s\n", strangers,
                strangers == 1 ? "" : "s", last);
    }
    join_missing(together->join, missing, sizeof(missing));
    fprintf(stderr, "psd_run: %u/%u are here, missing: rank %s (%llu s left)%s%s\n",
            1 + join_present(together->join), together->size, missing,
            (unsigned long long)left_ms / 1000, hint != NULL ? "; " : "", hint != NULL ? hint : "");
}

static void
tell_refusals(const struct together *together)
{
    char text[512];

    while (join_next_refusal(together->join, text, sizeof(text))) {
        fprintf(stderr, "psd_run: refused: %s\n", text);
    }
}

/* The time is up: enough of them, or not. */
static int
decide_at_deadline(const struct together *together)
{
    const struct launch_options *options = together->options;
    const uint32_t workers = count_workers(together);
    char missing[MISSING_BYTES];

    join_missing(together->join, missing, sizeof(missing));
    if (options->min_workers != LAUNCH_NOT_GIVEN && workers != UINT32_MAX &&
        workers >= options->min_workers) {
        fprintf(stderr, "psd_run: the job begins with %u of %u workers; rank %s did not come\n",
                workers, together->size - together->servers, missing);
        return 0;
    }
    fprintf(stderr,
            "psd_run: %u/%u are here after %u s (--max_wait), missing: rank %s; the job does not "
            "start\n",
            1 + join_present(together->join), together->size, options->max_wait_s, missing);
    return PSI_EXIT_START_TIMEOUT;
}

/* What a wait knows. */
struct waiting {
    struct together *together;
    const struct run_args *args;
    int code; /* to leave with; -1: not yet */
};

/* As story.c tells it, as far as there is something to tell. */
static char *
tell_story(const struct waiting *waiting)
{
    char missing[MISSING_BYTES];
    char state[MISSING_BYTES + 32];
    char here[4096];
    json_t *job;
    char *text;

    join_missing(waiting->together->join, missing, sizeof(missing));
    snprintf(state, sizeof(state), "waiting for rank %s", missing);
    job = json_pack("{s:s, s:s, s:i, s:s, s:s?, s:s?, s:s, s:n, s:[], s:[]}", "name",
                    waiting->args->job, "version", PSD_VERSION, "pid", (int)getpid(), "state",
                    state, "command", waiting->args->command, "arguments", waiting->args->arguments,
                    "directory", getcwd(here, sizeof(here)) != NULL ? here : "/", "logs",
                    "machines", "processes");
    text = job != NULL ? json_dumps(job, JSON_INDENT(2)) : NULL;
    json_decref(job);
    return text;
}

/* psd_run show, list, stop. */
static char *
answer(void *context, const char *line)
{
    struct waiting *waiting = context;
    char by[VISITORS_LINE_BYTES];
    bool now;

    if (strcmp(line, "show\n") == 0) {
        return tell_story(waiting);
    }
    if (visitors_want_stop(line, &now, by)) {
        fprintf(stderr, "psd_run: stopping the job: %s\n", by);
        waiting->code = 128 + SIGTERM;
        waiting->together->signal = SIGINT; /* the user's own wish, for all of them */
        return strdup("stopping\n");
    }
    return NULL;
}

/* Waits for the others. Returns 0, or the exit code. */
static int
wait_for_others(struct together *together, const struct run_args *args)
{
    static const int leaving[] = {SIGINT, SIGTERM, SIGHUP}; /* they stay blocked, as run.c wants */
    struct waiting waiting = {.together = together, .args = args, .code = -1};
    const uint64_t deadline_ms =
        psi_monotonic_ms() + (uint64_t)together->options->max_wait_s * 1000;
    struct pollfd polls[] = {
        {.fd = join_fd(together->join), .events = POLLIN},
        {.fd = signal_fd_open(leaving, sizeof(leaving) / sizeof(leaving[0])), .events = POLLIN},
        {.fd = args->listener, .events = POLLIN}};
    uint64_t tell_ms = psi_monotonic_ms() + TELL_MS;
    uint64_t beat_ms = 0;
    struct signalfd_siginfo info;

    while (waiting.code < 0) {
        const uint64_t now_ms = psi_monotonic_ms();

        if (now_ms >= beat_ms) {
            beat(together);
            beat_ms = now_ms + BEAT_MS;
        }
        join_turn(together->join);
        tell_refusals(together);
        if (join_present(together->join) + 1 == together->size) {
            waiting.code = 0;
        } else if (now_ms >= deadline_ms) {
            waiting.code = decide_at_deadline(together);
        } else if (read(polls[1].fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            together->signal = (int)info.ssi_signo;
            waiting.code = 128 + together->signal;
        } else {
            if (now_ms >= tell_ms) {
                tell_progress(together, deadline_ms - now_ms);
                tell_ms = now_ms + TELL_MS;
            }
            poll(polls, sizeof(polls) / sizeof(polls[0]), BEAT_MS / 4);
            if (polls[2].revents != 0) {
                visitors_serve(args->listener, answer, &waiting);
            }
        }
    }
    close(polls[1].fd);
    return waiting.code;
}

/* The job of those that are there, if they are not all. */
static psd_status
prepare_present(struct together *together, struct run_args *args, struct psd_error *err)
{
    struct prepare_tasks tasks = {.list = together->tasks, .may_return = together->meet == NULL};
    psd_status status;

    join_mark(together->join);
    for (uint32_t rank = 0; rank < together->size; rank++) {
        if (join_is_present(together->join, rank)) {
            together->tasks[tasks.count++] = together_task(together, rank);
        }
    }
    if (tasks.count == together->task_count) {
        return PSD_OK;
    }
    if (together->prepared_anew) {
        prepare_fini(&together->prepared);
        together->prepared_anew = false;
    }
    status = prepare_job(together->options, environ, &tasks, &together->prepared, err);
    if (status == PSD_OK) {
        together->task_count = tasks.count;
        together->prepared_anew = true;
        args->plan = &together->prepared.plan;
        args->layout = &together->prepared.layout;
        args->watch = together->prepared.watch;
    }
    return status;
}

int
together_attempt(struct together *together, struct run_args *args)
{
    struct psd_error err = {0};
    psd_status status =
        agent_fork(&args->agent, args->environment, args->entry_path, 0, false, &err);
    int code = 0;

    together->began = false;
    together->inseparable =
        args->watch.foreign && args->watch.on_worker_death == WATCH_WAIT && together->meet == NULL;
    args->requeues = together->slurm.restarts;
    args->began_p = &together->began;
    args->signal_p = &together->signal;
    args->tick = beat;
    args->tick_context = together;
    args->advertised = together->advertised[0] != '\0' ? together->advertised : NULL;
    (void)psi_descriptors_raise();
    status = status == PSD_OK ? open_join(together, args->secret_fd, &err) : status;
    args->join = together->join;
    if (status == PSD_OK) {
        code = wait_for_others(together, args);
        status = code == 0 ? prepare_present(together, args, &err) : PSD_OK;
    }
    if (status != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        code = PSI_EXIT_CANNOT_START;
    }
    if (code == 0) {
        return run_job(args);
    }
    if (args->agent.pid > 0) {
        close(args->agent.fd);
        agent_collect(args->agent.pid);
    }
    return code;
}

/* Somebody who is back already was lost all the same. */
static bool
misses_somebody(const struct together *together)
{
    for (uint32_t i = 1; i < together->task_count; i++) {
        const struct layout_task *task = &together->tasks[i];

        if (!join_has_stayed(together->join, task->rank) &&
            (task->role == LAUNCH_SERVER || !together->began || together->inseparable)) {
            return true;
        }
    }
    return false;
}

bool
together_was_left(struct together *together, int code)
{
    const uint64_t until_ms = psi_monotonic_ms() + SETTLE_MS;
    bool left = false;
    uint64_t now_ms;

    if (together->meet != NULL) {
        return false; /* Slurm starts no task of a step again */
    }
    if (code == 0 || code == PSI_EXIT_USAGE || code == PSI_EXIT_START_TIMEOUT ||
        together->signal != 0 || together->join == NULL) {
        return false;
    }
    while (!(left = misses_somebody(together)) && (now_ms = psi_monotonic_ms()) < until_ms) {
        poll(&(struct pollfd){.fd = join_fd(together->join), .events = POLLIN}, 1,
             (int)(until_ms - now_ms));
        join_turn(together->join);
    }
    return left;
}

void
together_again(struct together *together, const char *why)
{
    if (together->join != NULL) {
        join_again(together->join, why);
    }
    join_close(together->join);
    together->join = NULL;
}

void
together_over(struct together *together, int code)
{
    const bool all = together->join != NULL && join_present(together->join) + 1 == together->size;

    if (together->signal == SIGTERM &&
        together->meet == NULL) { /* a batch system takes rank 0 away, and may bring it back */
        together_again(together, "rank 0 was asked to leave");
        return;
    }
    if (together->join != NULL) {
        join_over(together->join, code);
    }
    if (together->rendezvous != NULL) {
        rendezvous_over(together->rendezvous, code, all || !together->named);
    }
}
