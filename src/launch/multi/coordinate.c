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
#include "base/monotonic.h"
#include "launch/agent/keeper.h"
#include "launch/link/control_socket.h"
#include "launch/meet/join.h"
#include "launch/multi/multi_start.h"
#include "launch/prepare/checkpoints.h"
#include "launch/run/job_json.h"
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
    struct multi_start *multi = context;
    struct psd_error err = {0};

    if (multi->ops->beat != NULL && multi->ops->beat(multi, &err) != PSD_OK) {
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
open_join(struct multi_start *multi, int secret_fd, struct psd_error *err)
{
    const struct launch_options *options = multi->options;
    const bool v6 = has_v6_alone();
    const struct join_config config = {
        .size = multi->size,
        .address = v6 ? "::" : "0.0.0.0",
        .first_port = (uint16_t)(multi->port != 0 ? multi->port : options->first_port),
        .last_port = (uint16_t)(multi->port != 0 ? multi->port : options->last_port),
        .secret_fd = secret_fd};
    uint16_t port = 0;
    psd_status status = PSD_OK;

    if (multi->ops->begin != NULL) {
        status = multi->ops->begin(multi, secret_fd, err);
    }
    status = status == PSD_OK ? join_open(&config, &multi->join, &port, err) : status;
    if (status == PSD_OK && multi->ops->publish != NULL) {
        status = multi->ops->publish(multi, v6, port, err);
    }
    return status;
}

/* How many workers are there; UINT32_MAX: a server is not. */
static uint32_t
count_workers(const struct multi_start *multi)
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < multi->size; rank++) {
        const bool serves = multi_start_task(multi, rank).role == LAUNCH_SERVER;

        if (serves && !join_is_present(multi->join, rank)) {
            return UINT32_MAX;
        }
        count += !serves && join_is_present(multi->join, rank);
    }
    return count;
}

static void
tell_progress(const struct multi_start *multi, uint64_t left_ms)
{
    const char *hint = multi_start_hint(multi);
    const char *last;
    const uint32_t strangers = join_strangers(multi->join, &last);
    char missing[MISSING_BYTES];

    if (strangers > 0) {
        fprintf(stderr, "psd_run: %u attempt%s to join failed; the last one: %s\n", strangers,
                strangers == 1 ? "" : "s", last);
    }
    join_missing(multi->join, missing, sizeof(missing));
    fprintf(stderr, "psd_run: %u/%u are here, missing: rank %s (%llu s left)%s%s\n",
            1 + join_present(multi->join), multi->size, missing, (unsigned long long)left_ms / 1000,
            hint != NULL ? "; " : "", hint != NULL ? hint : "");
}

static void
tell_refusals(const struct multi_start *multi)
{
    char text[512];

    while (join_next_refusal(multi->join, text, sizeof(text))) {
        fprintf(stderr, "psd_run: refused: %s\n", text);
    }
}

/* The time is up: enough of them, or not. */
static int
decide_at_deadline(const struct multi_start *multi)
{
    const struct launch_options *options = multi->options;
    const uint32_t workers = count_workers(multi);
    char missing[MISSING_BYTES];

    join_missing(multi->join, missing, sizeof(missing));
    if (options->min_workers != LAUNCH_NOT_GIVEN && workers != UINT32_MAX &&
        workers >= options->min_workers) {
        fprintf(stderr, "psd_run: the job begins with %u of %u workers; rank %s did not come\n",
                workers, multi->size - multi->servers, missing);
        return 0;
    }
    fprintf(stderr,
            "psd_run: %u/%u are here after %u s (--max_wait), missing: rank %s; the job does not "
            "start\n",
            1 + join_present(multi->join), multi->size, options->max_wait_s, missing);
    return PSI_EXIT_START_TIMEOUT;
}

/* What a wait knows. */
struct waiting {
    struct multi_start *multi;
    const struct run_args *args;
    int code; /* to leave with; -1: not yet */
};

static char *
tell_waiting(const struct waiting *waiting)
{
    char missing[MISSING_BYTES];
    char state[MISSING_BYTES + 32];

    join_missing(waiting->multi->join, missing, sizeof(missing));
    snprintf(state, sizeof(state), "waiting for rank %s", missing);
    return job_json_waiting(waiting->args, state);
}

/* psd_run show, list, stop. */
static char *
answer(void *context, const char *line)
{
    struct waiting *waiting = context;
    char by[CONTROL_LINE_BYTES];
    bool now;

    if (strcmp(line, "show\n") == 0 || strcmp(line, "feed\n") == 0) {
        return tell_waiting(waiting);
    }
    if (control_wants_stop(line, &now, by)) {
        fprintf(stderr, "psd_run: stopping the job: %s\n", by);
        waiting->code = 128 + SIGTERM;
        waiting->multi->signal = SIGINT; /* the user's own wish, for all of them */
        return strdup("stopping\n");
    }
    return NULL;
}

