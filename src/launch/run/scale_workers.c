/*
 * scale_workers.c - psd_run scale --workers: workers for a job that runs, or fewer of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/scale_workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "launch/plan/layout.h"
#include "launch/rules/watch_workers.h"
#include "launch/run/host.h"
#include "launch/run/scale_place.h"

/* Agents know the workers' command where there are workers. */
static const char *
obstacle(const struct run *run, uint32_t machine)
{
    const struct host *host = &run->hosts[machine];

    if (host->machine->workers == 0) {
        return "it has no workers of this job, and does not know their command";
    }
    return host->state == HOST_READY ? NULL : "it is not there";
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

static const struct scale_kind workers = {.obstacle = obstacle, .present = present_on};

static void
add_one(struct run *run, uint32_t machine, FILE *answer)
{
    const uint32_t slot = run->slots++;
    char line[SCALE_LINE_BYTES];

    layout_add_worker(run->layout, machine);
    run->processes[slot] = (struct process){0};
    plan_name(run->plan, slot, run->processes[slot].name);
    free(run->host_map); /* without it */
    run->host_map = NULL;
    snprintf(line, sizeof(line), "%s is started on %s", run->processes[slot].name,
             run->hosts[machine].machine->name);
    scale_tell(run, answer, line);
}

static bool
add(struct run *run, uint32_t count, const char *host, FILE *answer, char *why_p, size_t size)
{
    uint32_t machine = LAYOUT_NOWHERE;

    if (strcmp(host, "-") != 0 && !scale_find_machine(run, &workers, host, &machine, why_p, size)) {
        return false;
    }
    if (scale_emptiest_machine(run, &workers) == LAYOUT_NOWHERE) {
        snprintf(why_p, size, "no machine with workers is there");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        add_one(run, machine != LAYOUT_NOWHERE ? machine : scale_emptiest_machine(run, &workers),
                answer);
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
        char line[SCALE_LINE_BYTES];

        snprintf(line, sizeof(line), "%s is asked to leave, by SIGTERM, in %u s",
                 run->processes[slot].name, grace_s);
        scale_tell(run, answer, line);
    }
}

struct asked {
    struct watch_workers_ask ask;
    unsigned grace_s;
    char host[SCALE_HOST_BYTES]; /* "-": it was not said */
};

static bool
change(struct run *run, const void *object, FILE *answer, char *why_p, size_t size)
{
    const struct asked *asked = object;
    struct watch_workers_change wanted;

    if (!watch_workers_plan(&run->watch, &asked->ask, &wanted, why_p, size)) {
        return false;
    }
    if (wanted.fewer > 0 && strcmp(asked->host, "-") != 0) {
        snprintf(why_p, size,
                 "--host is for workers that come: those with the highest ranks leave");
        return false;
    }
    if (wanted.more > 0) {
        return add(run, wanted.more, asked->host, answer, why_p, size);
    }
    remove_some(run, wanted.fewer, asked->grace_s, answer);
    return true;
}

char *
scale_workers_answer(struct run *run, const char *line)
{
    struct asked asked;

    if (sscanf(line, "scale workers %c %u %u %255s\n", &asked.ask.sign, &asked.ask.number,
               &asked.grace_s, asked.host) != 4) {
        return NULL;
    }
    return scale_answer(run, change, &asked);
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
