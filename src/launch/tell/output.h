/*
 * output.h - what one process prints: all of it to its log, and lines to the console.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_OUTPUT_H
#define LAUNCH_OUTPUT_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/link/link.h"
#include "launch/tell/console.h"

enum {
    OUTPUT_LINE_BYTES = 8192, /* longer lines are shown in pieces */
    OUTPUT_TAIL_BYTES = 8192, /* kept for the closing summary */
};

/* A line that is not complete. */
struct output_line {
    bool returned;        /* the last character was a carriage return */
    uint64_t progress_ms; /* when a line that overwrites itself was last shown */
    size_t bytes;
    char text[OUTPUT_LINE_BYTES];
};

/* Hears every line of a process, whether it is shown or not. */
struct output_listener {
    void (*line)(void *context, const char *process, bool is_error, const char *text, size_t bytes);
    void *context;
};

/* Thread: owned by the main thread of psd_run. */
struct output {
    int log_fd; /* -1: the log could not be written */
    enum launch_role role;
    char name[24];
    bool log_failed;                 /* said so once */
    bool hidden;                     /* its lines are not shown */
    const regex_t *wanted;           /* (optional) lines that tell a result */
    char result[200];                /* the last of them; "" if none */
    struct output_listener listener; /* (optional) */
    int times_fd;                    /* when which byte was printed, -1: not kept */
    uint64_t times_ms;
    uint64_t log_bytes;
    struct output_line lines[LINK_STREAMS];
    size_t tail_bytes; /* ever written to tail; the ring holds the last OUTPUT_TAIL_BYTES */
    char tail[OUTPUT_TAIL_BYTES];
};

/* Creates the log; when that fails, err says why and the output goes on without. log_path NULL: no
 * log here. */
psd_status output_init(struct output *output, enum launch_role role, const char *name,
                       const char *log_path, struct psd_error *err);

/* Shows what is left of an unfinished line. */
void output_flush(struct output *output, struct console *console);

/* The same, and closes everything. */
void output_fini(struct output *output, struct console *console);

/*
 * Keeps beside the log when it grew, for `psd_run logs --since`: lines of milliseconds of the wall
 * clock and the length of the log by then.
 */
void output_keep_times(struct output *output, const char *path);

/* Bytes that a process printed: merge.h. */
struct output_piece {
    unsigned stream;
    bool broken; /* in the log, a line end goes before them */
    const char *bytes;
    size_t count;
};

/* Takes bytes that the process printed. */
void output_take(struct output *output, struct console *console, const struct output_piece *piece,
                 uint64_t now_ms);

/* The last `lines` lines, at most OUTPUT_TAIL_BYTES: copied and NUL-terminated. */
size_t output_tail(const struct output *output, unsigned lines, char *text_p, size_t size);

/* For output_take and its test: the console's part of it. */
void output_feed(struct output *output, struct console *console, const struct output_piece *piece,
                 uint64_t now_ms);

/* Whether a line of a daemon is shown: warnings, errors, and what is no log line at all. */
bool output_is_loud(const char *line, size_t bytes);

#endif
