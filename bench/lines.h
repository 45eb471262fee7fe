/*
 * lines.h - results as lines of JSON, for programs.
 *
 * Each line has one figure: name, transport, workers, servers, bytes, value, unit, reference, ratio
 * (1: as good as the reference; more is better), and besides timing ("call", or "touch" with the
 * gradient's writing and the result's reading), reference_name, repeat, min and max.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_LINES_H
#define BENCH_LINES_H

#include <stdio.h>

#include "results.h"

/* Opens the file, and makes its directory; NULL: none. */
psd_status lines_open(const char *path, FILE **file_p, struct psd_error *err);
psd_status lines_close(FILE *file, const char *path, struct psd_error *err);

/* Everything that was measured in one situation. file NULL: nowhere. */
void lines_write(FILE *file, const struct results *results, const struct situation *situation);

#endif
