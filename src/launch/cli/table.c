/*
 * table.c - a table for people.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "launch/system/terminal.h"

enum { COLUMNS_MAX = 16, GAP = 4, GAP_NARROW = 2 };

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

/* How a table is shown. */
struct layout {
    size_t widths[COLUMNS_MAX];
    bool left_out[COLUMNS_MAX];
    size_t gap;
};

static void
measure(const struct table *table, struct layout *layout)
{
    *layout = (struct layout){.gap = GAP};
    for (size_t i = 0; i < table->cells.count; i++) {
        const size_t bytes = strlen(table->cells.list[i]);
        size_t *width = &layout->widths[i % table->columns];

        *width = bytes > *width ? bytes : *width;
    }
}

static size_t
line_bytes(const struct table *table, const struct layout *layout)
{
    size_t bytes = 0;

    for (size_t i = 0; i < table->columns; i++) {
        if (!layout->left_out[i]) {
            bytes += layout->widths[i] + (bytes > 0 ? layout->gap : 0);
        }
    }
    return bytes;
}

static void
print(const struct table *table, const struct layout *layout, FILE *stream)
{
    size_t last = table->columns - 1;

    while (last > 0 && layout->left_out[last]) {
        last--;
    }
    for (size_t i = 0; i < table->cells.count; i++) {
        const size_t column = i % table->columns;

        if (layout->left_out[column]) {
            continue;
        }
        if (column < last) {
            fprintf(stream, "%-*s", (int)(layout->widths[column] + layout->gap),
                    table->cells.list[i]);
        } else {
            fprintf(stream, "%s\n", table->cells.list[i]);
        }
    }
}

void
table_print(const struct table *table, FILE *stream)
{
    struct layout layout;

    measure(table, &layout);
    print(table, &layout, stream);
}

/* Leaves columns out until the rest fits into so many columns of the terminal. Returns how many of spare it took. */
static size_t
make_fit(const struct table *table, struct layout *layout, const char *const *spare, size_t columns)
{
    size_t taken = 0;

    if (line_bytes(table, layout) > columns) {
        layout->gap = GAP_NARROW;
    }
    for (; spare[taken] != NULL && line_bytes(table, layout) > columns; taken++) {
        for (size_t i = 0; i < table->columns; i++) {
            if (strcmp(table->cells.list[i], spare[taken]) == 0) {
                layout->left_out[i] = true;
            }
        }
    }
    return taken;
}

void
table_print_within(const struct table *table, FILE *stream, const char *const *spare)
{
    const size_t columns = terminal_columns(fileno(stream));
    struct layout layout;
    size_t taken;

    if (columns == 0) { /* a file or a pipe: nothing has to fit */
        table_print(table, stream);
        return;
    }
    measure(table, &layout);
    taken = make_fit(table, &layout, spare, columns);
    print(table, &layout, stream);
    for (size_t i = 0; i < taken; i++) {
        fprintf(stream, "%s%s%s", i == 0 ? "(" : "", spare[i], i + 1 < taken ? ", " : "");
    }
    if (taken > 0) {
        fprintf(stream, ": in a wider window, with --no_trunc, or with --json)\n");
    }
}

void
table_fini(struct table *table)
{
    words_fini(&table->cells);
    *table = (struct table){0};
}
