/*
 * personality_words.h - what scripts written for other systems are told, by arguments and by
 * variables.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PERSONALITY_WORDS_H
#define LAUNCH_PERSONALITY_WORDS_H

#include "launch/plan/plan.h"
#include "launch/plan/process_facts.h"

/* What the process of a slot is told besides Poseidon's own variables. A plain NAME unsets. */
void personality_add_environment(const struct plan *plan, uint32_t slot,
                                 const struct process_facts *facts, struct words *environment);

/* What stands behind the command. */
void personality_add_arguments(const struct plan *plan, uint32_t slot,
                               const struct process_facts *facts, struct words *argv);

#endif
