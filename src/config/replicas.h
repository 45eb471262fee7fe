/*
 * replicas.h - whether the servers of a job have copies, where nobody has said so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CONFIG_REPLICAS_H
#define PSI_CONFIG_REPLICAS_H

#include <stdbool.h>

#include "config/settings.h"

/* Why a job with so many servers cannot have copies of them ("one server", "sum_failover=off"), or
 * NULL if it can. */
const char *psi_replicas_obstacle(const struct psi_settings *settings, uint32_t servers);

/* ... or from having them where nobody has asked for them: "on_worker_death=wait", too. There sums are copied
 * as well, which jobs that only sum would pay for in every step. */
const char *psi_replicas_objection(const struct psi_settings *settings, uint32_t servers);

/* Makes 0 or 1 of auto. is_spread: the servers are on two hosts or more. On one host copies cost half
 * of the speed and guard against a crash alone, so they have to be asked for. */
void psi_replicas_settle(struct psi_settings *settings, uint32_t servers, bool is_spread);

#endif
