/*
 * peek.h - what the simulator must know of the master's inside and nobody is told.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_PEEK_H
#define SIM_PEEK_H

#include <stdbool.h>
#include <stdint.h>

struct master;

/* Is a change of view under way? */
bool peek_is_changing(const struct master *master);

/* Has the server's lane a copy that may take its place? */
bool peek_is_whole(const struct master *master, uint32_t server, uint32_t lane);

/* Does a place move to a process that has none? Which? */
bool peek_is_moving_to_empty(const struct master *master, uint32_t *index_p);

/* Has the process a place of the job? */
bool peek_has_places(const struct master *master, uint64_t process);

/* Has the master let that life of a lane into a place that another one has handed over to it, and no view has it yet? */
bool peek_was_given(const struct master *master, uint64_t life);

/* What has been decided to move: so much the server has by it, of all there is, and so many servers stay. */
struct peek_move {
    uint32_t to;
    uint32_t staying;
    uint64_t bytes;
    uint64_t all_bytes;
    bool is_from_leaving;
    uint64_t owner; /* the process that has the place */
};

struct peek_move peek_move(const struct master *master);

#endif
