/*
 * rolling.c - servers that are restarted one after the other: what those who asked for it are told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/rolling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/rules/watch_rolling.h"
#include "launch/rules/watch_scale.h"
#include "launch/run/end_text.h"

enum { LINE_BYTES = 400 };

/* For the console, the log, and whoever asks next. */
static void
add_line(struct run *run, const char *line)
{
    console_tell(&run->console, CONSOLE_FAILOVER, "%s", line);
    runlog_line(&run->runlog, "RESTART", "%s", line);
    words_add(&run->rolling_lines, line);
}

/* "the part of server 0 is served by server 1", "server 0 has no whole copy" */
static void
say_what_is_missing(const struct run *run, char *text_p, size_t size)
{
    for (uint32_t slot = 1; slot <= plan_start_servers(run->plan); slot++) {
        const struct watch_slot *server = &run->watch.slots[slot];

        if (psi_tiding_place_served(&server->place, PSI_TIDING_NOBODY) > 0) {
            snprintf(text_p, size, "nobody has the part of server %u yet", slot - 1);
            return;
        }
        if (server->place.state == PSI_COPY_NONE || server->place.state == PSI_COPY_FORMING) {
            snprintf(text_p, size, "the part of server %u has no whole copy yet", slot - 1);
            return;
        }
    }
    snprintf(text_p, size, "a server is not back yet");
}

static void
say_failure(const struct run *run, char *line_p, size_t size)
{
    const struct watch_rolling *rolling = &run->watch.rolling;
    char missing[128];

    say_what_is_missing(run, missing, sizeof(missing));
    if (run->watch.phase != WATCH_RUNNING) {
        snprintf(line_p, size, "the job is about to end: no more servers are restarted");
    } else {
        snprintf(line_p, size,
                 "%s, after %u s: no more servers are restarted (%u of %u were); the job goes on",
                 missing, rolling->limit_ms / 1000, rolling->done,
                 watch_servers_present(&run->watch));
    }
}

void
rolling_tell(struct run *run)
{
    const struct watch_rolling *rolling = &run->watch.rolling;
    const double seconds = (double)(rolling->back_ms - rolling->killed_ms) / 1000;
    char line[LINE_BYTES];
    char who[128];

    end_text_name(run, rolling->slot, who, sizeof(who));
    switch (rolling->stage) {
    case ROLLING_NONE:
        return;
    case ROLLING_KILLED:
        snprintf(line, sizeof(line), "%s is restarted", who);
        break;
    case ROLLING_WAITING:
        snprintf(line, sizeof(line), "%s is back, and nothing is missing, after %.1f s", who,
                 seconds);
        break;
    case ROLLING_DONE:
        snprintf(line, sizeof(line), "%s is back, and nothing is missing, after %.1f s", who,
                 seconds);
        add_line(run, line);
        snprintf(line, sizeof(line), "%u server%s restarted in %.1f s", rolling->done,
                 rolling->done == 1 ? " was" : "s were",
                 (double)(rolling->back_ms - rolling->began_ms) / 1000);
        break;
    case ROLLING_FAILED:
        say_failure(run, line, sizeof(line));
        break;
    }
    add_line(run, line);
}

static const char *
stage_word(const struct run *run)
{
    return watch_is_rolling(&run->watch)              ? "going"
           : run->watch.rolling.stage == ROLLING_DONE ? "done"
                                                      : "failed";
}

static char *
begin(struct run *run, unsigned seconds)
{
    char *answer = NULL;
    char why[LINE_BYTES];

    if (watch_is_rolling(&run->watch)) { /* what the others read stays */
        return strdup("refused\nits servers are being restarted already\n");
    }
    words_fini(&run->rolling_lines);
    run->rolling_lines = (struct words){0};
    if (watch_rolling_begin(&run->watch, seconds * 1000, psi_monotonic_ms(), why, sizeof(why))) {
        runlog_line(&run->runlog, "RESTART", "psd_run restart --servers");
        return strdup("going\n");
    }
    return asprintf(&answer, "refused\n%s\n", why) < 0 ? NULL : answer;
}

char *
rolling_answer(struct run *run, const char *line)
{
    unsigned number;
    size_t bytes = 0;
    char *answer = NULL;
    FILE *stream;

    if (sscanf(line, "restart servers %u\n", &number) == 1) {
        return begin(run, number);
    }
    if (sscanf(line, "restart from %u\n", &number) != 1) {
        return NULL;
    }
    stream = open_memstream(&answer, &bytes);
    if (stream == NULL) {
        return NULL;
    }
    fprintf(stream, "%s\n", stage_word(run));
    for (size_t i = number; i < run->rolling_lines.count; i++) {
        fprintf(stream, "%s\n", run->rolling_lines.list[i]);
    }
    fclose(stream);
    return answer;
}
