/*
 * srun.h - how a node of a Slurm allocation is reached: a step of its own, with all that the
 * allocation has there, beside whatever else runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SRUN_H
#define LAUNCH_SRUN_H

#include <stdbool.h>
#include <stddef.h>

#include "launch/text/words.h"

struct srun_target {
    const char *node;
    const char *program; /* path of psd_run here; there it may be in PATH instead */
};

void srun_arguments(const struct srun_target *target, struct words *argv);

/*
 * The environment for srun, and so for the agent: ours, without what srun would take for options
 * (SLURM_LABELIO, SLURM_NTASKS, SLURM_MEM_PER_CPU ...).
 */
void srun_environment(char *const *environment, struct words *kept);

/* Whether the same step may begin a moment later: the controller is restarted or overloaded. */
bool srun_may_try_again(const char *stderr_tail);

/* The last line of what srun said that tells more than that a task ended; "" if there is none. */
void srun_last_words(const char *stderr_tail, char *text_p, size_t size);

/* Why there is no agent, as ssh_explain() does. */
void srun_explain(const struct srun_target *target, const char *stderr_tail, const char *printed,
                  int status, char *text_p, size_t size);

#endif
