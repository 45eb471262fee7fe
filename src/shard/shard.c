/*
 * shard.c - where a chunk lives.
 *
 * Placing is "the emptiest place next", kept fast by one heap of servers and one heap of lanes per
 * server: 400,000 chunks on 64 servers are a few million comparisons. All in integers, ties to the
 * lowest index, so every process computes the same places.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "shard/shard.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include <psd/psd.h>

#include "base/fail.h"

static_assert(PSI_PLACES_MAX <= UINT16_MAX, "a place is a uint16_t");

/* Indexes into bytes[], the one with the fewest bytes first. */
struct heap {
    uint16_t *item;
    uint32_t count;
    const uint64_t *bytes;
};

uint64_t
psi_chunk_count(uint64_t count)
{
    return count / PSD_CHUNK_ELEMENTS + (count % PSD_CHUNK_ELEMENTS != 0);
}

uint32_t
psi_chunk_elements(uint64_t count, uint64_t chunk)
{
    uint64_t left;

    psi_assert(chunk < psi_chunk_count(count));
    left = count - psi_chunk_first(chunk);
    return left < PSD_CHUNK_ELEMENTS ? (uint32_t)left : PSD_CHUNK_ELEMENTS;
}

uint64_t
psi_chunk_first(uint64_t chunk)
{
    return chunk * PSD_CHUNK_ELEMENTS;
}

static void
add_server(struct psi_loads *loads, uint32_t lanes)
{
    psi_assert(loads->servers < PSI_SERVERS_MAX);
    psi_assert(lanes >= 1 && lanes <= PSI_LANES_MAX);
    psi_assert(loads->places + lanes <= PSI_PLACES_MAX);
    memset(&loads->bytes[loads->places], 0, lanes * sizeof(loads->bytes[0]));
    loads->servers++;
    loads->places += lanes;
    loads->first_place[loads->servers] = loads->places;
}

void
psi_loads_init(struct psi_loads *loads, uint32_t servers, const uint32_t *lanes)
{
    psi_assert(servers >= 1);
    memset(loads, 0, sizeof(*loads));
    for (uint32_t server = 0; server < servers; server++) {
        add_server(loads, lanes[server]);
    }
}

/* What each server holds: the sum over its lanes. */
static void
sum_lanes(const struct psi_loads *loads, uint64_t *server_bytes)
{
    for (uint32_t server = 0; server < loads->servers; server++) {
        server_bytes[server] = 0;
        for (uint32_t p = loads->first_place[server]; p < loads->first_place[server + 1]; p++) {
            server_bytes[server] += loads->bytes[p];
        }
    }
}

static bool
emptier(const uint64_t *bytes, uint16_t a, uint16_t b)
{
    return bytes[a] < bytes[b] || (bytes[a] == bytes[b] && a < b);
}

/* Moves the item at `at` down until both of its children are fuller. */
static void
heap_sink(struct heap *heap, uint32_t at)
{
    const uint16_t item = heap->item[at];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= heap->count) {
            break;
        }
        if (child + 1 < heap->count &&
            emptier(heap->bytes, heap->item[child + 1], heap->item[child])) {
            child++;
        }
        if (emptier(heap->bytes, item, heap->item[child])) {
            break;
        }
        heap->item[at] = heap->item[child];
        at = child;
    }
    heap->item[at] = item;
}

/* A heap of the indexes first .. first + count - 1, in memory for `count` items. */
static void
heap_init(struct heap *heap, uint16_t *item, uint32_t first, uint32_t count, const uint64_t *bytes)
{
    *heap = (struct heap){.item = item, .count = count, .bytes = bytes};
    for (uint32_t i = 0; i < count; i++) {
        item[i] = (uint16_t)(first + i);
    }
    for (uint32_t i = count / 2; i > 0; i--) {
        heap_sink(heap, i - 1);
    }
}

