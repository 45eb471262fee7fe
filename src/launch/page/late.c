/*
 * late.c - how much later than most a worker saw the beginning and the end of a step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/late.h"

#include <stdlib.h>
#include <string.h>

enum {
    KEPT = 31,    /* steps that say how far clocks are apart */
    KEPT_MIN = 3, /* fewer say nothing */
    AGAIN = 8,    /* as often as clocks may drift */
    MISSED_MAX = 8,
};

#define NOBODY UINT32_MAX

struct late_worker {
    int64_t apart_us[KEPT]; /* its end of a step, from that of the reference */
    uint32_t count;         /* ever */
    int64_t offset_us;      /* most often */
};

bool
late_init(struct late *late, uint32_t workers)
{
    *late = (struct late){.workers = workers, .reference = NOBODY};
    late->worker = calloc(workers, sizeof(*late->worker));
    late->sorted = calloc(workers > KEPT ? workers : KEPT, sizeof(*late->sorted));
    return late->worker != NULL && late->sorted != NULL;
}

void
late_fini(struct late *late)
{
    free(late->worker);
    free(late->sorted);
}

static int
compare(const void *a, const void *b)
{
    const int64_t *x = a;
    const int64_t *y = b;

    return (*x > *y) - (*x < *y);
}

/* The lower one of two. */
static int64_t
middle_of(int64_t *numbers, uint32_t count)
{
    qsort(numbers, count, sizeof(*numbers), compare);
    return numbers[(count - 1) / 2];
}

/* Clocks wrap nowhere near: a wild number from a worker spoils its own row at most. */
static int64_t
apart(uint64_t from, uint64_t to)
{
    return (int64_t)(to - from);
}

static void
learn_offset(struct late *late, struct late_worker *worker, int64_t apart_us)
{
    const uint32_t at = worker->count++;

    worker->apart_us[at % KEPT] = apart_us;
    if (at < KEPT || at % AGAIN == 0) {
        const uint32_t known = at < KEPT ? at + 1 : KEPT;

        memcpy(late->sorted, worker->apart_us, known * sizeof(*late->sorted));
        worker->offset_us = middle_of(late->sorted, known);
    }
}

static bool
has_told(const struct psi_step_times *times)
{
    return times->total_us > 0 && times->end_us > 0;
}

/* The one of before, if it has told; while it has not for a few steps, nothing is known. Of another one,
 * how far clocks are from its own has to be learnt anew. */
static uint32_t
find_reference(struct late *late, const struct psi_step_times *times)
{
    uint32_t rank = 0;

    if (late->reference != NOBODY && has_told(&times[late->reference])) {
        late->missed = 0;
        return late->reference;
    }
    if (late->reference != NOBODY && ++late->missed < MISSED_MAX) {
        return NOBODY;
    }
    while (rank < late->workers && !has_told(&times[rank])) {
        rank++;
    }
    if (rank == late->workers) {
        return NOBODY;
    }
    memset(late->worker, 0, late->workers * sizeof(*late->worker));
    late->reference = rank;
    late->missed = 0;
    return rank;
}

static int64_t
end_of(const struct late *late, uint32_t rank, const struct psi_step_times *times)
{
    return apart((uint64_t)late->worker[rank].offset_us, times->end_us);
}

static int64_t
begin_of(const struct late *late, uint32_t rank, const struct psi_step_times *times)
{
    return end_of(late, rank, times) - times->total_us;
}

int64_t
late_offset_us(const struct late *late, uint32_t rank)
{
    return late->worker[rank].offset_us;
}

int64_t
late_end_us(const struct late *late, uint32_t rank, const struct psi_step_times *times)
{
    return has_told(times) && late->worker[rank].count > 0 ? end_of(late, rank, times) : 0;
}

bool
late_learn(struct late *late, const struct psi_step_times *times)
{
    const uint32_t reference = find_reference(late, times);
    uint32_t count = 0;

    if (reference == NOBODY) {
        return false;
    }
    for (uint32_t rank = 0; rank < late->workers; rank++) {
        if (has_told(&times[rank])) {
            learn_offset(late, &late->worker[rank],
                         apart(times[reference].end_us, times[rank].end_us));
        }
    }
    for (uint32_t rank = 0; rank < late->workers; rank++) {
        if (has_told(&times[rank])) {
            late->sorted[count++] = begin_of(late, rank, &times[rank]);
        }
    }
    late->begun_us = middle_of(late->sorted, count);
    count = 0;
    for (uint32_t rank = 0; rank < late->workers; rank++) {
        if (has_told(&times[rank])) {
            late->sorted[count++] = end_of(late, rank, &times[rank]);
        }
    }
    late->ended_us = middle_of(late->sorted, count);
    return true;
}

/* Of a worker that has told too little, or does not tell its ends, nothing is said. */
static uint64_t
behind(const struct late *late, uint32_t rank, const struct psi_step_times *times, int64_t at_us,
       int64_t middle_us)
{
    return has_told(times) && late->worker[rank].count >= KEPT_MIN && at_us > middle_us
               ? (uint64_t)(at_us - middle_us)
               : 0;
}

uint64_t
late_begun_us(const struct late *late, uint32_t rank, const struct psi_step_times *times)
{
    return behind(late, rank, times, begin_of(late, rank, times), late->begun_us);
}

uint64_t
late_ended_us(const struct late *late, uint32_t rank, const struct psi_step_times *times)
{
    return behind(late, rank, times, end_of(late, rank, times), late->ended_us);
}
