/*
 * job.h - a whole job on virtual nodes: the master, the lanes, the workers and who starts them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_JOB_H
#define SIM_JOB_H

#include "base/log.h"
#include "cold_memory.h"
#include "model.h"
#include "net.h"
#include "plan.h"

struct job;
struct lane;
struct master;
struct readers;
struct resume;
struct saves;
struct worker;

/* Where one lane runs. */
struct lane_host {
    struct job *job;
    struct node *node;
    struct lane *lane; /* NULL: gone */
    struct psi_log log;
    struct cold_memory cold; /* for rows that its memory does not hold */

    /* Whose place it has, or had last. */
    uint32_t place_server;
    uint32_t place_index;

    uint32_t server;
    uint32_t index;  /* of the lane in its server */
    unsigned life;   /* of its server */
    bool is_standby; /* has no place in the job yet ... */
    bool is_guest;   /* ... and has one since: that of another server's lane */
    bool joined;     /* finished: it had come to its place ... */
    bool gave_place; /* ... and had handed it over ... */
    bool was_over;   /* ... another lane of its process had seen the job through ... */
    bool is_no_loss; /* ... and, of a guest, that process makes nothing of its end */
    bool is_unheard; /* was handed a place, and the master died before it had heard that it is in */
    bool killed;
    bool ended; /* with its process, which had left the job */
    bool finished;
    uint64_t finished_ns;
    int exit_code;
    char text[256];
};

struct master_host {
    struct job *job;
    struct node *node;
    struct master *master; /* NULL: gone */
    struct psi_log log;
    bool killed; /* and no other life follows */
    bool finished;
    bool ending;        /* it has said that the job is over ... */
    uint64_t ending_ns; /* ... then */
    int exit_code;
    char text[256];
};

enum { HOSTS_MAX = 20 * PROCESSES_MAX * LIVES_MAX };

struct job {
    struct sim *sim;
    struct net net;
    struct plan plan;
    struct model *model;
    struct readers *readers;                /* owned; NULL: there are none */
    struct resume *resume;                  /* owned; NULL: it does not go on from a checkpoint */
    struct saves *saves;                    /* owned; NULL: no checkpoints */
    struct master_host masters[LIVES_MAX];  /* of all lives */
    struct master_host *master;             /* the last of them */
    char master_address[PSI_ADDRESS_BYTES]; /* where that one listens */
    bool master_due;                        /* it died, and another follows */
    struct lane_host lane[HOSTS_MAX];       /* of all lives, and those that stand by */
    unsigned lanes;
    unsigned life[PROCESSES_MAX];   /* of a server, from 0 */
    bool is_missing[PROCESSES_MAX]; /* the master waits for another life, and none has joined */
    uint64_t gone[PROCESSES_MAX];   /* the last process of it that was killed; 0: none was */
    uint64_t crossed[SERVERS_MAX]
                    [LANES_MAX]; /* the last number of a copy of a lane that was crossed out */
    bool is_leaving[PROCESSES_MAX];
    bool is_out[PROCESSES_MAX]; /* has not come, or has left: no process of it is wanted */
    bool is_done[WORKERS_MAX];  /* a master has told that it said BYE */
    struct worker *worker[WORKERS_MAX];
    uint64_t push_number[WORKERS_MAX];     /* of a rank, over all its lives: rows of a ledger */
    bool rank_lost[WORKERS_MAX];           /* killed or given up at least once */
    unsigned rank_deaths[WORKERS_MAX];     /* ... so often: killed */
    bool rank_left[WORKERS_MAX];           /* has nothing more to do, and says so */
    bool rank_came[WORKERS_MAX];           /* is, or was, in the job */
    uint64_t barrier_reached[WORKERS_MAX]; /* the last that a rank has come to, in any life */
    uint64_t barrier_passed;               /* the last that anybody has passed */
    unsigned nameless_kills;               /* of workers that had not heard their rank yet */
    uint64_t last_fault_ns;
    bool started;     /* everybody was there once ... */
    bool has_view;    /* ... and knows it */
    bool server_lost; /* a lane was given up by the master */
    bool is_ending;   /* a lane has heard that all is well */
    bool copy_missed; /* a server was killed that had no whole copy */
};

void job_start(struct job *job, struct sim *sim, const struct plan *plan);
bool job_over(const struct job *job);
void job_stop(struct job *job); /* frees everything, whatever state it is in */

/* Judges how it ended. */
void job_judge(struct job *job);

void job_kill_master(struct job *job);
void job_end_master_life(struct job *job); /* another one follows, after a while */
void job_kill_server(struct job *job, uint32_t server);
void job_start_server(struct job *job, uint32_t server);    /* another life of it, or the first */
void job_start_server_later(void *object, uint64_t server); /* ... unless it runs by then */
void job_end_server(struct job *job, uint32_t server);      /* it has left */
void job_freeze_server(struct job *job, uint32_t server);   /* it sleeps for too long */
void job_exile_server(struct job *job, uint32_t server);    /* it does not find the master */
/* All that runs in the process of the server, and that node, do not reach each other until then; or its
 * lanes and their copies. */
void job_part_from_server(struct job *job, uint32_t server, struct node *node, uint64_t silence_ns,
                          uint64_t until_ns);
void job_part_from_copy(struct job *job, uint32_t server, uint64_t silence_ns, uint64_t until_ns);
bool job_is_copied(struct job *job, uint32_t server); /* all that it has may be lost, and is not */
bool job_server_runs(const struct job *job, uint32_t server); /* with all its lanes */

#endif
