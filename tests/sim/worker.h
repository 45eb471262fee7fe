/*
 * worker.h - one worker's place in the job: processes that run the training program of the plan,
 * one after the other if need be.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_WORKER_H
#define SIM_WORKER_H

#include "job.h"

struct worker *worker_create(struct job *job, uint32_t slot);
void worker_destroy(struct worker *worker);

void worker_start(struct worker *worker); /* a new process */
void worker_start_later(struct worker *worker, uint64_t after_ns);
void worker_kill(struct worker *worker);
unsigned worker_deaths(const struct worker *worker); /* of all that had its rank */

bool worker_runs(const struct worker *worker);
bool worker_is_pushing(const struct worker *worker);
bool worker_may_come(const struct worker *worker); /* a start is on its way */
bool worker_done(const struct worker *worker);     /* its program ran to the end */
uint32_t worker_rank(const struct worker *worker); /* UINT32_MAX: not known yet */
struct node *worker_node(const struct worker *worker);
const struct psd_error *worker_error(const struct worker *worker);
bool worker_came(const struct worker *worker);     /* a process of it was in the job */
bool worker_was_lost(const struct worker *worker); /* a process of it did not get to the end */
bool worker_was_killed_leaving(const struct worker *worker); /* it had only to say goodbye */

/* The job goes on without that rank:
 * what it reads in a server's memory may change under its eyes. */
void worker_given_up(struct worker *worker, uint32_t rank);

/* What a process that does not end is doing. */
const char *worker_phase(const struct worker *worker);

/* Has an operation been pending for longer than its deadline allows? */
void worker_check_deadlines(struct worker *worker);

#endif
