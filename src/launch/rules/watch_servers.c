/*
 * watch_servers.c - servers that die while the job can do without what they had.
 *
 * Whether it can is the master's to say: it knows the tables. So the end of a server is not the end
 * of the job until the master has said so, or has not said anything for too long. When it waits for
 * another life of the server, that is started: at once the first time, later each time if lives are
 * short. Lives that served for a minute do not count against the number of restarts. The master
 * says nothing of a life that ended before it had heard of it: it waits, and the next is started.
 * Nor does it speak of a process that only stood by, because its copy has its part.
 * A server that comes too late, or died too often, is not the end of a job that has others: one of
 * them may take its part, which is the master's to say, too.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_servers.h"

#include "launch/rules/watch_elsewhere.h"
#include "launch/rules/watch_master.h"
#include "launch/rules/watch_restart.h"
#include "launch/rules/watch_scale.h"
#include "launch/rules/watch_steps.h"

enum {
    WORD_MS = 2000, /* for the master's word, beyond the time that it takes to be sure of a loss */
};

static bool
may_live_again(const struct watch *watch, const struct watch_slot *server, uint64_t now_ms)
{
    const uint32_t short_lives = now_ms - server->start_ms < WATCH_SERVED_MS ? server->hasty : 0;

    return short_lives < watch->config.server_restarts || server->is_rolled;
}

/* The master does not miss it: it stood by. Another life of it is worth having, if it may have one. */
static void
lose_spare(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    if (may_live_again(watch, &watch->slots[slot], now_ms)) {
        watch_server_awaited(watch, slot, now_ms);
    } else {
        watch_server_hosted(watch, slot, now_ms);
    }
}

/* The master has told who has which part, and this one has none. While a part is awaited it may be on
 * its way here. */
static bool
has_no_part(const struct watch *watch, uint32_t slot)
{
    for (uint32_t i = 1; i <= watch_last_part(watch); i++) {
        const struct watch_slot *server = &watch->slots[i];

        if (!server->is_placed || psi_tiding_place_served(&server->place, PSI_TIDING_NOBODY) > 0 ||
            psi_tiding_place_served(&server->place, slot - 1) > 0) {
            return false;
        }
    }
    return true;
}

void
watch_server_gone(struct watch *watch, uint32_t slot)
{
    struct watch_slot *server = &watch->slots[slot];

    if (server->life != 0 && watch->phase < WATCH_STOPPING &&
        (server->code != 0 || server->signal != 0 || watch_server_is_out(watch, slot))) {
        server->last_life = server->life;
        watch_tell_master(
            watch,
            &(struct psi_word){.kind = PSI_WORD_GONE, .rank = slot - 1, .number = server->life});
    }
    server->life = 0;
}

bool
watch_server_exited(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    struct watch_slot *server = &watch->slots[slot];
    const struct watch_config *config = &watch->config;

    if (server->is_scaled && !server->is_hosted && !server->joined) {
        watch_server_not_come(watch, slot);
        return true;
    }
    if (server->is_scaled && watch->master_left) {
        cause_forgive(&watch->inquest, slot); /* it came when the job was over */
        return true;
    }
    if (config->foreign || watch->master_left) {
        return false;
    }
    if (server->is_hosted) {
        cause_forgive(&watch->inquest, slot); /* nobody misses it */
        return true;
    }
    if (!server->joined) {
        return false;
    }
    if (server->makes_room) {
        watch_server_awaited(watch, slot, now_ms);
        return true;
    }
    if (has_no_part(watch, slot)) {
        lose_spare(watch, slot, now_ms);
        return true;
    }
    if (!may_live_again(watch, server, now_ms) && !config->others_take_over) {
        return false;
    }
    server->word_ms = now_ms + config->silence_ms + config->server_grace_ms + WORD_MS +
                      watch_master_delay_ms(watch, now_ms);
    return true;
}

bool
watch_server_left_idle(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    if (!watch->config.may_scale_servers || slot == 0 || watch->master_left ||
        !has_no_part(watch, slot)) {
        return false;
    }
    watch->service_left_deadline_ms = UINT64_MAX;
    lose_spare(watch, slot, now_ms);
    return true;
}

bool
watch_server_is_spare(const struct watch_slot *server)
{
    return server->is_missing || server->is_hosted || server->makes_room;
}

