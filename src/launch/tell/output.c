/*
 * output.c - what one process prints.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/tell/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "launch/system/close_fd.h"
#include "launch/system/log_file.h"
#include "launch/system/wall_clock.h"

enum {
    TIMES_MS = 100,     /* between two notes of the time */
    PROGRESS_MS = 1000, /* a line that overwrites itself is shown this often */
};

psd_status
output_init(struct output *output, enum launch_role role, const char *name, const char *log_path,
            struct psd_error *err)
{
    memset(output, 0, sizeof(*output));
    output->role = role;
    output->times_fd = -1;
    snprintf(output->name, sizeof(output->name), "%s", name);
    output->log_fd = -1;
    if (log_path == NULL) {
        return PSD_OK;
    }
    output->log_fd = log_file_open(log_path);
    if (output->log_fd < 0) {
        output->log_failed = true;
        return psi_fail_errno(err, PSD_ERR_IO, "open %s", log_path);
    }
    return PSD_OK;
}

void
output_keep_times(struct output *output, const char *path)
{
    output->times_fd = log_file_open(path);
}

static void
note_time(struct output *output)
{
    const uint64_t now_ms = wall_clock_ms();

    if (output->times_fd >= 0 && now_ms >= output->times_ms + TIMES_MS) {
        output->times_ms = now_ms;
        dprintf(output->times_fd, "%llu %llu\n", (unsigned long long)now_ms,
                (unsigned long long)output->log_bytes);
    }
}

static void
look_for_result(struct output *output, const struct output_line *line)
{
    char text[sizeof(output->result)];

    snprintf(text, sizeof(text), "%.*s", (int)line->bytes, line->text);
    if (output->wanted != NULL && regexec(output->wanted, text, 0, NULL, 0) == 0) {
        memcpy(output->result, text, sizeof(output->result));
    }
}

/* What every daemon of a job says alike is said once. */
static bool
is_repeated(const struct output *output, const struct output_line *line, struct console *console)
{
    static const char mark[] = " AS-ROOT ";
    const bool before = console->told_root;

    if (output->role == LAUNCH_WORKER ||
        memmem(line->text, line->bytes, mark, sizeof(mark) - 1) == NULL) {
        return false;
    }
    console->told_root = true;
    return before;
}

static bool
is_shown(const struct output *output, const struct output_line *line, struct console *console)
{
    if (output->hidden || is_repeated(output, line, console)) {
        return false;
    }
    return output->role == LAUNCH_WORKER ||
           (!console->daemons_quiet && output_is_loud(line->text, line->bytes));
}

static void
show(struct output *output, struct output_line *line, struct console *console)
{
    look_for_result(output, line);
    if (output->listener.line != NULL) {
        output->listener.line(output->listener.context, output->name, line != &output->lines[0],
                              line->text, line->bytes);
    }
    if (is_shown(output, line, console)) {
        console_line(console, output->role, output->name, line->text, line->bytes);
    }
    line->bytes = 0;
}

void
output_flush(struct output *output, struct console *console)
{
    for (unsigned i = 0; i < LINK_STREAMS; i++) {
        if (output->lines[i].bytes > 0) {
            show(output, &output->lines[i], console);
        }
    }
}

void
output_fini(struct output *output, struct console *console)
{
    output_flush(output, console);
    close_fd(&output->log_fd);
    close_fd(&output->times_fd);
}

/* A full disk costs the log, not the job. */
static void
write_log(struct output *output, struct console *console, const char *bytes, size_t count)
{
    while (count > 0 && output->log_fd >= 0) {
        const ssize_t written = write(output->log_fd, bytes, count);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            if (!output->log_failed) {
                console_say(console, "log of %s: %s; the job goes on", output->name,
                            strerror(errno));
            }
            output->log_failed = true;
            return;
        }
        bytes += written;
        count -= (size_t)written;
    }
}

static void
keep_tail(struct output *output, const char *bytes, size_t count)
{
    if (count > OUTPUT_TAIL_BYTES) {
        output->tail_bytes += count - OUTPUT_TAIL_BYTES;
        bytes += count - OUTPUT_TAIL_BYTES;
        count = OUTPUT_TAIL_BYTES;
    }
    for (size_t i = 0; i < count; i++) {
        output->tail[output->tail_bytes++ % OUTPUT_TAIL_BYTES] = bytes[i];
    }
}

/* What follows a lone carriage return overwrites the line, as on a terminal. */
static void
begin_over(struct output *output, struct output_line *line, struct console *console,
           uint64_t now_ms)
{
    line->returned = false;
    if (line->bytes > 0 && now_ms - line->progress_ms >= PROGRESS_MS) {
        line->progress_ms = now_ms;
        show(output, line, console);
    }
    line->bytes = 0;
}

void
output_feed(struct output *output, struct console *console, const struct output_piece *piece,
            uint64_t now_ms)
{
    struct output_line *line = &output->lines[piece->stream];

    for (size_t i = 0; i < piece->count; i++) {
        const char c = piece->bytes[i];

        if (c == '\n') {
            line->returned = false;
            show(output, line, console);
            continue;
        }
        if (line->returned && c != '\r') {
            begin_over(output, line, console, now_ms);
        }
        if (c == '\r') {
            line->returned = true;
            continue;
        }
        if (line->bytes == OUTPUT_LINE_BYTES) {
            show(output, line, console);
        }
        line->text[line->bytes++] = c;
    }
}

static void
keep(struct output *output, struct console *console, const char *bytes, size_t count)
{
    write_log(output, console, bytes, count);
    output->log_bytes += count;
    keep_tail(output, bytes, count);
}

void
output_take(struct output *output, struct console *console, const struct output_piece *piece,
            uint64_t now_ms)
{
    if (piece->broken) {
        keep(output, console, "\n", 1);
    }
    note_time(output);
    keep(output, console, piece->bytes, piece->count);
    output_feed(output, console, piece, now_ms);
}

size_t
output_tail(const struct output *output, unsigned lines, char *text_p, size_t size)
{
    const size_t end = output->tail_bytes;
    const size_t kept = end < OUTPUT_TAIL_BYTES ? end : OUTPUT_TAIL_BYTES;
    const size_t most = kept < size - 1 ? kept : size - 1;
    size_t count = 0;

    /* Backwards from the end; the newline that ends the last line does not begin one. */
    while (count < most) {
        if (output->tail[(end - count - 1) % OUTPUT_TAIL_BYTES] == '\n' && count > 0 &&
            --lines == 0) {
            break;
        }
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        text_p[i] = output->tail[(end - count + i) % OUTPUT_TAIL_BYTES];
    }
    text_p[count] = '\0';
    return count;
}

/* "TIME NAME LEVEL ID ...", see base/log.h. */
bool
output_is_loud(const char *line, size_t bytes)
{
    static const char *const quiet[] = {"info ", "debug ", "trace "};
    const char *const end = line + bytes;
    const char *at = memchr(line, ' ', bytes);

    at = at != NULL ? memchr(at + 1, ' ', (size_t)(end - at - 1)) : NULL;
    for (size_t i = 0; at != NULL && i < sizeof(quiet) / sizeof(quiet[0]); i++) {
        const size_t length = strlen(quiet[i]);

        if ((size_t)(end - at - 1) >= length && memcmp(at + 1, quiet[i], length) == 0) {
            return false;
        }
    }
    return bytes > 0;
}
