/*
 * pool.c - objects of one size that are allocated once and used again and again.
 *
 * Instrumented builds allocate every time: the sanitizers then see who uses an object that was
 * given back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/pool.h"

#include <stdlib.h>

struct psi_pool_spare {
    struct psi_pool_spare *next;
};

void
psi_pool_init(struct psi_pool *pool, size_t bytes)
{
    pool->bytes = bytes < sizeof(struct psi_pool_spare) ? sizeof(struct psi_pool_spare) : bytes;
    pool->spare = NULL;
}

void
psi_pool_fini(struct psi_pool *pool)
{
    while (pool->spare != NULL) {
        struct psi_pool_spare *spare = pool->spare;

        pool->spare = spare->next;
        free(spare);
    }
}

void *
psi_pool_take(struct psi_pool *pool)
{
    struct psi_pool_spare *spare = pool->spare;

    if (spare == NULL) {
        return malloc(pool->bytes);
    }
    pool->spare = spare->next;
    return spare;
}

#ifdef PSI_INSTRUMENTED

void
psi_pool_give(struct psi_pool *pool, void *object)
{
    (void)pool;
    free(object);
}

#else

void
psi_pool_give(struct psi_pool *pool, void *object)
{
    struct psi_pool_spare *spare = object;

    spare->next = pool->spare;
    pool->spare = spare;
}

#endif
