/*
 * layout.c - which machines a job has, and which process runs where.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/plan/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "launch/rules/role.h"
#include "launch/system/is_local.h"
#include "launch/text/memory.h"

static const struct psi_cluster_node local_node = {.host = "localhost", .slots = 1};

/* The same name is the same machine, unless two logins of it differ. */
static bool
is_same(const struct layout_machine *machine, const struct psi_cluster_node *node, bool here)
{
    if (here || machine->here) {
        return here && machine->here;
    }
    return strcasecmp(machine->name, node->host) == 0 &&
           (node->user[0] == '\0' || machine->user[0] == '\0' ||
            strcmp(machine->user, node->user) == 0) &&
           (node->ssh_port == 0 || machine->ssh_port == 0 || machine->ssh_port == node->ssh_port);
}

/* The machine of a node, new if need be. There is room for one per slot. */
static uint32_t
find_machine(struct layout *layout, const struct psi_cluster_node *node)
{
    /* A login that was spelled out is meant: it may lead into a container, or to another user. */
    const bool here = is_local(node->host) && node->user[0] == '\0' && node->ssh_port == 0;
    struct layout_machine *machine;
    uint32_t i = 0;

    while (i < layout->machine_count && !is_same(&layout->machines[i], node, here)) {
        i++;
    }
    machine = &layout->machines[i];
    if (i == layout->machine_count) {
        layout->machine_count++;
        memcpy(machine->name, node->host, sizeof(machine->name));
        machine->here = here;
    }
    if (machine->user[0] == '\0') {
        memcpy(machine->user, node->user, sizeof(machine->user));
    }
    if (machine->ssh_port == 0) {
        machine->ssh_port = node->ssh_port;
    }
    if (machine->address[0] == '\0' && node->addr != NULL) {
        snprintf(machine->address, sizeof(machine->address), "%s", node->addr);
    }
    return i;
}

static const struct psi_cluster_node *
node_of_slot(const struct psi_cluster *cluster, uint32_t slot, uint32_t servers)
{
    const uint32_t index = role_index(slot, servers);

    if (cluster == NULL) {
        return &local_node;
    }
    switch (role_of_slot(slot, servers)) {
    case LAUNCH_MASTER:
        return cluster->master.host[0] != '\0' ? &cluster->master : &local_node;
    case LAUNCH_SERVER:
        return &cluster->servers[index];
    case LAUNCH_WORKER:
        return &cluster->workers[index];
    }
    return &local_node;
}

static void
place_slot(struct layout *layout, uint32_t slot, uint32_t servers,
           const struct psi_cluster_node *node)
{
    const uint32_t index = find_machine(layout, node);
    struct layout_machine *machine = &layout->machines[index];

    layout->machine_of[slot] = index;
    layout->gpus[slot] = node->gpus;
    machine->processes++;
    switch (role_of_slot(slot, servers)) {
    case LAUNCH_MASTER:
        break;
    case LAUNCH_SERVER:
        layout->local_rank[slot] = machine->servers++;
        break;
    case LAUNCH_WORKER:
        layout->local_rank[slot] = machine->workers++;
        break;
    }
}

static struct layout
allocate(uint32_t slots)
{
    struct layout layout = {.slots = slots};

    layout.machines = memory_need(calloc(slots, sizeof(*layout.machines)));
    layout.machine_of = memory_need(calloc(slots, sizeof(*layout.machine_of)));
    layout.local_rank = memory_need(calloc(slots, sizeof(*layout.local_rank)));
    layout.gpus = memory_need(calloc(slots, sizeof(*layout.gpus)));
    return layout;
}

struct layout
layout_build(const struct psi_cluster *cluster, uint32_t servers, uint32_t workers)
{
    struct layout layout = allocate(1 + servers + workers);

    /* Workers first: they count the machines. The master last: its entry has no port of ssh. */
    for (uint32_t slot = 1 + servers; slot < layout.slots; slot++) {
        place_slot(&layout, slot, servers, node_of_slot(cluster, slot, servers));
    }
    for (uint32_t slot = 1; slot <= servers; slot++) {
        place_slot(&layout, slot, servers, node_of_slot(cluster, slot, servers));
    }
    place_slot(&layout, 0, servers, node_of_slot(cluster, 0, servers));
    return layout;
}

static void
place_task(struct layout *layout, uint32_t index, const struct layout_task *task, uint32_t slot)
{
    struct layout_machine *machine = &layout->machines[index];

    snprintf(machine->name, sizeof(machine->name), "rank%u", task->rank);
    machine->here = index == 0;
    machine->joined = index > 0;
    machine->rank = task->rank;
    machine->port = task->port;
    machine->processes++;
    machine->servers += task->role == LAUNCH_SERVER;
    machine->workers += task->role == LAUNCH_WORKER;
    layout->machine_of[slot] = index;
}

