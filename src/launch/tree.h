/*
 * tree.h - the descendants of a process, as /proc shows them, and signals to them.
 *
 * Every process that a job starts leads a session of its own, and its agent adopts the orphans
 * (PR_SET_CHILD_SUBREAPER). So whatever a worker starts stays a descendant of the agent, however
 * often it forks and whichever session it makes.
 */
#ifndef LAUNCH_TREE_H
#define LAUNCH_TREE_H

#include <stddef.h>

#include <sys/types.h>

/*
 * Signals the descendants of root that belong to `leader`: the process itself, those in its session
 * and what descends from them. leader 0: all descendants of root. Sessions equal to `spare` are
 * left alone (0: none). Each gets the signal once; zombies get none. Returns how many there were.
 */
size_t tree_signal(pid_t root, pid_t leader, pid_t spare, int number);

#endif
