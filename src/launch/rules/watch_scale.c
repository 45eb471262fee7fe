/*
 * watch_scale.c - servers that come while a job runs, and servers that leave it.
 *
 * There is a slot for each server that may run at a time. One that is empty is like that of a server which
 * another one has replaced: nobody misses it. A server that comes has nothing at first; the master sees it, and
 * moves places to it. One that is to leave is named to the master, which moves its places away and then says so
 * (DRAINED): only then it is ended, and that is no death.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_scale.h"

#include <signal.h>
#include <stdio.h>

#include "launch/rules/watch_rolling.h"
#include "launch/rules/watch_steps.h"

enum { LEAVE_MS = 5000 }; /* for a process that has nothing more to heed SIGTERM */

void
watch_scale_init(struct watch *watch)
{
    for (uint32_t slot = watch_last_part(watch) + 1; slot <= watch->config.servers; slot++) {
        watch->slots[slot].is_hosted = true;
        watch->slots[slot].is_scaled = true;
        watch->slots[slot].started = true; /* no life of it is on its way */
    }
}

bool
watch_server_is_out(const struct watch *watch, uint32_t slot)
{
    return slot > 0 && slot <= watch->config.servers && watch->slots[slot].is_hosted &&
           watch->slots[slot].is_scaled;
}

bool
watch_server_is_leaving(const struct watch *watch, uint32_t slot)
{
    return slot > 0 && slot <= watch->config.servers && watch->slots[slot].is_leaving;
}

static bool
is_present(const struct watch *watch, uint32_t slot)
{
    return !watch->slots[slot].is_hosted && !watch->slots[slot].is_leaving;
}

uint32_t
watch_servers_present(const struct watch *watch)
{
    uint32_t count = 0;

    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        count += is_present(watch, slot);
    }
    return count;
}

uint32_t
watch_servers_next(const struct watch *watch)
{
    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        if (watch->slots[slot].is_hosted && !watch->slots[slot].alive) {
            return slot;
        }
    }
    return 0;
}

/* Has every part been placed once, and is the process of each server known? */
static bool
has_begun(const struct watch *watch)
{
    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        const struct watch_slot *server = &watch->slots[slot];

        if ((slot <= watch_last_part(watch) && !server->is_placed) ||
            (is_present(watch, slot) && (!server->joined || server->life == 0))) {
            return false;
        }
    }
    return true;
}

static const char *
refusal(const struct watch *watch)
{
    if (watch->config.foreign) {
        return "its servers are not Poseidon's";
    }
    if (!watch->config.may_scale_servers) {
        return "its servers are as many as it began with: a job that servers may come to, and "
               "leave, is started "
               "with --max_servers";
    }
    if (watch_is_rolling(watch)) {
        return "its servers are being restarted";
    }
    if (watch->phase != WATCH_RUNNING) {
        return watch->phase < WATCH_RUNNING ? "it has not begun" : "it is about to end";
    }
    return has_begun(watch) ? NULL
                            : "not all of its servers are there: wait until they have joined";
}

static bool
may_grow(const struct watch *watch, uint32_t present, uint32_t more, char *text_p, size_t size)
{
    uint32_t empty = 0;

    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        empty += watch->slots[slot].is_hosted && !watch->slots[slot].alive;
    }
    if (more > watch->config.servers - present) {
        snprintf(text_p, size, "%u more: %u of --max_servers %u are there", more, present,
                 watch->config.servers);
        return false;
    }
    if (more > empty) {
        snprintf(text_p, size,
                 "%u more: servers that are leaving still have their places among "
                 "--max_servers %u; wait until they are gone",
                 more, watch->config.servers);
        return false;
    }
    return true;
}

static bool
may_shrink(const struct watch *watch, uint32_t present, uint32_t fewer, char *text_p, size_t size)
{
    if (fewer >= present) {
        snprintf(text_p, size,
                 "%u fewer of %u leaves none, and it takes 1: psd_run stop ends a job", fewer,
                 present);
        return false;
    }
    if (watch->config.replicas > 0 && present - fewer < 2) {
        snprintf(
            text_p, size,
            "%u fewer of %u leaves 1, and with --replicas 1 the copy of a server is in another one",
            fewer, present);
        return false;
    }
    return true;
}

bool
watch_servers_plan(const struct watch *watch, const struct watch_workers_ask *ask,
                   struct watch_workers_change *change_p, char *text_p, size_t size)
{
    const uint32_t present = watch_servers_present(watch);
    const char *why = refusal(watch);

    *change_p = (struct watch_workers_change){0};
    if (why != NULL) {
        snprintf(text_p, size, "%s", why);
        return false;
    }
    if (ask->sign == '=' && ask->number == 0) {
        snprintf(text_p, size, "to no servers, and it takes 1: psd_run stop ends a job");
        return false;
    }
    if (ask->sign == '+' || (ask->sign == '=' && ask->number > present)) {
        change_p->more = ask->sign == '+' ? ask->number : ask->number - present;
        return change_p->more == 0 || may_grow(watch, present, change_p->more, text_p, size);
    }
    change_p->fewer = ask->sign == '-' ? ask->number : present - ask->number;
    return change_p->fewer == 0 || may_shrink(watch, present, change_p->fewer, text_p, size);
}

void
watch_server_add(struct watch *watch, uint32_t slot)
{
    struct watch_slot *server = &watch->slots[slot];

    server->is_hosted = false;
    server->is_scaled = true;
    server->is_leaving = false;
    server->is_copied = false;
    server->has_left = false;
    server->joined = false;
    server->hasty = 0;
    server->life = 0;
    server->restarts += server->ordered; /* another log */
    watch_start(watch, slot);
}

void
watch_server_remind(struct watch *watch, uint32_t slot)
{
    const struct watch_slot *server = &watch->slots[slot];

    if (server->is_leaving && server->life != 0) {
        watch_tell_master(
            watch,
            &(struct psi_word){.kind = PSI_WORD_LEAVE, .rank = slot - 1, .number = server->life});
    }
}

uint32_t
watch_server_remove(struct watch *watch)
{
    uint32_t slot = watch->config.servers;

    while (!is_present(watch, slot)) {
        slot--;
    }
    watch->slots[slot].is_leaving = true;
    watch->slots[slot].is_scaled = true;
    watch_server_remind(watch, slot);
    return slot;
}

/* From now on nobody misses it. */
static void
take_out(struct watch *watch, uint32_t slot)
{
    struct watch_slot *server = &watch->slots[slot];

    server->is_hosted = true;
    server->is_leaving = false;
    server->is_missing = false;
    server->is_left = false;
    server->makes_room = false;
    server->word_ms = 0;
    server->restart_ms = 0;
    server->started = true;
    cause_forgive(&watch->inquest, slot);
}

void
watch_server_drained(struct watch *watch, uint32_t slot, uint64_t life, uint64_t now_ms)
{
    struct watch_slot *server = &watch->slots[slot];

    if (!server->is_leaving || server->life != life) {
        return; /* an earlier life of it */
    }
    take_out(watch, slot);
    server->has_left = true;
    watch->ops->tell_drained(watch->context, slot);
    if (server->alive) {
        server->doomed_ms = now_ms + LEAVE_MS;
        watch->ops->signal(watch->context, slot, SIGTERM);
    }
}

void
watch_server_not_come(struct watch *watch, uint32_t slot)
{
    take_out(watch, slot);
    watch->ops->tell_not_come(watch->context, slot);
}
