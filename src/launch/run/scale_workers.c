/*
 * scale_workers.c - psd_run scale --workers: workers for a job that runs, or fewer of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/scale_workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/monotonic.h"
#include "launch/plan/layout.h"
#include "launch/rules/watch_workers.h"
#include "launch/run/host.h"

enum { LINE_BYTES = 400, HOST_BYTES = 256 };

/* Agents know the workers' command where there are workers. */
static bool
can_have_workers(const struct run *run, uint32_t machine)
{
    const struct host *host = &run->hosts[machine];

    return host->machine->workers > 0 && host->state == HOST_READY;
}

static uint32_t
present_on(const struct run *run, uint32_t machine)
{
    uint32_t count = 0;

    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
        const struct watch_slot *state = &run->watch.slots[slot];

        count += run->layout->machine_of[slot] == machine && !state->ended && !state->is_leaving;
    }
    return count;
}

/* The machine with the fewest workers; LAYOUT_NOWHERE: there is none. */
static uint32_t
emptiest_machine(const struct run *run)
{
    uint32_t found = LAYOUT_NOWHERE;

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (can_have_workers(run, i) &&
            (found == LAYOUT_NOWHERE || present_on(run, i) < present_on(run, found))) {
            found = i;
        }
    }
    return found;
}

static bool
find_machine(const struct run *run, const char *name, uint32_t *machine_p, char *why_p, size_t size)
{
    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        const struct host *host = &run->hosts[i];

        if (strcasecmp(host->machine->name, name) != 0 && strcasecmp(host->hostname, name) != 0) {
            continue;
        }
        *machine_p = i;
        if (!can_have_workers(run, i)) {
            snprintf(why_p, size, "--host %s: %s", name,
                     host->machine->workers == 0
                         ? "it has no workers of this job, and does not know their command"
                         : "it is not there");
            return false;
        }
        return true;
    }
    snprintf(why_p, size, "--host %s: no machine of this job; psd_run show lists them", name);
    return false;
}

static void
tell(struct run *run, FILE *answer, const char *line)
{
    console_tell(&run->console, CONSOLE_FAILOVER, "%s", line);
    runlog_line(&run->runlog, "SCALE", "%s", line);
    fprintf(answer, "%s\n", line);
}

static void
add_one(struct run *run, uint32_t machine, FILE *answer)
{
    const uint32_t slot = run->slots++;
    char line[LINE_BYTES];

    layout_add_worker(run->layout, machine);
    run->processes[slot] = (struct process){0};
    plan_name(run->plan, slot, run->processes[slot].name);
    free(run->host_map); /* without it */
    run->host_map = NULL;
    snprintf(line, sizeof(line), "%s is started on %s", run->processes[slot].name,
             run->hosts[machine].machine->name);
    tell(run, answer, line);
}

static bool
add(struct run *run, uint32_t count, const char *host, FILE *answer, char *why_p, size_t size)
{
    uint32_t machine = LAYOUT_NOWHERE;

    if (strcmp(host, "-") != 0 && !find_machine(run, host, &machine, why_p, size)) {
        return false;
    }
    if (emptiest_machine(run) == LAYOUT_NOWHERE) {
        snprintf(why_p, size, "no machine with workers is there");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        add_one(run, machine != LAYOUT_NOWHERE ? machine : emptiest_machine(run), answer);
    }
    if (!watch_workers_add(&run->watch, count, run->places.machine_of)) {
        abort(); /* there is no memory for a few numbers */
    }
    return true;
}

static void
remove_some(struct run *run, uint32_t count, uint32_t grace_s, FILE *answer)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t slot = watch_workers_remove(&run->watch, grace_s * 1000, psi_monotonic_ms());
        char line[LINE_BYTES];

        snprintf(line, sizeof(line), "%s is asked to leave, by SIGTERM, in %u s",
                 run->processes[slot].name, grace_s);
        tell(run, answer, line);
    }
}

static bool
change(struct run *run, const struct watch_workers_ask *ask, uint32_t grace_s, const char *host,
       FILE *answer, char *why_p, size_t size)
{
    struct watch_workers_change wanted;

    if (!watch_workers_plan(&run->watch, ask, &wanted, why_p, size)) {
        return false;
    }
    if (wanted.fewer > 0 && strcmp(host, "-") != 0) {
        snprintf(why_p, size,
                 "--host is for workers that come: those with the highest ranks leave");
        return false;
    }
    if (wanted.more > 0) {
        return add(run, wanted.more, host, answer, why_p, size);
    }
    remove_some(run, wanted.fewer, grace_s, answer);
    return true;
}

char *
scale_workers_answer(struct run *run, const char *line)
{
    struct watch_workers_ask ask;
    char host[HOST_BYTES];
    char why[LINE_BYTES];
    char *lines = NULL;
    char *answer = NULL;
    size_t bytes = 0;
    unsigned grace_s;
    FILE *stream;
    bool well;

    if (sscanf(line, "scale workers %c %u %u %255s\n", &ask.sign, &ask.number, &grace_s, host) !=
        4) {
        return NULL;
    }
    stream = open_memstream(&lines, &bytes);
    if (stream == NULL) {
        return NULL;
    }
    well = change(run, &ask, grace_s, host, stream, why, sizeof(why));
    fclose(stream);
    if (asprintf(&answer, "%s\n%s%s", well ? "done" : "refused", well ? lines : why,
                 well ? "" : "\n") < 0) {
        answer = NULL;
    }
    free(lines);
    return answer;
}

void
scale_workers_told(struct run *run, const struct psi_tiding *tiding, uint32_t slot)
{
    struct process *process = &run->processes[slot];

    if (tiding->kind == PSI_TIDING_COUNTS) {
        process->counts_from = tiding->step;
        console_tell(&run->console, CONSOLE_FAILOVER, "%s counts from step %llu on", process->name,
                     (unsigned long long)tiding->step);
    } else {
        process->left_at = tiding->step;
        if (run->watch.slots[slot].is_leaving) {
            console_tell(&run->console, CONSOLE_FAILOVER,
                         "%s has left: who counts is another set from step %llu on", process->name,
                         (unsigned long long)tiding->step);
        }
    }
}

void
scale_workers_text(const struct run *run, char *text_p, size_t size)
{
    uint32_t joined = 0;
    uint32_t left = 0;

    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
        joined += run->watch.slots[slot].counts;
        left += run->watch.slots[slot].is_leaving;
    }
    text_p[0] = '\0';
    if (joined > 0 || left > 0) {
        snprintf(text_p, size, "%u worker%s joined on the way, %u %s asked to leave", joined,
                 joined == 1 ? "" : "s", left, left == 1 ? "was" : "were");
    }
}
