/*
 * process.h - arguments and environment of one process of a plan.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PROCESS_H
#define LAUNCH_PROCESS_H

#include "launch/plan/plan.h"
#include "launch/plan/process_facts.h"

/* The arguments of one process, and what is set in its environment. */
void process_words(const struct plan *plan, uint32_t slot, const struct process_facts *facts,
                   struct words *argv_p, struct words *environment_p);

/* The lanes of a server's first life; the others must have as many. */
uint32_t process_lanes(const struct process_facts *facts);

#endif
