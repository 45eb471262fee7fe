/*
 * server_loss.c - servers that are lost: what goes with them, and whether the job goes on.
 *
 * What a server had is gone with it. Where workers can make it anew, from what they have been given
 * and have not been answered (tables of sums), the job waits for another life of the server:
 * started by whoever started the last one, with the same lanes and nothing in them. Until it is
 * back, nobody else's place changes. Where copies have what it had, they take its places. Else the job
 * is over.
 *
 * Lanes of one server may be in several processes, once others have taken its places. What is lost
 * together is what is in one process; the others stay where they are.
 *
 * The old life may not be dead at all, only silent. It hears that it is out as soon as it speaks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/state.h"

enum { LOST_TEXT = PSI_ADDRESS_MAX + 80 };

bool
master_survives(const struct master *master)
{
    return master->config.server_wait_ms > 0 &&
           (master->config.policy != PSI_DEATH_WAIT || master->config.replicas > 0);
}

/* Can workers make anew what the lane had, or has its copy all of it? View 1 must be known to all:
 * until then they know no server that they could do without. */
bool
master_outlives(const struct master *master, const struct member *lane)
{
    const struct pair *pair = master_pair_of(master, lane);

    return master_survives(master) && master->phase == PHASE_RUNNING && master->view.id > 0 &&
           (master_tables_frail(master) == NULL || pair->is_promoting ||
            master_pair_is_whole(pair));
}

bool
master_is_same_part(const struct member *one, const struct member *other)
{
    return one->rank == other->rank && one->process == other->process;
}

bool
master_is_guest(const struct master *master, const struct member *lane)
{
    return master_process_index(master, lane) != lane->rank;
}

/* On its way into the job: no view has it yet. */
static bool
is_newcomer(const struct master *master, const struct member *lane)
{
    return master->server[lane->rank].is_away && lane->state == PSD_NODE_JOINED;
}

bool
master_outlives_process(const struct master *master, const struct member *lane)
{
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *other = master->place[place];
        const bool is_there = master_is_same_part(lane, other) ||
                              (lane->process != 0 && other->process == lane->process);

        if (is_there && other->state != PSD_NODE_LOST && !is_newcomer(master, other) &&
            !master_outlives(master, other)) {
            return false;
        }
    }
    return master_outlives(master, lane);
}

/* Has it ended, or its connections? */
static bool
is_process_lost(const struct master *master, uint64_t process, uint32_t index)
{
    return master_process_is_gone(master, process) || master_find_process(master, index) != process;
}

/* Why no copy takes its place: that died as well, or lacks something. */
static void
tell_copy(const struct master *master, const struct member *lane, char *text_p, size_t size)
{
    const struct pair *pair = master_pair_of(master, lane);
    const bool is_over = pair->stage == PAIR_NONE || pair->stage == PAIR_ENDING;

    if (is_over && pair->copy.process != 0 &&
        is_process_lost(master, pair->copy.process, pair->copy.server)) {
        snprintf(text_p, size, ", and its copy was in server %u, which is lost as well",
                 pair->copy.server);
    } else {
        snprintf(text_p, size, ": it had no whole copy at that moment");
    }
}

/* What would have kept a copy of what the server had. */
static void
tell_what_saves(const struct master *master, const struct member *lane, char *text_p, size_t size)
{
    if (master->config.replicas > 0) {
        tell_copy(master, lane, text_p, size);
    } else if (master->config.server_wait_ms == 0) {
        snprintf(text_p, size, " (no copy can be kept with sum_failover=off)");
    } else if (master->config.servers > 1) {
        snprintf(text_p, size, " (replicas=1, psd_run --replicas 1, keeps a copy)");
    } else {
        snprintf(text_p, size,
                 " (with psd_run --servers 2 --replicas 1 another server keeps a copy)");
    }
}

/* Adds to the news of a loss why it is the end of a job that has tables. */
static void
explain(const struct master *master, const struct member *lane, const char *reason, char *text_p,
        size_t size)
{
    const char *frail = master_tables_frail(master);
    char saves[96];

    if (frail != NULL) {
        tell_what_saves(master, lane, saves, sizeof(saves));
        snprintf(text_p, size, "%.250s; its part of table %.100s is lost with it%.90s", reason,
                 frail, saves);
    } else if (master->tables > 0 && master->config.server_wait_ms == 0) {
        snprintf(text_p, size, "%.300s; it is not waited for (sum_failover is off)", reason);
    } else {
        snprintf(text_p, size, "%s", reason);
    }
}

