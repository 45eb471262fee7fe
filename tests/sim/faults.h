/*
 * faults.h - what goes wrong, and when.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_FAULTS_H
#define SIM_FAULTS_H

#include "job.h"

/* Schedules the faults of the job's plan. */
void faults_schedule(struct job *job);

#endif
