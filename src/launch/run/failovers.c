/*
 * failovers.c - servers, and the master, that died while the job went on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/failovers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "launch/run/end_text.h"

enum { FAILOVERS_MAX = 1000 }; /* that result.json tells of */

static struct failover *
find_open(const struct run *run, uint32_t slot)
{
    for (size_t i = 0; i < run->failover_count; i++) {
        if (run->failovers[i].slot == slot && run->failovers[i].back_ms == 0) {
            return &run->failovers[i];
        }
    }
    return NULL;
}

/* Whether another server has had its part since its process ended. */
static bool
was_elsewhere(const struct run *run, uint32_t slot)
{
    bool was = false;

    for (size_t i = 0; i < run->failover_count; i++) {
        was = was || (run->failovers[i].slot == slot &&
                      run->failovers[i].back_ms >= run->watch.slots[slot].end_ms);
    }
    return slot != 0 && was;
}

/* When its part was last there: lost with its process; or, if another one has had it since, with that.
 * Of a machine that is lost, when something was last heard. */
static uint64_t
last_there_ms(struct run *run, uint32_t slot)
{
    const struct watch_slot *process = &run->watch.slots[slot];
    const struct host *host = run_host_of(run, slot);

    if (host->lost && host->heard_ms < process->end_ms) {
        return host->heard_ms;
    }
    if (process->alive) {
        return psi_monotonic_ms();
    }
    return was_elsewhere(run, slot) ? run->server_lost_ms : process->end_ms;
}

/* Without memory, or after very many of them, people are told all the same. */
static void
remember(struct run *run, uint32_t slot, const char *why)
{
    struct failover *grown;

    if (run->failover_count == FAILOVERS_MAX ||
        find_open(run, slot) != NULL) { /* it died again before it was back */
        return;
    }
    grown = realloc(run->failovers, (run->failover_count + 1) * sizeof(*grown));
    if (grown != NULL) {
        run->failovers = grown;
        grown[run->failover_count] =
            (struct failover){.slot = slot, .lost_ms = last_there_ms(run, slot)};
        snprintf(grown[run->failover_count].why, sizeof(grown->why), "%s", why);
        run->failover_count++;
    }
}

/* How it ended, or that its machine did. */
static void
say_end(struct run *run, uint32_t slot, char why_p[FAILOVER_WHY_MAX])
{
    const struct watch_slot *server = &run->watch.slots[slot];
    const struct host *host = run_host_of(run, slot);

    if (host->lost) {
        snprintf(why_p, FAILOVER_WHY_MAX, "%s was on %.100s, which was lost",
                 run->processes[slot].name, host->machine->name);
    } else {
        end_text_exit(run, slot, server->code, server->signal, why_p, FAILOVER_WHY_MAX);
    }
}

void
failovers_begin(struct run *run, uint32_t slot)
{
    const struct watch_slot *server = &run->watch.slots[slot];
    char why[FAILOVER_WHY_MAX];
    char when[32];

    if (server->alive) {
        char who[128];

        end_text_name(run, slot, who, sizeof(who));
        if (run->watch.inquest.processes[slot].loss == PSI_LOSS_UNREACHED) {
            snprintf(why, sizeof(why), "%.100s was not reached by the workers and was killed", who);
        } else {
            snprintf(why, sizeof(why), "%.100s was silent for %llu ms and was killed", who,
                     (unsigned long long)(slot == 0 ? status_silence_ms(&run->status)
                                                    : run->watch.config.silence_ms));
        }
        snprintf(when, sizeof(when), "when it is gone");
    } else {
        say_end(run, slot, why);
        end_text_delay(server->delay_ms, when, sizeof(when));
    }
    if (server->is_rolled) { /* rolling.c tells people */
        struct failover *failover;

        remember(run, slot, "psd_run restart --servers");
        failover = find_open(run, slot);
        if (failover != NULL) {
            failover->is_rolled = true;
        }
        return;
    }
    console_tell(&run->console, CONSOLE_FAILOVER,
                 "%s; it is started again, %s, and the job goes on", why, when);
    runlog_line(&run->runlog, "FAILOVER", "%s; it is started again, %s", why, when);
    remember(run, slot, why);
}

void
failovers_move(struct run *run, uint32_t slot, const struct host *to)
{
    struct failover *failover = find_open(run, slot);

    if (failover != NULL) {
        failover->to = to->machine->name;
    }
}

void
failovers_hosted(struct run *run, uint32_t slot)
{
    struct failover *failover;
    char why[FAILOVER_WHY_MAX];

    say_end(run, slot, why);
    console_tell(&run->console, CONSOLE_FAILOVER,
                 "%s; another server takes its part, and the job goes on", why);
    runlog_line(&run->runlog, "FAILOVER", "%s; another server takes its part", why);
    remember(run, slot, why);
    failover = find_open(run, slot);
    if (failover != NULL) {
        failover->is_hosted = true;
    }
}

static uint64_t
took_ms(const struct failover *failover)
{
    return failover->back_ms - failover->lost_ms;
}

void
failovers_duration(uint64_t ms, char *text_p, size_t size)
{
    if (ms < 1000) {
        snprintf(text_p, size, "%u ms", ms > 0 ? (unsigned)ms : 1); /* nothing takes no time */
    } else {
        snprintf(text_p, size, "%.1f s", (double)((ms + 99) / 100) / 10); /* no less than it took */
    }
}

