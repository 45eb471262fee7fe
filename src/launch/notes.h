/*
 * notes.h - short lines that a worker tells psd_run beside its output.
 *
 * A worker finds the descriptor of a pipe in PSD_NOTE_FD and writes lines to it. Whatever comes out
 * of that pipe is somebody else's bytes: a line is cut at NOTES_LINE_MAX, what is not printable
 * becomes '?', and of one life of a worker no more than NOTES_MAX lines are handed on.
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

/* Thread: owned by the agent. */
struct notes {
    char line[NOTES_LINE_MAX + 1]; /* not complete */
    size_t used;
    uint32_t told;
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

/* Text of another machine is not trusted to be what notes_take() makes of it: the same rules. */
void notes_clean(const char *bytes, size_t count, char text_p[NOTES_LINE_MAX + 1]);

#endif
