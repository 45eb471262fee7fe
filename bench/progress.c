/*
 * progress.c - one line that tells what is being measured, and for how long already.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "timer.h"

static uint64_t
seconds_so_far(void)
{
    static uint64_t begin_ns;

    if (begin_ns == 0) {
        begin_ns = timer_now_ns();
    }
    return (timer_now_ns() - begin_ns) / 1000000000u;
}

static void
show(const char *line)
{
    const uint64_t seconds = seconds_so_far();

    if (isatty(STDERR_FILENO) != 0) {
        fprintf(stderr, "\r\033[K[%2u:%02u] %s", (unsigned)(seconds / 60), (unsigned)(seconds % 60),
                line);
    }
}

void
progress_show(const struct situation *situation, const char *title, uint32_t run, uint32_t runs)
{
    char size[32];
    char line[200];

    report_size(situation->bytes, size, sizeof(size));
    snprintf(line, sizeof(line), "%s, %u workers, %u servers, %s: %s, %s %u of %u",
             transport_name(situation->transport), situation->workers, situation->servers, size,
             title, run == 0 ? "warming up for" : "run", run == 0 ? 1 : run, runs);
    show(line);
}

void
progress_say(const char *what)
{
    const uint64_t seconds = seconds_so_far();

    show(what);
    if (isatty(STDERR_FILENO) == 0) {
        fprintf(stderr, "[%2u:%02u] %s\n", (unsigned)(seconds / 60), (unsigned)(seconds % 60),
                what);
    }
}

void
progress_clear(void)
{
    if (isatty(STDERR_FILENO) != 0) {
        fprintf(stderr, "\r\033[K");
    }
}
