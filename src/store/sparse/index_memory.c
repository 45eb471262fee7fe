/*
 * index_memory.c - where the indexes of a lane's buckets lie.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/index_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

/* Addresses, which cost nothing: rows take 8 bytes of an index at most, an index that grows is there
 * twice, and holes may lie between. */
enum { ROW_ADDRESSES = 32, BUCKET_ADDRESSES = 1024, FIRST_HOLES = 64 };

psd_status
index_memory_init(struct index_memory *memory, uint64_t rows, uint64_t buckets,
                  struct psd_error *err)
{
    *memory = (struct index_memory){0};
    return slabs_init(&memory->slabs, rows * ROW_ADDRESSES + buckets * BUCKET_ADDRESSES,
                      "the indexes of rows", err);
}

void
index_memory_fini(struct index_memory *memory)
{
    slabs_fini(&memory->slabs);
    free(memory->holes);
    memory->holes = NULL;
}

/* ---- Holes ---- */

static uint32_t
smallest_hole(const struct index_memory *memory, uint64_t bytes)
{
    uint32_t best = memory->hole_count;

    for (uint32_t i = 0; i < memory->hole_count; i++) {
        if (memory->holes[i].bytes >= bytes &&
            (best == memory->hole_count || memory->holes[i].bytes < memory->holes[best].bytes)) {
            best = i;
        }
    }
    return best;
}

static void
remove_hole(struct index_memory *memory, uint32_t at)
{
    memory->hole_count--;
    memmove(&memory->holes[at], &memory->holes[at + 1],
            (memory->hole_count - at) * sizeof(memory->holes[0]));
}

static uint64_t
take_from_hole(struct index_memory *memory, uint32_t at, uint64_t bytes)
{
    struct index_hole *hole = &memory->holes[at];
    const uint64_t first = hole->first;

    hole->first += bytes;
    hole->bytes -= bytes;
    if (hole->bytes == 0) {
        remove_hole(memory, at);
    }
    return first;
}

/* A hole is followed by a piece that somebody has: so as many as there are pieces are enough. */
static bool
reserve_holes(struct index_memory *memory)
{
    const uint32_t wanted = memory->hole_max == 0 ? FIRST_HOLES : 2 * memory->hole_max;
    struct index_hole *holes;

    if (memory->used < memory->hole_max) {
        return true;
    }
    holes = realloc(memory->holes, wanted * sizeof(*holes));
    if (holes == NULL) {
        return false;
    }
    memory->holes = holes;
    memory->hole_max = wanted;
    return true;
}

static void
insert_hole(struct index_memory *memory, uint32_t at, struct index_hole hole)
{
    psi_assert(memory->hole_count < memory->hole_max);
    memmove(&memory->holes[at + 1], &memory->holes[at],
            (memory->hole_count - at) * sizeof(memory->holes[0]));
    memory->holes[at] = hole;
    memory->hole_count++;
}

/* The first hole that is behind this byte. */
static uint32_t
hole_behind(const struct index_memory *memory, uint64_t byte)
{
    uint32_t low = 0;
    uint32_t high = memory->hole_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;

        if (memory->holes[middle].first > byte) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* ---- Pieces ---- */

uint64_t
index_memory_wants(const struct index_memory *memory, uint64_t bytes)
{
    return smallest_hole(memory, bytes) < memory->hole_count
               ? 0
               : slabs_wanted(&memory->slabs, memory->end + bytes);
}

static bool
take_from_end(struct index_memory *memory, uint64_t bytes, uint64_t *first_p)
{
    while (slabs_wanted(&memory->slabs, memory->end + bytes) > 0) {
        if (slabs_next(&memory->slabs) == 0 || !slabs_grow(&memory->slabs)) {
            return false;
        }
    }
    *first_p = memory->end;
    memory->end += bytes;
    return true;
}

struct group *
index_memory_take(struct index_memory *memory, uint64_t bytes)
{
    const uint32_t hole = smallest_hole(memory, bytes);
    uint64_t first;
    char *piece;

    if (!reserve_holes(memory)) {
        return NULL;
    }
    if (hole < memory->hole_count) {
        first = take_from_hole(memory, hole, bytes);
    } else if (!take_from_end(memory, bytes, &first)) {
        return NULL;
    }
    memory->used++;
    piece = memory->slabs.base + first;
    memset(piece, 0, bytes);
    return (struct group *)(void *)piece;
}

void
index_memory_give(struct index_memory *memory, struct group *piece, uint64_t bytes)
{
    struct index_hole hole = {.first = (uint64_t)((char *)(void *)piece - memory->slabs.base),
                              .bytes = bytes};
    uint32_t at = hole_behind(memory, hole.first);

    psi_assert(memory->used > 0 && hole.first + bytes <= memory->end);
    memory->used--;
    if (at < memory->hole_count && memory->holes[at].first == hole.first + hole.bytes) {
        hole.bytes += memory->holes[at].bytes;
        remove_hole(memory, at);
    }
    if (at > 0 && memory->holes[at - 1].first + memory->holes[at - 1].bytes == hole.first) {
        at--;
        hole.first = memory->holes[at].first;
        hole.bytes += memory->holes[at].bytes;
        remove_hole(memory, at);
    }
    if (hole.first + hole.bytes == memory->end) {
        memory->end = hole.first;
    } else {
        insert_hole(memory, at, hole);
    }
}
