/*
 * multi_start.h - several psd_run that make up one job: from their command lines to their exit
 * codes.
 *
 * How they find each other, and who is who among them, is a way to meet: meet_ops.h. Rank 0 has the
 * master and coordinates (coordinate.c); the others join it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_MULTI_START_H
#define LAUNCH_MULTI_START_H

#include <stdbool.h>

#include "launch/multi/meet_ops.h"
#include "launch/plan/roles.h"
#include "launch/prepare/prepare.h"
#include "launch/run/run.h"

/* Thread: owned by the main thread of psd_run. */
struct multi_start {
    const struct meet_ops *ops;
    const struct launch_options *options; /* the way may put others in their place */
    unsigned personality;                 /* of the scripts: a set */

    /* What the way to meet says. */
    void *way; /* its own; NULL: it needs nothing */
    uint32_t rank;
    uint32_t size;
    uint32_t servers;
    struct roles roles;      /* of all ranks; none: ranks 0 to servers - 1 serve */
    uint16_t port;           /* for rank 0 to listen on; 0: as the options say */
    uint64_t incarnation;    /* of this psd_run: more than that of any before it with this rank */
    const char *secret_file; /* NULL: none but what the environment names */
    uint32_t
        requeues; /* how often a batch system has begun the job anew; of some ways only whether it has */

    char advertised[64];       /* address under which others reach this one; "": not said */
    struct layout_task *tasks; /* owned: who takes part, by rank */
    uint32_t task_count;
    bool prepared_anew; /* with fewer than --size, in: */
    struct prepared prepared;
    bool goes_on;      /* it has begun before: from its checkpoints, if there are any */
    struct join *join; /* of the present attempt; NULL: none */
    int signal;        /* that asked this one to leave; 0: none */
    bool began;        /* the present attempt has started a process */
    bool
        asked; /* another one was asked to leave, and the present attempt was saved and stopped for it */
    bool inseparable; /* a lost worker cannot be replaced alone, and is waited for */
};

/* Whether the command line asks for it. */
bool multi_start_wanted(const struct launch_options *options);

/* Takes this one's place. PSD_ERR_INVALID: usage. */
psd_status multi_start_open(struct multi_start *multi, const struct launch_options *options,
                            struct psd_error *err);
void multi_start_close(struct multi_start *multi);

/* The descriptor of the job's secret, as of launch_secret_offer(); -1 with err. */
int multi_start_secret(struct multi_start *multi, struct psd_error *err);

/* Not rank 0: takes part until the job is over. Returns the exit code. */
int multi_start_join(struct multi_start *multi, int secret_fd);

/* Rank 0 (coordinate.c): one attempt: gathers the others, runs the job. Returns the exit code. */
int multi_start_attempt(struct multi_start *multi, struct run_args *args);

/* Whether that attempt failed because somebody was lost without whom it cannot go on. */
bool multi_start_was_left(struct multi_start *multi, int code);

/* The last word about an attempt. */
void multi_start_again(struct multi_start *multi, const char *why);
void multi_start_over(struct multi_start *multi, int code);

/* For ways to meet: whether the command line leaves it to the environment where a job runs; as many
 * servers as were asked for, or as such scripts usually have; whether the user has named a secret. */
bool multi_start_nothing_asked(const struct launch_options *options);
psd_status multi_start_servers(const struct multi_start *multi, uint32_t *servers_p,
                               struct psd_error *err);
bool multi_start_has_secret(const struct multi_start *multi);

/* For coordinate.c: what a rank is; what may be wrong when the others do not come (NULL: nothing in
 * particular); the address that was chosen for this one (NULL: none). */
struct layout_task multi_start_task(const struct multi_start *multi, uint32_t rank);
const char *multi_start_hint(const struct multi_start *multi);
const char *multi_start_advertised(const struct multi_start *multi);

#endif
