/*
 * silence.c - members of which nothing is heard: for how long that is borne.
 *
 * A connection that ended is the end of its process, unless it is renewed at once. Silence is less:
 * the process may be stopped, or its machine cut off. A worker that is silent for too long counts as
 * dead. So does a server whose part somebody else can take: to depose one that lives costs little. A
 * server whose part nobody can take is waited for, because without it the job is over.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "base/fail.h"
#include "master/state.h"

uint64_t
master_dead_ms(const struct master *master)
{
    return (uint64_t)master->config.heartbeat_ms * master->config.dead_heartbeats;
}

uint64_t
master_silence_ms(const struct master *master, const struct member *member)
{
    return member->role == PSI_ROLE_SERVER && master->config.server_silence_ms > 0
               ? master->config.server_silence_ms
               : master_dead_ms(master);
}

/* The same, now. A server that has hung up on somebody, and has not been heard since, is not waited for as
 * long, if somebody can take its part. */
static uint64_t
silence_now_ms(const struct master *master, const struct member *member)
{
    const uint64_t silence_ms = master_silence_ms(master, member);

    return member->hinted_ns > member->heard_ns && master_outlives_process(master, member)
               ? silence_ms / 2
               : silence_ms;
}

/* ----------------------------------------------------------------- lost time of our own --- */

static uint64_t
earlier(uint64_t one_ns, uint64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

static void
forgive(struct member *member, uint64_t late_ns, uint64_t now_ns)
{
    member->heard_ns = earlier(member->heard_ns + late_ns, now_ns);
    member->cut_ns = earlier(member->cut_ns + late_ns, now_ns);
    member->spared_ns += member->spared_ns != 0 ? late_ns : 0;
}

void
master_members_forgive(struct master *master, uint64_t late_ns, uint64_t now_ns)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        for (uint32_t lane = 0; lane < master->server[index].lanes; lane++) {
            forgive(&master->server[index].lane[lane], late_ns, now_ns);
        }
    }
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        forgive(&master->worker[rank].member, late_ns, now_ns);
    }
}

/* ---------------------------------------------------- a server that nobody can do without --- */

/* Connected and silent, or cut off in silence; and lost with it is what only it has. */
static bool
is_waited_for(const struct master *master, const struct member *member)
{
    const struct server *server;

    if (member->role != PSI_ROLE_SERVER || master->phase != PHASE_RUNNING || master->view.id == 0) {
        return false;
    }
    server = &master->server[member->rank];
    return (member->session != NULL || member->is_cut_off) &&
           (!server->is_away || member->state == PSD_NODE_RUNNING) &&
           master->config.server_wait_ms > master_silence_ms(master, member) &&
           !master_outlives_process(master, member);
}

static bool
is_missed(const struct server *server)
{
    for (uint32_t lane = 0; lane < server->lanes; lane++) {
        if (server->lane[lane].missed) {
            return true;
        }
    }
    return false;
}

/* Said once for all lanes of the server. */
static void
miss(const struct master *master, struct member *lane)
{
    const struct server *server = &master->server[lane->rank];
    const char *frail = master_tables_frail(master);

    if (!is_missed(server)) {
        psi_log(master->log, PSI_LOG_WARN, "MEMBER-SILENT",
                "server %u (%s) silent for %llu ms; nobody can take its part%s%s, so the job waits "
                "for it, %u ms in all (server_wait_ms)",
                lane->rank, lane->address, (unsigned long long)master_silence_ms(master, lane),
                frail == NULL ? "" : " of table ", frail == NULL ? "" : frail,
                master->config.server_wait_ms);
    }
    lane->missed = true;
}

void
master_no_longer_missed(const struct master *master, struct member *member, uint64_t now_ns)
{
    const uint64_t silent_ms = (now_ns - member->heard_ns) / MASTER_MS_NS;

    member->missed = false;
    if (!is_missed(&master->server[member->rank])) {
        psi_log(master->log, PSI_LOG_INFO, "MEMBER-HEARD",
                "server %u (%s) speaks again after %llu ms: the job goes on", member->rank,
                member->address, (unsigned long long)silent_ms);
    }
}

