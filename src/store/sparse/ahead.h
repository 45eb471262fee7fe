/*
 * ahead.h - touches memory for rows before the lane wants it, in a thread of its own.
 *
 * The kernel zeroes two megabytes before the lane may write there, and the host of a virtual machine
 * may have to find them first. So a table that has grown large, and goes on growing, has an eighth
 * more touched, 32 MiB at most, within the table's bound. Tables that stay small have no thread.
 * Where there is none to be had, the lane touches its memory itself.
 *
 * Thread: owned by the lane. One lock guards what the two threads tell each other; the lane never
 * waits for it, and nobody holds it while memory is touched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef STORE_SPARSE_AHEAD_H
#define STORE_SPARSE_AHEAD_H

#include "store/sparse/sparse.h"

struct ahead;

/* For a store that lives longer. NULL: no memory. */
struct ahead *ahead_create(struct sparse *store);
void ahead_destroy(struct ahead *ahead); /* NULL is fine */

/* The table may have grown. */
void ahead_note(struct ahead *ahead);

#endif
