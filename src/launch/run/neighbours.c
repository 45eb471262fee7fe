/*
 * neighbours.c - which processes share a computer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/run/neighbours.h"

#include <string.h>

/* Containers of one computer that share its network but have names of their own count as several.
 */
static bool
is_same(const struct host *one, const struct host *other)
{
    return one->computer == other->computer && strcmp(one->hostname, other->hostname) == 0 &&
           (one->computer != 0 || one->machine->joined || other->machine->joined);
}

void
neighbours_number(struct host *hosts, uint32_t count)
{
    uint32_t nodes = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = 0;

        while (first < i && !is_same(&hosts[first], &hosts[i])) {
            first++;
        }
        hosts[i].node = first < i ? hosts[first].node : nodes++;
        hosts[i].node_workers = 0;
        hosts[first].node_workers += hosts[i].machine->workers;
    }
}

const struct host *
neighbours_first(const struct host *hosts, const struct host *host)
{
    while (hosts != host && !is_same(hosts, host)) {
        hosts++;
    }
    return hosts;
}

void
neighbours_find(const struct layout *layout, const struct host *hosts, uint32_t servers,
                uint32_t slot, struct neighbours *neighbours_p)
{
    const enum launch_role role = role_of_slot(slot, servers);
    const uint32_t node = hosts[layout->machine_of[slot]].node;

    *neighbours_p = (struct neighbours){.node = node};
    for (uint32_t i = 0; i < layout->slots; i++) {
        if (role_of_slot(i, servers) == role && hosts[layout->machine_of[i]].node == node) {
            neighbours_p->local_rank += i < slot;
            neighbours_p->local_size++;
        }
    }
    for (uint32_t i = 0; i < layout->machine_count; i++) {
        const bool before = hosts[i].node < node;
        const bool crosses = hosts[i].node_workers > neighbours_p->local_rank;

        neighbours_p->nodes =
            hosts[i].node >= neighbours_p->nodes ? hosts[i].node + 1 : neighbours_p->nodes;
        neighbours_p->worker_node += before && hosts[i].node_workers > 0;
        neighbours_p->worker_nodes += hosts[i].node_workers > 0;
        neighbours_p->cross_rank += before && crosses;
        neighbours_p->cross_size += crosses;
    }
}

uint32_t
neighbours_workers(const struct layout *layout, const struct host *hosts, uint32_t machine)
{
    uint32_t workers = 0;

    for (uint32_t i = 0; i < layout->machine_count; i++) {
        workers += hosts[i].node == hosts[machine].node ? layout->machines[i].workers : 0;
    }
    return workers;
}
