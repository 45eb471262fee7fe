/*
 * waits_sum.c - who was waited for in the last steps, all together.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/waits.h"

static const struct waits_row *
row_back(const struct waits *waits, uint32_t back)
{
    return &waits->rows[(waits->number - 1 - back) % WAITS_KEPT];
}

enum { UNTOLD_MAX = 65536 /* steps that one row may stand for */ };

/* Steps may go back, and the first may be any: then it counts for itself. */
uint64_t
waits_weight(const struct waits_row *before, const struct waits_row *row)
{
    const uint64_t apart =
        before != NULL && row->step > before->step ? row->step - before->step : 1;

    return apart <= UNTOLD_MAX ? apart : 1;
}

static bool
is_first_of_worker(const struct waits *waits, uint32_t back)
{
    uint32_t i = 0;

    while (i < back && row_back(waits, i)->worker != row_back(waits, back)->worker) {
        i++;
    }
    return i == back;
}

static bool
is_first_of_server(const struct waits *waits, uint32_t back)
{
    uint32_t i = 0;

    while (i < back && row_back(waits, i)->server != row_back(waits, back)->server) {
        i++;
    }
    return i == back;
}

static void
add_worker(const struct waits *waits, uint32_t rows, uint32_t worker, struct waits_sum *sum)
{
    uint64_t worker_us = 0;
    uint64_t late_us = 0;

    for (uint32_t i = 0; i < rows; i++) {
        const struct waits_row *row = row_back(waits, i);

        worker_us += row->worker == worker ? row->worker_us : 0;
        late_us += row->worker == worker ? row->late_us : 0;
    }
    if (worker != WAITS_NOBODY && worker_us > sum->worker_us) {
        sum->worker = worker;
        sum->worker_us = worker_us;
        sum->late_us = late_us;
    }
}

static void
add_server(const struct waits *waits, uint32_t rows, uint32_t server, struct waits_sum *sum)
{
    uint64_t waited_us = 0;

    for (uint32_t i = 0; i < rows; i++) {
        const struct waits_row *row = row_back(waits, i);

        waited_us += row->server == server ? row->server_us + row->apply_us : 0;
    }
    if (server != WAITS_NOBODY && waited_us > sum->named_us) {
        sum->server = server;
        sum->named_us = waited_us;
    }
}

/* Whoever was waited for longest, over `rows` rows; and the server that answered last, by time. They
 * are few, whatever the number of rows. */
static void
find_longest(const struct waits *waits, uint32_t rows, struct waits_sum *sum)
{
    for (uint32_t i = 0; i < rows; i++) {
        if (is_first_of_worker(waits, i)) {
            add_worker(waits, rows, row_back(waits, i)->worker, sum);
        }
        if (is_first_of_server(waits, i)) {
            add_server(waits, rows, row_back(waits, i)->server, sum);
        }
    }
}

/* Over all steps in which it was the slowest: one that is slow now and then is so in their sum. */
static float
ratio_of(const struct waits *waits, uint32_t rows, uint32_t worker)
{
    uint64_t slow_us = 0;
    uint64_t middle_us = 0;

    for (uint32_t i = 0; i < rows; i++) {
        const struct waits_row *row = row_back(waits, i);

        slow_us += row->worker == worker ? row->slow_us : 0;
        middle_us += row->worker == worker ? row->compute_us : 0;
    }
    return middle_us > 0 ? (float)slow_us / (float)middle_us : 1;
}

/* By one clock: of two, the difference says nothing. */
static bool
is_recent(const struct waits_row *last, const struct waits_row *row, int64_t within_us)
{
    return last->clock != WAITS_NOBODY && row->clock == last->clock &&
           row->end_us <= last->end_us && last->end_us - row->end_us < within_us;
}

/* Of fast steps some are told: a few of these may well miss who is slow now and then. */
static uint32_t
rows_within(const struct waits *waits, int64_t within_us, uint32_t most)
{
    const uint64_t known = waits->number - waits->begun;
    uint32_t rows = known < WAITS_LOOK ? (uint32_t)known : WAITS_LOOK;

    while (rows < known && rows < most &&
           is_recent(row_back(waits, 0), row_back(waits, rows), within_us)) {
        rows++;
    }
    return rows;
}

/* In so many rows: was the worker waited for, and was this server the one, by more than chance? */
static void
judge(const struct waits *waits, uint32_t rows, uint32_t servers, struct waits_sum *sum)
{
    const uint64_t stretch_us = waits->is_crowded ? BLAME_CROWDED_US : BLAME_STRETCH_US;
    struct blame on_workers = {.stretch_us = stretch_us};
    struct blame on_servers = {.stretch_us = stretch_us};
    uint64_t worker_us = 0;
    uint64_t server_us = 0;

    for (uint32_t i = 0; i < rows; i++) {
        const struct waits_row *row = row_back(waits, i);
        const uint64_t weight = waits_weight(i + 1 < rows ? row_back(waits, i + 1) : NULL, row);
        const uint64_t waited_us = weight * (row->server_us + (uint64_t)row->apply_us);

        blame_add(&on_workers, weight * row->total_us, weight * row->worker_us);
        blame_add(&on_servers, weight * row->total_us, waited_us);
        worker_us += row->worker == sum->worker ? weight * row->worker_us : 0;
        server_us += row->server == sum->server ? waited_us : 0;
    }
    sum->worker_stands_out |= blame_stands_out(&on_workers, worker_us, waits->workers);
    sum->server_stands_out |= blame_stands_out(&on_servers, server_us, servers);
}

struct waits_sum
waits_sum(const struct waits *waits, uint32_t servers)
{
    const uint32_t rows = rows_within(waits, WAITS_LOOK_US, WAITS_LOOK_MAX);
    struct waits_sum sum = {.rows = rows, .worker = WAITS_NOBODY, .server = WAITS_NOBODY};

    if (rows == 0) {
        return sum;
    }
    sum.step = row_back(waits, 0)->step;
    for (uint32_t i = 0; i < rows; i++) {
        const struct waits_row *row = row_back(waits, i);

        sum.total_us += row->total_us;
        sum.compute_us += row->compute_us + row->encode_us;
        sum.workers_us += row->worker_us;
        sum.waited_us += row->server_us + row->apply_us;
        sum.server_us += row->server_us + row->apply_us + row->send_us + row->receive_us;
    }
    find_longest(waits, rows, &sum);
    sum.ratio = ratio_of(waits, rows, sum.worker);
    judge(waits, rows, servers, &sum);
    judge(waits, rows_within(waits, WAITS_PROOF_US, WAITS_KEPT), servers, &sum);
    return sum;
}
