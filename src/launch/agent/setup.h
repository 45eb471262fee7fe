/*
 * setup.h - the machine of an agent: its directory, its environment, whether all is there.
 *
 * Everything is looked at before anything starts, so that a program missing on the seventh node is
 * found while nothing has to be undone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SETUP_H
#define LAUNCH_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/agent/scratch.h"
#include "launch/system/ports.h"
#include "launch/text/words.h"

/* Thread: owned by the agent. */
struct setup {
    struct words service_environment;
    struct words worker_environment;
    int secret_fd;          /* -1: none; every child keeps it under this number */
    int listener;           /* -1, or what other machines try to reach */
    struct ports ports;     /* for the workers here */
    int log_directory;      /* of this machine's own copies of the logs; -1: none */
    bool deals_gpus;        /* CUDA_VISIBLE_DEVICES of orders counts the machine's own GPUs */
    char *hook_directory;   /* owned: what Python workers find first in PYTHONPATH; NULL: nothing */
    struct scratch scratch; /* of those workers: PSD_SCRATCH; and of the file below */
    char *master_file; /* owned: says where the master is, PSD_MASTER_FILE; NULL: there is none */
};

void setup_init(struct setup *setup, char *const *environment);
void setup_fini(struct setup *setup);

/* The job's processes find its secret in this descriptor. */
void setup_take_secret(struct setup *setup, int secret_fd);

/*
 * Follows the strings of LINK_SETUP:
 *   workdir=DIR          to be in; must be there
 *   cwd=DIR              to be in, if it is there
 *   elsewhere=1          this machine is not the launcher: files may have to be brought here
 *   virtualenv=DIR       of the workers
 *   env=NAME=value       of the workers
 *   deal_gpus=1          orders for workers count GPUs from 0: of those that this machine was given
 *   logs_token=NAME      a file that only the launcher's own directory of logs has
 *   logs=DIR             where this machine keeps logs, unless that is the launcher's own directory
 *   automatic=KIND       Python workers are to be distributed automatically, if the hook is here
 *   automatic_asked=KIND ... and it must be here
 *   threads=N            OMP_NUM_THREADS of the workers, if nobody has set it
 *   ports=COUNT ADDRESS [WISH]  for the workers; WISH: the first of them, if it is free
 *   listen=ADDRESS       so that others can try to reach it
 *   master_file=1        processes are told where the master is, should it move (PSD_MASTER_FILE)
 *   daemon=NAME          must be here
 *   program=NAME         must be here: what runs containers
 *   command=INDEX        the words of a worker's command follow as word=WORD
 *   contained=INDEX      the same, but its program is in a container
 *   test=FILE            must be here: a file that the command names
 *
 * Answers: problem=TEXT, note=TEXT, port=N (of the listener), worker_port=N (one for each worker,
 * in their order), and for each command INDEX KNOWS FILE: whether that file knows
 * Poseidon's flags.
 */
void setup_follow(struct setup *setup, const struct words *orders, struct words *answers);

/* The path of a program: daemons lie beside psd_run first. NULL: not here. Owned by the caller. */
char *setup_find(const char *program, bool worker, char *const *environment);

#endif
