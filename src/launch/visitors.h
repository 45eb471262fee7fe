/*
 * visitors.h - those who ask psd_run about its job, through the socket of jobs.h.
 */
#ifndef LAUNCH_VISITORS_H
#define LAUNCH_VISITORS_H

#include "launch/run_state.h"

/* Somebody is at the socket. answer() gives what a line gets, to be freed; NULL: nothing. */
void visitors_serve(int listener, char *(*answer)(void *context, const char *line), void *context);

/* The same for a job that runs. */
void visitors_handle(struct run *run);

#endif
