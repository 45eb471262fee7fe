/*
 * net.h - nodes and the network between them: the world of struct psi_env, virtual.
 *
 * A node is what a process, or one lane of a server, is in the real world. It has its own clock
 * (all run at one speed, none agrees with another), its own random numbers, at most one listening
 * address "sim://NAME", and connections.
 *
 * Frames keep their order on a connection and nowhere else. A borrowed payload is read when the
 * "kernel" takes it, which may be long after send(), and in two pieces. A cut loses every byte from
 * a random point on, also in the middle of a payload, and the two ends hear of it at different
 * times.
 *
 * Nodes of one host share memory: payloads arrive as loans. A stable one in lent memory is the
 * sender's own, read as it is when somebody looks, which may be long after it was sent; any other
 * is a copy, which turns to poison when it is given back. What a dead process has lent stays
 * readable.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "sim.h"
#include "transport/shm/lending.h"
#include "transport/transport.h"

struct net_end;
struct quarantined;
struct net_link;

/* Memory of a process that others on its host may read. */
struct net_region {
    struct psi_segment segment;   /* first; no descriptor */
    const struct psi_segment *of; /* the owner's own mapping of it; NULL: there is but one */
    struct net_region *next;      /* node->mappings */
    struct node *node;
    unsigned refs; /* its owner's, and one for each frame and loan */
};

struct node {
    struct psi_env env; /* first */
    struct net *net;
    struct node *next; /* net->nodes */
    uint32_t number;
    char name[24];
    bool alive;
    bool hidden; /* nobody finds it any more; who is connected stays so */
    bool dying;  /* being killed: what it still wants to send is gone */
    uint64_t paused_until_ns;
    uint64_t exiled_until_ns; /* it does not find the master */
    uint64_t skew_ns;         /* its clock is ahead of virtual time by that much */
    uint32_t host;            /* 0: one of its own */
    bool keeps_neighbours; /* what connects from its own host is cut by net_cut_neighbour() alone */
    struct psi_lending lending;
    struct net_region *mappings; /* of what its core lends, for others to read */
    struct rng rng;
    struct psi_listener *listener; /* NULL: does not listen */
    struct net_end *ends;          /* connections, lingering ones included */
    uint64_t wake_ns;              /* virtual; UINT64_MAX: no wake-up under way */
    uint64_t spins;                /* wake-ups since time last moved */
    uint64_t spin_ns;

    /* Set by the owner: runs after every event of the node, and when it asked to be woken. */
    void (*settle)(struct node *node);
    void *owner;
};

enum { NET_RIFTS_MAX = 512 };

/* Two nodes that do not reach each other, until then. */
struct net_rift {
    const struct node *one;
    const struct node *other;
    uint64_t until_ns;
};

/* How kind the network is. Times in ns. */
struct net_weather {
    uint64_t delay_min;
    uint64_t delay_max;
    unsigned slow_percent; /* frames that take up to ten times as long */
    uint64_t take_max;     /* until the kernel takes a payload */
    unsigned lost_connect_percent;
    uint64_t close_max; /* until an end hears that its peer is gone */
};

struct net {
    struct sim *sim;
    struct node *nodes;
    struct node *nodes_last;
    uint32_t node_count;
    struct net_link *links; /* all that are not gone */
    uint32_t link_count;
    uint64_t link_number;
    struct net_weather weather;
    struct net_rift rift[NET_RIFTS_MAX]; /* the last ones */
    unsigned rifts;                      /* ever */
    struct quarantined *quarantine_list; /* memory that was given back, newest first */
    uint64_t loans;                      /* not given back yet */
    struct psi_master_told told;         /* where the master is said to be ... */
    struct psi_master_told told_before;  /* ... by whom the news has not reached yet */
    uint64_t told_ns;                    /* when that was said */
};

void net_init(struct net *net, struct sim *sim);
/* Every core must have been destroyed. Fails if one has kept a loan. */
void net_fini(struct net *net);

/* From now on nodes are told, some of them later, that this is the master's address. */
void net_tell_master(struct net *net, uint32_t term, const char *address);

struct node *net_node_create(struct net *net, const char *name);

/* kill -9, or a crash of the machine: connections are gone, peers hear of it sooner or later. The
 * owner destroys its core right after, then calls net_node_gone(). */
void net_node_kill(struct node *node);
void net_node_gone(struct node *node); /* checks that nothing is left open but lingering ends */

/* Memory for gradients, zeroed, lent; and the end of the owner's interest in it. */
struct net_region *net_region_create(struct node *node, size_t bytes);
void net_region_let_go(struct net_region *region);

/* No event reaches the node until then; its clock goes on. */
void net_node_pause(struct node *node, uint64_t until_ns);

/* Has the node woken at (its own) next_ns at the latest. */
void net_wake_at(struct node *node, uint64_t next_ns);

/* Faults on a random connection; false: there is none. */
bool net_cut_some(struct net *net, uint64_t silence_ns);
bool net_clog_some(struct net *net, uint64_t until_ns);
/* A connection between a lane and its copy, one way: what is said arrives then. */
bool net_block_some(struct net *net, uint64_t until_ns);
/* A connection between two nodes of one host, of which the one that was connected to keeps its
 * neighbours. */
bool net_cut_neighbour(struct net *net, uint64_t silence_ns);
/* All connections of one node, or each of them with that chance. */
void net_cut_node(struct node *node, uint64_t silence_ns);

/* Until then they do not reach each other, in one direction or in both; everybody else does. Their kernels
 * notice after silence_ns. */
void net_part(struct node *one, struct node *other, uint64_t silence_ns, uint64_t until_ns);

/* Until then it loses the master, and nobody else. */
void net_exile(struct node *node, uint64_t until_ns);
void net_cut_some_of(struct node *node, unsigned percent, uint64_t silence_ns);

#endif
