/*
 * shard.h - where a chunk lives. Pure functions of sizes and counts: no I/O, no state, no hash.
 *
 * A table is cut on one grid of PSD_CHUNK_ELEMENTS elements; the last chunk may be shorter. A chunk
 * lives on one *place*: a lane (thread) of a server. Chunks of a new table go, one after the other,
 * to the server with the fewest bytes, there to the lane with the fewest bytes, ties to the lowest
 * index. So servers never differ by more than one chunk, whatever the sizes of the tables.
 *
 * The master sends the loads as they were before the table came; everybody computes the same places
 * from them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SHARD_SHARD_H
#define PSI_SHARD_SHARD_H

#include <stddef.h>
#include <stdint.h>

enum {
    PSI_SERVERS_MAX = 256,
    PSI_LANES_MAX = 64,      /* of one server */
    PSI_PLACES_MAX = 1024,   /* lanes of all servers */
    PSI_CHUNKS_MAX = 1 << 24 /* of one table: 2^40 elements. Placing them takes a second */
};

/* Chunks of a table of `count` elements; elements of one of them; its first element. */
uint64_t psi_chunk_count(uint64_t count);
uint32_t psi_chunk_elements(uint64_t count, uint64_t chunk);
uint64_t psi_chunk_first(uint64_t chunk);

/*
 * The lanes of a job, server by server: places first_place[s] .. first_place[s + 1] - 1 belong to
 * server s. bytes[place] is what is there.
 */
struct psi_loads {
    uint32_t servers;
    uint32_t places;
    uint32_t first_place[PSI_SERVERS_MAX + 1];
    uint64_t bytes[PSI_PLACES_MAX];
};

/* lanes[s]: lanes of server s. All bytes 0. */
void psi_loads_init(struct psi_loads *loads, uint32_t servers, const uint32_t *lanes);

/*
 * Places every chunk of a table: places_p[chunk], psi_chunk_count(count) entries (NULL: only the
 * loads matter). Adds the table's bytes to loads.
 */
void psi_shard_place(struct psi_loads *loads, uint64_t count, size_t element_bytes,
                     uint16_t *places_p);

/*
 * A server with `lanes` lanes joins as number loads->servers: it takes whole chunks from whichever
 * server is fullest, spread over the model, until one more would give it more than its share.
 * places (chunk_count entries, of chunk_bytes[] bytes each, of all tables together) and loads are
 * changed in place. Nothing moves between old servers. Returns the number of chunks moved.
 */
uint64_t psi_shard_grow(struct psi_loads *loads, uint32_t lanes, uint16_t *places,
                        const uint32_t *chunk_bytes, uint64_t chunk_count);

#endif
