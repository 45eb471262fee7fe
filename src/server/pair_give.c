/*
 * pair_give.c - a lane hands its place over to its copy, because the master wants the place to move.
 *
 * The copy hears it as the last of all that it is told, so it has everything that came before. What comes
 * behind it the copy never acknowledges: it listens to nobody as soon as the place is its own. So nothing of that is
 * committed here, nobody is told of it, and workers repeat it to the new lane, once the view has it. The lane
 * itself goes on as if nothing were, until the master sends it away; if the copy dies before it has come to
 * the master, the master ends the pair, and the lane has lost nothing.
 *
 * What a worker has given to an open round the new lane does not have. Who lives gives it again; so the place is not
 * handed over while a round has something of a worker that has left.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "server/state.h"

static bool
has_what_is_lost(const struct lane *lane, const struct chunk *chunk)
{
    for (const struct slot *slot = chunk->round.slots; slot != NULL; slot = slot->next) {
        for (uint32_t rank = slot->rank; rank < slot->end; rank++) {
            if (!lane->view.worker[rank].member &&
                chunk->table->members.left_at[rank] > chunk->clock.version) {
                return true;
            }
        }
    }
    return false;
}

/* Would every round be made anew? */
static bool
may_be_given(const struct lane *lane)
{
    if (lane->frozen_rank >= 0 || lane->joining_rank >= 0) {
        return false; /* what was reported is about to be decided upon */
    }
    for (const struct round *round = lane->open; round != NULL; round = round->next) {
        if (has_what_is_lost(lane, round->chunk)) {
            return false;
        }
    }
    return true;
}

void
pair_give(struct lane *lane, uint64_t number)
{
    if (lane->pair != NULL && lane->pair->number == number) {
        lane->pair->gives = true;
        psi_fail_point(server_give_ordered);
    }
}

/* The copy does not read a checkpoint: what the lane has not read yet would be in no lane. */
static bool
is_being_read(const struct lane *lane)
{
    const struct table *table = lane->tables;

    while (table != NULL && table->prepared == table->chunk_count) {
        table = table->next;
    }
    return table != NULL;
}

void
pair_give_look(struct lane *lane)
{
    struct pair *pair = lane->pair;
    struct parcel *parcel;

    if (!pair->gives || pair->has_given || pair->is_broken || !pair->is_eligible ||
        pair->alone > 0 || /* a table that was loaded is on its way */
        pair->acked < pair->eligible || !pair_has_view(lane) || !may_be_given(lane) ||
        is_being_read(lane)) {
        return;
    }
    parcel = parcel_of_body(PSI_FRAME_TAKE_PLACE, 0, NULL, 0);
    if (parcel == NULL) {
        pair_break(lane, "no memory");
        return;
    }
    pair_enqueue(lane, parcel);
    pair->has_given = true;
    psi_fail_point(server_place_handed);
    pair_pump(lane);
}
