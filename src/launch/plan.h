/*
 * plan.h - what a job runs: program, arguments and environment of every process.
 *
 * Made once, before anything starts, so that a mistake is found while nothing has to be undone.
 */
#ifndef LAUNCH_PLAN_H
#define LAUNCH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "config/cluster.h"
#include "launch/command.h"
#include "launch/role.h"

/* Everything the plan is made of. Borrowed until plan_build() returns. */
struct plan_input {
    uint32_t servers;
    uint32_t workers;
    const char *command;                 /* one string; or NULL: */
    char *const *argv;                   /* ... words, ended by NULL; or NULL: */
    const struct words *worker_commands; /* ... one string for each worker */
    enum psi_pass pass;
    char *const *environment;            /* psd_run's own */
    const struct words *set;             /* (optional) NAME=value, from the cluster file */
    const struct words *worker_set;      /* (optional) `workers` lists more, one for each */
    uint16_t master_port;                /* 0: the system chooses */
    const char *virtualenv;              /* (optional) */
    const char *program_directory;       /* where psd_run itself lies */
    const struct words *master_settings; /* (optional) options handed on to ps_master */
    const struct words *server_settings; /* (optional) ... to ps_server */
};

/* Thread: immutable once built. */
struct plan {
    uint32_t servers;
    uint32_t workers;
    char *master_path;
    char *server_path;
    struct words master_settings;
    struct words server_settings;
    struct words service_environment;
    struct words worker_environment;
    struct words *worker_set; /* NULL, or one list for each worker, beside worker_environment */
    uint16_t master_port;
    struct command *commands; /* command_count of them: 1 for all workers, or one for each */
    uint32_t command_count;
    bool *flags;        /* per command: the three flags are added */
    enum psi_pass pass; /* the environment names the place, save with flags and none */
    char choice[256];   /* how the flags were decided, for the log */
};

/*
 * PSD_ERR_INVALID: the command or the counts make no sense; PSD_ERR_IO: a program or the virtual
 * environment is not there.
 */
psd_status plan_build(const struct plan_input *input, struct plan *plan_p, struct psd_error *err);
void plan_fini(struct plan *plan);

/* The arguments and the environment of one process. `master` is unused for the master itself. */
psd_status plan_process(const struct plan *plan, uint32_t slot, uint32_t restart,
                        const char *master, struct words *argv_p, struct words *environment_p,
                        struct psd_error *err);

/* "master", "server0", "worker12": prefix on the console and name of the log. */
void plan_name(const struct plan *plan, uint32_t slot, char name_p[24]);

/* The value of a variable in a list of NAME=value, or NULL. */
const char *plan_variable(char *const *environment, const char *name);

#endif
