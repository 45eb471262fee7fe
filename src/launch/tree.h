/*
 * tree.h - the descendants of a process, as /proc shows them, and signals to them.
 *
 * Every process that a job starts leads a session of its own, and its agent adopts the orphans
 * (PR_SET_CHILD_SUBREAPER). So whatever a worker starts stays a descendant of the agent, however
 * often it forks and whichever session it makes.
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
    pid_t spare_session; /* but not those in this session; 0: none */
    const pid_t *spare;  /* nor these and what descends from them */
    size_t spare_count;
    bool handling; /* only those that handle the signal: it would end the others */
};

/* Each gets the signal once; zombies get none. Returns how many there were. */
size_t tree_signal(const struct tree_pick *pick, int number);

#endif
