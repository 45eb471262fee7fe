/*
 * scale.h - servers that come to a job that runs, and servers that leave it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_SCALE_H
#define SIM_SCALE_H

#include "base/tidings.h"
#include "job.h"

/* Some time after the start; as psd_run does it when somebody asks it to. */
void scale_schedule(struct job *job);

/* What the master tells of them. */
void scale_told(struct job *job, const struct psi_tiding *tiding);

/* To another life of the master: who is to leave. */
void scale_remind(struct job *job);

/* The master has decided that something moves: not too much of it. */
void scale_check_move(struct job *job);

/* psd_run is about to end a process that was thought dead. It may have come back meanwhile, and have been given
 * places that have no other copy yet. */
void scale_check_restart(struct job *job, uint32_t index);

#endif
