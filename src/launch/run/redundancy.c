/*
 * redundancy.c - which process has which server's part and which copy.
 *
 * The master tells it (tidings.h); how far a copy has come is what the lanes of the server count.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/redundancy.h"

#include <stdio.h>

#include "launch/page/feed.h"

enum { NAME_BYTES = 16 }; /* "server255, " */

static const char *const words[] = {[PSI_COPY_NONE] = "none",
                                    [PSI_COPY_FORMING] = "forming",
                                    [PSI_COPY_WHOLE] = "whole",
                                    [PSI_COPY_NEEDLESS] = "needless"};

/* "server1", by its index; null: nobody. The master is another process: what it says is checked. */
static json_t *
name_of(const struct run *run, uint32_t index)
{
    return index < run->plan->servers ? json_string(run->processes[1 + index].name) : json_null();
}

/* "server1", "server1, server3": who has any of them, in the order of the lanes; null: nobody. */
static json_t *
names_of(const struct run *run, const uint32_t *list, uint32_t lanes)
{
    char text[PSI_TIDING_LANES * NAME_BYTES] = "";
    size_t used = 0;

    for (uint32_t lane = 0; lane < lanes; lane++) {
        const uint32_t index = list[lane];
        uint32_t first = 0;

        while (list[first] != index) {
            first++;
        }
        if (index < run->plan->servers && first == lane && used < sizeof(text)) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used > 0 ? ", " : "",
                                     run->processes[1 + index].name);
        }
    }
    return used > 0 ? json_string(text) : json_null();
}

/* "server0"; "server0 (1 of 3 lanes)", where others have the rest. */
static void
add_role(const struct run *run, json_t *list, uint32_t server, uint32_t lanes)
{
    const uint32_t all = run->watch.slots[1 + server].place.lanes;
    const char *name = run->processes[1 + server].name;

    if (lanes == all) {
        json_array_append_new(list, json_string(name));
    } else if (lanes > 0) {
        json_array_append_new(list, json_sprintf("%s (%u of %u lanes)", name, lanes, all));
    }
}

static json_t *
metric_of(const struct run *run, uint32_t server, enum psi_metric metric)
{
    return run->feed != NULL
               ? json_integer((json_int_t)feed_server_metric(run->feed, server, metric))
               : json_null();
}

json_t *
redundancy_json(const struct run *run)
{
    json_t *list = json_array();

    for (uint32_t index = 0; index < run->plan->servers; index++) {
        const struct watch_slot *slot = &run->watch.slots[1 + index];
        const struct psi_tiding_place *place = &slot->place;
        json_t *one;

        if (!slot->is_placed) {
            continue;
        }
        one = json_object();
        json_object_set_new(one, "server", name_of(run, index));
        json_object_set_new(one, "by", names_of(run, place->by, place->lanes));
        json_object_set_new(one, "copy", json_string(words[place->state]));
        json_object_set_new(one, "copy_in", names_of(run, place->copy, place->lanes));
        if (place->state == PSI_COPY_FORMING || place->state == PSI_COPY_WHOLE) {
            json_object_set_new(one, "chunks_left", metric_of(run, index, PSI_METRIC_COPY_LEFT));
            json_object_set_new(one, "queued_bytes", metric_of(run, index, PSI_METRIC_COPY_QUEUE));
        }
        json_array_append_new(list, one);
    }
    return list;
}

void
redundancy_tell_process(const struct run *run, uint32_t slot, json_t *process)
{
    json_t *primary_of = json_array();
    json_t *copy_of = json_array();

    for (uint32_t index = 0; index < run->plan->servers; index++) {
        const struct watch_slot *server = &run->watch.slots[1 + index];

        if (server->is_placed) {
            add_role(run, primary_of, index, psi_tiding_place_served(&server->place, slot - 1));
            add_role(run, copy_of, index, psi_tiding_place_copied(&server->place, slot - 1));
        }
    }
    json_object_set_new(process, "primary_of", primary_of);
    json_object_set_new(process, "copy_of", copy_of);
}