/* What is lost. In the process of another server that is the one that died: the lane is named with it. */
static void
name_lost(const struct master *master, const struct member *lane, char text_p[LOST_TEXT])
{
    if (master_is_guest(master, lane)) {
        snprintf(text_p, LOST_TEXT, "lane %u of server %u, in the process of server %u (%s),",
                 lane->lane, lane->rank, master_process_index(master, lane), lane->address);
    } else {
        snprintf(text_p, LOST_TEXT, "server %u (%s)", lane->rank, lane->address);
    }
}

void
master_end_by_server(struct master *master, const struct member *lane, enum psi_loss loss,
                     const char *reason)
{
    char lost[LOST_TEXT];

    name_lost(master, lane, lost);
    master_blame(master, lane, loss);
    master_end(master, PSI_EXIT_SERVER_LOST, PSD_ERR_PEER_LOST, "%s lost: %s", lost, reason);
}

bool
master_is_knocking(const struct master *master, const struct member *lane)
{
    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && session->kind == SESSION_WAITING &&
            session->hello.role == PSI_ROLE_SERVER && session->hello.rank == lane->rank &&
            session->hello.lane == lane->lane) {
            return true;
        }
    }
    return false;
}

/* Another life of the server may be here already, and wait for the place: then nobody has to be
 * told to start one. */
uint32_t
master_count_knocking(const struct master *master, const struct server *server)
{
    uint32_t count = 0;

    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        count += master_is_knocking(master, &server->lane[lane]);
    }
    return count;
}

uint64_t
master_find_process(const struct master *master, uint32_t index)
{
    const uint64_t index_bits = (UINT64_C(1) << PSI_PROCESS_INDEX_BITS) - 1;

    for (const struct session *session = session_first(master); session != NULL;
         session = session_next(session)) {
        if (session->guest.conn != NULL && !session->guest.doomed &&
            (session->hello.role == PSI_ROLE_SERVER || session->hello.role == PSI_ROLE_STANDBY) &&
            session->hello.host != 0 && (session->hello.host & index_bits) == index) {
            return session->hello.host;
        }
    }
    return 0;
}

/* A master that returned has not met the process that is lost, and takes it for the one of the place's
 * own index. If that one is here, it was another that had the place: who started it knows which. */
static bool
is_mistaken(const struct master *master, const struct member *lane)
{
    return lane->process == 0 && master_find_process(master, lane->rank) != 0;
}

/* Who started the server starts it again. A process may have had the places of several: it is started
 * once. */
static void
await_another(struct master *master, const struct member *lane, enum psi_loss loss)
{
    struct server *home = &master->server[master_process_index(master, lane)];

    if (is_mistaken(master, lane)) {
        return;
    }
    if (home->awaited == 0 || home->awaited != lane->process) {
        home->awaited = lane->process;
        master_tell(master, PSI_TIDING_AWAITED, lane, loss, "");
        psi_fail_point(master_server_awaited);
    }
}

/* A lane of a life that is on its way into the job. Others may be of a later one: a process that
 * died before all of its lanes were here left some places for the next. They stay, and while one is
 * here nobody is told to start another. */
static void
lose_newcomer(struct master *master, struct member *lane, enum psi_loss loss, const char *reason)
{
    struct server *server = &master->server[lane->rank];

    psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST",
            "server %u lane %u (%s) lost before it was back: %s", lane->rank, lane->lane,
            lane->address, reason);
    server->is_back = false;
    server->seek_ns = psi_now_ns(master->env) + master->config.server_return_ms * MASTER_MS_NS;
    snprintf(server->lost_text, sizeof(server->lost_text), "%s", reason);
    master_fence(lane);
    lane->state = PSD_NODE_LOST;
    if (master_count_lanes(server, PSD_NODE_JOINED) == 0 &&
        master_count_knocking(master, server) == 0) {
        await_another(master, lane, loss);
    }
    master_tables_lose(master, place_of(master, lane), 1);
    master_view_lose(master, lane);
    master_done_look(master);
    master_wake_at(master, 0);
}

static void
log_loss(const struct master *master, const struct member *lane, const char *reason)
{
    const struct server *server = &master->server[lane->rank];
    char copies[MASTER_COPIES_TEXT];
    char lost[LOST_TEXT];
    char part[64] = "";

    if (master_count_lanes(server, PSD_NODE_LOST) < server->lanes) {
        snprintf(part, sizeof(part), "%s %u of its %u lanes",
                 master_is_guest(master, lane) ? "" : ",",
                 master_count_lanes(server, PSD_NODE_LOST), server->lanes);
    }
    name_lost(master, lane, lost);
    if (master_pair_of(master, lane)->is_promoting) {
        master_copies_name(server, copies);
        psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST",
                "%s%s lost: %s; its copy in %s takes its places, and nothing is lost", lost, part,
                reason, copies);
        return;
    }
    if (master_is_guest(master, lane)) {
        psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST",
                "%s%s lost: %s; other servers take what this one had taken over", lost, part,
                reason);
        return;
    }
    psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST",
            "server %u (%s) lost: %s; the job waits %u ms for ps_server --index %u --lanes %u to "
            "be started again (server_wait_ms)",
            lane->rank, lane->address, reason, master->config.server_wait_ms, lane->rank,
            server->lanes);
}

