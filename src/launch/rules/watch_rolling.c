/*
 * watch_rolling.c - all servers are started anew, one after the other, while the job goes on.
 *
 * Each is killed when the job can do without it: when every part has a whole copy, or can be made anew
 * by the workers. So it is an ordinary death, of which nothing is lost, at a moment that was chosen.
 * It does not count against the number of restarts. The next one follows when the last is back and
 * nothing is missing any more. Where servers may come and go, the master moves places as soon as all copies are
 * whole, and a place on its way has none: so nothing must have been missing for a while.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_rolling.h"

#include <signal.h>
#include <stdio.h>

#include "launch/rules/watch_steps.h"

enum {
    SETTLES_MS = 2000 /* between two moves of the master; much more than it takes to plan one */
};

static const char *
refusal(const struct watch *watch)
{
    const struct watch_config *config = &watch->config;

    if (config->foreign) {
        return "its servers are not Poseidon's";
    }
    if (watch_is_rolling(watch)) {
        return "its servers are being restarted already";
    }
    if (watch->phase != WATCH_RUNNING) {
        return watch->phase < WATCH_RUNNING ? "it has not begun" : "it is about to end";
    }
    return config->server_restarts == 0
               ? "its servers are not started again (--server_restarts 0, or sum_failover=off)"
               : NULL;
}

/* The first part that is lost for good if its process dies, and that gets no copy; 0: none. */
static uint32_t
first_unsafe(const struct watch *watch)
{
    for (uint32_t slot = 1; slot <= watch_last_part(watch) && watch->config.replicas == 0; slot++) {
        if (watch->slots[slot].place.state == PSI_COPY_NONE) {
            return slot;
        }
    }
    return 0;
}

static bool
are_all_placed(const struct watch *watch)
{
    for (uint32_t slot = 1; slot <= watch_last_part(watch); slot++) {
        if (!watch->slots[slot].is_placed) {
            return false;
        }
    }
    return true;
}

/* The first server from here on that is to be restarted; 0: none. */
static uint32_t
next_server(const struct watch *watch, uint32_t from)
{
    for (uint32_t slot = from; slot <= watch->config.servers; slot++) {
        if (!watch->slots[slot].is_hosted) { /* else it is not missed */
            return slot;
        }
    }
    return 0;
}

bool
watch_rolling_begin(struct watch *watch, uint32_t limit_ms, uint64_t now_ms, char *text_p,
                    size_t size)
{
    struct watch_rolling *rolling = &watch->rolling;
    const char *why = refusal(watch);
    const uint32_t unsafe = first_unsafe(watch);

    if (why != NULL) {
        snprintf(text_p, size, "%s", why);
        return false;
    }
    if (!are_all_placed(watch)) {
        snprintf(text_p, size, "it has not begun: not all of its processes have joined");
        return false;
    }
    if (unsafe != 0) {
        snprintf(
            text_p, size,
            "server %u has what nobody else has, and it would be lost: a job whose servers are "
            "to be restarted needs copies of them (--replicas 1)",
            unsafe - 1);
        return false;
    }
    *rolling = (struct watch_rolling){.stage = ROLLING_WAITING,
                                      .slot = next_server(watch, 1),
                                      .limit_ms = limit_ms,
                                      .began_ms = now_ms,
                                      .deadline_ms = now_ms + limit_ms};
    watch_rolling_step(watch, now_ms);
    return true;
}

bool
watch_is_rolling(const struct watch *watch)
{
    return watch->rolling.stage == ROLLING_WAITING || watch->rolling.stage == ROLLING_KILLED;
}

/* May any one of the servers die now? */
static bool
is_redundant(const struct watch *watch)
{
    for (uint32_t slot = 1; slot <= watch->config.servers; slot++) {
        const struct watch_slot *server = &watch->slots[slot];
        const struct psi_tiding_place *place = &server->place;
        const bool is_whole = place->state == PSI_COPY_WHOLE || place->state == PSI_COPY_NEEDLESS;
        const bool is_here = server->alive && !server->is_missing && !server->makes_room &&
                             server->doomed_ms == 0 && server->word_ms == 0;

        if ((!is_here && !server->is_hosted) ||
            psi_tiding_place_served(place, PSI_TIDING_NOBODY) > 0 ||
            (slot <= watch_last_part(watch) && !is_whole)) {
            return false;
        }
    }
    return true;
}

/* Has nothing been missing for long enough? */
static bool
is_settled(struct watch *watch, uint64_t now_ms)
{
    struct watch_rolling *rolling = &watch->rolling;

    if (!is_redundant(watch)) {
        rolling->settled_ms = 0;
        return false;
    }
    if (!watch->config.may_scale_servers || watch->config.replicas == 0) {
        return true;
    }
    if (rolling->settled_ms == 0) {
        rolling->settled_ms = now_ms + SETTLES_MS;
    }
    return now_ms >= rolling->settled_ms;
}

static void
enter(struct watch *watch, enum watch_rolling_stage stage)
{
    watch->rolling.stage = stage;
    watch->ops->tell_rolling(watch->context);
}

static void
kill_next(struct watch *watch, uint64_t now_ms)
{
    struct watch_rolling *rolling = &watch->rolling;
    struct watch_slot *server = &watch->slots[rolling->slot];

    rolling->restarts = server->restarts;
    rolling->killed_ms = now_ms;
    rolling->settled_ms = 0;
    rolling->deadline_ms = now_ms + rolling->limit_ms;
    server->is_rolled = true;
    cause_rolled(&watch->inquest, rolling->slot);
    enter(watch, ROLLING_KILLED);
    watch->ops->signal(watch->context, rolling->slot, SIGKILL);
}

void
watch_rolling_step(struct watch *watch, uint64_t now_ms)
{
    struct watch_rolling *rolling = &watch->rolling;
    struct watch_slot *server = &watch->slots[rolling->slot];

    if (!watch_is_rolling(watch)) {
        return;
    }
    if (watch->phase != WATCH_RUNNING || now_ms >= rolling->deadline_ms) {
        server->is_rolled = false;
        enter(watch, ROLLING_FAILED);
        return;
    }
    if (!is_settled(watch, now_ms)) {
        return;
    }
    if (rolling->stage == ROLLING_KILLED) {
        const uint32_t next = next_server(watch, rolling->slot + 1);

        if (server->restarts == rolling->restarts) {
            return; /* its end is not known yet */
        }
        server->is_rolled = false;
        rolling->done++;
        rolling->back_ms = now_ms;
        if (next == 0) {
            enter(watch, ROLLING_DONE);
            return;
        }
        enter(watch, ROLLING_WAITING);
        rolling->slot = next;
    }
    kill_next(watch, now_ms);
}
