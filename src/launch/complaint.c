/*
 * complaint.c - what a program that was to start an agent printed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/complaint.h"

#include <stdio.h>
#include <string.h>

#include <sys/wait.h>

void
complaint_last_line(const char *complaint, bool (*is_noise)(const char *line), char *text_p,
                    size_t size)
{
    text_p[0] = '\0';
    for (const char *line = complaint; *line != '\0';) {
        const size_t bytes = strcspn(line, "\r\n");

        if (bytes > 0 && !is_noise(line)) {
            snprintf(text_p, size, "%.*s", (int)bytes, line);
        }
        line += bytes;
        line += strspn(line, "\r\n");
    }
}

void
complaint_describe(const char *program, const char *complaint, bool (*is_noise)(const char *line),
                   int status, char *text_p, size_t size)
{
    complaint_last_line(complaint, is_noise, text_p, size);
    if (text_p[0] != '\0') {
        return;
    }
    if (status != -1 && WIFSIGNALED(status)) {
        snprintf(text_p, size, "%s was killed by signal %d", program, WTERMSIG(status));
    } else {
        snprintf(text_p, size, "%s said nothing, code %d", program,
                 status != -1 ? WEXITSTATUS(status) : -1);
    }
}
