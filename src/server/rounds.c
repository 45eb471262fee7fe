/*
 * rounds.c - gradients meet in a round, and change a chunk together.
 *
 * A gradient that counts (pushes.c) is kept in its slot until every rank of the round has given one;
 * then all are added along the tree and applied in one pass.
 *
 * A change goes the same way whatever made it: applied, and its sum written for the copy in the same
 * pass; handed to replicate.c; gradients given back; answers, as far as they are committed (parked.c). One round
 * of a chunk at a time is on that way: the next closes when the last one is committed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "server/state.h"
#include "shard/shard.h"

/* Gradients were finite, and what they make is not; or there is no room for it. */
static void
change_failed(struct lane *lane, const struct chunk *chunk, int64_t bad,
              const struct store_trouble *trouble)
{
    const struct psi_spec *spec = &chunk->table->spec;
    const bool narrow = psi_dtype_bytes(spec->dtype) == 2;
    const char *made = narrow && spec->use == PSD_USE_UPDATE ? ", or the value it makes," : "";
    char where[64];
    char text[PSI_TEXT_MAX];

    if (bad == STORE_NO_ROOM) {
        lane_fail_job(lane, trouble->why.status, PSI_EXIT_NO_ROOM, trouble->why.text);
        return;
    }
    if (bad == STORE_BAD_ROW) {
        snprintf(where, sizeof(where), "of id %llu", (unsigned long long)trouble->id);
    } else {
        snprintf(where, sizeof(where), "at index %llu",
                 (unsigned long long)(psi_chunk_first(chunk->index) + (uint64_t)bad));
    }
    snprintf(text, sizeof(text),
             "table %s: the gradients of update %llu are finite, but %s their sum%s is not%s%s",
             spec->name, (unsigned long long)chunk->updates, where, made, narrow ? " in " : "",
             narrow ? psi_dtype_name(spec->dtype) : "");
    lane_fail_job(lane, PSD_ERR_NOT_FINITE, PSI_EXIT_NOT_FINITE, text);
}

/* Adds the leaves, applies the rule, makes the result the chunk's value. False: the job failed. */
bool
chunk_update(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    const uint32_t count = round->gradients;
    const struct psi_spec *spec = &chunk->table->spec;
    const uint32_t to = chunk->table->retain ? 1 - chunk->current : chunk->current;
    struct store_trouble trouble;
    const struct store_change change = {
        .leaves = round->leaves,
        .leaf_count = round->leaf_count,
        .divisor = spec->reduce == PSD_REDUCE_MEAN && count > 1 ? count : 0,
        .update = chunk->updates + 1,
        .step = round->step,
        .from = chunk->current,
        .to = to,
        .sum_out =
            round->parcel != NULL && round->leaf_count > 0 ? parcel_sum(round->parcel) : NULL,
        .trouble = &trouble,
        .scratch = lane->scratch,
    };
    int64_t bad;

    value_about_to_change(lane, chunk, to);
    bad = timed_apply(lane, chunk, &change);
    if (bad != STORE_OK) {
        change_failed(lane, chunk, bad, &trouble);
        return false;
    }
    if (psi_spec_is_sparse(spec) && !table_may_stay(lane, chunk->table)) {
        return false;
    }
    chunk->current = to;
    chunk->blank = false; /* only a sum is, and it is of this round alone */
    chunk->updates++;
    chunk->clock.version++;
    return true;
}

static void
slot_return(struct lane *lane, struct slot *slot)
{
    psi_assert(lane->used[slot->rank] >= slot->cost);
    lane->used[slot->rank] -= slot->cost;
    lane->senders[slot->sender].copies -= slot->copy_bytes > 0;
    lane->senders[slot->sender].copy_bytes -= slot->copy_bytes;
    slot_give(&lane->pool, slot);
}

/* Ends the round of every slot: those in the round become leaves, by rising rank whatever the order
 * they came in; the others are told. */
static void
collect(struct lane *lane, struct chunk *chunk, const struct psi_ranks *closing,
        struct closed_round *round)
{
    for (const struct slot *slot = chunk->round.slots; slot != NULL; slot = slot->next) {
        if (closing != NULL && !psi_ranks_has(closing, slot->rank)) {
            chunk->clock.next[slot->rank] = chunk->clock.version;
            continue;
        }
        round->is_empty = false;
        round->has_holders = round->has_holders || slot->holds;
        if (slot->leaves > 0) {
            lane->given[slot->rank] = slot;
            round->gradients += slot->leaves;
        }
    }
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        const struct slot *slot = lane->given[rank];

        if (slot != NULL) {
            lane->leaves[round->leaf_count++] =
                (struct leaf){.rank = rank, .is_sum = slot->is_sum, .data = slot->gradient};
            lane->given[rank] = NULL;
        }
    }
}

static void
release_slots(struct lane *lane, struct chunk *chunk)
{
    while (chunk->round.slots != NULL) {
        struct slot *slot = chunk->round.slots;

        chunk->round.slots = slot->next;
        slot_return(lane, slot);
    }
    open_remove(lane, &chunk->round);
}

/* Backup workers: all that were let into the round have left before they gave their part of this
 * chunk. The others are told that they are not in it, so it closes with nothing. */
static bool
nobody_is_left(const struct table *table, const struct chunk *chunk,
               const struct psi_ranks *closing)
{
    for (uint32_t rank = 0; closing != NULL && rank < table->rule.workers; rank++) {
        if (psi_ranks_has(closing, rank) && table->members.left_at[rank] > chunk->clock.version) {
            return false;
        }
    }
    return closing != NULL;
}

