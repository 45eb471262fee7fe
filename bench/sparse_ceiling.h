/*
 * sparse_ceiling.h - the ceiling of sparse tables: the same rows in a plain array behind a plain hash
 * index that is never full and never grows: half of it is empty, each entry has the id itself, and
 * all of it is made beforehand. Nothing is bounded, checked, told or forgotten.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_SPARSE_CEILING_H
#define BENCH_SPARSE_CEILING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPARSE_WIDTH = 16 };

/* Two cache lines. */
struct plain_row {
    float values[SPARSE_WIDTH];
    float squares[SPARSE_WIDTH]; /* adagrad's state */
};

struct plain_entry {
    uint64_t id;
    uint64_t place; /* 1 + that of the row; 0: empty */
};

/* Thread: owned by its user. */
struct plain_rows {
    size_t count;
    struct plain_row *rows;
    size_t entries; /* a power of two */
    struct plain_entry *index;
};

/* Rows of the ids 0 .. count - 1, zeroed, every page touched, huge pages where they are to be had.
 * false: no memory; plain_rows_fini() all the same. */
bool plain_rows_init(struct plain_rows *plain, size_t count);
void plain_rows_fini(struct plain_rows *plain);

enum { PLAIN_BATCH_MAX = 4096 };

/* Copies the values of these rows, one after the other. */
void plain_rows_gather(const struct plain_rows *plain, const uint64_t *ids, size_t count,
                       float *values);

/* Adagrad, with the arithmetic of psd.h. */
void plain_rows_push(struct plain_rows *plain, const uint64_t *ids, size_t count,
                     const float *gradients, float rate, float epsilon);

#endif
