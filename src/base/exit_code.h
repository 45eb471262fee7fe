/*
 * exit_code.h - what a daemon's exit code means. The table for people is in docs/errors.md.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_EXIT_CODE_H
#define PSI_BASE_EXIT_CODE_H

enum psi_exit_code {
    PSI_EXIT_OK = 0,
    PSI_EXIT_USAGE = 2,        /* bad option or configuration */
    PSI_EXIT_CANNOT_START = 3, /* no port, no memory, no descriptor */
    PSI_EXIT_WORKER_LOST = 70, /* a worker died and the policy is to fail (or nobody replaced it) */
    PSI_EXIT_SERVER_LOST = 71,
    PSI_EXIT_MASTER_LOST = 72,
    PSI_EXIT_REFUSED = 73,    /* not wanted by the job: taken, wrong index, wrong version */
    PSI_EXIT_NOT_FINITE = 74, /* finite gradients added up to something that is not */
    PSI_EXIT_FENCED = 75,     /* another process has taken this one's place */
    PSI_EXIT_INTERNAL = 76,
    PSI_EXIT_AUTH = 77,           /* could not prove to belong to the job: another secret? */
    PSI_EXIT_NO_ROOM = 78,        /* a sparse table has no room for more rows */
    PSI_EXIT_START_TIMEOUT = 124, /* the job did not gather in time */
    PSI_EXIT_SIGINT = 130,
    PSI_EXIT_SIGTERM = 143,
};

#endif
