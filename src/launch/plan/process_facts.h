/*
 * process_facts.h - what is known of a process only when the machines are there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PROCESS_FACTS_H
#define LAUNCH_PROCESS_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster/tf_config.h"
#include "launch/plan/neighbours.h"

/* Borrowed, all of it. */
struct process_facts {
    const char *master;  /* where it listens; unused for the master itself */
    const char *address; /* of the machine */
    const char *job;     /* the job's name */
    const char *port;    /* of a worker, for its own use */
    const char *peers;   /* "tcp://IP:PORT,...": where the workers are, by rank */
    const char *hosts;   /* "master=IP,server0=IP,worker0=IP,...": what is where, by name */
    const char *logs;    /* directory of the job's logs on the machine; NULL: it has none */
    uint32_t restart;
    uint32_t
        join_step; /* of a worker that was added: it counts from that step on; 0: as early as it can */
    uint32_t term; /* which life of the master is, or is to be */
    uint16_t
        master_port; /* the port that its next life is to have; 0: any. Its first: the plan's */
    struct neighbours place;
    uint32_t cores;   /* of the machine */
    uint32_t lanes;   /* a server: those of its first life; 0: this is the first */
    uint32_t gpus;    /* of the machine, for its workers; 0: not said */
    bool knows_flags; /* the script knows Poseidon's flags */

    /* For other personalities; what one does not need may be NULL. */
    const struct psi_tf_config *cluster; /* TensorFlow's: who listens where */
    const char *root_address;            /* of dmlc's scheduler */
    const char *root_port;
    const char *store_address; /* of torch's store, on the machine of rank 0 */
    const char *store_port;
    const char *interface; /* of `address`; NULL: not known */
    bool remote;           /* some machine is reached by ssh */
};

#endif
