/*
 * waits.c - who waits for whom.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/waits.h"

#include <stdlib.h>
#include <string.h>

enum {
    CELLS = 65536,                  /* times that are kept until all workers have told */
    WINDOW_MIN = 2 * PSI_STEPS_MAX, /* one worker may tell twice before another tells once */
    WINDOW_MAX = 512,
};

/* How many have told of a step. */
struct waits_step {
    uint64_t step;
    uint32_t told;
    bool open;
};

struct waits_worker {
    uint64_t last; /* the step that it told of last */
    bool told;     /* it has told of any */
    bool gone;     /* it tells nothing any more */
};

bool
waits_init(struct waits *waits, uint32_t workers)
{
    const uint32_t fair = CELLS / (workers > 0 ? workers : 1);

    *waits = (struct waits){
        .workers = workers > 0 ? workers : 1, .waits_for_workers = true, .ends_together = true};
    waits->there = waits->workers;
    waits->whole.workers.stretch_us = waits->whole.servers.stretch_us = BLAME_CROWDED_US;
    waits->window = fair < WINDOW_MIN ? WINDOW_MIN : fair > WINDOW_MAX ? WINDOW_MAX : fair;
    waits->steps = calloc(waits->window, sizeof(*waits->steps));
    waits->times = calloc((size_t)waits->window * waits->workers, sizeof(*waits->times));
    waits->order = calloc(waits->workers, sizeof(*waits->order));
    waits->worker = calloc(waits->workers, sizeof(*waits->worker));
    waits->rows = calloc(WAITS_KEPT, sizeof(*waits->rows));
    waits->whole.worker_us = calloc(waits->workers, sizeof(*waits->whole.worker_us));
    return late_init(&waits->late, waits->workers) && waits->steps != NULL &&
           waits->times != NULL && waits->order != NULL && waits->worker != NULL &&
           waits->rows != NULL && waits->whole.worker_us != NULL;
}

void
waits_fini(struct waits *waits)
{
    free(waits->steps);
    free(waits->times);
    free(waits->order);
    free(waits->worker);
    free(waits->rows);
    free(waits->whole.worker_us);
    late_fini(&waits->late);
}

/* Whoever has the same number is the same to who reads it. */
static void
carry_whole(struct waits *fresh, const struct waits *old)
{
    uint64_t *worker_us = fresh->whole.worker_us;
    const uint32_t both = fresh->workers < old->workers ? fresh->workers : old->workers;

    memcpy(worker_us, old->whole.worker_us, both * sizeof(*worker_us));
    fresh->whole = old->whole;
    fresh->whole.worker_us = worker_us;
}

bool
waits_again(struct waits *waits, uint32_t workers)
{
    struct waits fresh;
    struct waits_row *rows = waits->rows;

    if (!waits_init(&fresh, workers)) {
        waits_fini(&fresh);
        return false;
    }
    fresh.number = fresh.begun = waits->number;
    carry_whole(&fresh, waits);
    waits->rows = fresh.rows;
    fresh.rows = rows;
    waits_fini(waits);
    *waits = fresh;
    return true;
}

static struct psi_step_times *
cell(const struct waits *waits, uint32_t slot, uint32_t rank)
{
    return &waits->times[(size_t)slot * waits->workers + rank];
}

/* What it did before it waited. */
static uint64_t
busy_us(const struct psi_step_times *times)
{
    return (uint64_t)times->compute_us + times->encode_us + times->send_us;
}

/* When it was done, from when the step began for most. */
static uint64_t
done_us(const struct waits *waits, uint32_t slot, uint32_t rank)
{
    const struct psi_step_times *times = cell(waits, slot, rank);

    return busy_us(times) + (waits->knows_late ? late_begun_us(&waits->late, rank, times) : 0);
}

/* Those that told of the step, by when they were done. Returns how many. */
static uint32_t
sort_workers(const struct waits *waits, uint32_t slot)
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < waits->workers; rank++) {
        const struct psi_step_times *times = cell(waits, slot, rank);
        uint32_t at = count;

        if (times->total_us == 0) {
            continue;
        }
        while (at > 0 && done_us(waits, slot, waits->order[at - 1]) > done_us(waits, slot, rank)) {
            waits->order[at] = waits->order[at - 1];
            at--;
        }
        waits->order[at] = rank;
        count++;
    }
    return count;
}

