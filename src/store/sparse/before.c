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
