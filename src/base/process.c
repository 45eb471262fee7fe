/*
 * process.c - is this still the process that made something, or a child forked from it?
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/process.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

void
psi_process_init(struct psi_process *process)
{
    void *page = mmap(NULL, sizeof(*process->here), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    *process = (struct psi_process){.pid = getpid()};
    if (page == MAP_FAILED) {
        return;
    }
    if (madvise(page, sizeof(*process->here), MADV_WIPEONFORK) != 0) {
        munmap(page, sizeof(*process->here));
        return;
    }
    process->here = page;
    *process->here = true;
}

void
psi_process_fini(struct psi_process *process)
{
    if (process->here != NULL) {
        munmap(process->here, sizeof(*process->here));
        process->here = NULL;
    }
}

bool
psi_process_is_this(const struct psi_process *process)
{
    return process->here != NULL ? *process->here : process->pid == getpid();
}
