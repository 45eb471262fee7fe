/*
 * report.h - results as tables for people, in Markdown.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdio.h>

#include "results.h"

/* What the columns are; once. */
void report_legend(FILE *file, uint32_t repeat);

/* The table of one job: a heading, then the subjects of each situation. */
void report_heading(FILE *file, const struct situation *situation);
void report_situation(FILE *file, const struct results *results, const struct situation *situation);

/* What each worker more costs, where jobs differ in nothing else. */
void report_workers(FILE *file, const struct results *results);

/* What makes the figures worthless, and how many cores other programs used meanwhile. */
void report_doubts(FILE *file, const struct results *results, double foreign_cores);

/* "64 B", "256 KiB", "32 MiB". */
void report_size(uint64_t bytes, char *text, size_t size);

#endif
