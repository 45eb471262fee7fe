/*
 * again.h - a job that is run again goes on from its checkpoints.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_AGAIN_H
#define LAUNCH_AGAIN_H

#include "launch/plan/plan.h"
#include "launch/prepare/options.h"

/* From the last checkpoint, if there is one: an attempt may have failed before it wrote any. False: there
 * are some, and none is intact; that is said. */
bool again_from_checkpoint(const struct launch_options *options, struct plan *plan);

/* A batch system took the job back, and has begun it anew. */
bool again_was_requeued(void);

/* The batch system's time is up, and the job was saved at that step (0: it was not): it asks to be run
 * again. code: how the job ended. */
void again_ask(int code, uint64_t saved);

#endif
