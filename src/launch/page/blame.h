/*
 * blame.h - whether it is one of several that is waited for, or each of them now and then.
 *
 * In every step somebody is last. On a machine with much else to do it is another one every time, and
 * whoever has cost most so far has it by chance. So the time that was waited is cut into stretches,
 * each of which counts as one event, since a machine that is busy for a moment is so for several
 * steps; and one stands out only if chance would hardly have put so much of the time on any one of
 * them: by Chernoff's bound, with each of them as likely as the next.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_BLAME_H
#define LAUNCH_PAGE_BLAME_H

#include <stdbool.h>
#include <stdint.h>

/* Of a machine that has cores for all, and of one on which processes wait for them. */
enum { BLAME_STRETCH_US = 100000, BLAME_CROWDED_US = 500000 };

/* All that was waited for some of them. Thread: guarded by its owner. */
struct blame {
    uint64_t stretch_us;
    double us;         /* in whole stretches ... */
    double squares;    /* ... and the sum of their squares */
    double now_us;     /* in the stretch that is not over yet */
    uint64_t spent_us; /* how long that one has lasted */
};

/* A step that took so long, and in which so much of it was waited. */
void blame_add(struct blame *blame, uint64_t total_us, uint64_t waited_us);

/* Pure: is it no chance that this much of it fell on one of `choices`? Of one there is no choice. */
bool blame_stands_out(const struct blame *blame, uint64_t one_us, uint32_t choices);

#endif
