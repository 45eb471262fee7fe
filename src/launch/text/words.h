/*
 * words.h - a command string becomes words, as a shell would quote them, without a shell.
 *
 * Single quotes, double quotes and backslashes mean what POSIX says. Nothing else is special: no
 * variables, no globs, no pipes (`sh -c '...'` has them).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WORDS_H
#define LAUNCH_WORDS_H

#include <stddef.h>
#include <stdio.h>

#include <psd/status.h>

/* A growing list of owned strings, ended by NULL: the shape of argv and environ. */
struct words {
    char **list; /* NULL while empty */
    size_t count;
};

/* Appends a copy: memory.h. */
void words_add(struct words *words, const char *text);
void words_add_format(struct words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void words_add_all(struct words *words, const struct words *more);
void words_fini(struct words *words);

/*
 * Splits text into words. PSD_ERR_INVALID: a quote that is not closed or a backslash at the end,
 * with its column, counted from 1.
 */
psd_status words_split(const char *text, struct words *words_p, struct psd_error *err);

/*
 * Cuts text at commas outside quotes and not behind a backslash, keeping the quoting of the pieces;
 * with `blank_after`, only at those that a blank follows. Leading and trailing blanks are dropped.
 */
psd_status words_cut_commas(const char *text, int blank_after, struct words *pieces_p,
                            struct psd_error *err);

/* Writes a word as a shell needs it to read it as one. */
void words_quote(FILE *stream, const char *word);

/* Length of the NAME in "NAME=value", 0 if the word is not of that form. */
size_t words_name_bytes(const char *word);

#endif
