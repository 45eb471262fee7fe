/*
 * redundancy.h - which process has which server's part and which copy, for those who ask.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_REDUNDANCY_H
#define LAUNCH_REDUNDANCY_H

#include <jansson.h>

#include "launch/run/run_state.h"

/* For each server: who has its part, where its copy is, and what the copy still lacks. The list is
 * empty before the job has begun. */
json_t *redundancy_json(const struct run *run);

/* Adds to a server's process of what it is "primary_of" and "copy_of". */
void redundancy_tell_process(const struct run *run, uint32_t slot, json_t *process);

#endif
