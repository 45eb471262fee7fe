/*
 * peer_rows.c - a worker that follows the runner's orders about rows, and has them elsewhere: in
 * Redis, in memcached, or in plain memory of its own, which is the ceiling.
 *
 * usage: peer_rows plain|redis|memcached RANK WORKERS CONTROL ADDRESS
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "cache_client.h"
#include "group.h"
#include "process.h"
#include "rows.h"
#include "sparse_ceiling.h"
#include "timer.h"

enum { FILL_BATCH = 4096, TRIES = 3 };

/* Thread: owned by the main thread. */
struct peer {
    uint32_t rank;
    uint32_t workers;
    struct cache_client *cache; /* NULL: plain memory */
    struct plain_rows plain;
    struct rows rows;
    bool is_made;
    uint64_t flags; /* of this order */
    uint64_t round;
    size_t keys; /* of one command; 0: nobody has tried yet what is best */
};

/* ---- Rounds ---- */

static psd_status
get(struct peer *peer, size_t keys, struct psd_error *err)
{
    return cache_get(peer->cache, rows_ids(&peer->rows, peer->round), peer->rows.order.batch, keys,
                     peer->rows.values, peer->rows.order.width * sizeof(float), err);
}

static void
use_plain(struct peer *peer)
{
    const size_t count = peer->rows.order.batch;

    if ((peer->flags & TEAM_PUSH) != 0) {
        plain_rows_push(&peer->plain, rows_ids(&peer->rows, peer->round), count,
                        rows_gradients(&peer->rows, peer->round), (float)ROWS_RATE,
                        (float)ROWS_EPSILON);
    }
    if ((peer->flags & TEAM_LOOKUP) != 0) {
        plain_rows_gather(&peer->plain, rows_ids(&peer->rows, peer->round), count,
                          peer->rows.values);
    }
}

static psd_status
do_round(void *owner, uint64_t round, struct psd_error *err)
{
    struct peer *peer = owner;
    psd_status status = PSD_OK;

    (void)round;
    if (peer->cache != NULL) {
        status = get(peer, peer->keys, err);
    } else {
        use_plain(peer);
    }
    peer->round++;
    return status;
}

/* The fastest of some sizes of commands. */
static psd_status
find_best(struct peer *peer, struct psd_error *err)
{
    static const size_t sizes[] = {16, 64, 256, 1024, 4096};
    uint64_t best_ns = UINT64_MAX;

    for (size_t i = 0; i < TRIES * sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t keys = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
        const uint64_t begun_ns = timer_now_ns();

        if (get(peer, keys, err) != PSD_OK) {
            return err->status;
        }
        if (timer_now_ns() - begun_ns < best_ns) {
            best_ns = timer_now_ns() - begun_ns;
            peer->keys = keys;
        }
    }
    return PSD_OK;
}

/* ---- Rows ---- */

static psd_status
fill_batch(struct peer *peer, const uint64_t *ids, size_t count, float *numbers,
           struct psd_error *err)
{
    const size_t width = peer->rows.order.width;

    for (size_t i = 0; i < count * width; i++) {
        numbers[i] = rows_number(ids[i / width], (uint32_t)(i % width));
    }
    if (peer->cache != NULL) {
        return cache_store(peer->cache, ids, count, numbers, width * sizeof(float), err);
    }
    plain_rows_push(&peer->plain, ids, count, numbers, (float)ROWS_RATE, (float)ROWS_EPSILON);
    return PSD_OK;
}

/* A cache is filled by all workers together. */
static psd_status
fill(struct peer *peer, struct psd_error *err)
{
    const uint64_t step = peer->cache != NULL ? peer->workers : 1;
    float *numbers = malloc(FILL_BATCH * peer->rows.order.width * sizeof(*numbers));
    uint64_t ids[FILL_BATCH];
    size_t count = 0;
    psd_status status = PSD_OK;

    if (numbers == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to fill a table");
    }
    for (uint64_t id = step > 1 ? peer->rank : 0; id < peer->rows.order.ids && status == PSD_OK;
         id += step) {
        ids[count++] = id;
        if (count == FILL_BATCH || id + step >= peer->rows.order.ids) {
            status = fill_batch(peer, ids, count, numbers, err);
            count = 0;
        }
    }
    free(numbers);
    return status;
}

