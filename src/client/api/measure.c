/*
 * measure.c - what a worker's process has used.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/monotonic.h"
#include "base/resident.h"
#include "client/api/api.h"
#include "metric/metric.h"

void
psi_measure_process(struct psi_metrics *metrics)
{
    struct psi_resident resident;
    uint64_t shared;
    uint64_t bytes;

    psi_resident_init(&resident); /* each time: this may be a child of fork() */
    bytes = psi_resident_read(&resident, &shared);
    psi_resident_fini(&resident);
    psi_metric_set(metrics, PSI_METRIC_CPU_TIME, psi_process_cpu_ns());
    psi_metric_set(metrics, PSI_METRIC_MEMORY, bytes - shared);
    psi_metric_set(metrics, PSI_METRIC_RESIDENT, bytes);
}