/* The server that some worker waited for longest when all others had answered it: of one that sends
 * for its host nobody knows. */
static uint32_t
last_server(const struct waits *waits, uint32_t slot, uint32_t count)
{
    uint32_t found = WAITS_NOBODY;
    uint32_t longest_us = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct psi_step_times *times = cell(waits, slot, waits->order[i]);

        if (times->server != UINT32_MAX &&
            (found == WAITS_NOBODY || times->alone_us > longest_us)) {
            found = times->server;
            longest_us = times->alone_us;
        }
    }
    return found;
}

static void
add_to_whole(struct waits *waits, const struct waits_row *row)
{
    const struct waits_row *before =
        waits->number > waits->begun ? &waits->rows[(waits->number - 1) % WAITS_KEPT] : NULL;
    const uint64_t weight = waits_weight(before, row);
    struct waits_whole *whole = &waits->whole;

    whole->steps += weight;
    whole->total_us += weight * row->total_us;
    whole->compute_us += weight * ((uint64_t)row->compute_us + row->encode_us);
    if (row->server < PSI_SERVERS_MAX) {
        whole->server_us[row->server] += weight * ((uint64_t)row->server_us + row->apply_us);
        blame_add(&whole->servers, weight * row->total_us,
                  weight * ((uint64_t)row->server_us + row->apply_us));
    }
    if (row->worker < waits->workers) {
        whole->worker_us[row->worker] += weight * row->worker_us;
        blame_add(&whole->workers, weight * row->total_us, weight * row->worker_us);
    }
}

/* How the one in the middle fared, which had to wait for the slowest. What it slept after the step had
 * ended for most is its own affair, and a part of its next step. */
static void
fill_row(const struct waits *waits, uint32_t slot, uint32_t middle_rank, uint32_t slow_rank,
         struct waits_row *row)
{
    const struct psi_step_times *middle = cell(waits, slot, middle_rank);
    const struct psi_step_times *slowest = cell(waits, slot, slow_rank);
    const uint64_t overslept_us =
        waits->knows_late ? late_ended_us(&waits->late, middle_rank, middle) : 0;
    const uint32_t own_us =
        overslept_us < middle->wait_us ? (uint32_t)overslept_us : middle->wait_us;
    const uint32_t wait_us = middle->wait_us - own_us;
    const uint64_t ahead_us = done_us(waits, slot, slow_rank) - done_us(waits, slot, middle_rank);
    const uint64_t late_us =
        waits->knows_late ? late_begun_us(&waits->late, slow_rank, slowest) : 0;

    row->total_us = middle->total_us - own_us;
    row->compute_us = middle->compute_us;
    row->encode_us = middle->encode_us;
    row->send_us = middle->send_us;
    row->receive_us = middle->receive_us;
    row->worker_us = !waits->waits_for_workers ? 0
                     : ahead_us < wait_us      ? (uint32_t)ahead_us
                                               : wait_us;
    row->late_us = late_us < row->worker_us ? (uint32_t)late_us : row->worker_us;
    row->server_us = wait_us - row->worker_us;
    row->apply_us = waits->apply_us < row->server_us ? waits->apply_us : row->server_us;
    row->server_us -= row->apply_us;
    row->slow_us = slowest->compute_us;
    row->ratio =
        middle->compute_us > 0 ? (float)slowest->compute_us / (float)middle->compute_us : 1;
}

static void
make_row(struct waits *waits, uint32_t slot)
{
    struct waits_row row = {
        .step = waits->steps[slot].step, .worker = WAITS_NOBODY, .clock = WAITS_NOBODY};
    const bool knows_end = late_learn(&waits->late, cell(waits, slot, 0), waits->ends_together);
    uint32_t count;

    waits->knows_late = knows_end && waits->ends_together;
    count = sort_workers(waits, slot);
    if (count == 0) {
        return;
    }
    fill_row(waits, slot, waits->order[(count - 1) / 2], waits->order[count - 1], &row);
    if (knows_end) {
        row.end_us = waits->late.ended_us;
        row.clock = waits->late.reference;
    }
    row.worker = count > 1 ? waits->order[count - 1] : WAITS_NOBODY;
    row.server = last_server(waits, slot, count);
    add_to_whole(waits, &row);
    waits->rows[waits->number++ % WAITS_KEPT] = row;
}

