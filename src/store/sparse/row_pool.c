/*
 * row_pool.c - the memory of a lane's rows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/row_pool.h"

#include "base/fail.h"

psd_status
row_pool_init(struct row_pool *pool, uint32_t row_bytes, uint64_t row_max, struct psd_error *err)
{
    psi_assert(row_max < ROW_NONE);
    *pool = (struct row_pool){
        .row_bytes = row_bytes, .row_max = (uint32_t)row_max, .free_first = ROW_NONE};
    return slabs_init(&pool->slabs, row_max * row_bytes, "rows", err);
}

void
row_pool_fini(struct row_pool *pool)
{
    slabs_fini(&pool->slabs);
}

bool
row_pool_grow(struct row_pool *pool)
{
    uint64_t ready;

    if (!slabs_grow(&pool->slabs)) {
        return false;
    }
    ready = slabs_taken(&pool->slabs) / pool->row_bytes;
    pool->ready = ready < pool->row_max ? (uint32_t)ready : pool->row_max;
    return true;
}

uint32_t
row_pool_take(struct row_pool *pool)
{
    const uint32_t slot = pool->free_first;

    if (slot != ROW_NONE) {
        pool->free_first = row_at(pool, slot)->step;
        pool->free_count--;
        return slot;
    }
    psi_assert(pool->used < pool->ready);
    return pool->used++;
}

void
row_pool_give(struct row_pool *pool, uint32_t slot)
{
    row_at(pool, slot)->step = pool->free_first;
    pool->free_first = slot;
    pool->free_count++;
}
