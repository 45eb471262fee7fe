/*
 * notes.h - short lines that a worker sends to psd_run, apart from its output.
 *
 * A worker finds the descriptor of a pipe in PSD_NOTE_FD and writes lines to it. Whatever comes out
 * of that pipe is somebody else's bytes: a line is cut at NOTES_LINE_MAX, what is not printable
 * becomes '?', and of one life of a worker no more than NOTES_MAX lines are handed on, and one last
 * word.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_NOTES_H
#define LAUNCH_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NOTES_LINE_MAX = 600, /* bytes of one line */
    NOTES_MAX = 16,       /* lines of one life; the last one says that there were more */
};

/* A line that begins so is the last word of a worker: why it is about to end. */
#define NOTES_LAST_WORD "last word: "

/* Thread: owned by the agent. */
struct notes {
    char line[NOTES_LINE_MAX + 1]; /* not complete */
    size_t used;
    uint32_t told;
    bool ended; /* the last word was told */
};

/* Called with each complete line, which is text of 1..NOTES_LINE_MAX bytes. */
typedef void (*notes_tell)(void *context, const char *line, size_t bytes);

/* A new life. */
void notes_init(struct notes *notes);

/* Bytes of the pipe. */
void notes_take(struct notes *notes, const char *bytes, size_t count, notes_tell tell,
                void *context);

/* The pipe is at its end: a line without one counts, too. */
void notes_end(struct notes *notes, notes_tell tell, void *context);

/* The text of a last word; NULL: the line is none. */
const char *notes_last_word(const char *line);

/* Text of another machine is not trusted to be what notes_take() makes of it: the same rules. */
void notes_clean(const char *bytes, size_t count, char text_p[NOTES_LINE_MAX + 1]);

#endif