static psd_status
make(struct peer *peer, const struct team_order *order, struct psd_error *err)
{
    psd_status status;

    if (peer->is_made) {
        rows_fini(&peer->rows);
        plain_rows_fini(&peer->plain);
    }
    peer->is_made = true;
    peer->keys = 0;
    status = rows_init(&peer->rows, order, peer->rank, 1, err);
    if (status == PSD_OK && peer->cache == NULL && !plain_rows_init(&peer->plain, order->ids)) {
        status = psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %llu plain rows",
                          (unsigned long long)order->ids);
    }
    if (status == PSD_OK) {
        status = fill(peer, err);
        rows_filled(&peer->rows);
    }
    return status;
}

static psd_status
check(struct peer *peer, uint64_t rounds, struct psd_error *err)
{
    float values[ROWS_SAMPLES * SPARSE_WIDTH];

    if (peer->cache != NULL) {
        return rows_check_stored(&peer->rows, peer->round - 1, err);
    }
    for (uint64_t i = rounds; i > 0 && (peer->flags & TEAM_PUSH) != 0; i--) {
        rows_pushed(&peer->rows, peer->round - i);
    }
    plain_rows_gather(&peer->plain, peer->rows.sample_ids, ROWS_SAMPLES, values);
    return rows_check_samples(&peer->rows, values, err);
}

static psd_status
follow(void *owner, const struct team_order *order, struct team_times *times, struct psd_error *err)
{
    struct peer *peer = owner;
    psd_status status = PSD_OK;

    if (!peer->is_made || !rows_are_those(&peer->rows, order)) {
        status = make(peer, order, err);
    }
    if (status != PSD_OK || order->rounds == 0) {
        return status;
    }
    peer->flags = order->flags;
    if (peer->cache != NULL && peer->keys == 0) {
        status = find_best(peer, err);
    }
    if (status == PSD_OK) {
        status = rows_run(order, do_round, peer, times, err);
    }
    return status == PSD_OK ? check(peer, order->rounds, err) : status;
}

/* ---- Life ---- */

static psd_status
serve(struct peer *peer, const char *kind, const char *control, const char *address,
      struct psd_error *err)
{
    psd_status status = PSD_OK;
    int fd = -1;

    if (strcmp(kind, "plain") != 0) {
        status = cache_connect(address, strcmp(kind, "memcached") == 0, &peer->cache, err);
    }
    if (status == PSD_OK) {
        status = group_call(control, &fd, err);
    }
    if (status == PSD_OK) {
        status = team_follow(fd, follow, peer, err);
        close(fd);
    }
    if (peer->cache != NULL) {
        if (peer->rank == 0) {
            cache_shut_down(peer->cache);
        }
        cache_close(peer->cache);
    }
    if (peer->is_made) {
        rows_fini(&peer->rows);
        plain_rows_fini(&peer->plain);
    }
    return status;
}

int
main(int argc, char **argv)
{
    struct peer peer = {0};
    struct psd_error err = {0};

    if (argc != 6) {
        fprintf(stderr, "usage: peer_rows plain|redis|memcached RANK WORKERS CONTROL ADDRESS\n");
        return 2;
    }
    peer.rank = (uint32_t)strtoul(argv[2], NULL, 10);
    peer.workers = (uint32_t)strtoul(argv[3], NULL, 10);
    if (peer.workers > 1) {
        process_bind(peer.rank); /* as Poseidon's workers are */
    }
    if (serve(&peer, argv[1], argv[4], argv[5], &err) != PSD_OK) {
        fprintf(stderr, "peer_rows: %s: %s\n", argv[1], err.text);
        return 1;
    }
    return 0;
}