/* One that has joined waits for its first step, and nobody is left to close the rounds before it. */
static bool
is_deserted(const struct lane *lane, const struct chunk *chunk)
{
    return lane->job.elastic &&
           psi_clock_round_deserted(&chunk->table->rule, &chunk->table->members, &chunk->clock);
}

/* A round without anybody is no update: values, optimizer state and the count of updates stay as
 * they are. Only a sum is of this step alone: it is of nothing. */
static bool
apply_round(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    if (round->is_empty && chunk->table->spec.use == PSD_USE_UPDATE) {
        chunk->clock.version++;
        return true;
    }
    return chunk_update(lane, chunk, round);
}

/* The round has changed the chunk. Its gradients go back before anybody is answered. */
static void
finish_round(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    lane->replicate(lane, chunk, round);
    psi_fail_point(server_round_handed_over);
    if (chunk->table->held != NULL) {
        hold_round(lane, chunk, round);
    }
    release_slots(lane, chunk);
    psi_fail_point(server_round_released);
    lane->progressed = true;
    parked_answer(lane, chunk);
    psi_fail_point(server_round_answered);
    if (chunk->due) {
        snapshot_reached(lane, chunk);
    }
}

/* Closes the open round, if it can be. */
static bool
close_round(struct lane *lane, struct chunk *chunk)
{
    const struct table *table = chunk->table;
    const struct psi_ranks *closing;

    if (chunk->round.slots == NULL && table->backup == NULL && !lane->job.elastic) {
        return false; /* only where some are left out, or have left, nobody gives to a round */
    }
    closing = backup_closing(table, chunk->clock.version);
    if (!psi_clock_round_full(&table->rule, &table->members, &chunk->clock, closing) &&
        !nobody_is_left(table, chunk, closing) && !is_deserted(lane, chunk)) {
        return false;
    }
    if (lane->pair != NULL && pair_must_wait(lane, chunk)) {
        return false;
    }
    if (chunk->due && snapshot_must_wait(lane, chunk)) {
        return false;
    }
    struct closed_round round = {
        .step = chunk->clock.version, .leaves = lane->leaves, .is_empty = true};

    psi_fail_point(server_round_full);
    if (chunk->due) {
        snapshot_overtaken(lane, chunk, round.step + 1);
    }
    collect(lane, chunk, closing, &round);
    if (lane->pair != NULL) {
        round.parcel = pair_about_to_change(lane, chunk, &round);
    }
    if (!apply_round(lane, chunk, &round)) {
        parcel_free(round.parcel);
        return false;
    }
    psi_fail_point(server_round_applied);
    psi_metric_add(lane->metrics, PSI_METRIC_ROUNDS_CLOSED, 1);
    if (lane->rows > 1) {
        round_waited(lane, chunk, round.step);
    }
    finish_round(lane, chunk, &round);
    return true;
}

/*
 * Backup workers: later rounds were decided, and this one was not: the table was loaded at an
 * earlier step than others that are pushed with it. What came for it is dropped, and its senders
 * are told. False: there is nothing to skip.
 */
static bool
skip_rounds(struct lane *lane, struct chunk *chunk)
{
    const uint64_t step = backup_goes_on_at(chunk->table, chunk->clock.version);

    if (step == chunk->clock.version) {
        return false;
    }
    const struct closed_round nothing = {.step = chunk->clock.version, .is_empty = true};

    if (chunk->due) {
        snapshot_overtaken(lane, chunk, step);
    }
    for (const struct slot *slot = chunk->round.slots; slot != NULL; slot = slot->next) {
        chunk->clock.next[slot->rank] = chunk->clock.version;
    }
    chunk->clock.version = step;
    finish_round(lane, chunk, &nothing);
    return true;
}

/* More than one round closes where those of the later ones have all left. */
void
round_try_close(struct lane *lane, struct chunk *chunk)
{
    if (!psi_spec_synchronous(&chunk->table->spec) || !chunk->ready || lane->frozen_rank >= 0 ||
        !pair_has_view(lane)) {
        return;
    }
    while (chunk->clock.committed == chunk->clock.version &&
           chunk->clock.version < chunk->table->promised &&
           (skip_rounds(lane, chunk) || close_round(lane, chunk))) {
    }
}

void
round_go_on(struct lane *lane, struct chunk *chunk)
{
    round_try_close(lane, chunk);
    parked_answer(lane, chunk);
}

void
rounds_try_close_all(struct lane *lane)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; i < table->chunk_count && !lane->finished; i++) {
            struct chunk *chunk = &table->chunks[i];

            if (chunk->round.slots != NULL || table->rule.backup > 0 || lane->job.elastic) {
                round_try_close(lane, chunk);
            }
            parked_answer(lane, chunk);
        }
    }
}

/* Undoes a gradient, or a sum from that rank on, that waits in an open round: as if it had never
 * come. */
bool
round_take_back(struct lane *lane, struct chunk *chunk, uint32_t rank)
{
    struct slot **link = &chunk->round.slots;

    while (*link != NULL && (*link)->rank != rank) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        return false;
    }
    struct slot *slot = *link;

    *link = slot->next;
    for (uint32_t i = slot->rank; i < slot->end; i++) {
        chunk->clock.next[i] = chunk->clock.version;
    }
    slot_return(lane, slot);
    if (chunk->round.slots == NULL) {
        open_remove(lane, &chunk->round);
    }
    return true;
}

/* The rank has left: what it gave of the open round goes, unless it is part of a sum. */
void
round_drop(struct lane *lane, struct chunk *chunk, uint32_t rank)
{
    const struct slot *slot = chunk->round.slots;

    while (slot != NULL && slot->rank != rank) {
        slot = slot->next;
    }
    if (slot != NULL && slot->end == rank + 1) {
        (void)round_take_back(lane, chunk, rank);
    }
}
