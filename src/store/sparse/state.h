/*
 * state.h - what the files of this folder share: the store and its buckets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_STATE_H
#define STORE_SPARSE_STATE_H

#include "store/sparse/row_index.h"
#include "store/sparse/row_pool.h"
#include "store/sparse/sparse.h"

struct bucket {
    struct row_index index;
    uint32_t changed;  /* 1 + the last step at which a row changed or came; 0: never */
    uint32_t removed;  /* 1 + the last step at which a row went; 0: never */
    uint8_t *counters; /* of admission; NULL: nothing was counted yet */
    uint32_t epoch;    /* to which these have been aged */
};

/* A row that may have to make room. */
struct candidate {
    uint64_t key;
    uint32_t step;
    uint32_t slot;
};

/* Thread: owned by its lane, but for what slabs.h says. */
struct sparse {
    const struct psi_spec *spec;
    struct psi_row_policy policy;
    const struct kernels *kernels;
    uint32_t width;
    uint32_t states;      /* numbers of state of a row */
    uint32_t bits;        /* of a bucket's number */
    uint64_t rows_max;    /* of the lane's buckets together; UINT64_MAX: no bound but memory */
    uint64_t memory_max;  /* UINT64_MAX: none */
    uint64_t rows;        /* in memory */
    uint64_t index_bytes; /* in use */
    uint64_t counter_bytes;
    uint64_t step;   /* of the last change or close */
    uint64_t closed; /* 1 + the last step that was closed; 0: none */
    uint64_t growth_ns;
    uint64_t longest_growth_ns;
    float *work;              /* width numbers */
    struct sparse_gone *gone; /* not owned; NULL: nobody asks what goes */
    struct candidate *candidates;
    size_t candidates_max;
    struct sparse_snapshot *snapshot; /* that is being taken; NULL: none */
    struct tier *tier;                /* rows that memory does not hold; NULL: it holds all */
    struct row_pool pool;
    struct index_memory indexes;
    struct bucket buckets[];
};

/* Rows note steps in 32 bits, and buckets one more than these: the last one stands for all that
 * follow. */
static inline uint32_t
row_step(uint64_t step)
{
    return step < SPARSE_STEP_MAX ? (uint32_t)step : SPARSE_STEP_MAX;
}

static inline struct bucket *
bucket_of(struct sparse *store, uint64_t key)
{
    return &store->buckets[key >> (64 - store->bits)];
}

static inline float *
row_state(const struct sparse *store, struct row *row)
{
    return row_values(row) + store->width;
}

#endif