/* It has died too often. Another server may take its part: that is the master's to say. */
static void
leave_it(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    struct watch_slot *server = &watch->slots[slot];

    if (!watch->config.others_take_over || server->is_left) {
        watch_ask(watch, now_ms);
        return;
    }
    server->is_left = true;
    if (server->alive) { /* it was only silent */
        server->doomed_ms = now_ms;
    }
    server->word_ms = now_ms + watch->config.server_wait_ms + WORD_MS;
}

void
watch_server_hosted(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    struct watch_slot *server = &watch->slots[slot];

    server->is_hosted = true;
    server->is_missing = false;
    server->is_left = false;
    server->makes_room = false;
    server->word_ms = 0;
    server->restart_ms = 0;
    server->started = true; /* no life of it is on its way any more */
    if (server->alive) {
        server->doomed_ms = now_ms; /* it came too late, and has no place */
    }
    cause_forgive(&watch->inquest, slot);
}

/* The job does not need it. If it is started again, it stands by; if it has died too often, it is not. */
void
watch_server_copied(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    watch->slots[slot].is_copied = true;
    if (watch->slots[slot].is_left) {
        watch_server_hosted(watch, slot, now_ms);
    }
}

/* The delay begins with nothing, goes on with restart_delay_ms, and doubles from there. */
static void
live_again(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    struct watch_slot *server = &watch->slots[slot];

    if (now_ms - server->start_ms >= WATCH_SERVED_MS) {
        server->hasty = 0;
    }
    server->delay_ms = 0;
    if (server->hasty > 0 && !server->is_rolled) {
        uint32_t delays = server->hasty - 1;

        server->delay_ms = watch_restart_delay_ms(watch->config.restart_delay_ms, 0, &delays);
    }
    server->hasty += !server->is_rolled;
    server->restarts++;
    cause_forgive(&watch->inquest, slot);
    if (!server->makes_room) { /* else they have been told */
        watch->ops->tell_failover(watch->context, slot);
    }
    server->makes_room = false;
    watch_elsewhere_move(watch, slot);
    if (server->delay_ms == 0) {
        watch_start(watch, slot);
    } else {
        server->started = false; /* on its way, as if it were ordered */
        server->restart_ms = now_ms + server->delay_ms;
    }
}

void
watch_server_awaited(struct watch *watch, uint32_t slot, uint64_t now_ms)
{
    struct watch_slot *server = &watch->slots[slot];

    if (watch->phase != WATCH_RUNNING) {
        return;
    }
    server->word_ms = 0;
    server->is_missing = true;
    server->is_hosted = false;
    if (!may_live_again(watch, server, now_ms)) {
        leave_it(watch, slot, now_ms);
    } else if (server->alive) { /* it was only silent */
        server->makes_room = true;
        server->doomed_ms = now_ms;
        watch->ops->tell_failover(watch->context, slot);
    } else {
        live_again(watch, slot, now_ms);
    }
}

void
watch_late_words(struct watch *watch, uint64_t now_ms)
{
    for (uint32_t slot = 1; slot <= watch->config.servers && watch->phase == WATCH_RUNNING;
         slot++) {
        struct watch_slot *server = &watch->slots[slot];

        if (server->word_ms == 0 || now_ms < server->word_ms) {
            continue;
        }
        if (server->is_missing) {
            watch_server_awaited(watch, slot, now_ms);
        } else if (server->is_copied) {
            lose_spare(watch, slot, now_ms);
        } else {
            watch_ask(watch, now_ms);
        }
    }
}

void
watch_server_told(struct watch *watch, const struct psi_tiding *tiding, uint32_t slot,
                  uint64_t now_ms)
{
    struct watch_slot *server = &watch->slots[slot];

    switch (tiding->kind) {
    case PSI_TIDING_JOINED:
        server->life = tiding->life;
        watch_server_remind(watch, slot);
        break;
    case PSI_TIDING_AWAITED:
        watch_server_awaited(watch, slot, now_ms);
        break;
    case PSI_TIDING_HOSTED:
        watch_server_hosted(watch, slot, now_ms);
        break;
    case PSI_TIDING_COPIED:
        watch_server_copied(watch, slot, now_ms);
        break;
    case PSI_TIDING_PLACE:
        server->is_placed = true;
        server->place = tiding->place;
        break;
    case PSI_TIDING_DRAINED:
        watch_server_drained(watch, slot, tiding->life, now_ms);
        break;
    case PSI_TIDING_CROSSED:
        server->crossed[tiding->lane] = tiding->life;
        break;
    default:
        break;
    }
}
