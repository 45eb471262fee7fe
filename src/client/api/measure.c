/*
 * measure.c - what a worker's process has used.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/monotonic.h"
#include "client/api/api.h"
#include "metric/metric.h"

/* Resident and not shared, in pages: the second and the third number of that file. */
static uint64_t
private_bytes(void)
{
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    unsigned long long resident = 0;
    unsigned long long shared = 0;
    char text[128] = "";
    ssize_t got;

    if (fd < 0) {
        return 0;
    }
    got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0 || sscanf(text, "%*u %llu %llu", &resident, &shared) != 2 || shared > resident) {
        return 0;
    }
    return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void
psi_measure_process(struct psi_metrics *metrics)
{
    psi_metric_set(metrics, PSI_METRIC_CPU_TIME, psi_process_cpu_ns());
    psi_metric_set(metrics, PSI_METRIC_MEMORY, private_bytes());
}