/* Without a clear majority nobody knows who was slowest: whoever has not told may be. */
static bool
is_worth_a_row(const struct waits *waits, const struct waits_step *step)
{
    return step->step >= waits->first && 4 * (uint64_t)step->told >= 3 * (uint64_t)waits->there;
}

/* Nobody tells of it any more. */
static void
settle(struct waits *waits, uint32_t slot)
{
    struct waits_step *step = &waits->steps[slot];

    step->open = false;
    if (is_worth_a_row(waits, step)) {
        make_row(waits, slot);
        waits->first = step->step + 1;
    }
}

/* The earliest open step before this one; WAITS_NOBODY: there is none. */
static uint32_t
find_earliest(const struct waits *waits, uint64_t before)
{
    uint32_t found = WAITS_NOBODY;

    for (uint32_t slot = 0; slot < waits->window; slot++) {
        const struct waits_step *step = &waits->steps[slot];

        if (step->open && step->step < before) {
            before = step->step;
            found = slot;
        }
    }
    return found;
}

/* A worker's steps rise: all that came before are settled as well. */
static void
close_step(struct waits *waits, uint32_t slot)
{
    const uint64_t step = waits->steps[slot].step;
    uint32_t earlier;

    while (is_worth_a_row(waits, &waits->steps[slot]) &&
           (earlier = find_earliest(waits, step)) != WAITS_NOBODY) {
        settle(waits, earlier);
    }
    settle(waits, slot);
}

/* The slot of a step. A new one takes the place of the one that was begun longest ago. */
static uint32_t
slot_of(struct waits *waits, uint64_t step)
{
    uint32_t slot = waits->found;

    for (uint32_t i = 0; i < waits->window; i++) { /* most often the next one */
        slot = slot + 1 < waits->window ? slot + 1 : 0;
        if (waits->steps[slot].open && waits->steps[slot].step == step) {
            waits->found = slot;
            return slot;
        }
    }
    slot = waits->next;
    waits->next = slot + 1 < waits->window ? slot + 1 : 0;
    if (waits->steps[slot].open) {
        close_step(waits, slot);
    }
    waits->steps[slot] = (struct waits_step){.step = step, .open = true};
    memset(cell(waits, slot, 0), 0, waits->workers * sizeof(*waits->times));
    waits->found = slot;
    return slot;
}

/* Everybody has gone back, as to a checkpoint. */
static bool
all_are_before(const struct waits *waits, uint64_t step)
{
    for (uint32_t rank = 0; rank < waits->workers; rank++) {
        const struct waits_worker *worker = &waits->worker[rank];

        if (worker->told && !worker->gone && worker->last >= step) {
            return false;
        }
    }
    return true;
}

static void
begin_again(struct waits *waits)
{
    for (uint32_t slot = 0; slot < waits->window; slot++) {
        waits->steps[slot].open = false;
    }
    waits->first = 0;
}

void
waits_add(struct waits *waits, uint32_t rank, const struct psi_step_times *times)
{
    struct waits_worker *worker;
    struct psi_step_times *at;
    uint32_t slot;

    if (rank >= waits->workers || times->total_us == 0) {
        return;
    }
    worker = &waits->worker[rank];
    waits->there += worker->gone;
    *worker = (struct waits_worker){.last = times->step, .told = true};
    if (times->step < waits->first) {
        if (!all_are_before(waits, waits->first)) {
            return; /* too late */
        }
        begin_again(waits);
    }
    slot = slot_of(waits, times->step);
    at = cell(waits, slot, rank);
    waits->steps[slot].told += at->total_us == 0;
    *at = *times;
    if (waits->steps[slot].told >= waits->there) {
        close_step(waits, slot);
    }
}

void
waits_leave(struct waits *waits, uint32_t rank)
{
    if (rank < waits->workers && !waits->worker[rank].gone) {
        waits->worker[rank].gone = true;
        waits->there--;
    }
}

const struct psi_step_times *
waits_times(const struct waits *waits, uint64_t step)
{
    uint32_t slot = waits->next;

    for (uint32_t i = 0; i < waits->window;
         i++) { /* of a step that was made again, the last time */
        slot = slot > 0 ? slot - 1 : waits->window - 1;
        if (waits->steps[slot].told > 0 && waits->steps[slot].step == step) {
            return cell(waits, slot, 0);
        }
    }
    return NULL;
}
