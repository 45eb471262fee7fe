/*
 * rows.h - the rows of a sparse table that a worker asks for and pushes, and what they must hold.
 *
 * Whoever keeps the rows, all workers ask for the same ones in the same order: a few batches of ids,
 * drawn beforehand, over and over. Eight rows of each batch are followed by a model, which knows what
 * all workers have pushed; after each timed run they must have its bits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include "team.h"

enum { ROWS_BATCHES = 32, ROWS_SAMPLES_EACH = 8, ROWS_SAMPLES = ROWS_BATCHES * ROWS_SAMPLES_EACH };

/* Adagrad's numbers, and the exponent of TEAM_ZIPF. */
#define ROWS_RATE    0x1p-6
#define ROWS_EPSILON 0x1p-20
#define ROWS_ZIPF    1.05

/* Thread: owned by the worker's thread. */
struct rows {
    struct team_order order; /* ids, width, batch and flags say which rows these are */
    uint32_t rank;
    uint32_t workers;  /* whose pushes meet */
    uint64_t *ids;     /* of the batches, one after the other */
    float *gradients;  /* likewise; TEAM_NEW: of any batch */
    float *values;     /* of the last batch that was looked up */
    uint64_t *new_ids; /* TEAM_NEW: of one batch */
    uint64_t pushes;   /* rounds so far */

    /* The model. */
    uint64_t sample_ids[ROWS_SAMPLES];
    float *sample_values; /* width numbers of each */
    float *sample_squares;
    uint16_t (
        *shares)[ROWS_BATCHES][ROWS_SAMPLES]; /* of each worker: how often it has the sample */
};

/* Draws the batches. PSD_ERR_NO_MEMORY; rows_fini() all the same. */
psd_status rows_init(struct rows *rows, const struct team_order *order, uint32_t rank,
                     uint32_t workers, struct psd_error *err);
void rows_fini(struct rows *rows);

/* Whether an order is about these rows. */
bool rows_are_those(const struct rows *rows, const struct team_order *order);

/* One of so many ids: the first ones come often (ROWS_ZIPF). */
uint64_t rows_zipf(uint64_t *random, uint64_t ids);

/* A number of a row's gradient: sums of a few hundred are exact. */
float rows_number(uint64_t id, uint32_t column);

/* The ids of a round, the gradients for them, and the batch that comes in the round after. */
const uint64_t *rows_ids(struct rows *rows, uint64_t round);
const float *rows_gradients(const struct rows *rows, uint64_t round);

/* All workers have pushed the batches of that round. */
void rows_pushed(struct rows *rows, uint64_t round);

/* Every row is there, as after its first push: before any timed run. */
void rows_filled(struct rows *rows);

/* Are these the rows of the samples? PSD_ERR_CORRUPT: says which is not. */
psd_status rows_check_samples(const struct rows *rows, const float *values, struct psd_error *err);

/* TEAM_NEW: are `values` those of the round's rows, after their only push? */
psd_status rows_check_new(struct rows *rows, uint64_t round, struct psd_error *err);

/* Are `values` those that rows_number() gives, as caches hold them? */
psd_status rows_check_stored(struct rows *rows, uint64_t round, struct psd_error *err);

/* One round of whatever the order says. */
typedef psd_status (*rows_round_fn)(void *owner, uint64_t round, struct psd_error *err);

/* The order's rounds, each timed. */
psd_status rows_run(const struct team_order *order, rows_round_fn round, void *owner,
                    struct team_times *times, struct psd_error *err);

#endif
