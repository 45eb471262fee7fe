/*
 * daemon.h - the lanes of a server in the real world: one thread and one loop each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_DAEMON_H
#define SERVER_DAEMON_H

#include "server/options.h"

/* Runs until the job is over; returns the exit code. The last line of the log says why. */
int server_daemon_run(const struct server_options *options, const struct psi_log *log);

#endif
