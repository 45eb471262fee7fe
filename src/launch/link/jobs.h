/*
 * jobs.h - the jobs that run here for this user: a private directory with a socket for each.
 *
 * XDG_RUNTIME_DIR/poseidon, or /tmp/poseidon-UID: mode 0700 and ours, or it is not used. Nothing
 * secret lies in it. A socket is there as long as its psd_run; one that was killed leaves it, and
 * whoever finds that nobody answers takes it away, under a lock of the directory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOBS_H
#define LAUNCH_JOBS_H

#include <stdbool.h>
#include <stddef.h>

#include <sys/types.h>

#include "launch/text/words.h"

enum { JOBS_NAME_BYTES = 64, JOBS_PATH_BYTES = 108 };

/* A job's entry. Thread: owned by the main thread of psd_run. */
struct jobs_entry {
    char name[JOBS_NAME_BYTES];
    char path[JOBS_PATH_BYTES]; /* of the socket */
    dev_t device;               /* what tells our socket from a later one of that name */
    ino_t inode;
    int listener; /* -1: none */
};

/*
 * Makes an entry. wanted: the name; when it is taken and `exact`, PSD_ERR_STATE, else a number is
 * added to it.
 */
psd_status jobs_enter(const char *wanted, bool exact, struct jobs_entry *entry_p,
                      struct psd_error *err);
void jobs_leave(struct jobs_entry *entry);

/* Removes the socket of a job that is gone, and the directory if it was the last. */
void jobs_forget(const char *path);

/* The names of the jobs that answer. */
psd_status jobs_list(struct words *names_p, struct psd_error *err);

/* Sends a line to a job and reads its answer, owned by the caller. PSD_ERR_REFUSED: no such job.
 */
psd_status jobs_ask(const char *name, const char *line, char **answer_p, struct psd_error *err);

/* The name that a command suggests: "train" for "python train.py --x". */
void jobs_name_of(char *const *argv, char name_p[JOBS_NAME_BYTES]);

#endif
