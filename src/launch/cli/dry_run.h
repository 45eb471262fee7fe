/*
 * dry_run.h - what would be run, without running any of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_DRY_RUN_H
#define LAUNCH_DRY_RUN_H

#include "launch/prepare/prepare.h"

/* To stdout: the machines and how they would be reached, every process with its arguments and what
 * is set in its environment. Ports and addresses that only a start can tell are named as such. */
psd_status dry_run(const struct prepared *prepared, const char *interface, struct psd_error *err);

#endif