/* Waits for the others. Returns 0, or the exit code. */
static int
wait_for_others(struct multi_start *multi, const struct run_args *args)
{
    static const int leaving[] = {SIGINT, SIGTERM, SIGHUP}; /* they stay blocked, as run.c wants */
    struct waiting waiting = {.multi = multi, .args = args, .code = -1};
    const uint64_t deadline_ms = psi_monotonic_ms() + (uint64_t)multi->options->max_wait_s * 1000;
    struct pollfd polls[] = {
        {.fd = join_fd(multi->join), .events = POLLIN},
        {.fd = signal_fd_open(leaving, sizeof(leaving) / sizeof(leaving[0])), .events = POLLIN},
        {.fd = args->listener, .events = POLLIN}};
    uint64_t tell_ms = psi_monotonic_ms() + TELL_MS;
    uint64_t beat_ms = 0;
    struct signalfd_siginfo info;

    while (waiting.code < 0) {
        const uint64_t now_ms = psi_monotonic_ms();

        if (now_ms >= beat_ms) {
            beat(multi);
            beat_ms = now_ms + BEAT_MS;
        }
        join_turn(multi->join);
        tell_refusals(multi);
        if (join_present(multi->join) + 1 == multi->size) {
            waiting.code = 0;
        } else if (now_ms >= deadline_ms) {
            waiting.code = decide_at_deadline(multi);
        } else if (read(polls[1].fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            multi->signal = (int)info.ssi_signo;
            waiting.code = 128 + multi->signal;
        } else {
            if (now_ms >= tell_ms) {
                tell_progress(multi, deadline_ms - now_ms);
                tell_ms = now_ms + TELL_MS;
            }
            poll(polls, sizeof(polls) / sizeof(polls[0]), BEAT_MS / 4);
            if (polls[2].revents != 0) {
                control_serve(args->listener, answer, &waiting);
            }
        }
    }
    close(polls[1].fd);
    return waiting.code;
}

/* The job of those that are there, if they are not all. */
static psd_status
prepare_present(struct multi_start *multi, struct run_args *args, struct psd_error *err)
{
    struct prepare_tasks tasks = {.list = multi->tasks, .may_return = multi->ops->returns};
    psd_status status;

    join_mark(multi->join);
    for (uint32_t rank = 0; rank < multi->size; rank++) {
        if (join_is_present(multi->join, rank)) {
            multi->tasks[tasks.count++] = multi_start_task(multi, rank);
        }
    }
    if (tasks.count == multi->task_count) {
        return PSD_OK;
    }
    if (multi->prepared_anew) {
        prepare_fini(&multi->prepared);
        multi->prepared_anew = false;
    }
    status = prepare_job(multi->options, environ, &tasks, &multi->prepared, err);
    if (status == PSD_OK && multi->goes_on && multi->options->checkpoint != NULL &&
        checkpoints_any(multi->options->checkpoint)) {
        status = checkpoints_resume(multi->options->checkpoint, &multi->prepared.plan, err);
    }
    if (status == PSD_OK) {
        multi->task_count = tasks.count;
        multi->prepared_anew = true;
        args->plan = &multi->prepared.plan;
        args->layout = &multi->prepared.layout;
        args->watch = multi->prepared.watch;
    }
    return status;
}

int
multi_start_attempt(struct multi_start *multi, struct run_args *args)
{
    struct psd_error err = {0};
    psd_status status =
        agent_fork(&args->agent, args->environment, args->entry_path, 0, false, &err);
    int code = 0;

    multi->began = false;
    multi->asked = false;
    multi->inseparable =
        args->watch.foreign && args->watch.on_worker_death == WATCH_WAIT && multi->ops->returns;
    args->requeues = multi->requeues;
    args->began_p = &multi->began;
    args->asked_p = &multi->asked;
    args->signal_p = &multi->signal;
    args->tick = beat;
    args->tick_context = multi;
    args->advertised = multi_start_advertised(multi);
    (void)psi_descriptors_raise();
    status = status == PSD_OK ? open_join(multi, args->secret_fd, &err) : status;
    args->join = multi->join;
    if (status == PSD_OK) {
        code = wait_for_others(multi, args);
        status = code == 0 ? prepare_present(multi, args, &err) : PSD_OK;
    }
    if (status != PSD_OK) {
        fprintf(stderr, "psd_run: %s\n", err.text);
        code = PSI_EXIT_CANNOT_START;
    }
    if (code == 0) {
        if (multi->ops->begun != NULL) {
            multi->ops->begun(multi);
        }
        return run_job(args);
    }
    if (args->agent.pid > 0) {
        close(args->agent.fd);
        keeper_collect(args->agent.pid);
    }
    return code;
}

/* Somebody who is back already was lost all the same. */
static bool
misses_somebody(const struct multi_start *multi)
{
    for (uint32_t i = 1; i < multi->task_count; i++) {
        const struct layout_task *task = &multi->tasks[i];

        if (!join_has_stayed(multi->join, task->rank) &&
            (task->role == LAUNCH_SERVER || !multi->began || multi->inseparable)) {
            return true;
        }
    }
    return false;
}

bool
multi_start_was_left(struct multi_start *multi, int code)
{
    const uint64_t until_ms = psi_monotonic_ms() + SETTLE_MS;
    bool left = false;
    uint64_t now_ms;

    if (!multi->ops->returns || code == 0 || code == PSI_EXIT_USAGE ||
        code == PSI_EXIT_START_TIMEOUT || multi->signal != 0 || multi->join == NULL) {
        return false;
    }
    if (multi->asked) {
        return true;
    }
    while (!(left = misses_somebody(multi)) && (now_ms = psi_monotonic_ms()) < until_ms) {
        poll(&(struct pollfd){.fd = join_fd(multi->join), .events = POLLIN}, 1,
             (int)(until_ms - now_ms));
        join_turn(multi->join);
    }
    return left;
}

void
multi_start_again(struct multi_start *multi, const char *why)
{
    if (multi->join != NULL) {
        join_again(multi->join, why);
    }
    join_close(multi->join);
    multi->join = NULL;
}

void
multi_start_over(struct multi_start *multi, int code)
{
    const bool all = multi->join != NULL && join_present(multi->join) + 1 == multi->size;

    if (multi->signal == SIGTERM &&
        multi->ops->returns) { /* a batch system takes rank 0 away, and may bring it back */
        multi_start_again(multi, "rank 0 was asked to leave");
        return;
    }
    if (multi->join != NULL) {
        join_over(multi->join, code);
    }
    if (multi->ops->over != NULL) {
        multi->ops->over(multi, code, all);
    }
}
