/*
 * control.c - a running job answers those who ask about it: show, logs, stop, list.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/control.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/link/control_socket.h"
#include "launch/link/secret.h"
#include "launch/page/feed.h"
#include "launch/run/job_json.h"
#include "launch/run/rolling.h"
#include "launch/run/run_page.h"
#include "launch/run/scale_servers.h"
#include "launch/run/scale_workers.h"

/* by: "psd_run stop", or what replaces the job. */
static void
stop_job(struct run *run, bool at_once, const char *by)
{
    runlog_line(&run->runlog, "INTERRUPT", "%s", by);
    console_say(&run->console, "stopping the job: %s", by);
    if (run->watch.phase < WATCH_STOPPING) {
        snprintf(run->stopped_by, sizeof(run->stopped_by), "%s", by);
    }
    if (run->args->signal_p != NULL) {
        *run->args->signal_p = SIGINT; /* the user's own wish, for all that joined */
    }
    run_ask_last(run);
    if (at_once) {
        run->watch.config.save_ms = 0; /* no checkpoint first */
    }
    run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    if (at_once) {
        run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    }
}

/* "written ADDRESS", or why not. */
static char *
write_reader_key(const struct run *run, const char *line)
{
    struct psd_error err = {0};
    char path[CONTROL_LINE_BYTES];
    char *answer = NULL;

    snprintf(path, sizeof(path), "%.*s", (int)strcspn(line, "\n"), line);
    if (run->master[0] == '\0') {
        return strdup("it has not begun yet: ask again when its master listens\n");
    }
    if (launch_secret_reader_key(run->args->secret_fd, path, &err) != PSD_OK) {
        return asprintf(&answer, "%s\n", err.text) < 0 ? NULL : answer;
    }
    return asprintf(&answer, "written %s\n", run->master) < 0 ? NULL : answer;
}

/* "show", "reader key FILE", "feed", "trace 20", "what", "page", "page file", those above, and those of rolling.h, scale_workers.h and
 * scale_servers.h. */
static char *
answer(void *context, const char *line)
{
    struct run *run = context;
    char by[CONTROL_LINE_BYTES];
    unsigned steps;
    bool now;

    if (strcmp(line, "show\n") == 0) {
        return job_json_text(run);
    }
    if (strncmp(line, "reader key ", 11) == 0) {
        return write_reader_key(run, line + 11);
    }
    if (sscanf(line, "trace %u\n", &steps) == 1) {
        return run->feed != NULL ? feed_trace(run->feed, steps) : strdup("null");
    }
    if (strcmp(line, "feed\n") == 0) {
        return job_json_with_feed(run);
    }
    if (strcmp(line, "what\n") == 0) {
        return strdup(run->args->what != NULL ? run->args->what : "");
    }
    if (strcmp(line, "page\n") == 0) {
        return run_page_address(run);
    }
    if (strcmp(line, "page file\n") == 0) {
        return run_page_file(run);
    }
    if (control_wants_stop(line, &now, by)) {
        stop_job(run, now, by);
        return strdup("stopping\n");
    }
    if (strncmp(line, "scale servers ", 14) == 0) {
        return scale_servers_answer(run, line);
    }
    return strncmp(line, "scale workers ", 14) == 0 ? scale_workers_answer(run, line)
                                                    : rolling_answer(run, line);
}

void
control_handle(struct run *run)
{
    control_serve(run->args->listener, answer, run);
}
