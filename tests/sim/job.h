/*
 * job.h - a whole job on virtual nodes: the master, the lanes, the workers and who starts them.
 */
#ifndef SIM_JOB_H
#define SIM_JOB_H

#include "base/log.h"
#include "model.h"
#include "net.h"
#include "plan.h"

struct job;
struct lane;
struct master;
struct worker;

/* Where one lane runs. */
struct lane_host {
    struct job *job;
    struct node *node;
    struct lane *lane; /* NULL: gone */
    struct psi_log log;
    uint32_t server;
    uint32_t index; /* of the lane in its server */
    bool killed;
    bool finished;
    int exit_code;
    char text[256];
};

struct master_host {
    struct job *job;
    struct node *node;
    struct master *master; /* NULL: gone */
    struct psi_log log;
    bool killed;
    bool finished;
    bool ending; /* it has said that the job is over */
    int exit_code;
    char text[256];
};

struct job {
    struct sim *sim;
    struct net net;
    struct plan plan;
    struct model *model;
    struct master_host master;
    struct lane_host lane[PLACES_MAX];
    unsigned lanes;
    struct worker *worker[WORKERS_MAX];
    uint64_t push_number[WORKERS_MAX];     /* of a rank, over all its lives: rows of a ledger */
    bool rank_lost[WORKERS_MAX];           /* killed or given up at least once */
    bool rank_left[WORKERS_MAX];           /* has nothing more to do, and says so */
    uint64_t barrier_reached[WORKERS_MAX]; /* the last that a rank has come to, in any life */
    uint64_t barrier_passed;               /* the last that anybody has passed */
    unsigned nameless_kills;               /* of workers that had not heard their rank yet */
    uint64_t last_fault_ns;
    bool started;     /* everybody was there once */
    bool server_lost; /* a lane was given up by the master */
};

void job_start(struct job *job, struct sim *sim, const struct plan *plan);
bool job_over(const struct job *job);
void job_stop(struct job *job); /* frees everything, whatever state it is in */

/* Judges how it ended. */
void job_judge(struct job *job);

void job_kill_master(struct job *job);
void job_kill_server(struct job *job, uint32_t server);

#endif
