/*
 * pair_parcels.c - what a copy is told: changes, whole chunks, tables, views, the global step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "server/state.h"
#include "shard/shard.h"

/* The sum of a round is in the type that is computed in; so may a single gradient be. */
static size_t
number_bytes(const struct chunk *chunk, bool is_real)
{
    const struct psi_spec *spec = &chunk->table->spec;
    const psd_dtype dtype = is_real ? psi_dtype_real(spec->dtype) : spec->dtype;

    return psi_chunk_elements(spec->count, chunk->index) * psi_dtype_bytes(dtype);
}

size_t
parcel_change_bytes(const struct chunk *chunk)
{
    return PSI_CHANGE_BYTES + number_bytes(chunk, true);
}

void *
parcel_sum(const struct parcel *parcel)
{
    return parcel->body + PSI_CHANGE_BYTES;
}

struct parcel *
parcel_for_change(struct pair *pair, const struct chunk *chunk, const struct closed_round *round)
{
    const bool in_rounds = psi_spec_synchronous(&chunk->table->spec);
    const size_t numbers =
        round->leaf_count == 0 ? 0 : number_bytes(chunk, in_rounds || round->leaves[0].is_sum);

    return parcel_in_slot(pair, PSI_FRAME_REPLICATE, PSI_CHANGE_BYTES + numbers);
}

void
parcel_tell_change(struct parcel *parcel, const struct chunk *chunk,
                   const struct closed_round *round)
{
    parcel_tell_part(parcel, chunk, round, 0, false);
}

void
parcel_tell_part(struct parcel *parcel, const struct chunk *chunk, const struct closed_round *round,
                 uint32_t rows, bool goes_on)
{
    const struct table *table = chunk->table;
    const bool in_rounds = psi_spec_synchronous(&table->spec);
    struct psi_change change = {
        .version = chunk->clock.version,
        .updates = chunk->updates,
        .step = round->step,
        .gradients = round->gradients,
        .is_empty = in_rounds && round->is_empty,
        .is_real = in_rounds || psi_spec_is_sparse(&table->spec) ||
                   (round->leaf_count > 0 && round->leaves[0].is_sum),
        .rank = round->rank,
        .incarnation = round->mark.incarnation,
        .sequence = round->mark.sequence,
        .rows = rows,
        .goes_on = goes_on,
        .in_parts = parcel->in_parts,
    };
    struct psi_pack pack;

    if (in_rounds && !round->is_empty) {
        change.in = psi_clock_given(&table->rule, &chunk->clock, round->step);
    }
    parcel->frame.table = table->id;
    parcel->frame.chunk = chunk->index;
    parcel->version = chunk->clock.version;
    memset(parcel->body, 0, PSI_CHANGE_BYTES);
    psi_pack_init(&pack, parcel->body, PSI_CHANGE_BYTES);
    psi_change_encode(&pack, &change);
}

/* What was given to the open round stays here: whoever takes the place has none of it, and is given
 * it again. */
static void
note_clocks(const struct lane *lane, const struct chunk *chunk, uint64_t *next)
{
    const bool in_rounds = psi_spec_synchronous(&chunk->table->spec);

    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        next[rank] = in_rounds && chunk->clock.next[rank] > chunk->clock.version
                         ? chunk->clock.version
                         : chunk->clock.next[rank];
    }
}

struct parcel *
parcel_of_piece(const struct lane *lane, const struct chunk *chunk, size_t room, size_t *head_p)
{
    uint64_t next[PSI_RANKS_MAX];
    const struct psi_snapshot snapshot = {
        .version = chunk->clock.version,
        .updates = chunk->updates,
        .ready = chunk->ready,
        .pushed = chunk->pushed,
        .ranks = lane->rows,
        .next = next,
        .marked = chunk->marks != NULL ? lane->rows : 0,
        .marks = chunk->marks,
    };
    const size_t head = psi_snapshot_bytes(snapshot.ranks, snapshot.marked);
    struct parcel *parcel = parcel_create(PSI_FRAME_SNAPSHOT, head + room);
    struct psi_pack pack;

    if (parcel == NULL) {
        return NULL;
    }
    note_clocks(lane, chunk, next);
    parcel->frame.table = chunk->table->id;
    parcel->frame.chunk = chunk->index;
    memset(parcel->body, 0, head);
    psi_pack_init(&pack, parcel->body, head);
    psi_snapshot_encode(&pack, &snapshot);
    *head_p = head;
    return parcel;
}

struct parcel *
parcel_of_chunk(struct lane *lane, const struct chunk *chunk)
{
    const struct store_piece last = chunk_last_value(chunk);
    size_t bytes = last.bytes;
    struct parcel *parcel;
    size_t head;
    uint8_t *at;

    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        bytes += chunk_part(chunk, part).bytes;
    }
    parcel = parcel_of_piece(lane, chunk, bytes, &head);
    if (parcel == NULL) {
        return NULL;
    }
    at = parcel->body + head;
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        const struct store_piece piece = chunk_part(chunk, part);

        if (piece.bytes > 0) {
            timed_copy(lane, at, piece.base, piece.bytes);
            at += piece.bytes;
        }
    }
    if (last.bytes > 0) {
        timed_copy(lane, at, last.base, last.bytes);
    }
    return parcel;
}

struct parcel *
parcel_of_body(uint8_t type, uint32_t table, const void *body, size_t bytes)
{
    struct parcel *parcel = parcel_create(type, bytes);

    if (parcel != NULL) {
        parcel->frame.table = table;
        if (bytes > 0) {
            memcpy(parcel->body, body, bytes);
        }
    }
    return parcel;
}

/* The last `count` additions of a rank. */
struct parcel *
parcel_of_steps(const struct lane *lane, uint32_t rank, uint32_t count)
{
    const struct adder *adder = &lane->global.adders[rank];
    struct psi_step_state state = {.value = lane->global.value, .rank = rank};
    uint8_t bytes[16 + 20 * PSI_STEP_ADDS_MAX];
    struct psi_pack pack;

    for (uint32_t i = 0; i < count; i++) {
        const struct add *add =
            &adder->adds[(adder->last + 1 + PSI_STEP_ADDS_MAX - count + i) % PSI_STEP_ADDS_MAX];

        if (add->incarnation != 0) { /* else it has not added so often */
            state.add[state.count++] = (struct psi_step_add){
                .incarnation = add->incarnation, .sequence = add->sequence, .result = add->result};
        }
    }
    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_step_state_encode(&pack, &state);
    return parcel_of_body(PSI_FRAME_STEP_STATE, 0, bytes, pack.used);
}
