/*
 * bucket.h - where a row of a sparse table lives. Pure functions of its id.
 *
 * An id is mixed, and the top bits of that say which of the table's *buckets* it is in. A place (a
 * lane of a server) owns a run of buckets. Rows travel and are kept in the order of their mixed
 * ids: so the rows of an operation fall into one run for each bucket and each place, in the order
 * of these, and anybody can tell where a row is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SHARD_BUCKET_H
#define PSI_SHARD_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PSI_BUCKET_BITS_MIN = 10, /* 1,024 buckets: as many as there may be places */
    PSI_BUCKET_BITS = 12,     /* of a table that says nothing else */
    PSI_BUCKET_BITS_MAX = 16,
};

/* The finalizer of splitmix64: every id has a number of its own. */
static inline uint64_t
psi_bucket_mix(uint64_t id)
{
    id = (id ^ id >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    id = (id ^ id >> 27) * UINT64_C(0x94d049bb133111eb);
    return id ^ id >> 31;
}

static inline uint32_t
psi_bucket_of(uint64_t id, uint32_t bits)
{
    return (uint32_t)(psi_bucket_mix(id) >> (64 - bits));
}

/* The first bucket of a place, and the first behind its last one: of the place after it. */
static inline uint32_t
psi_bucket_first(uint32_t place, uint32_t bits, uint32_t places)
{
    return (uint32_t)((((uint64_t)place << bits) + places - 1) / places);
}

static inline uint32_t
psi_bucket_place(uint32_t bucket, uint32_t bits, uint32_t places)
{
    return (uint32_t)((uint64_t)bucket * places >> bits);
}

/* The order of rows: no two ids have the same mixed one, and buckets are runs of it. */
static inline bool
psi_bucket_before(uint64_t a, uint64_t b)
{
    return psi_bucket_mix(a) < psi_bucket_mix(b);
}

#endif
