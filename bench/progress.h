/*
 * progress.h - one line that tells what is being measured, and for how long already.
 *
 * On a terminal the line is rewritten; elsewhere only what begins gets one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

#include "results.h"

/* run 0: warming up. */
void progress_show(const struct situation *situation, const char *title, uint32_t run,
                   uint32_t runs);

/* Something that takes a while without a situation: "starting OpenMPI". */
void progress_say(const char *what);
void progress_clear(void);

#endif
