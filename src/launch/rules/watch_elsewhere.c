/*
 * watch_elsewhere.c - servers and the master of a machine that is gone go on elsewhere.
 *
 * A server's place is that of its process, not of its machine: its next life may be on any machine of
 * the job. It goes to the one with the fewest servers, the first of several. The master goes to a
 * machine that has servers, because those are known to be reached by all workers; if there is none, to
 * any. Psd_run's own machine cannot be done without: what is lost there is more than processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_elsewhere.h"

#include "launch/rules/watch_restart.h"
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

/* How little a machine is wanted for the next life of a process. */
static uint32_t
rate(const struct watch *watch, uint32_t slot, uint32_t machine)
{
    const uint32_t servers = count_servers(watch, machine);

    return slot == 0 && servers == 0 ? UINT32_MAX - 1 : servers;
}

/* CAUSE_NOWHERE: there is none. */
static uint32_t
find_machine(const struct watch *watch, uint32_t slot, uint32_t without)
{
    uint32_t found = CAUSE_NOWHERE;
    uint32_t best = UINT32_MAX;

    for (uint32_t machine = 0; machine < watch->config.machines; machine++) {
        if (machine != without && !is_lost(watch, machine) && rate(watch, slot, machine) < best) {
            found = machine;
            best = rate(watch, slot, machine);
        }
    }
    return found;
}

static bool
has_servers(const struct watch *watch, uint32_t machine)
{
    return count_servers(watch, machine) > 0;
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

/* Agents end what they started when psd_run says nothing for a lease: machines that are lost now were not the first to
 * be silent, and there is nobody left with whom to go on. */
static bool
was_stopped(const struct watch *watch, uint64_t now_ms)
{
    return watch->woke_ms != 0 && now_ms - watch->woke_ms < watch->config.lease_ms;
}

/* Whether a lost machine may be one without which the job goes on, whoever was there. */
static bool
may_be_lost(const struct watch *watch, uint32_t machine, uint64_t now_ms)
{
    const struct watch_config *config = &watch->config;

    return config->machine_of != NULL && !config->foreign && config->replace_ms == 0 &&
           machine != config->here && !was_stopped(watch, now_ms) &&
           (machine != config->machine_of[0] || watch_may_restart_master(watch, now_ms)) &&
           find_machine(watch, 0, machine) != CAUSE_NOWHERE;
}

/* Whether the process of a server is on a machine. Who is awaited was there. */
static bool
is_on(const struct watch *watch, uint32_t index, uint32_t slot, uint32_t machine)
{
    return watch->config.machine_of[index == PSI_TIDING_NOBODY ? slot : 1 + index] == machine;
}

/* Whether a server's part is left when a machine is gone, lane by lane: it may be in another server by now, or that server's
 * part in this one. */
static bool
is_left(const struct watch *watch, uint32_t slot, uint32_t machine)
{
    const struct psi_tiding_place *place = &watch->slots[slot].place;
    const uint32_t lanes = place->lanes < PSI_TIDING_LANES ? place->lanes : PSI_TIDING_LANES;

    for (uint32_t lane = 0; lane < lanes; lane++) {
        if (is_on(watch, place->by[lane], slot, machine) &&
            (place->state != PSI_COPY_WHOLE || place->copy[lane] == PSI_TIDING_NOBODY ||
             is_on(watch, place->copy[lane], slot, machine))) {
            return false;
        }
    }
    return true;
}

/* By what the master has told of it: nothing, before there are tables. */
static bool
outlives(const struct watch *watch, uint32_t slot, uint32_t machine)
{
    const struct watch_slot *server = &watch->slots[slot];

    if ((server->is_hosted && !server->is_scaled) ||
        (server->is_placed && is_left(watch, slot, machine)) ||
        (!server->is_placed && (server->is_hosted || watch->config.machine_of[slot] != machine))) {
        return true;
    }
    return watch->config.server_restarts > 0 &&
           (!server->is_placed || server->place.state == PSI_COPY_NEEDLESS);
}

bool
watch_elsewhere_misses_workers(const struct watch *watch, uint32_t machine, uint64_t now_ms)
{
    bool outlived = may_be_lost(watch, machine, now_ms);

    for (uint32_t slot = 1; slot <= watch->config.servers && outlived; slot++) {
        outlived = outlives(watch, slot, machine);
    }
    return outlived;
}

bool
watch_elsewhere_may(const struct watch *watch, uint32_t machine, uint64_t now_ms)
{
    return (watch->phase == WATCH_RUNNING || watch->phase == WATCH_LEAVING) &&
           may_be_lost(watch, machine, now_ms) &&
           (watch->config.server_restarts > 0 || !has_servers(watch, machine)) &&
           !misses_workers(watch, machine);
}

void
watch_elsewhere_move(struct watch *watch, uint32_t slot)
{
    uint32_t machine;

    if (watch->config.machine_of == NULL || !is_lost(watch, watch->config.machine_of[slot])) {
        return;
    }
    machine = find_machine(watch, slot, watch->config.machine_of[slot]);
    if (machine != CAUSE_NOWHERE) {
        watch->ops->move(watch->context, slot, machine);
    }
}