/* ------------------------------------------------------------------------------ the look --- */

/* Somebody ended its connection. One on which nothing came back is as good as one that is silent. */
static bool
is_closed(const struct member *member)
{
    return member->session == NULL && !member->is_cut_off;
}

/* How long a member whose connection ended may take to come back. */
static uint64_t
grace_ms(const struct master *master, const struct member *member)
{
    /* Patience is cheap where a wrong guess ends the job, and costs everybody where it does not. */
    return member->role == PSI_ROLE_SERVER && master_outlives_process(master, member)
               ? master->config.server_grace_ms
               : master->config.lost_grace_ms;
}

/* It may be late, or stopped: who started it may look at once. */
static void
tell_if_quiet(struct master *master, struct member *member, uint64_t now_ns)
{
    const uint64_t quiet_ns =
        member->heard_ns + master_silence_ms(master, member) * MASTER_MS_NS / 2;

    member->quiet = now_ns >= quiet_ns;
    if (member->quiet) {
        master_tell(master, PSI_TIDING_QUIET, member, PSI_LOSS_NONE, "");
    } else {
        master_wake_at(master, quiet_ns);
    }
}

static void
lose_waited_for(struct master *master, struct member *member)
{
    char reason[96];

    snprintf(reason, sizeof(reason), "silent for %u ms (server_wait_ms)",
             master->config.server_wait_ms);
    master_member_lost(master, member, PSI_LOSS_SILENT, reason);
}

/* True: that is all there is to say of it now. */
static bool
wait_for_server(struct master *master, struct member *member, uint64_t now_ns)
{
    const uint64_t silent_ns = member->heard_ns + master_silence_ms(master, member) * MASTER_MS_NS;
    const uint64_t end_ns = member->heard_ns + master->config.server_wait_ms * MASTER_MS_NS;

    if (!is_waited_for(master, member)) {
        return false;
    }
    if (now_ns < silent_ns) {
        master_wake_at(master, silent_ns);
        return true;
    }
    if (now_ns >= end_ns) {
        lose_waited_for(master, member);
        return true;
    }
    if (!member->missed) {
        miss(master, member);
    }
    master_wake_at(master, end_ns);
    return true;
}

static void
lose(struct master *master, struct member *member, bool never_came, uint64_t limit_ms)
{
    const bool cut = is_closed(member);
    char reason[96];

    if (never_came) {
        snprintf(reason, sizeof(reason), "not back since the master returned");
    } else {
        snprintf(reason, sizeof(reason),
                 cut ? "connection closed and not back in %llu ms" : "silent for %llu ms",
                 (unsigned long long)limit_ms);
    }
    master_member_lost(master, member, cut ? PSI_LOSS_CLOSED : PSI_LOSS_SILENT, reason);
}

void
master_look_at_silence(struct master *master, struct member *member, uint64_t now_ns)
{
    const bool cut = is_closed(member);
    const uint64_t limit_ms = cut ? grace_ms(master, member) : silence_now_ms(master, member);
    const uint64_t deadline_ns =
        (cut ? member->cut_ns : member->heard_ns) + limit_ms * MASTER_MS_NS;
    const bool is_spared = member->session == NULL && deadline_ns < member->spared_ns;

    if (member->state != PSD_NODE_JOINED && member->state != PSD_NODE_RUNNING) {
        return;
    }
    if (!cut && !member->quiet && master->config.tell != NULL) {
        tell_if_quiet(master, member, now_ns);
    }
    if (wait_for_server(master, member, now_ns)) {
        return;
    }
    if (now_ns < (is_spared ? member->spared_ns : deadline_ns)) {
        master_wake_at(master, is_spared ? member->spared_ns : deadline_ns);
        return;
    }
    lose(master, member, is_spared, limit_ms);
}
