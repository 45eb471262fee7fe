/*
 * views.c - the membership of the job, as the master numbers it.
 *
 * A proposal freezes the lane: no round closes until the master has heard from every lane what the
 * leaving rank has given, and decided what of it counts (docs/consistency.md). Without the freeze
 * two lanes could close one round with two different sets of members.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

/* What could not be said now is asked for again on a new connection. */
static void
renew_master(struct lane *lane)
{
    struct psd_error reason;

    psi_fail(&reason, PSD_ERR_NO_MEMORY, "no memory to answer the master");
    psi_peer_reset(&lane->master.peer, &reason);
}

static void
acknowledge(struct lane *lane, const struct psi_view_ack *ack)
{
    const struct psi_frame frame = {.type = PSI_FRAME_VIEW_ACK, .view = lane->view};

    if (psi_master_link_is_up(&lane->master) &&
        psi_post_view_ack(lane->master.peer.conn, &frame, ack) != PSD_OK) {
        renew_master(lane);
    }
}

/*
 * The first step of the chunk that the rank may still have to give. With backup workers it has no
 * part in most rounds it did not give to: what has closed is over, whoever was in it.
 */
static uint64_t
next_of(const struct table *table, const struct psi_clock *clock, uint32_t rank)
{
    return table->backup != NULL && clock->next[rank] < clock->version ? clock->version
                                                                       : clock->next[rank];
}

/* What the rank has given of one table's chunks on this lane. */
static struct psi_given
given_of(const struct table *table, uint32_t rank)
{
    struct psi_given given = {.table = table->id, .chunks = table->chunk_count};

    given.next_min = PSI_STEP_NEVER;
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        const uint64_t next = next_of(table, &table->chunks[i].clock, rank);

        given.next_min = next < given.next_min ? next : given.next_min;
        given.next_max = next > given.next_max ? next : given.next_max;
    }
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        const struct psi_clock *clock = &table->chunks[i].clock;

        given.ahead += next_of(table, clock, rank) > given.next_min;
        given.closed += clock->next[rank] == given.next_max && clock->version >= given.next_max;
    }
    return given;
}

void
view_proposed(struct lane *lane, const struct psi_propose *propose)
{
    struct psi_view_ack ack = {.id = propose->id};
    uint32_t tables = 0;

    if (propose->id != lane->view + 1 || propose->rank >= lane->job.workers) {
        return; /* an old one, repeated */
    }
    if (lane->sessions[propose->rank] != NULL) {
        session_end(lane->sessions[propose->rank]); /* nothing more from that life */
    }
    lane->incarnations[propose->rank] = 0; /* and it does not come back before the commit */
    lane->frozen_rank = (int64_t)propose->rank;
    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        tables += table->chunk_count > 0;
    }
    ack.given = calloc(tables + 1, sizeof(*ack.given));
    if (ack.given == NULL) {
        renew_master(lane);
        return;
    }
    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        if (table->chunk_count > 0) {
            ack.given[ack.tables++] = given_of(table, propose->rank);
        }
    }
    acknowledge(lane, &ack);
    free(ack.given);
}

void
lane_tell_done(const struct lane *lane, uint32_t rank)
{
    if (lane->config.lane == 0) { /* once for the server */
        psi_log(&lane->log, PSI_LOG_INFO, "WORKER-DONE", "ps %u received done %u",
                lane->config.server, rank);
    }
}

static void
rank_leaves(struct lane *lane, const struct psi_view *view)
{
    lane_tell_done(lane, view->rank);
    for (uint32_t i = 0; i < view->tables; i++) {
        const struct psi_view_table *decision = &view->table[i];
        struct table *table = table_find(lane, decision->id);

        if (table == NULL) {
            continue;
        }
        table->members.left_at[view->rank] = decision->left_at;
        for (uint64_t j = 0; decision->drop && j < table->chunk_count; j++) {
            if (table->chunks[j].clock.version >= decision->left_at) {
                round_drop(lane, &table->chunks[j], view->rank);
            }
        }
    }
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        if (table->members.left_at[view->rank] == PSI_STEP_NEVER) {
            table->members.left_at[view->rank] = 0; /* it never gave anything of this one */
        }
    }
}

psd_status
view_committed(struct lane *lane, const struct psi_view *view, struct psd_error *err)
{
    const struct psi_view_ack ack = {.id = view->id};

    if (view->workers != lane->job.workers || (view->change && view->rank >= lane->job.workers)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "view %u: %u workers, expected %u", view->id,
                        view->workers, lane->job.workers);
    }
    if (view->id > lane->view) {
        for (uint32_t rank = 0; rank < view->workers; rank++) {
            if (lane->sessions[rank] != NULL &&
                lane->incarnations[rank] != view->worker[rank].incarnation) {
                session_end(lane->sessions[rank]);
            }
            lane->incarnations[rank] = view->worker[rank].incarnation;
            lane->members[rank] = view->worker[rank].member;
        }
        lane->view = view->id;
        lane->frozen_rank = -1;
        if (view->change && view->leaves) {
            rank_leaves(lane, view);
        }
        rounds_try_close_all(lane);
    }
    acknowledge(lane, &ack);
    return PSD_OK;
}
