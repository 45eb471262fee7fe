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
#include "rpc/follow_view.h"
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
    const struct psi_frame frame = {.type = PSI_FRAME_VIEW_ACK, .view = lane->view.id};

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

    if (propose->id != lane->view.id + 1 || propose->rank >= lane->rows) {
        return; /* an old one, repeated */
    }
    if (lane->sessions[propose->rank] != NULL) {
        session_end(lane->sessions[propose->rank]); /* nothing more from that life */
    }
    psi_view_fence(&lane->view, propose->rank); /* and it does not come back before the commit */
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

static psd_status
on_view(void *owner, const struct psi_view *old, const struct psi_view *now, struct psd_error *err)
{
    struct lane *lane = owner;
    const struct psi_view_place *here =
        psi_view_place(&lane->view, lane->config.server, lane->config.lane);

    (void)err;
    for (uint32_t rank = 0; rank < now->workers; rank++) {
        if (lane->sessions[rank] != NULL && psi_view_rank(old, now, rank) != PSI_RANK_STAYS) {
            session_end(lane->sessions[rank]); /* nothing more from that life */
        }
    }
    lane->since = here == NULL ? 0 : here->since;
    lane->frozen_rank = -1;
    if (now->change && now->leaves) {
        rank_leaves(lane, now);
    }
    rounds_try_close_all(lane);
    return PSD_OK;
}

psd_status
view_arrived(struct lane *lane, const void *body, size_t bytes, struct psd_error *err)
{
    struct psi_view_ack ack = {0};
    const psd_status status =
        psi_follow_view(&lane->view, body, bytes, on_view, lane, &ack.id, err);

    if (status == PSD_OK) {
        acknowledge(lane, &ack);
    }
    return status;
}
