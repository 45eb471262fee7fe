/*
 * show.h - `psd_run show`: the master's table of a job.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SHOW_H
#define LAUNCH_SHOW_H

#include <stdbool.h>
#include <stdio.h>

#include <psd/psd.h>

enum { SHOW_WATCH_MS = 1000 };

/* Asks and prints; `watch`: again and again, until the master is gone. Returns the exit code: 0, or
 * 3 when nobody answers. */
int show_job(const char *master_address, bool json, bool watch);

/* Before the next screen, on a terminal. */
void show_clear(void);

/* The table alone. */
void show_table(FILE *stream, const struct psd_node *nodes, size_t count);
void show_json(FILE *stream, const struct psd_node *nodes, size_t count);

#endif
