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

#endif
