/*
 * ready.h - when the gradients of a step became ready in a graph, told to those who watch: psd_run
 * trace draws it beside pushes and rounds.
 *
 * Each gradient is a bar, from when the one before was ready (or the first of all) to when it was
 * itself; "backward" is from the first to the last. A graph computes them in an order of its own.
 *
 * Thread: guarded by the lock of tables.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef POSEIDON_TENSORFLOW_READY_H
#define POSEIDON_TENSORFLOW_READY_H

#include <psd/psd.h>

struct ready; /* the gradients of one optimizer or tape */

/* Where marks go: psd_mark() of a context. context NULL: nowhere. */
void ready_tell(psd_context *context,
                psd_status (*mark)(psd_context *context, uint64_t step, const char *name,
                                   uint64_t begin_ns, uint64_t end_ns));

/* That of this name, which is made if there is none; NULL: no memory. */
struct ready *ready_of(const char *name);

/* One gradient more; its number. */
uint32_t ready_join(struct ready *ready);

/* This one is ready, in this step. */
void ready_came(struct ready *ready, uint32_t number, uint64_t step);

/* The job is over. */
void ready_forget(void);

#endif
