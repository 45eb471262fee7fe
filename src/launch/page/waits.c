/*
 * waits.c - who waits for whom.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/waits.h"

#include <stdlib.h>
#include <string.h>

enum {
    CELLS = 65536, /* times that are kept until all workers have told */
    WINDOW_MIN = 32,
    WINDOW_MAX = 512,
};

/* Which workers have told of a step. */
struct waits_step {
    uint64_t step;
    uint32_t told;
    bool open;
};

bool
waits_init(struct waits *waits, uint32_t workers)
{
    const uint32_t fair = CELLS / (workers > 0 ? workers : 1);

    *waits = (struct waits){.workers = workers > 0 ? workers : 1, .waits_for_workers = true};
    waits->window = fair < WINDOW_MIN ? WINDOW_MIN : fair > WINDOW_MAX ? WINDOW_MAX : fair;
    waits->steps = calloc(waits->window, sizeof(*waits->steps));
    waits->times = calloc((size_t)waits->window * waits->workers, sizeof(*waits->times));
    waits->order = calloc(waits->workers, sizeof(*waits->order));
    waits->gone = calloc(waits->workers, sizeof(*waits->gone));
    waits->rows = calloc(WAITS_KEPT, sizeof(*waits->rows));
    return waits->steps != NULL && waits->times != NULL && waits->order != NULL &&
           waits->gone != NULL && waits->rows != NULL;
}

void
waits_fini(struct waits *waits)
{
    free(waits->steps);
    free(waits->times);
    free(waits->order);
    free(waits->gone);
    free(waits->rows);
}

static struct psi_step_times *
cell(const struct waits *waits, uint64_t step, uint32_t rank)
{
    return &waits->times[(step % waits->window) * waits->workers + rank];
}

/* What it did before it waited. */
static uint64_t
busy_us(const struct psi_step_times *times)
{
    return (uint64_t)times->compute_us + times->encode_us + times->send_us;
}

/* Those that told of the step, by how long they were busy. Returns how many. */
static uint32_t
sort_workers(const struct waits *waits, uint64_t step)
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < waits->workers; rank++) {
        const struct psi_step_times *times = cell(waits, step, rank);
        uint32_t at = count;

        if (times->total_us == 0) {
            continue;
        }
        while (at > 0 && busy_us(cell(waits, step, waits->order[at - 1])) > busy_us(times)) {
            waits->order[at] = waits->order[at - 1];
            at--;
        }
        waits->order[at] = rank;
        count++;
    }
    return count;
}

/* The server that most workers heard of last: behind one that sends for its host nobody knows. */
static uint32_t
last_server(const struct waits *waits, uint64_t step, uint32_t count)
{
    uint32_t found = WAITS_NOBODY;
    uint32_t longest_us = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct psi_step_times *times = cell(waits, step, waits->order[i]);

        if (times->server != UINT32_MAX &&
            (found == WAITS_NOBODY || times->alone_us > longest_us)) {
            found = times->server;
            longest_us = times->alone_us;
        }
    }
    return found;
}

static void
make_row(struct waits *waits, uint64_t step)
{
    const uint32_t count = sort_workers(waits, step);
    const struct psi_step_times *middle;
    const struct psi_step_times *slowest;
    uint64_t ahead_us;
    struct waits_row row = {.step = step, .worker = WAITS_NOBODY};

    if (count == 0) {
        return;
    }
    middle = cell(waits, step, waits->order[(count - 1) / 2]);
    slowest = cell(waits, step, waits->order[count - 1]);
    ahead_us = waits->waits_for_workers ? busy_us(slowest) - busy_us(middle) : 0;
    row.total_us = middle->total_us;
    row.compute_us = middle->compute_us;
    row.encode_us = middle->encode_us;
    row.send_us = middle->send_us;
    row.receive_us = middle->receive_us;
    row.worker_us = (uint32_t)(ahead_us < middle->wait_us ? ahead_us : middle->wait_us);
    row.server_us = middle->wait_us - row.worker_us;
    row.apply_us = waits->apply_us < row.server_us ? waits->apply_us : row.server_us;
    row.server_us -= row.apply_us;
    row.worker = count > 1 ? waits->order[count - 1] : WAITS_NOBODY;
    row.server = last_server(waits, step, count);
    row.ratio = middle->compute_us > 0 ? (float)slowest->compute_us / (float)middle->compute_us : 1;
    waits->rows[waits->number++ % WAITS_KEPT] = row;
}

static void
close_step(struct waits *waits, uint64_t step)
{
    struct waits_step *slot = &waits->steps[step % waits->window];

    if (slot->open && slot->step == step) {
        make_row(waits, step);
        slot->open = false;
    }
    waits->first = step + 1;
}

/* Steps that are complete, and those that others have left behind. */
static void
close_up_to(struct waits *waits, uint64_t end)
{
    while (waits->first < end) {
        close_step(waits, waits->first);
    }
}

