/*
 * options.h - the command line of psd_run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_OPTIONS_H
#define LAUNCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "config/options.h"
#include "config/settings.h"
#include "launch/plan/plan.h"
#include "launch/plan/roles.h"

#define LAUNCH_NOT_GIVEN UINT32_MAX

/* What --max_wait, --max_restarts and --restart_delay_ms are without being said. */
enum { LAUNCH_MAX_WAIT_S = 3600, LAUNCH_MAX_RESTARTS = 3, LAUNCH_RESTART_DELAY_MS = 500 };

/* Words of the command line; 0 of each: not given. */
enum launch_restart {
    LAUNCH_RESTART_NOT_SAID, /* as on_worker_death says */
    LAUNCH_RESTART_NEVER,
    LAUNCH_RESTART_ON_FAILURE,
    LAUNCH_RESTART_EXIT_CODE,
};
enum launch_scope { LAUNCH_SCOPE_NOT_SAID, LAUNCH_SCOPE_PROCESS, LAUNCH_SCOPE_GROUP };
enum launch_logs {
    LAUNCH_LOGS_NOT_SAID,
    LAUNCH_LOGS_LAUNCHER,
    LAUNCH_LOGS_NODES,
    LAUNCH_LOGS_BOTH
};

/* They again as words; the same NULL-ended lists that the command line knows. */
extern const char *const launch_restart_words[];
extern const char *const launch_scope_words[];
extern const char *const launch_logs_words[];
extern const char *const launch_placement_words[];

/* The word of a value; NULL: not given. */
static inline const char *
options_word(const char *const *words, unsigned value)
{
    return value == 0 ? NULL : words[value - 1];
}

/* Text is borrowed from argv. */
struct launch_options {
    bool help;
    bool version;
    const char *secret_file; /* NULL: a fresh secret */

    const char *cluster_config; /* NULL: this machine */
    const char *out;
    uint32_t servers;  /* LAUNCH_NOT_GIVEN: 1, or what the file lists */
    uint32_t workers;  /* likewise */
    bool local;        /* this machine alone, whatever batch system is around */
    const char *roles; /* of a batch system's tasks: "ps,worker*3"; NULL: not given */
    enum roles_placement placement;
    const char *pass; /* NULL: not given */
    uint32_t max_restarts;
    uint32_t server_restarts;
    uint32_t master_restarts;
    uint32_t restart_delay_ms;
    uint32_t grace_ms;     /* LAUNCH_NOT_GIVEN: as the personality has it */
    uint32_t timeout_s;    /* 0: any */
    const char *workdir;   /* NULL: not given */
    const char *interface; /* NULL: not given */
    struct psi_option_list forward;
    const char *name; /* of the job; NULL: after the command */
    bool replace;     /* end a job of that name first */
    bool detach;
    bool dry_run;
    const char *setup; /* of --emit sbatch: a line before psd_run; NULL: none, or the file's */
    uint32_t nodes;    /* of --emit sbatch; 0: as many as it takes */
    bool check;
    bool print_cluster; /* of a Slurm allocation, and run nothing */
    bool json;          /* ... as JSON */
    const char *result_regex;
    const char *tensorboard;   /* directory for its files; NULL: none */
    const char *show;          /* ranks whose lines are shown; NULL: all */
    enum launch_logs log_mode; /* not given: launcher */
    enum launch_restart restart;
    enum launch_scope restart_scope;  /* not given: process */
    const char *cold_dir;             /* of servers; NULL: as ps_server likes */
    const char *checkpoint;           /* directory; NULL: none are written */
    const char *checkpoint_every;     /* NULL: as ps_master likes */
    uint32_t keep;                    /* 0: likewise */
    const char *resume;               /* directory; NULL: the job begins anew */
    bool trust_ssh_options;           /* all of the cluster file's, whatever they do */
    const char *sync;                 /* directory for other machines; NULL: none */
    bool keep_env;                    /* the user's values of our variables win */
    const char *personality;          /* NULL: poseidon, or as tf_config says */
    bool chief;                       /* the first worker is TensorFlow's chief */
    bool evaluator;                   /* the last one its evaluator */
    struct psi_option_list tf_config; /* files: tasks to run by hand; none: as many as counted */
    const char *tf_config_dir;        /* NULL: none */
    const char *rendezvous;           /* directory where the psd_run of a job meet; NULL: none */
    const char *coordinator;          /* HOST:PORT of rank 0; NULL: not so */
    uint32_t rank;                    /* among them; LAUNCH_NOT_GIVEN: the batch system says it */
    uint32_t size;                    /* how many they are; likewise */
    const char *job_id;               /* of the run; NULL: as the batch system calls it */
    uint32_t min_workers;             /* enough to begin; LAUNCH_NOT_GIVEN: all */
    uint32_t max_wait_s;              /* for the others */
    uint32_t first_port;              /* for rank 0 to listen on; 0: any */
    uint32_t last_port;
    const char *emit;           /* sbatch, condor, k8s, ports: print for them and start nothing */
    const char *universe;       /* of condor; NULL: vanilla */
    const char *image;          /* of a container, for --emit; NULL: none */
    const char *advertise_addr; /* of this machine; NULL: PSD_ADVERTISE, or found out */
    uint32_t gpus_per_worker;   /* 0: as the cluster file says */
    uint32_t cpus_per_worker;   /* for --emit; 0: as the other system likes */
    uint32_t memory_per_worker; /* for --emit, MiB; 0: likewise */
    const char *page;           /* "off" or a port; NULL: any port */
    const char *page_address;   /* NULL: loopback */
    const char *page_cert;      /* in PEM; NULL: no TLS */
    const char *page_key;       /* likewise */
    const char *page_token;     /* file; NULL: a token that is drawn */
    bool unwatched;             /* nobody is told what the processes count */
    enum plan_automatic automatic;
    struct psi_settings settings; /* command line and environment */

    const char *command; /* one string; or */
    char *const *argv;   /* the words after "--"; NULL both: none given */
};

psd_status options_parse(int argc, char *const *argv, struct launch_options *options_p,
                         struct psd_error *err);

/* The answer to -h, to stdout. */
void options_help(void);

#endif
