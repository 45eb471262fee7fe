/*
 * tree.h - the descendants of a process, as /proc shows them, and signals to them.
 *
 * Every process that a job starts leads a session of its own, and its agent adopts the orphans
 * (PR_SET_CHILD_SUBREAPER). So whatever a worker starts stays a descendant of the agent, however
 * often it forks and whichever session it makes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_TREE_H
#define LAUNCH_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include <sys/types.h>

/* Which of the descendants of root are meant. */
struct tree_pick {
    pid_t root;
    pid_t leader;        /* this one, those in its session, and what descends from them; 0: all */
    bool gone;           /* the leader has ended: another process may have its number by now */
    pid_t spare_session; /* but not those in this session; 0: none */
    const pid_t *spare;  /* nor these, those in their sessions, and what descends from them */
    size_t spare_count;
    bool handling; /* only those that handle the signal: it would end the others */
};

/* A list of processes. Zero-initialised is empty. */
struct tree_pids {
    pid_t *list; /* owned */
    size_t count;
};

void tree_pids_fini(struct tree_pids *pids);
void tree_pids_add(struct tree_pids *pids, pid_t pid); /* without memory: not */
bool tree_pids_have(const struct tree_pids *pids, pid_t pid);

/* Adds those who are meant, zombies not. */
void tree_list(const struct tree_pick *pick, struct tree_pids *pids);

/* Each gets the signal once; zombies get none. Returns how many there were. */
size_t tree_signal(const struct tree_pick *pick, int number);

#endif
