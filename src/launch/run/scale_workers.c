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

/* Behind the last step that has ended is one that is open, one that may close while lanes are asked, and the first
 * that a new worker can have. */
enum { STEPS_AHEAD = 3 };

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
add_one(struct run *run, uint32_t machine, uint32_t at_step, FILE *answer)
{
    const uint32_t slot = run->slots++;
    char line[SCALE_LINE_BYTES];

    layout_add_worker(run->layout, machine);
    run->processes[slot] = (struct process){.join_step = at_step};
    plan_name(run->plan, slot, run->processes[slot].name);
    free(run->host_map); /* without it */
    run->host_map = NULL;
    if (at_step != 0) {
        snprintf(line, sizeof(line), "%s is started on %s, to count from step %u on",
                 run->processes[slot].name, run->hosts[machine].machine->name, at_step);
    } else {
        snprintf(line, sizeof(line), "%s is started on %s", run->processes[slot].name,
                 run->hosts[machine].machine->name);
    }
    scale_tell(run, answer, line);
}

/* The master decides: it knows how far the lanes are. Here it is known half a second later, and who asks hears at
 * once of most of what cannot be. */
static bool
may_come_at(const struct run *run, uint32_t at_step, char *why_p, size_t size)
{
    const uint64_t step = run->feed != NULL ? feed_furthest_step(run->feed) : 0;

    if (at_step == 0 || step == 0 || at_step >= step + STEPS_AHEAD) {
        return true;
    }
    snprintf(why_p, size,
             "--at_step %u: its workers have ended step %llu, and %llu is the first that a new one "
             "may have",
             at_step, (unsigned long long)step, (unsigned long long)(step + STEPS_AHEAD));
    return false;
}

struct asked {
    struct watch_workers_ask ask;
    unsigned grace_s;
    unsigned at_step;            /* 0: it was not said */
    char host[SCALE_HOST_BYTES]; /* "-": likewise */
};

static bool
add(struct run *run, uint32_t count, const struct asked *asked, FILE *answer, char *why_p,
    size_t size)
{
    uint32_t machine = LAYOUT_NOWHERE;

    if (strcmp(asked->host, "-") != 0 &&
        !scale_find_machine(run, &workers, asked->host, &machine, why_p, size)) {
        return false;
    }
    if (!may_come_at(run, asked->at_step, why_p, size)) {
        return false;
    }
    if (scale_emptiest_machine(run, &workers) == LAYOUT_NOWHERE) {
        snprintf(why_p, size, "no machine with workers is there");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        add_one(run, machine != LAYOUT_NOWHERE ? machine : scale_emptiest_machine(run, &workers),
                asked->at_step, answer);
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
    if (wanted.fewer > 0 && asked->at_step != 0) {
        snprintf(why_p, size, "--at_step %u is for workers that come: %u would leave",
                 asked->at_step, wanted.fewer);
        return false;
    }
    if (wanted.more > 0) {
        return add(run, wanted.more, asked, answer, why_p, size);
    }
    remove_some(run, wanted.fewer, asked->grace_s, answer);
    return true;
}

char *
scale_workers_answer(struct run *run, const char *line)
{
    struct asked asked;

    if (sscanf(line, "scale workers %c %u %u %u %255s\n", &asked.ask.sign, &asked.ask.number,
               &asked.grace_s, &asked.at_step, asked.host) != 5) {
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
