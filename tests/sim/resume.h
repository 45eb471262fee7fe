/*
 * resume.h - the checkpoint that a simulated job goes on from: as the plan has its values.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_RESUME_H
#define SIM_RESUME_H

#include "plan.h"

struct lane_source;
struct psi_checkpoint;
struct resume;

/* The plan is borrowed. NULL: the job begins anew, or its workers load. */
struct resume *resume_create(const struct plan *plan);
void resume_destroy(struct resume *resume); /* NULL is allowed */

/* For the configurations of masters and lanes; NULL for NULL. They live as long as the resume. */
const struct psi_checkpoint *resume_checkpoint(const struct resume *resume);
const struct lane_source *resume_source(const struct resume *resume);

#endif
