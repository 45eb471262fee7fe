/*
 * process.h - is this still the process that made something, or a child forked from it?
 *
 * The library asks on every call, so it is answered without a system call: by a page that the
 * kernel clears in children. Where there is no such page, the process id answers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_PROCESS_H
#define PSI_BASE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* Thread: immutable. */
struct psi_process {
    pid_t pid;
    bool *here; /* true, and false in a child; NULL: no such page */
};

/* This process. */
void psi_process_init(struct psi_process *process);
void psi_process_fini(struct psi_process *process);

bool psi_process_is_this(const struct psi_process *process);

#endif
