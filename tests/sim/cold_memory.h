/*
 * cold_memory.h - a cold store that is no file: for tests and simulated jobs, which want to see what is
 * in it, and to have it fail.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_COLD_MEMORY_H
#define SIM_COLD_MEMORY_H

#include "store/sparse/cold.h"

/* Zeroed but for `place`: cold_memory_place(). Its tables point to it. */
struct cold_memory {
    struct cold_place place;
    bool is_full;    /* nothing can be written, or removed */
    uint64_t tables; /* that are open */
    uint64_t rows;   /* in all of them, old ones included */
    uint64_t puts;   /* rows that were ever written */
};

/* The place of this one, to give to a store. */
struct cold_place *cold_memory_place(struct cold_memory *memory);

#endif
