/*
 * filters.h - processes that stand between a worker and its pipes: `exec > >(tee log)`,
 * `python train.py | tee log`.
 *
 * They hold the last lines when the worker has ended, and end by themselves when they have passed
 * them on. A signal meant for the worker would cost these lines, or the worker its next one: who
 * prints into a pipe that nobody reads any more is killed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_FILTERS_H
#define LAUNCH_FILTERS_H

#include <stddef.h>

#include <sys/types.h>

#include "launch/agent/tree.h"

/* Pipes of processes, by inode. */
struct filters_pipes {
    ino_t *inodes; /* owned */
    size_t count;
};

void filters_pipes_fini(struct filters_pipes *pipes);
void filters_pipes_add(struct filters_pipes *pipes, int fd); /* without memory, or no pipe: not */

/*
 * Adds, of the descendants of root, those that read a pipe and write into one of these, or into a
 * pipe that another such process reads. leaders: processes that are never filters.
 */
void filters_find(pid_t root, const struct tree_pids *leaders, const struct filters_pipes *pipes,
                  struct tree_pids *found);

/* Adds the descendants of root that have one of the pipes open. */
void filters_find_holders(pid_t root, const struct filters_pipes *pipes, struct tree_pids *found);

/* "pid 12 (tee log), pid 13 (cat)", at most three of them, passwords masked; "" for none. */
void filters_describe(const struct tree_pids *pids, char *text_p, size_t size);

#endif