struct layout
layout_build_joined(const struct layout_task *tasks, uint32_t count)
{
    struct layout layout = allocate(1 + count);
    uint32_t server_slot = 1;
    uint32_t worker_slot = 1;

    for (uint32_t i = 0; i < count; i++) {
        worker_slot += tasks[i].role == LAUNCH_SERVER;
    }
    for (uint32_t i = 0; i < count; i++) {
        const bool server = tasks[i].role == LAUNCH_SERVER;

        place_task(&layout, i, &tasks[i], server ? server_slot++ : worker_slot++);
    }
    layout.machine_count = count;
    layout.machines[0].processes++; /* the master, whose slot and machine are both 0 */
    return layout;
}

void
layout_fini(struct layout *layout)
{
    free(layout->machines);
    free(layout->machine_of);
    free(layout->local_rank);
    free(layout->gpus);
    *layout = (struct layout){0};
}

static void *
copy_of(const void *list, size_t bytes)
{
    void *copy = memory_need(malloc(bytes > 0 ? bytes : 1));

    return bytes > 0 ? memcpy(copy, list, bytes) : copy;
}

struct layout
layout_copy(const struct layout *layout)
{
    struct layout copy = *layout;

    copy.machines = copy_of(layout->machines, layout->machine_count * sizeof(*layout->machines));
    copy.machine_of = copy_of(layout->machine_of, layout->slots * sizeof(*layout->machine_of));
    copy.local_rank = copy_of(layout->local_rank, layout->slots * sizeof(*layout->local_rank));
    copy.gpus = copy_of(layout->gpus, layout->slots * sizeof(*layout->gpus));
    return copy;
}

/* Room for `more` entries behind the first `at` of `count`. */
static uint32_t *
widen(uint32_t *list, uint32_t count, uint32_t at, uint32_t more)
{
    list = memory_need(realloc(list, (count + more) * sizeof(*list)));
    memmove(list + at + more, list + at, (count - at) * sizeof(*list));
    memset(list + at, 0, more * sizeof(*list));
    return list;
}

void
layout_make_room(struct layout *layout, uint32_t servers, uint32_t max_servers)
{
    const uint32_t more = max_servers - servers;

    layout->machine_of = widen(layout->machine_of, layout->slots, 1 + servers, more);
    layout->local_rank = widen(layout->local_rank, layout->slots, 1 + servers, more);
    layout->gpus = widen(layout->gpus, layout->slots, 1 + servers, more);
    layout->slots += more;
    for (uint32_t slot = 1 + servers; slot <= max_servers;
         slot++) { /* whoever asks is told some machine */
        layout->machine_of[slot] = layout->machine_of[1 + (slot - 1) % servers];
    }
}

void
layout_add_server(struct layout *layout, uint32_t slot, uint32_t machine)
{
    layout->machine_of[slot] = machine;
    layout->local_rank[slot] = layout->machines[machine].servers++;
    layout->machines[machine].processes++;
}

void
layout_take_server(struct layout *layout, uint32_t slot)
{
    layout->machines[layout->machine_of[slot]].servers--;
    layout->machines[layout->machine_of[slot]].processes--;
}

void
layout_move_server(struct layout *layout, uint32_t slot, uint32_t machine)
{
    struct layout_machine *from = &layout->machines[layout->machine_of[slot]];
    struct layout_machine *to = &layout->machines[machine];

    layout->machine_of[slot] = machine;
    from->processes--;
    from->servers--;
    layout->local_rank[slot] = to->servers;
    to->processes++;
    to->servers++;
}

void
layout_add_worker(struct layout *layout, uint32_t machine)
{
    const uint32_t slot = layout->slots++;
    const size_t bytes = layout->slots * sizeof(uint32_t);

    layout->machine_of = memory_need(realloc(layout->machine_of, bytes));
    layout->local_rank = memory_need(realloc(layout->local_rank, bytes));
    layout->gpus = memory_need(realloc(layout->gpus, bytes));
    layout->machine_of[slot] = machine;
    layout->local_rank[slot] = layout->machines[machine].workers++;
    layout->gpus[slot] = 0;
    layout->machines[machine].processes++;
}

void
layout_move_master(struct layout *layout, uint32_t machine)
{
    layout->machines[layout->machine_of[0]].processes--;
    layout->machines[machine].processes++;
    layout->machine_of[0] = machine;
}

void
layout_leave_master_out(struct layout *layout)
{
    layout->machines[layout->machine_of[0]].processes--;
    if (layout->machines[layout->machine_count - 1].processes == 0) { /* it was placed last */
        layout->machine_count--;
    }
    layout->machine_of[0] = LAYOUT_NOWHERE;
}

uint32_t
layout_find(const struct layout *layout, const char *name)
{
    const bool here = is_local(name);
    uint32_t i = 0;

    while (i + 1 < layout->machine_count && strcasecmp(layout->machines[i].name, name) != 0 &&
           !(here && layout->machines[i].here)) {
        i++;
    }
    return i;
}

bool
layout_is_remote(const struct layout *layout)
{
    for (uint32_t i = 0; i < layout->machine_count; i++) {
        if (!layout->machines[i].here) {
            return true;
        }
    }
    return false;
}
