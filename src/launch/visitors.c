/*
 * visitors.c - those who ask psd_run about its job: show, logs, stop, list.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/visitors.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/time.h>

#include "launch/story.h"

enum { VISITOR_MS = 300 }; /* for one to ask and to take the answer: nobody else is served then */

static void
stop_for_visitor(struct run *run, bool at_once)
{
    runlog_line(&run->runlog, "INTERRUPT", "psd_run stop");
    console_say(&run->console, "stopping the job: psd_run stop");
    run->stopped_by_verb = run->stopped_by_verb || run->watch.phase < WATCH_STOPPING;
    if (run->args->signal_p != NULL) {
        *run->args->signal_p = SIGINT; /* the user's own wish, for all that joined */
    }
    run_ask_last(run);
    run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    if (at_once) {
        run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    }
}

/* "show", "stop", "stop now" */
static char *
answer_visitor(void *context, const char *line)
{
    struct run *run = context;

    if (strcmp(line, "show\n") == 0) {
        return story_tell(run);
    }
    if (strcmp(line, "stop\n") == 0 || strcmp(line, "stop now\n") == 0) {
        stop_for_visitor(run, strcmp(line, "stop now\n") == 0);
        return strdup("stopping\n");
    }
    return NULL;
}

/* One question, one answer. Only our own user gets this far. */
static void
converse(int fd, char *(*answer)(void *context, const char *line), void *context)
{
    const struct timeval limit = {.tv_usec = VISITOR_MS * 1000};
    char line[64] = "";
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
