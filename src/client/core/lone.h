/*
 * lone.h - sums of a job with one worker: each is the gradient itself, and no server hears of it.
 *
 * Thread: guarded by the context's lock (the simulator: one thread).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_LONE_H
#define PSI_CLIENT_CORE_LONE_H

#include "client/core/state.h"

/* Is a table that is opened now such a one? (psd_table.is_lone) */
bool psi_lone_is(const struct psi_client *client, const struct psi_spec *spec);

/* Is the operation answered here (op->is_local)? PSD_ERR_NO_MEMORY: it would be, but for memory. */
psd_status psi_lone_take(struct psd_op *op, struct psd_error *err);

/* Answers it, a pull when its push has come: at once, or if it is large or follows such a one, piece
 * by piece with the turns to come. */
void psi_lone_answer(struct psd_op *op);

/* Copies one piece of what waits for that. */
void psi_lone_turn(struct psi_client *client);

/* It ends before its time: no more of it is copied. */
void psi_lone_forget(struct psd_op *op);

#endif
