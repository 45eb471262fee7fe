/*
 * ranges.c - which parts of a file lie in the files of earlier generations.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/ranges.h"

#include <stdlib.h>
#include <string.h>

void
psi_ranges_fini(struct psi_ranges *ranges)
{
    free(ranges->list);
    memset(ranges, 0, sizeof(*ranges));
}

/* Does the second go on where the first ends? */
static bool
joins(const struct psi_range *first, const struct psi_range *second)
{
    return first->generation == second->generation && first->end == second->begin;
}

bool
psi_ranges_add(struct psi_ranges *ranges, struct psi_range range)
{
    if (ranges->count > 0 && joins(&ranges->list[ranges->count - 1], &range)) {
        ranges->list[ranges->count - 1].end = range.end;
        return true;
    }
    if (ranges->count == ranges->capacity) {
        const size_t capacity = ranges->capacity * 2 + 16;
        struct psi_range *list = reallocarray(ranges->list, capacity, sizeof(*list));

        if (list == NULL) {
            return false;
        }
        ranges->list = list;
        ranges->capacity = capacity;
    }
    ranges->list[ranges->count++] = range;
    return true;
}

static int
by_place(const void *a, const void *b)
{
    const struct psi_range *left = a;
    const struct psi_range *right = b;

    return (left->begin > right->begin) - (left->begin < right->begin);
}

bool
psi_ranges_settle(struct psi_ranges *ranges)
{
    size_t count = 0;

    if (ranges->count > 1) {
        qsort(ranges->list, ranges->count, sizeof(ranges->list[0]), by_place);
    }
    for (size_t i = 0; i < ranges->count; i++) {
        const struct psi_range range = ranges->list[i];

        if (range.begin >= range.end || (i > 0 && ranges->list[count - 1].end > range.begin)) {
            return false;
        }
        if (i > 0 && joins(&ranges->list[count - 1], &range)) {
            ranges->list[count - 1].end = range.end;
        } else {
            ranges->list[count++] = range;
        }
    }
    ranges->count = count;
    return true;
}

uint64_t
psi_ranges_bytes(const struct psi_ranges *ranges)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < ranges->count; i++) {
        bytes += ranges->list[i].end - ranges->list[i].begin;
    }
    return bytes;
}

size_t
psi_ranges_find(const struct psi_ranges *ranges, uint64_t at)
{
    size_t low = 0;
    size_t high = ranges->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (ranges->list[middle].end <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
