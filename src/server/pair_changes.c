/*
 * pair_changes.c - a chunk changes: must that wait for the copy, and what is the copy told of it?
 *
 * The sum of a round is written for the copy by the very pass that applies it, so the parcel is there
 * before the round closes. A single gradient, of tables without rounds, is copied. A copy on this host needs
 * neither sum nor parcel (pair_parts.c).
 *
 * What is on its way to a copy that is slow is bounded: a chunk in rounds has one change at a time. Of
 * one without, three go by themselves; if there are more, the whole chunk goes once, when the copy
 * has those three (pair_chunks.c), and their pushes wait for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "server/state.h"

enum {
    JOINING_BYTES = 64 << 20, /* more than that, and a chunk that is not PAIRED begins anew */
    CHANGES_MAX = 3,          /* of a chunk on their way; more of them go as one whole chunk */
    GATHER_BYTES = 2 << 20,   /* so much goes together where the copy would take our core from us */
};

/* So much is on its way that what is not PAIRED had better begin anew, later. Rounds of a sparse table, of which
 * there may be much more, wait instead. */
static bool
joins_in_vain(const struct pair *pair, const struct chunk *chunk)
{
    const struct psi_spec *spec = &chunk->table->spec;

    return chunk->copy.mode == COPY_JOINING && pair->bytes > JOINING_BYTES &&
           !(psi_spec_is_sparse(spec) && psi_spec_synchronous(spec));
}

static void
begin_anew(struct pair *pair, struct chunk *chunk)
{
    if (!chunk->copy.walks) { /* else it still counts */
        chunk->table->alone++;
        pair->alone++;
    }
    chunk->copy = (struct chunk_copy){.mode = COPY_ALONE};
}

/* Is the copy told of what changes the chunk? */
static bool
is_told_of(const struct pair *pair, const struct chunk *chunk)
{
    return pair_has_table(chunk->table) && chunk->copy.mode != COPY_ALONE && !pair->is_broken;
}

/* A round to which nobody gave any numbers has none to be told of, either. */
static bool
goes_in_parts(const struct lane *lane, const struct chunk *chunk, const struct closed_round *round)
{
    return round->leaf_count > 0 && pair_lends_parts(lane, chunk);
}

bool
pair_must_wait(struct lane *lane, struct chunk *chunk)
{
    return is_told_of(lane->pair, chunk) && !joins_in_vain(lane->pair, chunk) &&
           !pair_lends_parts(lane, chunk) && pair_slots_wait(lane->pair, chunk);
}

struct parcel *
pair_about_to_change(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    struct pair *pair = lane->pair;
    struct parcel *parcel;

    if (joins_in_vain(pair, chunk)) {
        begin_anew(pair, chunk);
    }
    if (!is_told_of(pair, chunk) || psi_spec_is_sparse(&chunk->table->spec) ||
        goes_in_parts(lane, chunk, round)) {
        return NULL; /* what a list adds up to is known afterwards; so is what parts become */
    }
    parcel = parcel_for_change(pair, chunk, round);
    if (parcel == NULL) {
        pair_break(lane, "no memory to tell it of table %s", chunk->table->spec.name);
    }
    return parcel;
}

/* The copy works while this lane does. */
static void
pump_enough(struct lane *lane)
{
    if (!lane->shares_cores || lane->pair->gathered >= GATHER_BYTES) {
        pair_pump(lane);
    }
}

static void
rows_changed(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    if (joins_in_vain(lane->pair, chunk)) {
        begin_anew(lane->pair, chunk);
    }
    if (chunk->copy.mode != COPY_PAIRED) {
        chunk->clock.committed = chunk->clock.version;
    }
    if (is_told_of(lane->pair, chunk)) {
        pair_rows_changed(lane, chunk, round);
        pump_enough(lane);
    }
}

void
pair_changed(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    struct parcel *parcel = round->parcel;

    if (psi_spec_is_sparse(&chunk->table->spec)) {
        rows_changed(lane, chunk, round);
        return;
    }
    if (chunk->copy.waiting == CHANGES_MAX || chunk->copy.is_behind) {
        chunk->copy.is_behind = true; /* a single one, too */
        return;
    }
    if (parcel == NULL && goes_in_parts(lane, chunk, round)) {
        parcel = pair_lend_parts(lane, chunk);
    } else if (parcel == NULL) { /* a single gradient, or none */
        parcel = pair_about_to_change(lane, chunk, round);
        if (parcel != NULL && round->leaf_count > 0) {
            timed_copy(lane, parcel_sum(parcel), round->leaves[0].data,
                       parcel->bytes - PSI_CHANGE_BYTES);
        }
    }
    if (chunk->copy.mode != COPY_PAIRED) {
        chunk->clock.committed = chunk->clock.version;
    }
    if (parcel == NULL) {
        return;
    }
    parcel_tell_change(parcel, chunk, round);
    parcel->is_change = chunk->copy.mode == COPY_PAIRED;
    chunk->copy.waiting += parcel->is_change;
    chunk->copy.last = pair_enqueue(lane, parcel);
    lane->pair->gathered += parcel->bytes;
    pump_enough(lane);
}
