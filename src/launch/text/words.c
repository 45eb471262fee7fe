/*
 * words.c - a command string becomes words.
 *
 * One cursor walks the text; scan_quoted() is the only place that knows what a quote means, so
 * splitting at blanks and cutting at commas cannot disagree about it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/text/words.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "launch/text/memory.h"

/* Takes text. */
static void
add_owned(struct words *words, char *text)
{
    words->list = memory_need(realloc(words->list, (words->count + 2) * sizeof(*words->list)));
    words->list[words->count++] = memory_need(text);
    words->list[words->count] = NULL;
}

void
words_add(struct words *words, const char *text)
{
    add_owned(words, strdup(text));
}

void
words_add_format(struct words *words, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    int bytes;

    va_start(args, format);
    bytes = vasprintf(&text, format, args);
    va_end(args);
    add_owned(words, bytes < 0 ? NULL : text);
}

void
words_add_all(struct words *words, const struct words *more)
{
    for (size_t i = 0; i < more->count; i++) {
        words_add(words, more->list[i]);
    }
}

void
words_fini(struct words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        free(words->list[i]);
    }
    free(words->list);
    *words = (struct words){0};
}

static bool
is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A place in the text, and the quote it is inside of ('\0': none). */
struct cursor {
    const char *text;
    size_t at;
    char quote;
    size_t quote_at;
};

enum scanned { SCAN_END, SCAN_PLAIN, SCAN_LITERAL, SCAN_MARK };

/*
 * Takes one unit: a plain character (it may mean something to the caller), a literal one (quoted or
 * escaped), or a mark (a quote opening or closing, an escaped newline: no character at all).
 */
static enum scanned
scan_quoted(struct cursor *cursor, char *c_p)
{
    const char c = cursor->text[cursor->at];
    const char next = c == '\0' ? '\0' : cursor->text[cursor->at + 1];

    if (c == '\0') {
        return SCAN_END;
    }
    cursor->at++;
    *c_p = c;
    if (cursor->quote != '\0' && c == cursor->quote) {
        cursor->quote = '\0';
        return SCAN_MARK;
    }
    if (cursor->quote == '\0' && (c == '\'' || c == '"')) {
        cursor->quote = c;
        cursor->quote_at = cursor->at;
        return SCAN_MARK;
    }
    if (c == '\\' && next != '\0' &&
        (cursor->quote == '\0' || (cursor->quote == '"' && strchr("$`\"\\\n", next) != NULL))) {
        cursor->at++;
        *c_p = next;
        return next == '\n' ? SCAN_MARK : SCAN_LITERAL;
    }
    return cursor->quote == '\0' ? SCAN_PLAIN : SCAN_LITERAL;
}

/* The whole text once: quotes closed, no backslash left over. */
static psd_status
check_quoting(const char *text, struct psd_error *err)
{
    struct cursor cursor = {.text = text};
    enum scanned unit;
    char c = '\0';

    while ((unit = scan_quoted(&cursor, &c)) != SCAN_END) {
        if (unit == SCAN_PLAIN && c == '\\') {
            return psi_fail(err, PSD_ERR_INVALID, "command, column %zu: nothing after backslash",
                            cursor.at);
        }
    }
    if (cursor.quote != '\0') {
        return psi_fail(err, PSD_ERR_INVALID, "command, column %zu: %c is never closed",
                        cursor.quote_at, cursor.quote);
    }
    return PSD_OK;
}

psd_status
words_split(const char *text, struct words *words_p, struct psd_error *err)
{
    struct cursor cursor = {.text = text};
    struct words words = {0};
    size_t used = 0;
    bool inside = false;
    char c = '\0';
    enum scanned unit;
    char *word;
    const psd_status status = check_quoting(text, err);

    if (status != PSD_OK) {
        return status;
    }
    word = memory_need(malloc(strlen(text) + 1));
    do {
        unit = scan_quoted(&cursor, &c);
        if (unit == SCAN_LITERAL || (unit == SCAN_PLAIN && !is_blank(c))) {
            word[used++] = c;
            inside = true;
        } else if (unit == SCAN_MARK) {
            inside = inside || c != '\n'; /* '' is a word, an escaped newline is nothing */
        } else if (inside) {
            word[used] = '\0';
            words_add(&words, word);
            used = 0;
            inside = false;
        }
    } while (unit != SCAN_END);
    free(word);
    *words_p = words;
    return PSD_OK;
}

static void
add_piece(struct words *pieces, const char *text, size_t from, size_t to)
{
    while (from < to && is_blank(text[from])) {
        from++;
    }
    while (to > from && is_blank(text[to - 1])) {
        to--;
    }
    add_owned(pieces, strndup(text + from, to - from));
}

psd_status
words_cut_commas(const char *text, int blank_after, struct words *pieces_p, struct psd_error *err)
{
    struct cursor cursor = {.text = text};
    struct words pieces = {0};
    size_t from = 0;
    char c = '\0';
    enum scanned unit;
    const psd_status status = check_quoting(text, err);

    if (status != PSD_OK) {
        return status;
    }
    while ((unit = scan_quoted(&cursor, &c)) != SCAN_END) {
        if (unit == SCAN_PLAIN && c == ',' && (!blank_after || is_blank(text[cursor.at]))) {
            add_piece(&pieces, text, from, cursor.at - 1);
            from = cursor.at;
        }
    }
    add_piece(&pieces, text, from, cursor.at);
    *pieces_p = pieces;
    return PSD_OK;
}

size_t
words_name_bytes(const char *word)
{
    size_t bytes = 0;

    while ((word[bytes] >= 'A' && word[bytes] <= 'Z') ||
           (word[bytes] >= 'a' && word[bytes] <= 'z') || word[bytes] == '_' ||
           (bytes > 0 && word[bytes] >= '0' && word[bytes] <= '9')) {
        bytes++;
    }
    return word[bytes] == '=' ? bytes : 0;
}

void
words_quote(FILE *stream, const char *word)
{
    /* No brackets or braces, nor = in front: zsh looks for files and programs by them. */
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=@%+,";

    if (word[0] != '\0' && word[0] != '=' && strspn(word, plain) == strlen(word)) {
        fputs(word, stream);
        return;
    }
    fputc('\'', stream);
    for (; *word != '\0'; word++) {
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, stream);
    }
    fputc('\'', stream);
}
