/*
 * show.h - `psd_run show`: the master's table of a job.
 */
#ifndef LAUNCH_SHOW_H
#define LAUNCH_SHOW_H

#include <stdbool.h>
#include <stdio.h>

#include <psd/psd.h>

/* Asks and prints. Returns the exit code: 0, or 3 when nobody answers. */
int show_job(const char *master_address, bool json);

/* The table alone. */
void show_table(FILE *stream, const struct psd_node *nodes, size_t count);
void show_json(FILE *stream, const struct psd_node *nodes, size_t count);

#endif
