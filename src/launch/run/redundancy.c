/*
 * redundancy.c - which process has which server's part and which copy.
 *
 * The master tells it (tidings.h); how far a copy has come is what the lanes of the server count.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/redundancy.h"

#include "launch/page/feed.h"

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
        json_object_set_new(one, "by", name_of(run, place->by));
        json_object_set_new(one, "copy", json_string(words[place->state]));
        json_object_set_new(one, "copy_in", name_of(run, place->copy));
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

        if (server->is_placed && server->place.by == slot - 1) {
            json_array_append_new(primary_of, name_of(run, index));
        }
        if (server->is_placed && server->place.copy == slot - 1) {
            json_array_append_new(copy_of, name_of(run, index));
        }
    }
    json_object_set_new(process, "primary_of", primary_of);
    json_object_set_new(process, "copy_of", copy_of);
}
