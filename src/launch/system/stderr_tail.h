/*
 * stderr_tail.h - what a program that was to start an agent printed, reduced to what matters.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_STDERR_TAIL_H
#define LAUNCH_STDERR_TAIL_H

#include <stdbool.h>
#include <stddef.h>

/* The last line for which is_noise() is false, or "". is_noise() gets the rest of the text, from the
 * beginning of the line: the line is not terminated. */
void stderr_tail_last_line(const char *stderr_tail, bool (*is_noise)(const char *line),
                           char *text_p, size_t size);

/*
 * That line; else what the other side printed in the place of an agent's words (a login that is not
 * allowed says so there); else how the program ended. status: as waitpid() told it, -1: unknown.
 */
void stderr_tail_describe(const char *program, const char *stderr_tail, const char *printed,
                          bool (*is_noise)(const char *line), int status, char *text_p,
                          size_t size);

/* Whether there is nothing but such words to go by. */
bool stderr_tail_is_printed(const char *stderr_tail, const char *printed,
                            bool (*is_noise)(const char *line));

#endif
