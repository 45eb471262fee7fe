/*
 * watch_elsewhere.c - servers of a machine that is gone go on elsewhere.
 *
 * A server's place is that of its process, not of its machine: its next life may be on any machine of
 * the job. It goes to the one with the fewest servers, the first of several. The machine of the master
 * cannot be done without, nor psd_run's own: what is lost there is more than servers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_elsewhere.h"

#include "launch/rules/watch_steps.h"

static bool
is_lost(const struct watch *watch, uint32_t machine)
{
    return watch->inquest.machines[machine].lost_at != 0;
}

static uint32_t
count_servers(const struct watch *watch, uint32_t machine)
{
    uint32_t count = 0;

    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        count += watch->config.machine_of[slot] == machine && !watch->slots[slot].is_hosted;
    }
    return count;
}

/* CAUSE_NOWHERE: there is none. */
static uint32_t
find_machine(const struct watch *watch, uint32_t without)
{
    uint32_t found = CAUSE_NOWHERE;
    uint32_t fewest = UINT32_MAX;

    for (uint32_t machine = 0; machine < watch->config.machines; machine++) {
        if (machine != without && !is_lost(watch, machine) &&
            count_servers(watch, machine) < fewest) {
            found = machine;
            fewest = count_servers(watch, machine);
        }
    }
    return found;
}

static bool
misses_workers(const struct watch *watch, uint32_t machine)
{
    for (uint32_t slot = 1 + watch->config.servers; slot < watch_slot_count(watch); slot++) {
        if (watch->config.machine_of[slot] == machine && !watch->slots[slot].ended) {
            return watch->config.on_worker_death != WATCH_CONTINUE;
        }
    }
    return false;
}

bool
watch_elsewhere_may(const struct watch *watch, uint32_t machine)
{
    const struct watch_config *config = &watch->config;

    return config->machine_of != NULL && !config->foreign &&
           (watch->phase == WATCH_RUNNING || watch->phase == WATCH_LEAVING) &&
           config->replace_ms == 0 && config->server_restarts > 0 &&
           machine != config->machine_of[0] && machine != config->here &&
           !misses_workers(watch, machine) && find_machine(watch, machine) != CAUSE_NOWHERE;
}

void
watch_elsewhere_move(struct watch *watch, uint32_t slot)
{
    uint32_t machine;

    if (watch->config.machine_of == NULL || !is_lost(watch, watch->config.machine_of[slot])) {
        return;
    }
    machine = find_machine(watch, watch->config.machine_of[slot]);
    if (machine != CAUSE_NOWHERE) {
        watch->ops->move(watch->context, slot, machine);
    }
}
