/*
 * notes.c - short lines that a worker sends to psd_run, apart from its output.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/notes.h"

#include <string.h>

static const char last_words[] = "(more notes than are shown)";

static char
printable(char c)
{
    return c >= 0x20 && c < 0x7f ? c : '?';
}

void
notes_init(struct notes *notes)
{
    *notes = (struct notes){.used = 0};
}

static void
finish_line(struct notes *notes, notes_tell tell, void *context)
{
    const size_t bytes = notes->used;

    notes->used = 0;
    notes->line[bytes] = '\0';
    if (!notes->ended && notes_last_word(notes->line) != NULL) {
        notes->ended = true;
        tell(context, notes->line, bytes);
        return;
    }
    if (bytes == 0 || notes->told == NOTES_MAX) {
        return;
    }
    notes->told++;
    if (notes->told == NOTES_MAX) {
        tell(context, last_words, sizeof(last_words) - 1);
    } else {
        tell(context, notes->line, bytes);
    }
}

void
notes_take(struct notes *notes, const char *bytes, size_t count, notes_tell tell, void *context)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n') {
            finish_line(notes, tell, context);
        } else if (notes->used < NOTES_LINE_MAX) {
            notes->line[notes->used++] = printable(bytes[i]);
        }
    }
}

void
notes_end(struct notes *notes, notes_tell tell, void *context)
{
    finish_line(notes, tell, context);
}

const char *
notes_last_word(const char *line)
{
    const size_t bytes = sizeof(NOTES_LAST_WORD) - 1;

    return strncmp(line, NOTES_LAST_WORD, bytes) == 0 ? line + bytes : NULL;
}

void
notes_clean(const char *bytes, size_t count, char text_p[NOTES_LINE_MAX + 1])
{
    const size_t kept = count < NOTES_LINE_MAX ? count : NOTES_LINE_MAX;

    for (size_t i = 0; i < kept; i++) {
        text_p[i] = printable(bytes[i]);
    }
    text_p[kept] = '\0';
}
