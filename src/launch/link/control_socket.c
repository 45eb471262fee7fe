/*
 * control_socket.c - the socket through which others ask about a job, or end it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/control_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/time.h>

enum { TURN_MS = 300 }; /* for one to ask and to take the answer: nobody else is served then */

bool
control_wants_stop(const char *line, bool *now_p, char by_p[CONTROL_LINE_BYTES])
{
    static const char named[] = "stop for ";

    *now_p = strcmp(line, "stop now\n") == 0;
    snprintf(by_p, CONTROL_LINE_BYTES, "psd_run stop");
    if (strncmp(line, named, sizeof(named) - 1) == 0) {
        line += sizeof(named) - 1;
        snprintf(by_p, CONTROL_LINE_BYTES, "%.*s", (int)strcspn(line, "\n"), line);
        return true;
    }
    return *now_p || strcmp(line, "stop\n") == 0;
}

/* One question, one answer. Only our own user gets this far. */
static void
converse(int fd, char *(*answer)(void *context, const char *line), void *context)
{
    const struct timeval limit = {.tv_usec = TURN_MS * 1000};
    char line[CONTROL_LINE_BYTES] = "";
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
control_serve(int listener, char *(*answer)(void *context, const char *line), void *context)
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
