/*
 * sparse_ids.c - ids in the order of their mixed ids: counted into their buckets, of which each has
 * few, then sorted there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/sparse_ids.h"

#include <stdlib.h>
#include <string.h>

#include "shard/bucket.h"

enum { FEW = 24 }; /* worth no more than being put in their places one by one */

static int
by_mixed(const void *a, const void *b)
{
    const struct sparse_id *left = a;
    const struct sparse_id *right = b;

    if (left->mixed != right->mixed) {
        return left->mixed < right->mixed ? -1 : 1;
    }
    return left->at < right->at ? -1 : left->at > right->at;
}

static void
sort_bucket(struct sparse_id *list, uint32_t count)
{
    if (count > FEW) {
        qsort(list, count, sizeof(*list), by_mixed);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        const struct sparse_id moved = list[i];
        uint32_t to = i;

        while (to > 0 && list[to - 1].mixed > moved.mixed) {
            list[to] = list[to - 1];
            to--;
        }
        list[to] = moved;
    }
}

/* Counts them, and turns the counts into the place where each bucket begins. */
static void
count_buckets(uint32_t *begin, uint32_t buckets, const uint64_t *given, uint32_t count,
              uint32_t bucket_bits)
{
    uint32_t before = 0;

    memset(begin, 0, (buckets + 1u) * sizeof(*begin));
    for (uint32_t i = 0; i < count; i++) {
        begin[psi_bucket_of(given[i], bucket_bits)]++;
    }
    for (uint32_t bucket = 0; bucket <= buckets; bucket++) {
        const uint32_t here = begin[bucket];

        begin[bucket] = before;
        before += here;
    }
}

bool
psi_sparse_ids_sort(struct sparse_ids *ids, const uint64_t *given, uint32_t count,
                    uint32_t bucket_bits)
{
    const uint32_t buckets = 1u << bucket_bits;
    uint32_t *end = malloc((buckets + 1u) * sizeof(*end));
    uint32_t begin = 0;

    *ids = (struct sparse_ids){.list = malloc((count + 1u) * sizeof(*ids->list)), .count = count};
    if (end == NULL || ids->list == NULL) {
        free(end);
        psi_sparse_ids_fini(ids);
        return false;
    }
    count_buckets(end, buckets, given, count, bucket_bits);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t mixed = psi_bucket_mix(given[i]);

        ids->list[end[mixed >> (64 - bucket_bits)]++] = (struct sparse_id){.mixed = mixed, .at = i};
    }
    for (uint32_t bucket = 0; bucket < buckets && begin < count; bucket++) {
        sort_bucket(ids->list + begin, end[bucket] - begin);
        begin = end[bucket];
    }
    for (uint32_t i = 0; i < count; i = psi_sparse_ids_end(ids, i)) {
        ids->unique++;
    }
    free(end);
    return true;
}

void
psi_sparse_ids_fini(struct sparse_ids *ids)
{
    free(ids->list);
    ids->list = NULL;
}
