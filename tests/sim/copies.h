/*
 * copies.h - what must be true of servers' copies, looked at from outside.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_COPIES_H
#define SIM_COPIES_H

#include "job.h"

bool copies_are_pair(const struct lane *owner, const struct lane *lane);

/* The process is about to be killed: what its lanes may have told anybody is in copies that are
 * called eligible. False: some lane has no such copy, and what it had will be lost. */
bool copies_check_kill(struct job *job, uint32_t server);

/* It has handed its place over to its copy. */
bool copies_has_given(const struct lane *lane);

/* It was handed a place over, which the master has taken for its own, and no view has that yet. */
bool copies_was_let_in(const struct lane *lane, const struct master *master);

/* The job is ending well: every copy that is whole has the very bytes of its owner. */
void copies_check_end(struct job *job);

#endif
