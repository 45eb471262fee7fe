/*
 * memory.h - memory for lists and texts of psd_run and its agents.
 *
 * A list that lacks a word starts the wrong program. So nobody goes on without the memory for one:
 * the process says so and ends with PSI_EXIT_CANNOT_START. What it had started ends with it, as it
 * does when the process is killed (keeper.h). Memory that a stranger could make us ask for is not
 * asked for here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MEMORY_H
#define LAUNCH_MEMORY_H

/* What malloc(), calloc(), realloc() or strdup() returned, and never NULL. */
void *memory_need(void *memory);

/* As asprintf() makes it; owned by the caller. */
char *memory_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
