/*
 * log.c - lines for people and for grep.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

void
psi_log(const struct psi_log *log, enum psi_log_level level, const char *id, const char *format,
        ...)
{
    char text[1024];
    va_list args;

    if (log->write == NULL || level > log->level) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    log->write(log->sink, level, id, text);
}

/* Copies text with every byte that is not printable ASCII as \xNN. */
static size_t
escape(char *line, size_t used, size_t size, const char *text)
{
    for (; *text != '\0' && used + 6 < size; text++) {
        const unsigned char byte = (unsigned char)*text;

        if (byte < 0x20 || byte > 0x7e) {
            used += (size_t)snprintf(line + used, size - used, "\\x%02x", byte);
        } else {
            line[used++] = (char)byte;
        }
    }
    return used;
}

static void
write_stderr(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    char line[4400];
    struct timespec now;
    struct tm parts;
    size_t used;
    ssize_t written;

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof(line) - used, ".%03ld %s %s %s ",
                             now.tv_nsec / 1000000, (const char *)sink, level_names[level], id);
    used = escape(line, used, sizeof(line), text);
    line[used++] = '\n';
    written = write(STDERR_FILENO, line, used);
    (void)written; /* a log that cannot be written has nowhere to complain */
}

void
psi_log_to_stderr(struct psi_log *log, const char *name, enum psi_log_level level)
{
    log->write = write_stderr;
    log->sink = (void *)(size_t)name;
    log->level = level;
}
