/*
 * harden.h - a daemon gives up what it does not need, so that a bug in it is worth less.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SECURE_HARDEN_H
#define PSI_SECURE_HARDEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

/* The master only accepts; a server also connects, to the master. */
enum psi_harden_role { PSI_HARDEN_MASTER, PSI_HARDEN_SERVER };

struct psi_harden_args {
    bool on; /* false: only say so */
    enum psi_harden_role role;
    uint16_t connect_port; /* server: of the master, to which it connects again after a cut */
    const char
        *master_file; /* server: says where the master is, should it be elsewhere; NULL: it stays */
    bool connects_to_servers; /* server: to others as well, whose ports nobody knows yet */
    bool shares_with_servers; /* server: ... and memory, with those on this host */
    const char *checkpoint;   /* directory whose files it writes; NULL: none */
    const char *resume;       /* server: directory whose files it reads; NULL: none */
    const char *lookup;       /* server: a host name that it still has to look up; NULL: none */
};

/*
 * For good: no new privileges, no core files, no capabilities, no file but a few to read
 * (landlock), no system call but those of the role (seccomp). A call that only an intruder makes,
 * execve above all, kills the process; any other that is not listed fails with EPERM.
 *
 * Call it when the listeners exist and before the first thread is started: threads inherit it.
 * What this kernel or this build lacks is done without; one line says what was done and what not.
 */
void psi_harden(const struct psi_harden_args *args, const struct psi_log *log);

#endif
