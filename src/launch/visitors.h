/*
 * visitors.h - those who ask psd_run about its job, through the socket of jobs.h.
 */
#ifndef LAUNCH_VISITORS_H
#define LAUNCH_VISITORS_H

#include "launch/run_state.h"

/* Somebody is at the socket. */
void visitors_handle(struct run *run);

#endif
