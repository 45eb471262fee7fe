/*
 * control_socket.h - the socket of jobs.h, through which psd_run show, logs, stop and list ask a
 * psd_run about its job: a line, and an answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CONTROL_SOCKET_H
#define LAUNCH_CONTROL_SOCKET_H

#include <stdbool.h>

enum { CONTROL_LINE_BYTES = 512 };

/* Whether a line asks to end the job ("stop", "stop now", "stop for REASON"), and who does. */
bool control_wants_stop(const char *line, bool *now_p, char by_p[CONTROL_LINE_BYTES]);

/* Somebody is at the socket. answer() gives what a line gets, to be freed; NULL: nothing. */
void control_serve(int listener, char *(*answer)(void *context, const char *line), void *context);

#endif
