/*
 * replicas.c - whether the servers of a job have copies, where nobody has said so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/replicas.h"

#include <stddef.h>

const char *
psi_replicas_obstacle(const struct psi_settings *settings, uint32_t servers)
{
    if (servers < 2) {
        return "one server";
    }
    return settings->sum_failover == PSI_FAILOVER_OFF ? "sum_failover=off" : NULL;
}

const char *
psi_replicas_objection(const struct psi_settings *settings, uint32_t servers)
{
    const char *obstacle = psi_replicas_obstacle(settings, servers);

    return obstacle == NULL && settings->on_worker_death == PSI_DEATH_WAIT ? "on_worker_death=wait"
                                                                           : obstacle;
}

void
psi_replicas_settle(struct psi_settings *settings, uint32_t servers, bool is_spread)
{
    if (settings->replicas == PSI_REPLICAS_AUTO) {
        settings->replicas = is_spread && psi_replicas_objection(settings, servers) == NULL
                                 ? PSI_REPLICAS_1
                                 : PSI_REPLICAS_0;
    }
}
