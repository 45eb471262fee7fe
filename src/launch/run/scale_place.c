/*
 * scale_place.c - what psd_run scale does for workers and for servers alike: it finds a machine for
 * one more, and answers who asked.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/scale_place.h"

#include <stdlib.h>
#include <strings.h>

#include "launch/plan/layout.h"
#include "launch/run/host.h"

uint32_t
scale_emptiest_machine(const struct run *run, const struct scale_kind *kind)
{
    uint32_t found = LAYOUT_NOWHERE;

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (kind->obstacle(run, i) == NULL &&
            (found == LAYOUT_NOWHERE || kind->present(run, i) < kind->present(run, found))) {
            found = i;
        }
    }
    return found;
}

bool
scale_find_machine(const struct run *run, const struct scale_kind *kind, const char *name,
                   uint32_t *machine_p, char *why_p, size_t size)
{
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        const struct host *host = &run->hosts[i];
        const char *obstacle = kind->obstacle(run, i);

        if (strcasecmp(host->machine->name, name) != 0 && strcasecmp(host->hostname, name) != 0) {
            continue;
        }
        *machine_p = i;
        if (obstacle != NULL) {
            snprintf(why_p, size, "--host %s: %s", name, obstacle);
        }
        return obstacle == NULL;
    }
    snprintf(why_p, size, "--host %s: no machine of this job; psd_run show lists them", name);
    return false;
}

void
scale_tell(struct run *run, FILE *answer, const char *line)
{
    console_tell(&run->console, CONSOLE_FAILOVER, "%s", line);
    runlog_line(&run->runlog, "SCALE", "%s", line);
    if (answer != NULL) {
        fprintf(answer, "%s\n", line);
    }
}

char *
scale_answer(struct run *run, scale_change_fn change, const void *asked)
{
    char why[SCALE_LINE_BYTES];
    char *lines = NULL;
    char *answer = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&lines, &bytes);
    bool well;

    if (stream == NULL) {
        return NULL;
    }
    well = change(run, asked, stream, why, sizeof(why));
    fclose(stream);
    if (asprintf(&answer, "%s\n%s%s", well ? "done" : "refused", well ? lines : why,
                 well ? "" : "\n") < 0) {
        answer = NULL;
    }
    free(lines);
    return answer;
}
