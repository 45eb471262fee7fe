/*
 * plan.h - what a job runs. process.h makes program, arguments and environment of each process of
 * it.
 *
 * Made once, before anything starts, so that a mistake is found while nothing has to be undone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PLAN_H
#define LAUNCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "cluster/cluster.h"
#include "cluster/tf_config.h"
#include "launch/plan/personality.h"
#include "launch/rules/role.h"
#include "launch/text/command.h"

enum { PLAN_WHY_BYTES = 64 };

/*
 * Who makes a plan fills the first part and hands over what it points to; plan_build() makes the
 * second of it.
 *
 * Thread: immutable once built.
 */
struct plan {
    uint32_t servers;       /* slots for them: as many as may run at a time */
    uint32_t start_servers; /* the job begins with so many; 0: with all */
    uint32_t workers;
    uint32_t max_workers;     /* ranks in all the job's life; 0: nobody may join */
    unsigned personality;     /* a set; 0: poseidon */
    enum psi_pass pass;       /* the environment names the place, save with flags and none */
    bool keep_env;            /* values of the user's win over the job's */
    bool automatic_asked;     /* --auto was given */
    bool chief;               /* tf_config: the first worker is the chief ... */
    bool evaluator;           /* ... the last one the evaluator */
    bool joins;               /* these are Poseidon's workers; its master is at ps 0 of `given` */
    uint16_t master_port;     /* 0: the system chooses */
    uint32_t gpus_per_worker; /* 0: as the machine's are shared out */
    uint32_t lanes;           /* of a server; 0: as the cores of its machine allow */
    uint32_t standby_lanes;   /* likewise, as somebody has said; 0: nobody has */
    uint32_t max_restarts;
    uint32_t replicas;                 /* copies of servers: 0 or 1 ... */
    char replicas_why[PLAN_WHY_BYTES]; /* ... "as told", "auto: one server"; "": no such job */
    struct words master_settings;      /* options handed on to ps_master */
    struct words server_settings;      /* ... to ps_server */
    struct words resume;               /* ... to both: which checkpoint the job goes on from */
    struct words *worker_set;          /* NULL, or a list of NAME=value for each worker */
    struct psi_tf_config *given;       /* NULL, or by slot: tasks that were given by files */
    char *virtualenv;                  /* NULL: none */
    char *workdir;                     /* NULL: none */

    struct words worker_environment; /* NAME=value, on top of what a machine has itself */
    struct words forwarded;          /* more of it, for machines that do not inherit from us */
    struct words own_place;          /* what the user has set of the variables that we set */
    bool automatic;                  /* unchanged Python scripts are distributed: hook.h */
    bool old_names; /* they get the names of TensorFlow 1, and do the rest themselves */
    struct words image;
    struct command *commands; /* command_count of them: 1 for all workers, or one for each */
    uint32_t command_count;
    bool sets_grpc_fail_fast; /* the user does */
};

/* Whether unchanged Python scripts are distributed: docs/automatic.md. */
enum plan_automatic {
    PLAN_AUTOMATIC_NOT_SAID,
    PLAN_AUTOMATIC_ON,
    PLAN_AUTOMATIC_WARN,
    PLAN_AUTOMATIC_TF1,
    PLAN_AUTOMATIC_OFF,
};
extern const char *const plan_automatic_words[]; /* of what is said, from the second on */

/* What else a plan is made of. Borrowed until plan_build() returns. */
struct plan_sources {
    bool remote;                   /* some workers are not here: nor need their programs be */
    bool joined;                   /* their environment is their batch system's */
    const char *command;           /* one string; or NULL: */
    char *const *argv;             /* ... words, ended by NULL; or NULL: */
    struct words worker_commands;  /* ... one string for each worker */
    char *const *environment;      /* psd_run's own */
    struct words set;              /* NAME=value, from the cluster file */
    struct words forward;          /* NAME, NAME=value, PREFIX*: to workers */
    const char *image;             /* (optional) words before every worker's command */
    enum plan_automatic automatic; /* not said: PSD_AUTO is left alone */
};

/* What a process is called in its own world: ps 1, chief 0, scheduler 0. */
struct plan_task {
    const char *name;
    enum psi_tf_type type; /* of TensorFlow's tasks */
    uint32_t index;
};

/* PSD_ERR_INVALID: the command or the counts make no sense. */
psd_status plan_build(struct plan *plan, const struct plan_sources *sources, struct psd_error *err);
void plan_fini(struct plan *plan);

/* Servers that the job begins with. Others may come: scale_servers.h. */
static inline uint32_t
plan_start_servers(const struct plan *plan)
{
    return plan->start_servers != 0 ? plan->start_servers : plan->servers;
}

/* Whether a process runs the user's command: workers do, and servers of other personalities. */
bool plan_runs_command(const struct plan *plan, uint32_t slot);
struct plan_task plan_task(const struct plan *plan, uint32_t slot);

/* Whether processes find their place in variables of Poseidon's. */
bool plan_sets_place(const struct plan *plan);

/* The workers with whose end the job is done, the first of them: watch.h. */
uint32_t plan_leaders(const struct plan *plan);

/* The names of variables that the user has set and workers get otherwise: "PSD_RANK, PSD_ROLE"; ""
 * if there are none. */
void plan_overwritten(const struct plan *plan, char *text_p, size_t size);

/* Which command a worker runs. */
uint32_t plan_command(const struct plan *plan, uint32_t rank);

/* Whether it gets the three flags. *reason_p: why, for the log; `file` is what was looked at. */
bool plan_adds_flags(const struct plan *plan, uint32_t command, bool knows_flags,
                     const char **reason_p);

/* "master", "server0", "worker12", "ps0", "chief": prefix on the console and name of the log. */
void plan_name(const struct plan *plan, uint32_t slot, char name_p[24]);

/* Whether a pattern of --forward, NAME or PREFIX*, is for a variable, NAME=value. One that brings
 * its own value, NAME=value, is for none. */
bool plan_pattern_fits(const char *pattern, const char *variable);

#endif
