/*
 * daemon.h - a master as a process: runs one job to its end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_DAEMON_H
#define MASTER_DAEMON_H

#include "base/log.h"
#include "master/options.h"

/* Returns the exit code (base/exit_code.h). The last line it logs, JOB-END, says why. */
int master_daemon_run(const struct master_options *options, const struct psi_log *log);

#endif
