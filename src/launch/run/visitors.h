/*
 * visitors.h - those who ask psd_run about its job, through the socket of jobs.h.
 */
#ifndef LAUNCH_VISITORS_H
#define LAUNCH_VISITORS_H

#include <stdbool.h>

#include "launch/run/run_state.h"

enum { VISITORS_LINE_BYTES = 512 };

/* Whether a line asks to end the job ("stop", "stop now", "stop for REASON"), and who does. */
bool visitors_want_stop(const char *line, bool *now_p, char by_p[VISITORS_LINE_BYTES]);

/* Somebody is at the socket. answer() gives what a line gets, to be freed; NULL: nothing. */
void visitors_serve(int listener, char *(*answer)(void *context, const char *line), void *context);

/* The same for a job that runs. */
void visitors_handle(struct run *run);

#endif
