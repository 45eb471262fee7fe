/*
 * multi_start.h - several psd_run that make up one job: from their command lines to their exit
 * codes.
 *
 * --rendezvous DIR or --coordinator HOST:PORT says how they find each other, --rank and --size who
 * they are. The rule of roles: ranks 0 to S-1 are the servers (--servers S), the others the
 * workers, in order; rank 0 has the master, too, and coordinates. Tasks of a Slurm step need none
 * of that: Slurm says who they are, slurm_meet.h how they meet, allocation.h which roles they have.
 */
#ifndef LAUNCH_MULTI_START_H
#define LAUNCH_MULTI_START_H

#include <stdbool.h>

#include "launch/meet/rendezvous.h"
#include "launch/meet/slurm.h"
#include "launch/meet/slurm_meet.h"
#include "launch/plan/roles.h"
#include "launch/prepare/options.h"
#include "launch/prepare/prepare.h"
#include "launch/run/run.h"

/* Thread: owned by the main thread of psd_run. */
struct multi_start {
    const struct launch_options *options;
    uint32_t rank;
    uint32_t size;
    uint32_t servers;
    unsigned personality;                   /* of the scripts: a set */
    char run[64];                           /* name of the run */
    bool named;                             /* by somebody: no other run has that name */
    char coordinator[JOINER_ADDRESS_BYTES]; /* "tcp://HOST:PORT"; "": found in the directory */
    uint16_t port;                          /* of it; 0: any */
    char advertised[64];                    /* "": not said */
    struct rendezvous *rendezvous;          /* NULL: none */
    struct launch_options slurm_options;    /* those of a task of Slurm, with its defaults */
    struct slurm slurm;                     /* zero: no task of Slurm */
    struct slurm_meet *meet;                /* NULL: no task of Slurm */
    bool munge;                             /* the secret comes over it */
    struct roles roles;                     /* of all ranks; none: the rule above */
    const char *secret_file;                /* NULL: none but what the environment names */
    struct layout_task *tasks;              /* owned: who takes part, by rank */
    uint32_t task_count;
    bool prepared_anew; /* with fewer than --size, in: */
    struct prepared prepared;
    struct join *join; /* of the present attempt; NULL: none */
    int signal;        /* that asked this one to leave; 0: none */
    bool began;        /* the present attempt has started a process */
    bool inseparable;  /* a lost worker cannot be replaced alone, and is waited for */
};

/* Whether the command line asks for it. */
bool multi_start_wanted(const struct launch_options *options);

/* Takes this one's place. PSD_ERR_INVALID: usage. */
psd_status multi_start_open(struct multi_start *multi, const struct launch_options *options,
                            struct psd_error *err);
void multi_start_close(struct multi_start *multi);

/* As many as were asked for, or as such scripts usually have. */
psd_status multi_start_servers(const struct multi_start *multi, uint32_t *servers_p,
                               struct psd_error *err);

/* The descriptor of the job's secret, as of launch_secret_offer(); -1 with err. */
int multi_start_secret(struct multi_start *multi, struct psd_error *err);

/* What may be wrong when the others do not come; NULL: nothing in particular. */
const char *multi_start_hint(const struct multi_start *multi);

/* Not rank 0: takes part until the job is over. Returns the exit code. */
int multi_start_join(struct multi_start *multi, int secret_fd);

/* Rank 0 (coordinate.c): one attempt: gathers the others, runs the job. Returns the exit code. */
int multi_start_attempt(struct multi_start *multi, struct run_args *args);

/* Whether that attempt failed because somebody was lost without whom it cannot go on. */
bool multi_start_was_left(struct multi_start *multi, int code);

/* The last word about an attempt. */
void multi_start_again(struct multi_start *multi, const char *why);
void multi_start_over(struct multi_start *multi, int code);

/* For coordinate.c and multi_start_slurm.c: what a rank is, who takes part, the own address. */
struct layout_task multi_start_task(const struct multi_start *multi, uint32_t rank);
psd_status multi_start_list_tasks(struct multi_start *multi, struct psd_error *err);
psd_status multi_start_find_advertised(struct multi_start *multi, struct psd_error *err);

/* multi_start_slurm.c: whether this is one of several tasks of a step that were given no other way
 * to meet; and its place among them. */
bool multi_start_is_task_of_slurm(const struct launch_options *options);
psd_status multi_start_open_slurm(struct multi_start *multi, struct psd_error *err);

#endif
