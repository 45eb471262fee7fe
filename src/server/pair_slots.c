/*
 * pair_slots.c - memory for sums on their way to the copy: bounded, used again and again, lent.
 *
 * The pass that applies a round writes its sum into a slot, and there it stays until the copy has it.
 * A copy on this host applies it from there. Parcels are made, sent and acknowledged in one order, so
 * the slots are a ring.
 *
 * It is bounded. A round that is full while the ring is, too, closes when the copy has taken
 * something: a copy waits for nobody, so there will be room. Small sums have no slot; they are copied
 * on their way in any case.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "server/state.h"

enum {
    RING_BYTES = 8 << 20, /* 32 sums of a whole chunk of f32 */
    SMALL_PART = 1024,    /* such a part of it, or less, is small */
};

void
pair_slots_init(struct lane *lane)
{
    struct sum_slots *slots = &lane->pair->slots;

    slots->waiting_end = &slots->waiting;
    slots->bytes = lane->config.copy_bytes > 0 ? lane->config.copy_bytes : RING_BYTES;
    if (lane->config.lends && lane->env->ops->lend != NULL &&
        psi_segment_create(&slots->segment, slots->bytes, NULL) == PSD_OK) {
        lane->env->ops->lend(lane->env, &slots->segment);
    } else { /* pages are there from the first touch on */
        slots->heap = aligned_alloc(64, slots->bytes);
    }
}

void
pair_slots_fini(struct lane *lane)
{
    struct sum_slots *slots = &lane->pair->slots;

    for (struct chunk *chunk = slots->waiting; chunk != NULL; chunk = chunk->next_waiting) {
        chunk->waits_for_slot = false;
    }
    if (slots->segment.base != NULL) {
        lane->env->ops->take_back(lane->env, &slots->segment);
        psi_segment_destroy(&slots->segment);
    }
    free(slots->heap);
}

static uint8_t *
base_of(const struct sum_slots *slots)
{
    return slots->segment.base != NULL ? slots->segment.base : slots->heap;
}

static size_t
slot_bytes(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Small ones, those that are larger than all there is, and all if there was no memory are kept for
 * themselves. */
static bool
has_slot(const struct sum_slots *slots, size_t bytes)
{
    return base_of(slots) != NULL && bytes > slots->bytes / SMALL_PART &&
           slot_bytes(bytes) <= slots->bytes;
}

/* Where a slot of that size can begin; SIZE_MAX: nowhere. */
static size_t
find_room(const struct sum_slots *slots, size_t size)
{
    if (slots->out == 0) {
        return size <= slots->bytes ? 0 : SIZE_MAX; /* what was used last is in cache */
    }
    if (slots->next > slots->oldest) {
        if (size <= slots->bytes - slots->next) {
            return slots->next;
        }
        return size <= slots->oldest ? 0 : SIZE_MAX;
    }
    return size <= slots->oldest - slots->next ? slots->next : SIZE_MAX;
}

struct parcel *
parcel_in_slot(struct pair *pair, uint8_t type, size_t bytes)
{
    struct sum_slots *slots = &pair->slots;
    const size_t at = has_slot(slots, bytes) ? find_room(slots, slot_bytes(bytes)) : SIZE_MAX;
    struct parcel *parcel;

    if (at == SIZE_MAX) {
        return parcel_create(type, bytes);
    }
    parcel = parcel_create(type, 0);
    if (parcel == NULL) {
        return NULL;
    }
    parcel->body = base_of(slots) + at;
    parcel->bytes = bytes;
    parcel->in_slot = true;
    if (slots->out == 0) {
        slots->oldest = at;
    }
    slots->next = at + slot_bytes(bytes);
    slots->out++;
    return parcel;
}

/* The next one begins behind it, or at the start of the ring: what lies between is free. */
void
parcel_slot_give(struct pair *pair, const struct parcel *parcel)
{
    struct sum_slots *slots = &pair->slots;

    psi_assert(slots->out > 0);
    slots->oldest = (size_t)(parcel->body - base_of(slots)) + slot_bytes(parcel->bytes);
    slots->out--;
}

/* ---- rounds that wait ---------------------------------------------------------------------- */

static bool
has_room(const struct pair *pair, const struct chunk *chunk)
{
    const struct sum_slots *slots = &pair->slots;
    size_t bytes;

    if (psi_spec_is_sparse(&chunk->table->spec)) {
        return !pair_rows_wait(pair);
    }
    bytes = parcel_change_bytes(chunk);
    return !has_slot(slots, bytes) || find_room(slots, slot_bytes(bytes)) != SIZE_MAX;
}

static void
take_off(struct sum_slots *slots, struct chunk **link)
{
    struct chunk *chunk = *link;

    *link = chunk->next_waiting;
    if (slots->waiting_end == &chunk->next_waiting) {
        slots->waiting_end = link;
    }
    chunk->waits_for_slot = false;
}

bool
pair_slots_wait(struct pair *pair, struct chunk *chunk)
{
    struct sum_slots *slots = &pair->slots;

    if (slots->waiting == NULL && has_room(pair, chunk)) {
        return false;
    }
    if (slots->waiting == chunk && has_room(pair, chunk)) {
        take_off(slots, &slots->waiting);
        return false;
    }
    if (!chunk->waits_for_slot) { /* behind those that wait already, so that none waits for ever */
        chunk->waits_for_slot = true;
        chunk->next_waiting = NULL;
        *slots->waiting_end = chunk;
        slots->waiting_end = &chunk->next_waiting;
    }
    return true;
}

/* One that does not close now waits for something else, and comes back when that is over. */
void
pair_slots_go_on(struct lane *lane)
{
    struct sum_slots *slots = &lane->pair->slots;

    while (slots->waiting != NULL && !lane->finished && has_room(lane->pair, slots->waiting)) {
        struct chunk *chunk = slots->waiting;

        round_go_on(lane, chunk);
        if (slots->waiting == chunk) {
            take_off(slots, &slots->waiting);
        }
    }
}

void
pair_slots_forget(struct pair *pair, const struct table *table)
{
    struct chunk **link = &pair->slots.waiting;

    while (*link != NULL) {
        if ((*link)->table == table) {
            take_off(&pair->slots, link);
        } else {
            link = &(*link)->next_waiting;
        }
    }
}
