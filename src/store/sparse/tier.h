/*
 * tier.h - rows that memory does not hold: which of a store's rows are in its cold store (cold.h),
 * when they go there, and when they come back.
 *
 * A row that counts is in memory, or in the cold store. What the cold store has of a row that is in
 * memory is old, and does not count: so a row that comes back costs a read, and nothing is written for
 * it. Rows come back before they change, and leave at the end of the change: of each bucket that has
 * more than its share of capacity_rows those that were not touched for longest. So which rows are in
 * memory follows from steps and ids. No value depends on it.
 *
 * What cannot be written stays in memory, and is tried again later.
 *
 * Thread: owned by the store.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_TIER_H
#define STORE_SPARSE_TIER_H

#include <string.h>

#include "store/sparse/cold.h"
#include "store/sparse/state.h"

enum { TIER_BLOCK = 1024, TIER_MOVING = 1024 };

/* What the cold store has of a bucket. */
struct tier_bucket {
    uint32_t rows;   /* that count */
    uint32_t oldest; /* none of these was touched before this step, ... */
    uint32_t newest; /* ... nor after this one */
    bool is_used;    /* there may be records, of rows in memory too */
    bool has_small;  /* perhaps one that is below norm_min */
};

struct tier {
    struct cold *cold;
    uint64_t rows;            /* that are not in memory */
    uint64_t reads;           /* rows that came from it, to be looked at or to be changed */
    uint64_t writes;          /* rows that went there */
    uint64_t busy_ns;         /* that the lane spent on both */
    struct row *scratch;      /* a record, where a row may be */
    struct psd_error trouble; /* what makes the table useless */
    struct psd_error full;    /* why rows could not leave memory; status PSD_OK: they could */
    uint32_t retry_in;        /* changes */
    uint64_t *gone;           /* keys of rows that went, whose records have to go */
    size_t gone_count;
    size_t gone_capacity;
    size_t asked;              /* so many of these: */
    uint64_t keys[TIER_BLOCK]; /* of rows that are being read */
    size_t at[TIER_BLOCK];     /* their places in the list that is asked for */
    size_t moving_count;
    struct cold_row moving[TIER_MOVING]; /* rows in memory that leave it */
    struct tier_bucket buckets[];
};

/* store->tier, in that place (NULL: there is none, which is told). */
psd_status tier_create(struct sparse *store, struct cold_place *place, struct psd_error *err);
void tier_destroy(struct sparse *store); /* none: is fine */

static inline uint64_t
tier_bytes(const struct tier *tier, uint32_t bits)
{
    return sizeof(*tier) + (sizeof(struct tier_bucket) << bits) +
           tier->gone_capacity * sizeof(*tier->gone);
}

/* ---- Reading ---- */

/* May a row with that key, which is not in memory, be in the cold store? */
static inline bool
tier_may_have(const struct sparse *store, uint64_t key)
{
    return store->tier != NULL && store->tier->buckets[key >> (64 - store->bits)].rows > 0;
}

/* Reads many at a time. `found` is shown the rows that are there, each with its place. */
struct tier_asking {
    struct sparse *store;
    cold_found_fn found; /* index: the place */
    void *context;
};

/* That row is asked for; rising keys. */
void tier_ask(const struct tier_asking *asking, uint64_t key, size_t place);
void tier_ask_rest(const struct tier_asking *asking);

/* Brings the rows of these ids into memory. false: it does not hold them all. */
bool tier_fetch(struct sparse *store, const uint64_t *ids, size_t count);

/* The next row from `from` on that counts, of one bucket. */
bool tier_next(const struct sparse *store, uint32_t bucket, uint64_t from, struct cold_row *row_p);

/* A record where a row may be: until the next call. */
static inline struct row *
tier_row(const struct sparse *store, const void *record)
{
    return memcpy(store->tier->scratch, record, store->pool.row_bytes);
}

/* ---- Going ---- */

/* In buckets of these ids, the oldest rows beyond the bucket's share leave memory. */
void tier_spill(struct sparse *store, const uint64_t *ids, size_t count);

/* A row that was in memory is nowhere any more. */
void tier_row_gone(struct sparse *store, uint64_t key);

/* Rows of the bucket that are idle or small at the end of `step` go. Returns how many; what is in memory
 * is the caller's. */
uint64_t tier_sweep(struct sparse *store, uint32_t bucket, uint64_t step, uint64_t closed);

/* All rows of the bucket go. */
void tier_clear(struct sparse *store, uint32_t bucket);

/* The records of rows that went are removed: before the next call that reads. */
void tier_settle(struct sparse *store);

#endif
