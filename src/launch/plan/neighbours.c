/*
 * neighbours.c - which processes share a computer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/neighbours.h"

#include <stdlib.h>

#include "launch/text/memory.h"

void
computers_init(struct computers *computers, const struct layout *layout,
               bool (*is_same)(const void *context, uint32_t one, uint32_t other),
               const void *context)
{
    const uint32_t machines = layout->machine_count;

    *computers =
        (struct computers){.layout = layout,
                           .node_of = memory_need(calloc(machines, sizeof(*computers->node_of))),
                           .workers = memory_need(calloc(machines, sizeof(*computers->workers)))};
    for (uint32_t i = 0; i < machines; i++) {
        uint32_t first = is_same != NULL ? 0 : i;

        while (first < i && !is_same(context, first, i)) {
            first++;
        }
        computers->node_of[i] = first < i ? computers->node_of[first] : computers->count++;
        computers->workers[computers->node_of[i]] += layout->machines[i].workers;
    }
}

void
computers_fini(struct computers *computers)
{
    free(computers->node_of);
    free(computers->workers);
    *computers = (struct computers){.layout = NULL};
}

struct neighbours
neighbours_find(const struct computers *computers, uint32_t servers, uint32_t slot)
{
    const struct layout *layout = computers->layout;
    const enum launch_role role = role_of_slot(slot, servers);
    const uint32_t node = computers->node_of[layout->machine_of[slot]];
    struct neighbours found = {.node = node, .nodes = computers->count};

    for (uint32_t i = 0; i < layout->slots; i++) {
        if (role_of_slot(i, servers) == role && computers->node_of[layout->machine_of[i]] == node) {
            found.local_rank += i < slot;
            found.local_size++;
        }
    }
    for (uint32_t i = 0; i < computers->count; i++) {
        const bool crosses = computers->workers[i] > found.local_rank;

        found.worker_node += i < node && computers->workers[i] > 0;
        found.worker_nodes += computers->workers[i] > 0;
        found.cross_rank += i < node && crosses;
        found.cross_size += crosses;
    }
    return found;
}
