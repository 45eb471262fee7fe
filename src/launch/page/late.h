/*
 * late.h - how much later than most a worker saw the beginning and the end of a step.
 *
 * Where all tables are synchronous, without backup workers, the workers of a step end it together: the
 * same rounds close for all of them. One that is stopped then, or gets no core, goes on later; it takes
 * that for waiting, and those who wait for its next push would take it for the servers' time. So the
 * ends are put side by side. The workers of one machine have one clock. Clocks of two machines differ
 * by what their ends are apart in most steps: what is always so, as a longer way, is nobody's fault.
 * Where workers do not end a step together, only the clock of one machine is known.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_LATE_H
#define LAUNCH_PAGE_LATE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/message.h"

/* Thread: guarded by its owner. */
struct late {
    uint32_t workers;
    uint32_t reference;         /* the first worker of the machine whose clock counts ... */
    uint32_t missed;            /* ... and in how many steps, of late, it has told nothing */
    bool moved;                 /* a worker is on another machine than was thought */
    struct late_worker *worker; /* owned; by rank */
    int64_t *first_us;          /* owned scratch; workers */
    int64_t *sorted;            /* owned scratch; workers */
    int64_t begun_us;           /* the step that was learnt last, on the clock that counts: ... */
    int64_t ended_us;           /* ... of the worker in the middle */
};

bool late_init(struct late *late, uint32_t workers); /* false: no memory */
void late_fini(struct late *late);

/* On which machine a worker is, by any number that is the same for those of one. */
void late_place(struct late *late, uint32_t rank, uint32_t machine);

/* A step, by rank: those with total_us 0 have not told. True: the step that was learnt is known, on the
 * clock that counts. */
bool late_learn(struct late *late, const struct psi_step_times *times, bool ends_together);

/* Pure: how far the clock of a worker is ahead of the one that counts. False: nobody knows. */
bool late_offset_us(const struct late *late, uint32_t rank, int64_t *offset_us_p);

/* Pure: the first worker on the same machine. */
uint32_t late_home(const struct late *late, uint32_t rank);

/* Of that step, if workers ended it together: how much later than the one in the middle a worker began it, and ended it. */
uint64_t late_begun_us(const struct late *late, uint32_t rank, const struct psi_step_times *times);
uint64_t late_ended_us(const struct late *late, uint32_t rank, const struct psi_step_times *times);

#endif
