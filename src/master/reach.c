/*
 * reach.c - workers and servers that do not reach each other, while both reach the master.
 *
 * A worker that has not reached a server for as long as members may be silent says so (HINT), and
 * says it when it does again. Which end is at fault nobody can see. So it is decided by number: if at
 * least half of the workers do not reach a server, and somebody can take its part, the server is
 * deposed, as if it had been silent. Otherwise the worker counts as lost, but later: others may be
 * about to say the same.
 *
 * A worker also says when somebody ended its connection to a server. That proves nothing; but if
 * nothing is heard of the server either, it is not waited for as long (silence.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "master/state.h"

/* Since when; 0: it reaches it. */
static uint64_t *
since_of(const struct master *master, uint32_t place, uint32_t rank)
{
    return &master->unreached_ns[(size_t)place * master->config.workers + rank];
}

void
master_reach_forget_worker(struct master *master, uint32_t rank)
{
    for (uint32_t place = 0; master->unreached_ns != NULL && place < master->places; place++) {
        *since_of(master, place, rank) = 0;
    }
}

void
master_reach_forget_lane(struct master *master, const struct member *lane)
{
    for (uint32_t rank = 0; master->unreached_ns != NULL && rank < master->config.workers; rank++) {
        *since_of(master, place_of(master, lane), rank) = 0;
    }
}

/* ------------------------------------------------------------------------- what is said --- */

static void
note_unreached(struct master *master, struct worker *worker, const struct member *lane,
               const char *text)
{
    uint64_t *since_ns;

    if (master->unreached_ns == NULL) {
        master->unreached_ns =
            calloc((size_t)master->places * master->config.workers, sizeof(*master->unreached_ns));
    }
    if (master->unreached_ns == NULL) {
        return; /* it says so again */
    }
    since_ns = since_of(master, place_of(master, lane), worker->member.rank);
    if (*since_ns == 0) {
        *since_ns = psi_now_ns(master->env);
        psi_log(master->log, PSI_LOG_WARN, "UNREACHED",
                "worker %u does not reach server %u (%s): %s", worker->member.rank, lane->rank,
                lane->address, text);
    }
    snprintf(worker->unreached_text, sizeof(worker->unreached_text), "%s", text);
    master_wake_at(master, 0);
}

/* It reaches all lanes of that server that are in the same process. */
static void
note_reached(struct master *master, const struct worker *worker, const struct member *lane)
{
    for (uint32_t place = 0; master->unreached_ns != NULL && place < master->places; place++) {
        if (master_is_same_part(lane, master->place[place])) {
            *since_of(master, place, worker->member.rank) = 0;
        }
    }
}

/* The place that it is about; NULL: of a life that is over. */
static struct member *
find_lane(const struct session *session)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct master *master = session->master;
    struct server *server = &master->server[frame->rank];
    struct member *lane = &server->lane[frame->chunk];

    return master->phase == PHASE_RUNNING && lane->state == PSD_NODE_RUNNING &&
                   (uint16_t)lane->incarnation == frame->incarnation
               ? lane
               : NULL;
}

psd_status
master_on_hint(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct psi_frame *frame = &session->guest.inbox.frame;
    struct worker *worker = &master->worker[session->member->rank];
    struct psi_verdict verdict = {0};
    psd_status status = PSD_OK;
    struct member *lane;

    if (frame->rank >= master->config.servers ||
        frame->chunk >= master->server[frame->rank].lanes) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "HINT of server %u lane %u: no such one",
                        frame->rank, (uint32_t)frame->chunk);
    }
    if (frame->status != PSD_OK) {
        status = psi_verdict_decode(body, bytes, &verdict, err);
    }
    lane = find_lane(session);
    if (status != PSD_OK || lane == NULL) {
        return status;
    }
    if (frame->status == PSD_ERR_TIMEOUT) {
        note_unreached(master, worker, lane, verdict.text);
    } else if (frame->status != PSD_OK) {
        lane->hinted_ns = psi_now_ns(master->env);
        master_wake_at(master, 0);
    } else {
        note_reached(master, worker, lane);
    }
    return PSD_OK;
}

/* ---------------------------------------------------------------------- what follows from it --- */

/* Connected, and not just silent for a while: that is judged elsewhere. */
static bool
is_heard(const struct master *master, const struct member *unreached, uint64_t now_ns)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];

        if (master_is_same_part(unreached, lane) &&
            (lane->session == NULL ||
             now_ns - lane->heard_ns >= master_silence_ms(master, lane) * MASTER_MS_NS / 2)) {
            return false;
        }
    }
    return true;
}

