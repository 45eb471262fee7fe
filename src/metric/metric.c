/*
 * metric.c - what is known of each metric.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metric/metric.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORKER = PSI_METRIC_WORKER,
    LANE = PSI_METRIC_LANE,
    MASTER = PSI_METRIC_MASTER,
};

const struct psi_metric_info psi_metric_info[PSI_METRICS] = {
#define INFO(number, id, word, sort, of, from, said)                                               \
    [number] = {.name = #word, .unit = of, .text = said, .kind = PSI_METRIC_##sort, .who = from},
    PSI_METRIC_MAP(INFO)
#undef INFO
};

struct psi_metrics *
psi_metrics_create(void)
{
    struct psi_metrics *metrics = aligned_alloc(PSI_COUNTER_LINE, sizeof(*metrics));

    if (metrics != NULL) {
        memset(metrics, 0, sizeof(*metrics));
    }
    return metrics;
}
