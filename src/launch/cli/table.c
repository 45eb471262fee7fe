/*
 * table.c - a table for people.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 16, GAP = 4 };

void
table_begin(struct table *table, const char *const *heads, size_t columns)
{
    table_fini(table);
    table->columns = columns;
    for (size_t i = 0; i < columns; i++) {
        words_add(&table->cells, heads[i]);
    }
}

void
table_cell(struct table *table, const char *format, ...)
{
    va_list args;
    char *text = NULL;

    va_start(args, format);
    if (vasprintf(&text, format, args) >= 0) {
        for (char *c = text; *c != '\0'; c++) {
            *c = (unsigned char)*c < 0x20 ? ' ' : *c; /* one line stays one line */
        }
        words_add(&table->cells, text);
        free(text);
    }
    va_end(args);
}

void
table_print(const struct table *table, FILE *stream)
{
    size_t widths[COLUMNS_MAX] = {0};

    for (size_t i = 0; i < table->cells.count; i++) {
        const size_t bytes = strlen(table->cells.list[i]);
        size_t *width = &widths[i % table->columns];

        *width = bytes > *width ? bytes : *width;
    }
    for (size_t i = 0; i < table->cells.count; i++) {
        const size_t column = i % table->columns;

        if (column + 1 < table->columns) {
            fprintf(stream, "%-*s", (int)widths[column] + GAP, table->cells.list[i]);
        } else {
            fprintf(stream, "%s\n", table->cells.list[i]);
        }
    }
}

void
table_fini(struct table *table)
{
    words_fini(&table->cells);
    *table = (struct table){0};
}
