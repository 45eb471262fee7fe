/*
 * layout.h - which machines a job has, and which process runs where.
 *
 * A machine that the configuration names several times is one machine with several processes: it
 * has one agent. Everything that is this machine is one, too, and needs no ssh.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_LAYOUT_H
#define LAUNCH_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "cluster/cluster.h"
#include "launch/rules/role.h"

struct layout_machine {
    char name[PSI_CLUSTER_HOST_BYTES_MAX + 1]; /* as the configuration has it */
    char user[PSI_CLUSTER_USER_BYTES_MAX + 1]; /* "": not said */
    uint16_t ssh_port;                         /* 0: not said */
    bool here;
    uint16_t port;      /* that its worker should have; 0: any */
    bool joined;        /* its psd_run came to us by itself: join.h */
    uint32_t rank;      /* ... with this --rank */
    char address[64];   /* "addr" of the configuration, "": not said */
    uint32_t processes; /* on it */
    uint32_t servers;
    uint32_t workers;
};

#define LAYOUT_NOWHERE UINT32_MAX /* machine_of[0] of a job without a master */

/* Thread: immutable once built. */
struct layout {
    struct layout_machine *machines; /* owned; in the order in which they were named */
    uint32_t machine_count;
    uint32_t slots;
    uint32_t *machine_of; /* owned, by slot: role.h */
    uint32_t *local_rank; /* owned, by slot: how many of its role stand before it there */
    uint32_t *gpus;       /* owned, by slot: of the machine, for its workers; 0: not said */
};

/* cluster NULL: everything here. */
/* Slots for servers that may come, behind those that there are: none is on any machine. */
void layout_make_room(struct layout *layout, uint32_t servers, uint32_t max_servers);

/* One of them comes, or leaves. */
void layout_add_server(struct layout *layout, uint32_t slot, uint32_t machine);
void layout_take_server(struct layout *layout, uint32_t slot);

struct layout layout_build(const struct psi_cluster *cluster, uint32_t servers, uint32_t workers);

/* One of several psd_run that make up a job, and what it runs: a server or a worker. */
struct layout_task {
    uint32_t rank;
    enum launch_role role;
    uint16_t port; /* that a batch system reserved for it; 0: none */
};

/* Every task is a machine with one process; the first is here, and has the master, too. Servers and
 * workers are numbered in the order of the tasks. */
struct layout layout_build_joined(const struct layout_task *tasks, uint32_t count);
void layout_fini(struct layout *layout);

/* One of its own, whose processes may move. */
struct layout layout_copy(const struct layout *layout);
void layout_move_server(struct layout *layout, uint32_t slot, uint32_t machine);
/* One worker more, behind all others. */
void layout_add_worker(struct layout *layout, uint32_t machine);
void layout_move_master(struct layout *layout, uint32_t machine);

/* A job without a master: its machine is only there if something else runs on it. */
void layout_leave_master_out(struct layout *layout);

/* The machine of a node that the configuration names, however here it is. */
uint32_t layout_find(const struct layout *layout, const char *name);

/* Whether a machine other than this one takes part. */
bool layout_is_remote(const struct layout *layout);

#endif
