/*
 * resident.c - how much of this process is in memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/resident.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

void
psi_resident_init(struct psi_resident *resident)
{
    resident->fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

void
psi_resident_fini(struct psi_resident *resident)
{
    if (resident->fd >= 0) {
        close(resident->fd);
    }
    resident->fd = -1;
}

/* In pages: the second and the third number of that file. */
uint64_t
psi_resident_read(const struct psi_resident *resident, uint64_t *shared_p)
{
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned long long pages = 0;
    unsigned long long shared = 0;
    char text[128] = "";

    *shared_p = 0;
    if (resident->fd < 0 || pread(resident->fd, text, sizeof(text) - 1, 0) <= 0 ||
        sscanf(text, "%*u %llu %llu", &pages, &shared) != 2 || shared > pages) {
        return 0;
    }
    *shared_p = shared * page_bytes;
    return pages * page_bytes;
}
