/*
 * plan.h - what a job runs. process.h makes program, arguments and environment of each process of
 * it.
 *
 * Made once, before anything starts, so that a mistake is found while nothing has to be undone.
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

/* Everything the plan is made of. Borrowed until plan_build() returns. */
struct plan_input {
    uint32_t servers;
    uint32_t workers;
    bool remote;                         /* some workers are not here: nor need their programs be */
    bool joined;                         /* their environment is their batch system's */
    const char *command;                 /* one string; or NULL: */
    char *const *argv;                   /* ... words, ended by NULL; or NULL: */
    const struct words *worker_commands; /* ... one string for each worker */
    enum psi_pass pass;
    char *const *environment;            /* psd_run's own */
    const struct words *set;             /* (optional) NAME=value, from the cluster file */
    const struct words *worker_set;      /* (optional) `workers` lists more, one for each */
    const struct words *forward;         /* (optional) NAME, NAME=value, PREFIX*: to workers */
    uint16_t master_port;                /* 0: the system chooses */
    const char *virtualenv;              /* (optional) */
    const char *workdir;                 /* (optional) */
    const char *image;                   /* (optional) words before every worker's command */
    bool keep_env;                       /* values of the user's win over the job's */
    uint32_t gpus_per_worker;            /* 0: as the machine's are shared out */
    const char *automatic;               /* (optional) "on", "warn", "tf1", "off": PSD_AUTO */
    bool automatic_asked;                /* ... by the user, not by default */
    const struct words *master_settings; /* (optional) options handed on to ps_master */
    const struct words *server_settings; /* (optional) ... to ps_server */
    uint32_t lanes;                      /* of a server; 0: as the cores of its machine allow */
    unsigned personality;                /* a set; 0: poseidon */
    bool chief;                          /* tf_config: the first worker is the chief ... */
    bool evaluator;                      /* ... the last one the evaluator */
    uint32_t max_restarts;
    const struct psi_tf_config *given; /* (optional) by slot: tasks that were given by files */
    bool joins;                        /* these are Poseidon's workers; its master is at ps 0 */
};

/* Thread: immutable once built. */
struct plan {
    uint32_t servers;
    uint32_t workers;
    struct words master_settings;
    struct words server_settings;
    struct words worker_environment; /* NAME=value, beside what a machine has itself */
    struct words forwarded;          /* more of it, for machines that do not inherit from us */
    struct words *worker_set;        /* NULL, or one list for each worker */
    struct words own_place;          /* what the user has set of the variables that we set */
    bool keep_env;
    uint32_t gpus_per_worker;
    bool automatic;       /* unchanged Python scripts are distributed: hook.h */
    bool automatic_asked; /* ... and the user said so */
    bool old_names;       /* they get the names of TensorFlow 1, and do the rest themselves */
    struct words image;
    char *virtualenv; /* NULL: none */
    char *workdir;    /* NULL: none */
    uint16_t master_port;
    uint32_t lanes;
    struct command *commands; /* command_count of them: 1 for all workers, or one for each */
    uint32_t command_count;
    enum psi_pass pass; /* the environment names the place, save with flags and none */
    unsigned personality;
    bool chief;
    bool evaluator;
    uint32_t max_restarts;
    bool sets_grpc_fail_fast;    /* the user does */
    struct psi_tf_config *given; /* owned: NULL, or by slot */
    bool joins;
};

/* What a process is called in its own world: ps 1, chief 0, scheduler 0. */
struct plan_task {
    const char *name;
    enum psi_tf_type type; /* of TensorFlow's tasks */
    uint32_t index;
};

/* PSD_ERR_INVALID: the command or the counts make no sense. */
psd_status plan_build(const struct plan_input *input, struct plan *plan_p, struct psd_error *err);
void plan_fini(struct plan *plan);

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
