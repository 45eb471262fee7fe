/*
 * late.h - how much later than most a worker saw the beginning and the end of a step.
 *
 * The workers of a step end it together: the same rounds close for all of them. One that is stopped
 * then, or gets no core, goes on later; it takes that for waiting, and those who wait for its next
 * push would take it for the servers' time. So the ends are put side by side. Clocks of machines
 * differ by what the ends of two workers are apart in most steps: what is always so, as a longer
 * way, is nobody's fault.
 */
#ifndef LAUNCH_PAGE_LATE_H
#define LAUNCH_PAGE_LATE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/message.h"

/* Thread: guarded by its owner. */
struct late {
    uint32_t workers;
    uint32_t reference;         /* the rank whose clock counts ... */
    uint32_t missed;            /* ... and in how many steps, of late, it has told nothing */
    struct late_worker *worker; /* owned; by rank */
    int64_t *sorted;            /* owned scratch; workers */
    int64_t begun_us;           /* the step that was learnt last, on the clock that counts: ... */
    int64_t ended_us;           /* ... of the worker in the middle */
};

bool late_init(struct late *late, uint32_t workers); /* false: no memory */
void late_fini(struct late *late);

/* A step, by rank: those with total_us 0 have not told. True: it is known who was late in it. */
bool late_learn(struct late *late, const struct psi_step_times *times);

/* Pure: how far the clock of a worker is ahead of the one that counts; and when a step ended that it told of,
 * on that. 0: nobody knows. */
int64_t late_offset_us(const struct late *late, uint32_t rank);
int64_t late_end_us(const struct late *late, uint32_t rank, const struct psi_step_times *times);

/* Of that step: how much later than the one in the middle a worker began it, and ended it. */
uint64_t late_begun_us(const struct late *late, uint32_t rank, const struct psi_step_times *times);
uint64_t late_ended_us(const struct late *late, uint32_t rank, const struct psi_step_times *times);

#endif
