/*
 * end_text.h - why a job ended, in words, and who ended it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_END_TEXT_H
#define LAUNCH_END_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/run/run_state.h"

/* Last lines of a process that are looked at, and shown. */
enum { END_TEXT_TAIL_LINES = 20 };

/* Why the job ended, in words; "" while it is well. */
void end_text(const struct run *run, char *text_p, size_t size);

/* Whether it was that process, or that machine. */
bool end_text_is_process(const struct run *run, uint32_t slot);
bool end_text_is_machine(const struct run *run, uint32_t machine);

/* Why the process that ended the job did so, by its own word; NULL: no process, or it said
 * nothing. */
const char *end_text_last_word(const struct run *run);

/* The verdict on the job that a daemon passes on: what stands behind JOB-END in its last lines.
 * Returns false if there is none. */
bool end_text_verdict(const struct run *run, uint32_t slot, char *text_p, size_t size);

/* "worker 1 on host2 (10.0.0.2) (pid 77)"; and "... was killed by signal 9 (Killed)". */
void end_text_name(const struct run *run, uint32_t slot, char *text_p, size_t size);
void end_text_exit(const struct run *run, uint32_t slot, int code, int number, char *text_p,
                   size_t size);

/* When a restart is due, in words: "in 0.5 s". */
void end_text_delay(uint32_t delay_ms, char *text_p, size_t size);

#endif
