/*
 * table.h - a table for people: columns as wide as they need to be, four blanks between them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_TABLE_H
#define LAUNCH_TABLE_H

#include <stdio.h>

#include "launch/text/words.h"

/* Starts as {0}. */
struct table {
    struct words cells; /* heads first */
    size_t columns;
};

/* Forgets what was in it. */
void table_begin(struct table *table, const char *const *heads, size_t columns);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(const struct table *table, FILE *stream);

/* Where the stream is a terminal that is too narrow, columns move together; then those in spare (heads, ended by NULL) are left
 * out, one after the other, and a line below names them. Everywhere else as table_print. */
void table_print_within(const struct table *table, FILE *stream, const char *const *spare);
void table_fini(struct table *table);

#endif