static void
begin_step(struct waits *waits, uint64_t step)
{
    struct waits_step *slot = &waits->steps[step % waits->window];

    if (!slot->open) {
        *slot = (struct waits_step){.step = step, .open = true};
        memset(cell(waits, step, 0), 0, waits->workers * sizeof(*waits->times));
    }
}

static uint32_t
workers_there(const struct waits *waits)
{
    uint32_t gone = 0;

    for (uint32_t rank = 0; rank < waits->workers; rank++) {
        gone += waits->gone[rank];
    }
    return waits->workers - gone;
}

void
waits_add(struct waits *waits, uint32_t rank, const struct psi_step_times *times)
{
    struct psi_step_times *at;

    if (rank >= waits->workers || times->total_us == 0) {
        return;
    }
    if (!waits->begun || times->step >= waits->first + 2 * (uint64_t)waits->window) {
        close_up_to(waits, waits->begun ? waits->first + waits->window : 0);
        waits->first = times->step; /* the first, or a jump */
        waits->begun = true;
    }
    if (times->step < waits->first) {
        return; /* too late */
    }
    if (times->step >= waits->first + waits->window) {
        close_up_to(waits, times->step - waits->window + 1);
    }
    begin_step(waits, times->step);
    waits->gone[rank] = false;
    at = cell(waits, times->step, rank);
    waits->steps[times->step % waits->window].told += at->total_us == 0;
    *at = *times;
    while (waits->steps[waits->first % waits->window].open &&
           waits->steps[waits->first % waits->window].step == waits->first &&
           waits->steps[waits->first % waits->window].told >= workers_there(waits)) {
        close_step(waits, waits->first);
    }
}

void
waits_leave(struct waits *waits, uint32_t rank)
{
    if (rank < waits->workers) {
        waits->gone[rank] = true;
    }
}

/* ---- the last steps ------------------------------------------------------------------------ */

static const struct waits_row *
row_back(const struct waits *waits, uint32_t back)
{
    return &waits->rows[(waits->number - 1 - back) % WAITS_KEPT];
}

/* Whoever was waited for longest, over `rows` rows; and the server that answered last, by time. */
static void
find_longest(const struct waits *waits, uint32_t rows, struct waits_sum *sum)
{
    uint64_t server_us = 0;

    sum->worker = WAITS_NOBODY;
    sum->server = WAITS_NOBODY;
    for (uint32_t i = 0; i < rows; i++) {
        const struct waits_row *candidate = row_back(waits, i);
        uint64_t worker_us = 0;
        uint64_t waited_us = 0;

        for (uint32_t j = 0; j < rows; j++) {
            const struct waits_row *row = row_back(waits, j);

            worker_us += row->worker == candidate->worker ? row->worker_us : 0;
            waited_us += row->server == candidate->server ? row->server_us + row->apply_us : 0;
        }
        if (candidate->worker != WAITS_NOBODY && worker_us > sum->worker_us) {
            sum->worker = candidate->worker;
            sum->worker_us = worker_us;
        }
        if (candidate->server != WAITS_NOBODY && waited_us > server_us) {
            sum->server = candidate->server;
            server_us = waited_us;
        }
    }
}

static int
compare_floats(const void *a, const void *b)
{
    const float *x = a;
    const float *y = b;

    return (*x > *y) - (*x < *y);
}

static float
median_ratio(const struct waits *waits, uint32_t rows, uint32_t worker)
{
    float ratios[WAITS_LOOK];
    uint32_t count = 0;

    for (uint32_t i = 0; i < rows; i++) {
        if (row_back(waits, i)->worker == worker) {
            ratios[count++] = row_back(waits, i)->ratio;
        }
    }
    qsort(ratios, count, sizeof(ratios[0]), compare_floats);
    return count > 0 ? ratios[count / 2] : 1;
}

struct waits_sum
waits_sum(const struct waits *waits)
{
    const uint32_t rows = waits->number < WAITS_LOOK ? (uint32_t)waits->number : WAITS_LOOK;
    struct waits_sum sum = {.rows = rows, .worker = WAITS_NOBODY, .server = WAITS_NOBODY};

    if (rows == 0) {
        return sum;
    }
    sum.step = row_back(waits, 0)->step;
    for (uint32_t i = 0; i < rows; i++) {
        const struct waits_row *row = row_back(waits, i);

        sum.total_us += row->total_us;
        sum.compute_us += row->compute_us + row->encode_us;
        sum.server_us += row->server_us + row->apply_us + row->send_us + row->receive_us;
    }
    find_longest(waits, rows, &sum);
    sum.ratio = median_ratio(waits, rows, sum.worker);
    return sum;
}

const struct psi_step_times *
waits_times(const struct waits *waits, uint64_t step, uint32_t rank)
{
    const struct psi_step_times *times = cell(waits, step, rank);

    return waits->steps[step % waits->window].step == step && times->step == step &&
                   times->total_us > 0
               ? times
               : NULL;
}
