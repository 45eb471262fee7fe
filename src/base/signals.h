/*
 * signals.h - SIGINT and SIGTERM as something to read. Daemons only: libpsd touches no signal.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_SIGNALS_H
#define PSI_BASE_SIGNALS_H

#include <psd/status.h>

/*
 * Blocks SIGINT and SIGTERM for this thread and those it starts later, ignores SIGPIPE, SIGUSR1 and
 * SIGUSR2 (which batch systems send to all processes of a job, for the workers to save what they
 * have), and gives a descriptor that is readable when one of the two has come: watch it in the
 * loop, close() it at the end. Call it before the first thread starts.
 */
psd_status psi_signals_open(int *fd_p, struct psd_error *err);

/* The number of the signal that came; 0: none. Never blocks. */
int psi_signals_read(int fd);

/* What a daemon ended by it says, "terminated by SIGTERM", and exits with. */
const char *psi_signals_text(int signal_number);
int psi_signals_exit_code(int signal_number);

#endif
