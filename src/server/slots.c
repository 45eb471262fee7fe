/*
 * slots.c - memory for gradients that wait for their round: bounded, reused, by power of two.
 *
 * Invariants
 *   - bytes <= bytes_max, free slots included; rows that do not fit are beside them, in memory that tables
 *     leave;
 *   - a slot handed out has room for what was asked.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "server/state.h"

static uint32_t
size_class(size_t bytes)
{
    uint32_t class = SLOT_CLASS_MIN;

    if (bytes == 0) {
        return SLOT_CLASS_NONE;
    }
    while (((size_t)1 << class) < bytes) {
        class ++;
    }
    return class;
}

static void
slot_free(struct slot_pool *pool, struct slot *slot)
{
    if (slot->size_class != SLOT_CLASS_NONE) {
        pool->bytes -= (uint64_t)1 << slot->size_class;
    }
    free(slot->data);
    free(slot);
}

/* Lets free slots of other sizes go until `bytes` more fit. */
static bool
make_room(struct slot_pool *pool, uint64_t bytes)
{
    for (uint32_t class = SLOT_CLASS_MIN; class <= SLOT_CLASS_MAX; class ++) {
        while (pool->bytes + bytes > pool->bytes_max && pool->free[class] != NULL) {
            struct slot *slot = pool->free[class];

            pool->free[class] = slot->next;
            slot_free(pool, slot);
        }
    }
    return pool->bytes + bytes <= pool->bytes_max;
}

struct slot *
slot_take(struct slot_pool *pool, size_t bytes)
{
    const uint32_t class = size_class(bytes);
    struct slot *slot;

    psi_assert(class <= SLOT_CLASS_MAX);
    slot = pool->free[class];
    if (slot != NULL) {
        pool->free[class] = slot->next;
        return slot;
    }
    if (class != SLOT_CLASS_NONE && !make_room(pool, (uint64_t)1 << class)) {
        return NULL;
    }
    slot = calloc(1, sizeof(*slot));
    if (slot == NULL) {
        return NULL;
    }
    slot->size_class = class;
    if (class == SLOT_CLASS_NONE) {
        return slot;
    }
    slot->data = aligned_alloc(64, (size_t)1 << class);
    if (slot->data == NULL) {
        free(slot);
        return NULL;
    }
    slot->gradient = slot->data;
    pool->bytes += (uint64_t)1 << class;
    return slot;
}

struct slot *
slot_take_alone(struct slot_pool *pool, size_t bytes, uint64_t room)
{
    struct slot *slot;

    if (bytes > room || pool->alone_bytes > room - bytes) {
        return NULL;
    }
    slot = calloc(1, sizeof(*slot));
    if (slot == NULL) {
        return NULL;
    }
    slot->data = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (slot->data == NULL) {
        free(slot);
        return NULL;
    }
    slot->gradient = slot->data;
    slot->alone_bytes = bytes;
    pool->alone_bytes += bytes;
    return slot;
}

static void
give_one(struct slot_pool *pool, struct slot *slot)
{
    slot->more = NULL;
    if (slot->alone_bytes > 0) {
        pool->alone_bytes -= slot->alone_bytes;
        free(slot->data);
        free(slot);
        return;
    }
    slot->gradient = slot->data; /* not where a worker had lent it, nor where it was decoded */
    slot->next = pool->free[slot->size_class];
    pool->free[slot->size_class] = slot;
}

/* With the parts before it. */
void
slot_give(struct slot_pool *pool, struct slot *slot)
{
    while (slot != NULL) {
        struct slot *more = slot->more;

        if (slot->loan != NULL) {
            slot->loan->give_back(slot->loan);
            slot->loan = NULL;
            slot->copy_bytes = 0;
        }
        give_one(pool, slot);
        slot = more;
    }
}

void
slot_pool_fini(struct slot_pool *pool)
{
    for (uint32_t class = SLOT_CLASS_NONE; class <= SLOT_CLASS_MAX; class ++) {
        while (pool->free[class] != NULL) {
            struct slot *slot = pool->free[class];

            pool->free[class] = slot->next;
            slot_free(pool, slot);
        }
    }
}
