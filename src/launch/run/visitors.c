/*
 * visitors.c - those who ask psd_run about its job: show, logs, stop, list.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/visitors.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/time.h>

#include "launch/run/story.h"

enum { VISITOR_MS = 300 }; /* for one to ask and to take the answer: nobody else is served then */

/* by: "psd_run stop", or what replaces the job. */
static void
stop_for_visitor(struct run *run, bool at_once, const char *by)
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
    run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    if (at_once) {
        run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    }
}

bool
visitors_want_stop(const char *line, bool *now_p, char by_p[VISITORS_LINE_BYTES])
{
    static const char named[] = "stop for ";

    *now_p = strcmp(line, "stop now\n") == 0;
    snprintf(by_p, VISITORS_LINE_BYTES, "psd_run stop");
    if (strncmp(line, named, sizeof(named) - 1) == 0) {
        line += sizeof(named) - 1;
        snprintf(by_p, VISITORS_LINE_BYTES, "%.*s", (int)strcspn(line, "\n"), line);
        return true;
    }
    return *now_p || strcmp(line, "stop\n") == 0;
}

/* "show", "what", and those above. */
static char *
answer_visitor(void *context, const char *line)
{
    struct run *run = context;
    char by[VISITORS_LINE_BYTES];
    bool now;

    if (strcmp(line, "show\n") == 0) {
        return story_tell(run);
    }
    if (strcmp(line, "what\n") == 0) {
        return strdup(run->args->what != NULL ? run->args->what : "");
    }
    if (visitors_want_stop(line, &now, by)) {
        stop_for_visitor(run, now, by);
        return strdup("stopping\n");
    }
    return NULL;
}

/* One question, one answer. Only our own user gets this far. */
static void
converse(int fd, char *(*answer)(void *context, const char *line), void *context)
{
    const struct timeval limit = {.tv_usec = VISITOR_MS * 1000};
    char line[VISITORS_LINE_BYTES] = "";
    char *text;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (read(fd, line, sizeof(line) - 1) <= 0) {
        return; /* somebody who only wanted to know whether we are here */
    }
    text = answer(context, line);
    for (size_t at = 0, bytes = text != NULL ? strlen(text) : 0; at < bytes;) {
        const ssize_t written = send(fd, text + at, bytes - at, MSG_NOSIGNAL);

        if (written <= 0) {
            break;
        }
        at += (size_t)written;
    }
    free(text);
}

void
visitors_serve(int listener, char *(*answer)(void *context, const char *line), void *context)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    if (fd < 0) {
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid()) {
        converse(fd, answer, context);
    }
    close(fd);
}

void
visitors_handle(struct run *run)
{
    visitors_serve(run->args->listener, answer_visitor, run);
}
