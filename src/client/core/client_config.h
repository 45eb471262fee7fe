/*
 * client_config.h - what a client is made with, and what a transfer of it moves.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_CLIENT_CONFIG_H
#define PSI_CLIENT_CORE_CLIENT_CONFIG_H

#include <stdbool.h>

#include <psd/psd.h>

struct psi_metrics;
struct sparse_rows;

struct psi_client_config {
    const char *master_address; /* copied */
    uint32_t rank;              /* or PSI_RANK_AUTO */
    uint32_t open_timeout_ms;
    uint32_t op_timeout_ms;
    uint32_t window_bytes; /* unanswered pull bytes per lane */
    bool checksum;         /* payload checksums on gradients */
    bool in_time;          /* not into a job that has begun */
    uint32_t join_step; /* into one that has: to count from that step on; 0: as early as it can */
    bool observer;      /* only looks at the table of nodes */
    bool lends;         /* shares memory with servers on this host */
    uint64_t host;      /* a guess at who else is on this host: has the same; 0: nobody asks */
    const char
        *host_address;     /* where others of this host may connect: "tcp://127.0.0.1:0"; copied */
    uint32_t spin_us;      /* looks so long before it sleeps */
    uint32_t workers_here; /* on this host, as who started them says; 0: nobody said */
    uint32_t copy_threads; /* that copy large tensors together; 0: as cores are free */
    bool lone_sums;        /* with one worker sums stay in it */

    /* Sets what only the process knows of itself, before metrics are told (optional). */
    void (*measure)(struct psi_metrics *metrics);
};

enum psi_client_state { PSI_CLIENT_JOINING, PSI_CLIENT_RUNNING, PSI_CLIENT_OVER };

/* What a transfer moves. One request per chunk of [first, first + count); of a sparse table, one per
 * place that is concerned. */
struct psi_transfer {
    uint8_t type; /* PUSH, PULL, PUSH_PULL, INIT, STATE_PULL, STATE_PUSH, SPARSE_* */
    uint8_t part; /* STATE_PUSH: enum PSI_PART_*; STATE_PULL brings all, chunk by chunk */
    bool empty;   /* PUSH*: present, adding nothing */
    uint64_t step;
    uint64_t updates; /* STATE_PUSH: updates applied so far */
    uint64_t first;
    uint64_t count; /* 0: to the end */
    const void *from;
    bool lent; /* from is memory that servers on this host can read */
    void *to;
    bool to_view; /* to is in the table's view */
    struct sparse_rows
        *rows; /* SPARSE_*: in place of first, count, from and to; taken on success */
    uint8_t priority;
    uint32_t timeout_ms; /* 0: the client's default */
    psd_done_fn done;
    void *user;
};

#endif
