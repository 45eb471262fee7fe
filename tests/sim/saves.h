/*
 * saves.h - the disk of simulated jobs: checkpoints are written slowly, torn and lost, and what is
 * committed is compared with the model, bit by bit.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_SAVES_H
#define SIM_SAVES_H

#include "job.h"
#include "master/disk.h"
#include "server/disk.h"

struct saves; /* all files of a job, and whoever writes them */

struct saves *saves_create(struct job *job);
void saves_destroy(struct saves *saves);

/* One for each life; they live as long as the saves. */
const struct lane_disk *saves_lane(struct saves *saves, struct node *node);
const struct master_disk *saves_master(struct saves *saves, struct node *node);

#endif
