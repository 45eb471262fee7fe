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

/* A worker; of its machine the first one stands for all. */
struct late_worker {
    uint32_t machine;       /* by the number that others have given it */
    uint32_t home;          /* the first worker of that machine */
    int64_t apart_us[KEPT]; /* a machine: its first end of a step, from that of the reference */
    uint32_t count;         /* ever */
    int64_t offset_us;      /* most often */
};

bool
late_init(struct late *late, uint32_t workers)
{
    *late = (struct late){.workers = workers, .reference = NOBODY};
    late->worker = calloc(workers, sizeof(*late->worker));
    late->first_us = calloc(workers, sizeof(*late->first_us));
    late->sorted = calloc(workers > KEPT ? workers : KEPT, sizeof(*late->sorted));
    for (uint32_t rank = 0; late->worker != NULL && rank < workers; rank++) {
        late->worker[rank].machine = NOBODY - rank; /* until it is said: one of its own */
        late->worker[rank].home = rank;
    }
    return late->worker != NULL && late->first_us != NULL && late->sorted != NULL;
}

void
late_fini(struct late *late)
{
    free(late->worker);
    free(late->first_us);
    free(late->sorted);
}

static void
forget_clocks(struct late *late)
{
    for (uint32_t rank = 0; rank < late->workers; rank++) {
        late->worker[rank].count = 0;
        late->worker[rank].offset_us = 0;
    }
}

void
late_place(struct late *late, uint32_t rank, uint32_t machine)
{
    if (rank < late->workers && late->worker[rank].machine != machine) {
        late->worker[rank].machine = machine;
        late->moved = true;
    }
}

/* Somebody is on another machine: what was learnt may be of others. */
static void
find_homes(struct late *late)
{
    for (uint32_t rank = 0; rank < late->workers; rank++) {
        uint32_t home = 0;

        while (late->worker[home].machine != late->worker[rank].machine) {
            home++;
        }
        late->worker[rank].home = home;
    }
    forget_clocks(late);
    late->reference = NOBODY;
    late->missed = 0;
    late->moved = false;
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

/* When each machine saw the step end: the first of its workers did. INT64_MAX: none has told. */
static void
find_first_ends(struct late *late, const struct psi_step_times *times)
{
    for (uint32_t rank = 0; rank < late->workers; rank++) {
        late->first_us[rank] = INT64_MAX;
    }
    for (uint32_t rank = 0; rank < late->workers; rank++) {
        int64_t *first_us = &late->first_us[late->worker[rank].home];

        if (has_told(&times[rank]) && apart(0, times[rank].end_us) < *first_us) {
            *first_us = apart(0, times[rank].end_us);
        }
    }
}

/* The machine of before, if it has told; while it has not for a few steps, nothing is known. Of another
 * one, how far clocks are from its own has to be learnt anew. */
static uint32_t
find_reference(struct late *late)
{
    uint32_t home = 0;

    if (late->reference != NOBODY && late->first_us[late->reference] != INT64_MAX) {
        late->missed = 0;
        return late->reference;
    }
    if (late->reference != NOBODY && ++late->missed < MISSED_MAX) {
        return NOBODY;
    }
    while (home < late->workers && late->first_us[home] == INT64_MAX) {
        home++;
    }
    if (home == late->workers) {
        return NOBODY;
    }
    forget_clocks(late);
    late->reference = home;
    late->missed = 0;
    return home;
}

/* In how many steps the clock of a worker was compared. */
static uint32_t
compared(const struct late *late, uint32_t rank)
{
    const uint32_t home = late->worker[rank].home;

    return home == late->reference ? UINT32_MAX : late->worker[home].count;
}

static int64_t
end_of(const struct late *late, uint32_t rank, const struct psi_step_times *times)
{
    return apart((uint64_t)late->worker[late->worker[rank].home].offset_us, times->end_us);
}

static int64_t
begin_of(const struct late *late, uint32_t rank, const struct psi_step_times *times)
{
    return end_of(late, rank, times) - times->total_us;
}

bool
late_offset_us(const struct late *late, uint32_t rank, int64_t *offset_us_p)
{
    *offset_us_p = late->worker[late->worker[rank].home].offset_us;
    return late->reference != NOBODY && compared(late, rank) > 0;
}

uint32_t
late_home(const struct late *late, uint32_t rank)
{
    return late->worker[rank].home;
}

static void
learn_offsets(struct late *late)
{
    for (uint32_t home = 0; home < late->workers; home++) {
        if (home != late->reference && late->first_us[home] != INT64_MAX) {
            learn_offset(
                late, &late->worker[home],
                apart((uint64_t)late->first_us[late->reference], (uint64_t)late->first_us[home]));
        }
    }
}

static int64_t
find_middle(struct late *late, const struct psi_step_times *times,
            int64_t (*when)(const struct late *, uint32_t, const struct psi_step_times *))
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < late->workers; rank++) {
        if (has_told(&times[rank]) && compared(late, rank) > 0) {
            late->sorted[count++] = when(late, rank, &times[rank]);
        }
    }
    return middle_of(late->sorted, count); /* the reference at least has told */
}

bool
late_learn(struct late *late, const struct psi_step_times *times, bool ends_together)
{
    if (late->moved) {
        find_homes(late);
    }
    find_first_ends(late, times);
    if (find_reference(late) == NOBODY) {
        return false;
    }
    if (ends_together) {
        learn_offsets(late);
    } else {
        forget_clocks(late);
    }
    late->begun_us = find_middle(late, times, begin_of);
    late->ended_us = find_middle(late, times, end_of);
    return true;
}

/* Of a worker that has told too little, or does not tell its ends, nothing is said. */
static uint64_t
behind(const struct late *late, uint32_t rank, const struct psi_step_times *times, int64_t at_us,
       int64_t middle_us)
{
    return has_told(times) && compared(late, rank) >= KEPT_MIN && at_us > middle_us
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
