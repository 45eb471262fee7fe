/*
 * peek.h - what the simulator must know of the master's inside and nobody is told.
 */
#ifndef SIM_PEEK_H
#define SIM_PEEK_H

#include <stdbool.h>
#include <stdint.h>

struct master;

/* How many barriers the present life of the rank does not come to, because they were over. */
uint64_t peek_barrier_base(const struct master *master, uint32_t rank);

/* Is a change of view under way? */
bool peek_is_changing(const struct master *master);

#endif
