/*
 * ending.h - how an agent ends what it started: the last lines first.
 *
 * Whoever lives is asked to stop, and killed when its grace is over. Two kinds of processes are
 * spared at first, for they may hold what a worker said last: what a worker left behind that ended
 * before (its pipe is read to its end), and filters between a worker and its pipe (filters.h). They
 * are asked when nothing has come for CHILDREN_SILENT_MS, or CHILDREN_ENDLESS_MS after the worker's
 * death in any case, and psd_run is told who they are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_ENDING_H
#define LAUNCH_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/agent/children.h"
#include "launch/link/link.h"

/* Thread: owned by the agent. */
struct ending {
    bool begun;
    bool hurried; /* nobody is spared: psd_run is gone, or was asked twice */
    uint32_t grace_ms;
    uint64_t kill_ms;    /* from then on, KILL */
    uint64_t round_ms;   /* when to look again for those that live on */
    uint64_t patient_ms; /* when to tell psd_run again that output is being read */
};

/* May come again, with less grace. Without any, it is hurried. */
void ending_begin(struct ending *ending, struct children *children, uint32_t grace_ms,
                  bool hurried);

/* What the time asks for. To be called at ending_deadline(), harmless at any time. */
void ending_turn(struct ending *ending, struct children *children, struct link *link);
uint64_t ending_deadline(const struct ending *ending, const struct children *children);

/* Whether somebody who has ended may have left lines that were not read. */
bool ending_reads(const struct ending *ending, const struct children *children);

#endif
