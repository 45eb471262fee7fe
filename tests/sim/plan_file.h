/*
 * plan_file.h - a plan as text, so that a job outlives the generator that drew it.
 *
 * A line is a key and its values; "table NAME" begins a table, and the keys after it are that
 * table's. What is left out is 0, which for every key means "without": a plan that was written
 * before a key was known means the same job. For that to hold, what a new key brings must draw
 * nothing from the job's random numbers where it is 0.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_PLAN_FILE_H
#define SIM_PLAN_FILE_H

#include <stdio.h>

#include "plan.h"

void plan_write(const struct plan *plan, FILE *file);

/* False: text says why, with the file's name, the line and the key. */
bool plan_read(struct plan *plan, const char *path, char *text, size_t size);

#endif
