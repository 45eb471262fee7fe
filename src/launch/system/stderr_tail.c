/*
 * stderr_tail.c - what a program that was to start an agent printed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/stderr_tail.h"

#include <stdio.h>
#include <string.h>

#include <sys/wait.h>

void
stderr_tail_last_line(const char *stderr_tail, bool (*is_noise)(const char *line), char *text_p,
                      size_t size)
{
    text_p[0] = '\0';
    for (const char *line = stderr_tail; *line != '\0';) {
        const size_t bytes = strcspn(line, "\r\n");

        if (bytes > 0 && !is_noise(line)) {
            snprintf(text_p, size, "%.*s", (int)bytes, line);
        }
        line += bytes;
        line += strspn(line, "\r\n");
    }
}

static bool
is_blank(const char *line)
{
    const size_t bytes = strcspn(line, "\r\n");

    return strspn(line, " \t") >= bytes;
}

bool
stderr_tail_is_printed(const char *stderr_tail, const char *printed,
                       bool (*is_noise)(const char *line))
{
    char text[8];

    stderr_tail_last_line(stderr_tail, is_noise, text, sizeof(text));
    if (text[0] != '\0') {
        return false;
    }
    stderr_tail_last_line(printed, is_blank, text, sizeof(text));
    return text[0] != '\0';
}

/* Escape sequences of a greeting would do to our terminal what they did to that one. */
static void
make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text;
    }
}

/* How it ended, if that is known. */
static void
tell_end(int status, char *text_p, size_t size)
{
    text_p[0] = '\0';
    if (status != -1 && WIFSIGNALED(status)) {
        snprintf(text_p, size, " and was killed by signal %d", WTERMSIG(status));
    } else if (status != -1) {
        snprintf(text_p, size, " and ended with code %d", WEXITSTATUS(status));
    }
}

void
stderr_tail_describe(const char *program, const char *stderr_tail, const char *printed,
                     bool (*is_noise)(const char *line), int status, char *text_p, size_t size)
{
    char end[48];

    tell_end(status, end, sizeof(end));
    if (stderr_tail_is_printed(stderr_tail, printed, is_noise)) {
        char line[160];

        stderr_tail_last_line(printed, is_blank, line, sizeof(line));
        snprintf(text_p, size, "the login printed \"%s\"%s", line, end);
    } else {
        stderr_tail_last_line(stderr_tail, is_noise, text_p, size);
    }
    if (text_p[0] == '\0') {
        snprintf(text_p, size, "%s said nothing%s", program, end);
    }
    make_printable(text_p);
}
