/*
 * scale_servers.c - psd_run scale --servers: servers for a job that runs, or fewer of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/scale_servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/monotonic.h"
#include "launch/plan/layout.h"
#include "launch/rules/watch_scale.h"
#include "launch/run/host.h"
#include "launch/run/scale_place.h"
#include "launch/system/wall_clock.h"
#include "launch/text/memory.h"

static const char *
obstacle(const struct run *run, uint32_t machine)
{
    return run->hosts[machine].state == HOST_READY ? NULL : "it is not there";
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

static const struct scale_kind servers = {.obstacle = obstacle, .present = servers_on};

static void
add_one(struct run *run, uint32_t machine, FILE *answer)
{
    const uint32_t slot = watch_servers_next(&run->watch);
    char line[SCALE_LINE_BYTES];

    layout_add_server(run->layout, slot, machine);
    free(run->host_map); /* without it */
    run->host_map = NULL;
    snprintf(line, sizeof(line),
             "%s is started on %s: its share moves there while training goes on",
             run->processes[slot].name, run->hosts[machine].machine->name);
    scale_tell(run, answer, line);
    run->servers_came++;
    watch_server_add(&run->watch, slot);
}

static bool
add(struct run *run, uint32_t count, const char *host, FILE *answer, char *why_p, size_t size)
{
    uint32_t machine = LAYOUT_NOWHERE;

    if (strcmp(host, "-") != 0 && !scale_find_machine(run, &servers, host, &machine, why_p, size)) {
        return false;
    }
    if (scale_emptiest_machine(run, &servers) == LAYOUT_NOWHERE) {
        snprintf(why_p, size, "no machine is there");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        add_one(run, machine != LAYOUT_NOWHERE ? machine : scale_emptiest_machine(run, &servers),
                answer);
    }
    return true;
}

static void
remove_some(struct run *run, uint32_t count, FILE *answer)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t slot = watch_server_remove(&run->watch);
        char line[SCALE_LINE_BYTES];

        snprintf(line, sizeof(line), "%s is to leave: what it has moves to the others first",
                 run->processes[slot].name);
        scale_tell(run, answer, line);
    }
}

struct asked {
    struct watch_workers_ask ask;
    char host[SCALE_HOST_BYTES]; /* "-": it was not said */
};

static bool
change(struct run *run, const void *object, FILE *answer, char *why_p, size_t size)
{
    const struct asked *asked = object;
    struct watch_workers_change wanted;

    if (!watch_servers_plan(&run->watch, &asked->ask, &wanted, why_p, size)) {
        return false;
    }
    if (wanted.fewer > 0 && strcmp(asked->host, "-") != 0) {
        snprintf(why_p, size,
                 "--host is for servers that come: those with the highest numbers leave");
        return false;
    }
    if (wanted.more > 0) {
        return add(run, wanted.more, asked->host, answer, why_p, size);
    }
    remove_some(run, wanted.fewer, answer);
    return true;
}

char *
scale_servers_answer(struct run *run, const char *line)
{
    struct asked asked;

    if (sscanf(line, "scale servers %c %u %255s\n", &asked.ask.sign, &asked.ask.number,
               asked.host) != 3) {
        return NULL;
    }
    return scale_answer(run, change, &asked);
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
    char line[SCALE_LINE_BYTES];

    if (tiding->kind == PSI_TIDING_MOVED) {
        note_move(run, tiding);
    } else if (tiding->kind == PSI_TIDING_HELD && watch_server_is_leaving(&run->watch, slot)) {
        snprintf(line, sizeof(line), "%s cannot leave: %.300s", run->processes[slot].name,
                 tiding->text);
        scale_tell(run, NULL, line);
    }
}

void
scale_servers_drained(struct run *run, uint32_t slot)
{
    char line[SCALE_LINE_BYTES];

    layout_take_server(run->layout, slot);
    run->servers_left++;
    snprintf(line, sizeof(line), "%s has nothing any more, and is ended",
             run->processes[slot].name);
    scale_tell(run, NULL, line);
}

void
scale_servers_not_come(struct run *run, uint32_t slot)
{
    char line[SCALE_LINE_BYTES];

    layout_take_server(run->layout, slot);
    run->servers_came--;
    snprintf(line, sizeof(line), "%s has not come: the job goes on without it; its log says why",
             run->processes[slot].name);
    scale_tell(run, NULL, line);
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
