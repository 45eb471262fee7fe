/*
 * scale_servers.c - psd_run scale --servers: servers for a job that runs, or fewer of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/scale_servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/monotonic.h"
#include "launch/plan/layout.h"
#include "launch/rules/watch_scale.h"
#include "launch/run/host.h"
#include "launch/system/wall_clock.h"
#include "launch/text/memory.h"

enum { LINE_BYTES = 400, HOST_BYTES = 256 };

static bool
can_have_servers(const struct run *run, uint32_t machine)
{
    return run->hosts[machine].state == HOST_READY;
}

static uint32_t
servers_on(const struct run *run, uint32_t machine)
{
    uint32_t count = 0;

    for (uint32_t slot = 1; slot <= run->plan->servers; slot++) {
        count += run->layout->machine_of[slot] == machine && !run->watch.slots[slot].is_hosted;
    }
    return count;
}

/* The machine with the fewest servers; LAYOUT_NOWHERE: there is none. */
static uint32_t
emptiest_machine(const struct run *run)
{
    uint32_t found = LAYOUT_NOWHERE;

    for (uint32_t i = 0; i < run->layout->machine_count; i++) {
        if (can_have_servers(run, i) &&
            (found == LAYOUT_NOWHERE || servers_on(run, i) < servers_on(run, found))) {
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
        if (!can_have_servers(run, i)) {
            snprintf(why_p, size, "--host %s: it is not there", name);
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
    if (answer != NULL) {
        fprintf(answer, "%s\n", line);
    }
}

static void
add_one(struct run *run, uint32_t machine, FILE *answer)
{
    const uint32_t slot = watch_servers_next(&run->watch);
    char line[LINE_BYTES];

    layout_add_server(run->layout, slot, machine);
    free(run->host_map); /* without it */
    run->host_map = NULL;
    snprintf(line, sizeof(line),
             "%s is started on %s: its share moves there while training goes on",
             run->processes[slot].name, run->hosts[machine].machine->name);
    tell(run, answer, line);
    run->servers_came++;
    watch_server_add(&run->watch, slot);
}

static bool
add(struct run *run, uint32_t count, const char *host, FILE *answer, char *why_p, size_t size)
{
    uint32_t machine = LAYOUT_NOWHERE;

    if (strcmp(host, "-") != 0 && !find_machine(run, host, &machine, why_p, size)) {
        return false;
    }
    if (emptiest_machine(run) == LAYOUT_NOWHERE) {
        snprintf(why_p, size, "no machine is there");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        add_one(run, machine != LAYOUT_NOWHERE ? machine : emptiest_machine(run), answer);
    }
    return true;
}

static void
remove_some(struct run *run, uint32_t count, FILE *answer)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t slot = watch_server_remove(&run->watch);
        char line[LINE_BYTES];

        snprintf(line, sizeof(line), "%s is to leave: what it has moves to the others first",
                 run->processes[slot].name);
        tell(run, answer, line);
    }
}

static bool
change(struct run *run, const struct watch_workers_ask *ask, const char *host, FILE *answer,
       char *why_p, size_t size)
{
    struct watch_workers_change wanted;

    if (!watch_servers_plan(&run->watch, ask, &wanted, why_p, size)) {
        return false;
    }
    if (wanted.fewer > 0 && strcmp(host, "-") != 0) {
        snprintf(why_p, size,
                 "--host is for servers that come: those with the highest numbers leave");
        return false;
    }
    if (wanted.more > 0) {
        return add(run, wanted.more, host, answer, why_p, size);
    }
    remove_some(run, wanted.fewer, answer);
    return true;
}

char *
scale_servers_answer(struct run *run, const char *line)
{
    struct watch_workers_ask ask;
    char host[HOST_BYTES];
    char why[LINE_BYTES];
    char *lines = NULL;
    char *answer = NULL;
    size_t bytes = 0;
    FILE *stream;
    bool well;

    if (sscanf(line, "scale servers %c %u %255s\n", &ask.sign, &ask.number, host) != 3) {
        return NULL;
    }
    stream = open_memstream(&lines, &bytes);
    if (stream == NULL) {
        return NULL;
    }
    well = change(run, &ask, host, stream, why, sizeof(why));
    fclose(stream);
    if (asprintf(&answer, "%s\n%s%s", well ? "done" : "refused", well ? lines : why,
                 well ? "" : "\n") < 0) {
        answer = NULL;
    }
    free(lines);
    return answer;
}

static void
note_move(struct run *run, const struct psi_tiding *tiding)
{
    run->moves = memory_need(realloc(run->moves, (run->move_count + 1) * sizeof(*run->moves)));
    run->moves[run->move_count++] = (struct place_move){.server = tiding->rank,
                                                        .lane = tiding->lane,
                                                        .to = tiding->to,
                                                        .bytes = tiding->bytes,
                                                        .at_ms = wall_clock_ms()};
}

void
scale_servers_told(struct run *run, const struct psi_tiding *tiding, uint32_t slot)
{
    char line[LINE_BYTES];

    if (tiding->kind == PSI_TIDING_MOVED) {
        note_move(run, tiding);
    } else if (tiding->kind == PSI_TIDING_HELD && watch_server_is_leaving(&run->watch, slot)) {
        snprintf(line, sizeof(line), "%s cannot leave: %.300s", run->processes[slot].name,
                 tiding->text);
        tell(run, NULL, line);
    }
}

void
scale_servers_drained(struct run *run, uint32_t slot)
{
    char line[LINE_BYTES];

    layout_take_server(run->layout, slot);
    run->servers_left++;
    snprintf(line, sizeof(line), "%s has nothing any more, and is ended",
             run->processes[slot].name);
    tell(run, NULL, line);
}

void
scale_servers_not_come(struct run *run, uint32_t slot)
{
    char line[LINE_BYTES];

    layout_take_server(run->layout, slot);
    run->servers_came--;
    snprintf(line, sizeof(line), "%s has not come: the job goes on without it; its log says why",
             run->processes[slot].name);
    tell(run, NULL, line);
}

json_t *
scale_servers_json(const struct run *run)
{
    json_t *list = json_array();

    for (size_t i = 0; i < run->move_count; i++) {
        const struct place_move *move = &run->moves[i];
        json_t *one = json_object();

        json_object_set_new(one, "server", json_integer(move->server));
        json_object_set_new(one, "lane", json_integer(move->lane));
        json_object_set_new(one, "to", json_string(run->processes[1 + move->to].name));
        json_object_set_new(one, "bytes", json_integer((json_int_t)move->bytes));
        json_object_set_new(one, "at", json_real((double)move->at_ms / 1000));
        json_array_append_new(list, one);
    }
    return list;
}

void
scale_servers_text(const struct run *run, char *text_p, size_t size)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < run->move_count; i++) {
        bytes += run->moves[i].bytes;
    }
    text_p[0] = '\0';
    if (run->servers_came > 0 || run->servers_left > 0) {
        snprintf(text_p, size, "%u server%s came on the way, %u left: %zu places moved, %llu bytes",
                 run->servers_came, run->servers_came == 1 ? "" : "s", run->servers_left,
                 run->move_count, (unsigned long long)bytes);
    }
}
