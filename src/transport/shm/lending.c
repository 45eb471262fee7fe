/*
 * lending.c - which memory of this process peers on the same host may read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/shm/lending.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* How many items begin at or below `base`. */
static uint32_t
upper_bound(const struct psi_lending *lending, const uint8_t *base)
{
    uint32_t low = 0;
    uint32_t high = lending->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (lending->items[middle].segment->base <= base) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool
grow(struct psi_lending *lending)
{
    const uint32_t capacity = lending->capacity > 0 ? 2 * lending->capacity : 16;
    struct psi_lent *items = realloc(lending->items, capacity * sizeof(*items));
    uint32_t *ids;

    if (items == NULL) {
        return false;
    }
    lending->items = items;
    ids = realloc(lending->ids, capacity * sizeof(*ids));
    if (ids == NULL) {
        return false;
    }
    for (uint32_t id = lending->capacity; id < capacity; id++) {
        ids[id] = id;
    }
    lending->ids = ids;
    lending->capacity = capacity;
    return true;
}

void
psi_lending_add(struct psi_lending *lending, const struct psi_segment *segment)
{
    uint32_t at;

    if (lending->count == lending->capacity && !grow(lending)) {
        return;
    }
    at = upper_bound(lending, segment->base);
    memmove(&lending->items[at + 1], &lending->items[at],
            (lending->count - at) * sizeof(*lending->items));
    lending->items[at] = (struct psi_lent){.segment = segment, .id = lending->ids[lending->count]};
    lending->count++;
}

uint32_t
psi_lending_remove(struct psi_lending *lending, const struct psi_segment *segment)
{
    const uint32_t after = upper_bound(lending, segment->base);
    uint32_t id;

    if (after == 0 || lending->items[after - 1].segment != segment) {
        return UINT32_MAX;
    }
    id = lending->items[after - 1].id;
    memmove(&lending->items[after - 1], &lending->items[after],
            (lending->count - after) * sizeof(*lending->items));
    lending->count--;
    lending->ids[lending->count] = id;
    return id;
}

const struct psi_lent *
psi_lending_find(const struct psi_lending *lending, const void *base, size_t bytes)
{
    const uint8_t *first = base;
    const uint32_t after = upper_bound(lending, first);
    const struct psi_lent *lent = after > 0 ? &lending->items[after - 1] : NULL;

    if (lent == NULL || bytes > lent->segment->bytes ||
        (size_t)(first - lent->segment->base) > lent->segment->bytes - bytes) {
        return NULL;
    }
    return lent;
}

void
psi_lending_fini(struct psi_lending *lending)
{
    free(lending->items);
    free(lending->ids);
    *lending = (struct psi_lending){0};
}
