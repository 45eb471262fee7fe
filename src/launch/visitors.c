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
    run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    if (at_once) {
        run_tell(run, WATCH_INTERRUPTED, 0, SIGTERM);
    }
}

/* One question, one answer: "show", "stop", "stop now". Only our own user gets this far. */
static void
answer_visitor(struct run *run, int fd)
{
    const struct timeval limit = {.tv_usec = VISITOR_MS * 1000};
    char line[64] = "";
    char *answer = NULL;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (read(fd, line, sizeof(line) - 1) <= 0) {
        return; /* somebody who only wanted to know whether we are here */
    }
    if (strcmp(line, "show\n") == 0) {
        answer = story_tell(run);
    } else if (strcmp(line, "stop\n") == 0 || strcmp(line, "stop now\n") == 0) {
        stop_for_visitor(run, strcmp(line, "stop now\n") == 0);
        answer = strdup("stopping\n");
    }
    for (size_t at = 0, bytes = answer != NULL ? strlen(answer) : 0; at < bytes;) {
        const ssize_t written = send(fd, answer + at, bytes - at, MSG_NOSIGNAL);

        if (written <= 0) {
            break;
        }
        at += (size_t)written;
    }
    free(answer);
}

void
visitors_handle(struct run *run)
{
    const int fd = accept4(run->args->listener, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    if (fd < 0) {
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid()) {
        answer_visitor(run, fd);
    }
    close(fd);
}