/* Lost together with `member`: what is in its process. */
static bool
is_lost_with(const struct master *master, const struct member *lane, const struct member *member)
{
    return lane == member || (master_is_same_part(lane, member) && lane->state != PSD_NODE_LOST &&
                              !is_newcomer(master, lane));
}

/* Nobody can take the part: the job is over. */
static void
lose_for_good(struct master *master, struct member *member, enum psi_loss loss, const char *reason)
{
    char text[PSI_TEXT_MAX];
    char lost[LOST_TEXT];

    explain(master, member, reason, text, sizeof(text));
    name_lost(master, member, lost);
    psi_log(master->log, PSI_LOG_WARN, "MEMBER-LOST", "%s lost: %s", lost, text);
    master_end_by_server(master, member, loss, text);
}

/* The lanes that are marked. */
static void
lose_part(struct master *master, struct server *server, const bool part[PSI_LANES_MAX],
          const struct member *member)
{
    for (uint32_t i = 0; i < server->lanes; i++) {
        struct pair *pair = &server->pair[i];

        if (part[i]) {
            master_reach_forget_lane(master, &server->lane[i]);
            master_fence(&server->lane[i]); /* they had what they had together */
            server->lane[i].state = PSD_NODE_LOST;
            pair->is_promoting = master_pair_is_whole(pair);
            pair->left_by = master_process_index(master, member);
        }
    }
}

static uint32_t
count_knocking_of(const struct master *master, const struct server *server,
                  const bool part[PSI_LANES_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < server->lanes; i++) {
        count += part[i] && master_is_knocking(master, &server->lane[i]);
    }
    return count;
}

/* Since when it is away, and when others are looked for. Nobody comes by itself for what a guest had. */
static void
note_loss(struct master *master, struct server *server, const struct member *member,
          enum psi_loss loss, const char *reason, bool is_here)
{
    const uint64_t now_ns = psi_now_ns(master->env);

    if (!server->is_away) { /* else it has been waited for since then */
        server->lost_ns = now_ns;
    }
    server->is_away = true;
    server->is_back = false;
    server->loss = loss;
    master_seek_begin(master, server, is_here);
    if (master_is_guest(master, member)) {
        server->seek_ns = now_ns;
    }
    snprintf(server->lost_text, sizeof(server->lost_text), "%s", reason);
}

void
master_server_lost(struct master *master, struct member *member, enum psi_loss loss,
                   const char *reason)
{
    struct server *server = &master->server[member->rank];
    bool part[PSI_LANES_MAX] = {false};
    uint32_t knocking;

    master_tell(master, PSI_TIDING_LOST, member, loss, reason);
    master_saving_give_up(master, "a server is lost");
    if (master_pair_of(master, member)->is_promoting) {
        master_pair_over(master_pair_of(master, member)); /* what the copy had is gone, too */
    }
    if (is_newcomer(master, member) && master_outlives(master, member)) {
        lose_newcomer(master, member, loss, reason);
        return;
    }
    for (uint32_t i = 0; i < server->lanes; i++) {
        part[i] = is_lost_with(master, &server->lane[i], member);
        if (part[i] && !master_outlives(master, &server->lane[i])) {
            member->state = PSD_NODE_LOST;
            lose_for_good(master, member, loss, reason);
            return;
        }
    }
    knocking = count_knocking_of(master, server, part);
    lose_part(master, server, part, member);
    log_loss(master, member, reason);
    note_loss(master, server, member, loss, reason, knocking > 0);
    /* If some of its lanes are here, the last master had found others for them, and not told all. */
    server->is_placed = knocking > 0 && knocking < master_count_lanes(server, PSD_NODE_LOST);
    psi_fail_point(master_server_lost);
    if (knocking == 0 || master_is_guest(master, member)) {
        await_another(master, member, loss);
    }
    for (uint32_t i = 0; i < server->lanes; i++) {
        if (part[i]) {
            master_tables_lose(master, place_of(master, &server->lane[i]), 1);
        }
    }
    for (uint32_t i = 0; i < server->lanes && master->phase == PHASE_RUNNING; i++) {
        if (part[i]) {
            master_view_lose(master, &server->lane[i]);
        }
    }
    master_done_look(master);
    master_wake_at(master, 0);
}
