/*
 * waits.h - who waits for whom, from the times that workers tell of their steps.
 *
 * Workers of a step begin together: all were answered when the same rounds closed, and how late one
 * goes on is known (late.h). With a bound on staleness this is so but roughly, and how late one goes on
 * is not known. Whoever was done last before it waited, because it was busy longest or
 * began late, is the one that the others waited for, by as much as they were done earlier; what is
 * left of their waiting went to servers and the network.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_WAITS_H
#define LAUNCH_PAGE_WAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/page/blame.h"
#include "launch/page/late.h"
#include "wire/message.h"

enum {
    WAITS_KEPT = 4096,         /* steps that a reader may ask for */
    WAITS_LOOK = 20,           /* steps that the sentence is about: so many, ... */
    WAITS_LOOK_US = 2000000,   /* ... or as many as were told of in that time, ... */
    WAITS_LOOK_MAX = 256,      /* ... but no more */
    WAITS_LOOK_MIN = 3,        /* fewer say nothing */
    WAITS_PROOF_US = 10000000, /* who stands out in these may be named, too */
};

#define WAITS_NOBODY UINT32_MAX

/* A step, as the median worker saw it. Its parts add up to total_us. */
struct waits_row {
    uint64_t step;
    uint32_t total_us;
    uint32_t compute_us;
    uint32_t encode_us;
    uint32_t send_us;
    uint32_t server_us; /* waited for servers and the network ... */
    uint32_t worker_us; /* ... and for the slowest worker, ... */
    uint32_t late_us;   /* ... of which it had not begun the step so long */
    uint32_t receive_us;
    uint32_t apply_us; /* of what it waited: servers added gradients and applied rules */
    uint32_t worker;   /* the slowest; WAITS_NOBODY: there is but one */
    uint32_t server;   /* the last that answered; WAITS_NOBODY: not known */
    uint32_t slow_us;  /* how long that one computed */
    float ratio;       /* compute of the slowest : compute of the one in the middle */
    int64_t end_us;    /* on the clock of some worker, ... */
    uint32_t clock;    /* ... which is this one; WAITS_NOBODY: not known */
};

/* All steps of the job, in sum: one that was told counts for those before it that were not. */
struct waits_whole {
    uint64_t steps;
    uint64_t total_us;
    uint64_t compute_us;
    uint64_t server_us[PSI_SERVERS_MAX]; /* by which was the last that answered */
    uint64_t *worker_us;                 /* owned; by which was waited for */
    struct blame workers;                /* ... and for all of them ... */
    struct blame servers;                /* ... and for all of these */
};

/* Thread: guarded by its owner. */
struct waits {
    uint32_t workers;
    uint32_t there;               /* of them, those that have not left */
    uint32_t window;              /* steps of which some workers have not told yet */
    struct waits_step *steps;     /* owned; window of them, in the order in which they were begun */
    uint32_t next;                /* the one that was begun longest ago */
    uint32_t found;               /* the one that was asked for last */
    struct psi_step_times *times; /* owned; window * workers */
    uint32_t *order;              /* owned scratch; workers */
    struct late late;
    bool knows_late;             /* who was late in the step that becomes a row */
    struct waits_worker *worker; /* owned; by rank */
    uint64_t first;              /* steps before it are rows, or lost */
    uint64_t number;             /* of rows, ever */
    uint64_t begun;              /* `number` when the job was begun, or begun anew */
    struct waits_row *rows;      /* owned; [number % WAITS_KEPT] */
    struct waits_whole whole;
    bool waits_for_workers; /* some table has rounds or a bound ... */
    bool ends_together;     /* ... and all have rounds that close with all workers */
    bool is_crowded;        /* processes wait for a core, at least on psd_run's machine */
    uint32_t apply_us;      /* of the busiest server, for a step, lately */
};

bool waits_init(struct waits *waits, uint32_t workers); /* false: no memory */
void waits_fini(struct waits *waits);

/* The job is begun anew, perhaps with another number of workers: its rows stay, and are no part of the
 * sum. False: no memory, and nothing has changed. */
bool waits_again(struct waits *waits, uint32_t workers);

/* What a worker tells of one step. In any order of workers; a worker's steps rise, unless all go back.
 * A step is a row when all workers have told of it, or most have and later ones are rows. */
void waits_add(struct waits *waits, uint32_t rank, const struct psi_step_times *times);

/* A worker is not there any more: nobody waits for what it tells. */
void waits_leave(struct waits *waits, uint32_t rank);

/* The last steps, in sum. */
struct waits_sum {
    uint64_t step; /* the last of them */
    uint32_t rows;
    uint64_t total_us;
    uint64_t compute_us;
    uint64_t server_us;     /* for servers and the network, with sending and receiving ... */
    uint64_t waited_us;     /* ... and without */
    uint64_t named_us;      /* of that, in steps in which `server` answered last */
    uint64_t workers_us;    /* for workers ... */
    uint64_t worker_us;     /* ... for `worker` alone ... */
    uint64_t late_us;       /* ... because it began late */
    uint32_t worker;        /* the one that was waited for longest */
    float ratio;            /* how long it computed in these steps : the one in the middle */
    uint32_t server;        /* the one that answered last for the longest time */
    bool worker_stands_out; /* it is no chance that it was this one ... */
    bool server_stands_out; /* ... and this one */
};

/* servers: how many there are. */
struct waits_sum waits_sum(const struct waits *waits, uint32_t servers);

/* Pure: how many steps a row stands for: those before it that were not told, and its own. before: the row before it; NULL: none. */
uint64_t waits_weight(const struct waits_row *before, const struct waits_row *row);

/* What workers told of a step, by rank: those with total_us 0 have not. NULL: it is too long ago. */
const struct psi_step_times *waits_times(const struct waits *waits, uint64_t step);

#endif