/* Who is in the job and connected, and of those who do not reach the server. */
struct count {
    uint32_t members;
    uint32_t cut_off;
    const struct worker *first; /* of them */
};

static bool
is_cut_off(const struct master *master, const struct worker *worker, const struct member *lane)
{
    return worker->member.state == PSD_NODE_RUNNING && worker->member.session != NULL &&
           *since_of(master, place_of(master, lane), worker->member.rank) != 0;
}

static struct count
count_cut_off(const struct master *master, const struct member *lane)
{
    struct count count = {0};

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct worker *worker = &master->worker[rank];

        count.members += worker->member.state == PSD_NODE_RUNNING;
        if (is_cut_off(master, worker, lane)) {
            count.first = count.cut_off++ == 0 ? worker : count.first;
        }
    }
    return count;
}

/* Of all that is in the lane's process, and dies with it? */
static bool
are_copies_here(const struct master *master, const struct member *lane, uint64_t now_ns)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *other = master->place[place];
        const struct pair *pair = master_pair_of(master, other);
        const bool is_there = other == lane || other->process == lane->process;

        if (is_there && (!master_pair_is_here(master, pair, now_ns) ||
                         (master->deposed != 0 && pair->copy.process == master->deposed))) {
            return false;
        }
    }
    return true;
}

/* To depose one that lives is a decision, not a loss: only one at a time, and not in favour of a copy that is
 * not there, or about to leave with a server that was deposed before. */
static bool
may_be_deposed(const struct master *master, const struct member *lane, uint64_t now_ns)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        if (master->server[index].is_away) {
            return false;
        }
    }
    return master_outlives_process(master, lane) &&
           (master_tables_frail(master) == NULL || are_copies_here(master, lane, now_ns));
}

/* It lives and is connected: it hears at once that it is out. */
static void
tell(struct session *session)
{
    if (session != NULL && session->kind == SESSION_FENCED && session->guest.conn != NULL) {
        master_refuse_the_dead(session);
    }
}

static void
depose(struct master *master, struct member *lane, const struct count *count)
{
    const struct server *server = &master->server[lane->rank];
    struct session *session[PSI_LANES_MAX];
    char reason[PSI_TEXT_MAX];

    for (uint32_t i = 0; i < server->lanes; i++) {
        session[i] = server->lane[i].session;
    }

    snprintf(reason, sizeof(reason), "%u of %u workers do not reach it (worker %u: %.200s)",
             count->cut_off, count->members, count->first->member.rank,
             count->first->unreached_text);
    master->deposed = lane->process;
    master_member_lost(master, lane, PSI_LOSS_UNREACHED, reason);
    for (uint32_t i = 0; i < server->lanes; i++) {
        tell(session[i]);
    }
}

/* Those that have not reached it for as long again. */
static void
lose_workers(struct master *master, const struct member *lane, const struct count *count,
             uint64_t now_ns)
{
    const char *frail = master_tables_frail(master);

    for (uint32_t rank = 0; rank < master->config.workers && master->phase == PHASE_RUNNING;
         rank++) {
        struct worker *worker = &master->worker[rank];
        struct session *session = worker->member.session;
        char reason[PSI_TEXT_MAX];
        uint64_t deadline_ns;

        if (!is_cut_off(master, worker, lane)) {
            continue;
        }
        deadline_ns =
            *since_of(master, place_of(master, lane), rank) + master_dead_ms(master) * MASTER_MS_NS;
        if (now_ns < deadline_ns) {
            master_wake_at(master, deadline_ns);
            continue;
        }
        snprintf(reason, sizeof(reason), "does not reach server %u (%s), which %s: %.200s",
                 lane->rank, lane->address,
                 2 * count->cut_off < count->members ? "most others reach"
                 : frail != NULL                     ? "nobody can replace"
                                                     : "is not replaced",
                 worker->unreached_text);
        master_member_lost(master, &worker->member, PSI_LOSS_UNREACHED, reason);
        tell(session);
    }
}

void
master_reach_tick(struct master *master, uint64_t now_ns)
{
    for (uint32_t place = 0;
         master->unreached_ns != NULL && place < master->places && master->phase == PHASE_RUNNING;
         place++) {
        struct member *lane = master->place[place];
        const struct count count = count_cut_off(master, lane);

        if (count.cut_off == 0 || lane->state != PSD_NODE_RUNNING) {
            continue;
        }
        if (!is_heard(master, lane, now_ns)) {
            master_wake_at(master, now_ns + master->config.heartbeat_ms * MASTER_MS_NS);
        } else if (2 * count.cut_off >= count.members && may_be_deposed(master, lane, now_ns)) {
            depose(master, lane, &count);
        } else {
            lose_workers(master, lane, &count, now_ns);
        }
    }
}