void
psi_shard_place(struct psi_loads *loads, uint64_t count, size_t element_bytes, uint16_t *places_p)
{
    const uint64_t chunks = psi_chunk_count(count);
    uint64_t server_bytes[PSI_SERVERS_MAX];
    uint16_t server_items[PSI_SERVERS_MAX];
    uint16_t place_items[PSI_PLACES_MAX];
    struct heap servers;
    struct heap lanes[PSI_SERVERS_MAX];

    sum_lanes(loads, server_bytes);
    heap_init(&servers, server_items, 0, loads->servers, server_bytes);
    for (uint32_t s = 0; s < loads->servers; s++) {
        const uint32_t first = loads->first_place[s];

        heap_init(&lanes[s], &place_items[first], first, loads->first_place[s + 1] - first,
                  loads->bytes);
    }
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        const uint64_t bytes = psi_chunk_elements(count, chunk) * (uint64_t)element_bytes;
        const uint16_t server = servers.item[0];
        const uint16_t place = lanes[server].item[0];

        loads->bytes[place] += bytes;
        server_bytes[server] += bytes;
        heap_sink(&lanes[server], 0);
        heap_sink(&servers, 0);
        if (places_p != NULL) {
            places_p[chunk] = place;
        }
    }
}

/* The index with the most bytes in first .. end - 1, ties to the lowest. */
static uint32_t
fullest(const uint64_t *bytes, uint32_t first, uint32_t end)
{
    uint32_t best = first;

    for (uint32_t i = first + 1; i < end; i++) {
        if (bytes[i] > bytes[best]) {
            best = i;
        }
    }
    return best;
}

/* The chunk at `place` that comes after `skip` others of it, from chunk `from` on; from the start
 * again, skipping none, when there are not so many. */
static uint64_t
find_chunk(const uint16_t *places, uint64_t chunk_count, uint32_t place, uint64_t from,
           uint32_t skip)
{
    for (uint64_t chunk = from; chunk < chunk_count; chunk++) {
        if (places[chunk] == place && skip-- == 0) {
            return chunk;
        }
    }
    for (uint64_t chunk = 0; chunk < chunk_count; chunk++) {
        if (places[chunk] == place) {
            return chunk;
        }
    }
    psi_assert_failed("a place that has bytes has a chunk", __FILE__, __LINE__);
}

/*
 * Each place gives every (servers + 1)th of its chunks, each place beginning elsewhere. So what
 * moves is spread evenly over the model, and every layer of it gains from the new server.
 */
uint64_t
psi_shard_grow(struct psi_loads *loads, uint32_t lanes, uint16_t *places,
               const uint32_t *chunk_bytes, uint64_t chunk_count)
{
    const uint32_t joined = loads->servers;
    uint64_t from[PSI_PLACES_MAX] = {0};
    uint32_t skip[PSI_PLACES_MAX];
    uint64_t server_bytes[PSI_SERVERS_MAX];
    uint16_t lane_items[PSI_LANES_MAX];
    struct heap lane_heap;
    uint64_t share = 0;
    uint64_t moved = 0;

    for (uint32_t place = 0; place < loads->places; place++) {
        skip[place] = place % (joined + 1);
        share += loads->bytes[place];
    }
    share /= joined + 1;
    add_server(loads, lanes);
    sum_lanes(loads, server_bytes);
    heap_init(&lane_heap, lane_items, loads->first_place[joined], lanes, loads->bytes);
    while (server_bytes[joined] < share) {
        const uint32_t giver = fullest(server_bytes, 0, joined);
        const uint32_t place =
            fullest(loads->bytes, loads->first_place[giver], loads->first_place[giver + 1]);
        const uint64_t chunk = find_chunk(places, chunk_count, place, from[place], skip[place]);
        const uint32_t bytes = chunk_bytes[chunk];

        if (server_bytes[joined] + bytes > share) {
            break;
        }
        from[place] = chunk + 1;
        skip[place] = joined;
        places[chunk] = lane_heap.item[0];
        loads->bytes[place] -= bytes;
        loads->bytes[lane_heap.item[0]] += bytes;
        server_bytes[giver] -= bytes;
        server_bytes[joined] += bytes;
        heap_sink(&lane_heap, 0);
        moved++;
    }
    return moved;
}