void
failovers_end(struct run *run, uint32_t slot)
{
    struct failover *failover = find_open(run, slot);
    char who[128];
    char what[160];
    char took[32];
    const char *where;

    if (failover == NULL) {
        return;
    }
    failover->back_ms = psi_monotonic_ms();
    if (run->watch.slots[slot].is_rolled) {
        return;
    }
    end_text_name(run, slot, who, sizeof(who));
    snprintf(what, sizeof(what), failover->is_hosted ? "the part of %s" : "%s", who);
    where = failover->is_hosted ? ", in another server" : "";
    failovers_duration(took_ms(failover), took, sizeof(took));
    console_tell(&run->console, CONSOLE_FAILOVER, "%s is back after %s%s", what, took, where);
    runlog_line(&run->runlog, "FAILOVER", "%s is back after %.3f s%s", what,
                (double)took_ms(failover) / 1000, where);
}

void
failovers_copied(struct run *run, uint32_t slot)
{
    struct failover *failover = find_open(run, slot);

    if (failover != NULL) {
        failover->is_hosted = true;
    } else if (run->watch.slots[slot].is_hosted) { /* it is not started again */
        failovers_hosted(run, slot);
    }
    failovers_end(run, slot);
}

/* Those that died and were back. */
struct deaths {
    size_t count;
    size_t of_master;
    bool of_one; /* all of the same process */
    const struct failover *longest;
};

static struct deaths
count_deaths(const struct failover *failovers, size_t count)
{
    struct deaths deaths = {.of_one = true};

    for (size_t i = 0; i < count; i++) {
        const struct failover *failover = &failovers[i];

        if (failover->back_ms != 0 && !failover->is_rolled) {
            deaths.count++;
            deaths.of_master += failover->slot == 0;
            deaths.of_one =
                deaths.of_one && (deaths.longest == NULL || deaths.longest->slot == failover->slot);
            if (deaths.longest == NULL || took_ms(failover) > took_ms(deaths.longest)) {
                deaths.longest = failover;
            }
        }
    }
    return deaths;
}

void
failovers_words(const struct failover *failovers, size_t count, const char *name_of_longest,
                char *text_p, size_t size)
{
    const struct deaths deaths = count_deaths(failovers, count);
    const struct failover *longest = deaths.longest;
    char took[32];
    char times[32];

    text_p[0] = '\0';
    if (deaths.count == 0) {
        return;
    }
    failovers_duration(took_ms(longest), took, sizeof(took));
    snprintf(times, sizeof(times), deaths.count == 2 ? "twice" : "%zu times", deaths.count);
    if (deaths.count == 1) {
        snprintf(text_p, size, "%s died and was back%s%.100s after %s", name_of_longest,
                 longest->to != NULL ? " on " : "", longest->to != NULL ? longest->to : "", took);
    } else if (deaths.of_one) {
        snprintf(text_p, size, "%s died %s and was back within %s each time", name_of_longest,
                 times, took);
    } else {
        snprintf(text_p, size, "%s died %s and were back within %s each time (%s took longest)",
                 deaths.of_master > 0 ? "servers and the master" : "servers", times, took,
                 name_of_longest);
    }
}

void
failovers_text(const struct run *run, char *text_p, size_t size)
{
    const struct failover *longest = count_deaths(run->failovers, run->failover_count).longest;

    failovers_words(run->failovers, run->failover_count,
                    longest != NULL ? run->processes[longest->slot].name : "", text_p, size);
}

/* " and 2 fail-overs" */
static void
add_part(char *text_p, size_t size, uint32_t count, const char *one, const char *many)
{
    const size_t used = strlen(text_p);

    if (count > 0) {
        snprintf(text_p + used, size - used, "%s%u %s", used > 0 ? " and " : "", count,
                 count == 1 ? one : many);
    }
}

void
failovers_survived(const struct run *run, char *text_p, size_t size)
{
    uint32_t restarts = 0;

    for (uint32_t slot = 1 + run->plan->servers; slot < run->slots; slot++) {
        restarts += run->watch.slots[slot].restarts;
    }
    text_p[0] = '\0';
    if (run->watch.cause != WATCH_CAUSE_NONE) {
        return; /* it has not survived the last one */
    }
    add_part(text_p, size, (uint32_t)count_deaths(run->failovers, run->failover_count).count,
             "fail-over", "fail-overs");
    add_part(text_p, size, restarts, "restart of a worker", "restarts of workers");
    add_part(text_p, size, run->watch.workers_failed, "lost worker", "lost workers");
}

json_t *
failovers_json(const struct run *run)
{
    json_t *list = json_array();

    for (size_t i = 0; i < run->failover_count; i++) {
        const struct failover *failover = &run->failovers[i];
        json_t *one = json_object();

        json_object_set_new(one, "process", json_string(run->processes[failover->slot].name));
        json_object_set_new(one, "why", json_string(failover->why));
        json_object_set_new(one, "by",
                            json_string(failover->is_hosted ? "another server" : "restart"));
        if (failover->to != NULL) {
            json_object_set_new(one, "to", json_string(failover->to));
        }
        json_object_set_new(one, "seconds",
                            failover->back_ms != 0 ? json_real((double)took_ms(failover) / 1000)
                                                   : json_null());
        json_array_append_new(list, one);
    }
    return list;
}
