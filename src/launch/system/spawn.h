/*
 * spawn.h - one process: started clean, tied to the life of the one that starts it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SPAWN_H
#define LAUNCH_SPAWN_H

#include <stdbool.h>

#include <sys/types.h>

/* The descriptor on which a child finds spawn_args.extra_fd. */
enum { SPAWN_EXTRA_FD = 3 };

struct spawn_args {
    const char *path; /* of the program, with a slash */
    char *const *argv;
    char *const *environment;
    int input_fd;  /* becomes stdin; -1: /dev/null */
    int output_fd; /* becomes stdout */
    int error_fd;  /* becomes stderr; -1: output_fd does */
    int extra_fd;  /* becomes SPAWN_EXTRA_FD; -1: none */
    int secret_fd; /* kept under its number, which lies above SPAWN_EXTRA_FD; -1: none */
    int note_fd;   /* likewise */
    bool outlives; /* our death does not kill it */
};

/*
 * Starts a process: its own session, default signals, nothing inherited but what args name, killed
 * when the caller dies (unless it outlives). Returns 0 and the pid once the program runs, else the
 * errno that kept it from running; nothing is left then.
 *
 * The caller must be single-threaded: the death signal follows the thread that forked.
 */
int spawn_start(const struct spawn_args *args, pid_t *pid_p);

#endif
