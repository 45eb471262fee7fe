/*
 * room.h - rows come and go: new ones within the bounds, old ones by the table's policy.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_ROOM_H
#define STORE_SPARSE_ROOM_H

#include "store/sparse/state.h"
#include "table/row_policy.h"

/* All that the store takes. */
uint64_t room_bytes(const struct sparse *store);

/* A row of that id, which has none, with its initial value and no state, touched in `step`. NULL:
 * there is no room. Adds to *evicted what had to go for it (NULL: nothing may); rows that were
 * touched in `step` stay. */
struct row *room_make(struct sparse *store, struct bucket *bucket, uint64_t id, uint64_t step,
                      uint64_t *evicted);

/* A row as it was when it left memory. false: there is no memory for it. */
bool room_bring(struct sparse *store, struct bucket *bucket, const void *record);

/* Its place in memory is free: the row is elsewhere, or nowhere. */
void room_give(struct sparse *store, struct bucket *bucket, uint64_t key, uint32_t slot);

/* The rows above which the oldest of a bucket go. */
static inline uint64_t
room_share(const struct sparse *store, const struct bucket *bucket)
{
    return psi_row_policy_share(&store->policy, store->bits, (uint32_t)(bucket - store->buckets),
                                1);
}

/* May a list of so many ids of the bucket make rows go? */
static inline bool
room_is_short(const struct sparse *store, const struct bucket *bucket, size_t count)
{
    return store->policy.full == PSI_FULL_OLDEST &&
           bucket->index.rows + (uint64_t)count > room_share(store, bucket);
}

/* Looks through a bucket at the end of `step` for rows that are idle or small. Returns how many
 * went. */
uint64_t room_sweep(struct sparse *store, struct bucket *bucket, uint64_t step, uint64_t closed);

/* Is it one of those, at the end of `step`? And is it one that is small? */
bool room_goes(const struct sparse *store, struct row *row, uint64_t step);
bool room_is_small(const struct sparse *store, struct row *row);

/* Adds a row that goes, to where that is asked for. */
void gone_add(struct sparse *store, struct row *row);

/* All rows of a bucket go. */
void room_clear(struct sparse *store, struct bucket *bucket);

#endif
