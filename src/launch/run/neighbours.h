/*
 * neighbours.h - which processes share a computer. Of psd_run that were started one by one
 * (join.h), several may run on one: each is a machine of its own, but they share cores and names.
 * So do two names of one computer in a cluster file.
 */
#ifndef LAUNCH_NEIGHBOURS_H
#define LAUNCH_NEIGHBOURS_H

#include "launch/run/host.h"

/* A process among those of its role on the same computer, and the computer among all, among those
 * with workers, and among those that have a worker of the same local rank. */
struct neighbours {
    uint32_t local_rank;
    uint32_t local_size;
    uint32_t node;
    uint32_t nodes;
    uint32_t worker_node;
    uint32_t worker_nodes;
    uint32_t cross_rank;
    uint32_t cross_size;
};

/* Numbers the computers (host.node), in the order of the machines. Every machine has said hello. */
void neighbours_number(struct host *hosts, uint32_t count);

/* The first of the machines that are the same computer as this one; itself, where there is none. */
const struct host *neighbours_first(const struct host *hosts, const struct host *host);

void neighbours_find(const struct layout *layout, const struct host *hosts, uint32_t servers,
                     uint32_t slot, struct neighbours *neighbours_p);

/* How many workers there are on the computer of a machine. */
uint32_t neighbours_workers(const struct layout *layout, const struct host *hosts,
                            uint32_t machine);

#endif
