/*
 * before.c - rows as they were before the last change.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/before.h"

#include <stdlib.h>
#include <string.h>

#include "shard/bucket.h"

void
before_fini(struct before *before)
{
    free(before->ids);
    free(before->rows);
}

bool
before_reserve(struct before *before, size_t row_bytes, size_t count)
{
    uint64_t *ids;
    uint8_t *rows;

    if (count <= before->capacity) {
        return true;
    }
    ids = realloc(before->ids, count * sizeof(*ids));
    before->ids = ids != NULL ? ids : before->ids;
    rows = ids != NULL ? realloc(before->rows, count * row_bytes) : NULL;
    before->rows = rows != NULL ? rows : before->rows;
    before->capacity = rows != NULL ? (uint32_t)count : before->capacity;
    return rows != NULL;
}

bool
before_keep(struct before *before, size_t row_bytes, struct sparse *rows, const uint64_t *ids,
            size_t count)
{
    if (!before_reserve(before, row_bytes, count)) {
        return false;
    }
    if (count > 0) {
        memcpy(before->ids, ids, count * sizeof(*before->ids));
        sparse_lookup(rows, before->ids, count, before->rows);
    }
    before->count = (uint32_t)count;
    return true;
}

/* One that went. */
struct place {
    uint64_t key;
    size_t at;
};

static int
compare(const void *a, const void *b)
{
    const struct place *left = a;
    const struct place *right = b;

    return (left->key > right->key) - (left->key < right->key);
}

/* Where those that went are, by rising mixed id. NULL: no memory. */
static struct place *
sort(const struct sparse_gone *gone)
{
    struct place *places = malloc(gone->count * sizeof(*places));

    for (size_t i = 0; places != NULL && i < gone->count; i++) {
        places[i] = (struct place){.key = psi_bucket_mix(gone->ids[i]), .at = i};
    }
    if (places != NULL) {
        qsort(places, gone->count, sizeof(*places), compare);
    }
    return places;
}

/* From behind, where there is room: none is written over before it has moved. */
static void
merge(struct before *before, size_t row_bytes, const struct sparse_gone *gone,
      const struct place *places)
{
    size_t old = before->count;
    size_t went = gone->count;
    size_t to = old + went;

    while (went > 0) {
        const uint64_t key = places[went - 1].key;
        const uint64_t kept = old > 0 ? psi_bucket_mix(before->ids[old - 1]) : 0;

        if (old > 0 && kept == key) { /* it went as the step had left it, and not as it was */
            went--;
        } else if (old > 0 && kept > key) {
            old--;
            to--;
            before->ids[to] = before->ids[old];
            memmove(before->rows + to * row_bytes, before->rows + old * row_bytes, row_bytes);
        } else {
            went--;
            to--;
            before->ids[to] = gone->ids[places[went].at];
            memcpy(before->rows + to * row_bytes, gone->rows + places[went].at * row_bytes,
                   row_bytes);
        }
    }
    /* What is left of the old ones is where it was; the gap is as long as there were ids twice. */
    memmove(before->ids + old, before->ids + to,
            (before->count + gone->count - to) * sizeof(*before->ids));
    memmove(before->rows + old * row_bytes, before->rows + to * row_bytes,
            (before->count + gone->count - to) * row_bytes);
    before->count = (uint32_t)(old + before->count + gone->count - to);
}

bool
before_add(struct before *before, size_t row_bytes, const struct sparse_gone *gone)
{
    struct place *places;

    if (gone->count == 0) {
        return true;
    }
    if (!before_reserve(before, row_bytes, before->count + gone->count)) {
        return false;
    }
    places = sort(gone);
    if (places != NULL) {
        merge(before, row_bytes, gone, places);
    }
    free(places);
    return places != NULL;
}

/* Both lists have the same order. */
void
before_put(const struct before *before, size_t row_bytes, const struct store_rows *asked,
           uint8_t *rows)
{
    uint32_t old = 0;

    for (uint32_t i = 0; i < asked->count && old < before->count; i++) {
        while (old < before->count && psi_bucket_before(before->ids[old], asked->ids[i])) {
            old++;
        }
        if (old < before->count && before->ids[old] == asked->ids[i]) {
            memcpy(rows + i * row_bytes, before->rows + old * row_bytes, row_bytes);
        }
    }
}
