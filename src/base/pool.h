/*
 * pool.h - objects of one size that are allocated once and used again and again.
 *
 * What is given back waits, newest first, for whoever takes next. So a path that takes and gives
 * allocates only while more objects are in use than ever before: in the steady state, never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_POOL_H
#define PSI_BASE_POOL_H

#include <stddef.h>

struct psi_pool_spare;

/* Thread: owned by whoever owns what the objects belong to. */
struct psi_pool {
    size_t bytes; /* of one object */
    struct psi_pool_spare *spare;
};

void psi_pool_init(struct psi_pool *pool, size_t bytes);

/* Frees what was given back. */
void psi_pool_fini(struct psi_pool *pool);

/* An object whose bytes are anything; NULL: no memory. */
void *psi_pool_take(struct psi_pool *pool);
void psi_pool_give(struct psi_pool *pool, void *object);

#endif
