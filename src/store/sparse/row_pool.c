/*
 * row_pool.c - the memory of a lane's rows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/row_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"

/* Below a huge page memory comes in these: a small table should stay small. */
enum { FIRST_SLAB_BYTES = 64 << 10 };

static uint64_t
round_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

psd_status
row_pool_init(struct row_pool *pool, uint32_t row_bytes, uint64_t row_max, struct psd_error *err)
{
    const uint64_t bytes = round_up(row_max * row_bytes, ROW_SLAB_BYTES);
    uint64_t gap;
    char *base;

    psi_assert(row_max < ROW_NONE);
    *pool = (struct row_pool){
        .row_bytes = row_bytes, .row_max = (uint32_t)row_max, .free_first = ROW_NONE};
    /* One slab more, so that slabs can begin where huge pages do. */
    base = mmap(NULL, bytes + ROW_SLAB_BYTES, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY,
                              "reserve addresses for %llu rows of %u bytes (set capacity_rows or "
                              "memory_max_mib, or raise ulimit -v)",
                              (unsigned long long)row_max, row_bytes);
    }
    gap = round_up((uintptr_t)base, ROW_SLAB_BYTES) - (uintptr_t)base;
    if (gap > 0) {
        munmap(base, gap);
    }
    munmap(base + gap + bytes, ROW_SLAB_BYTES - gap);
    pool->base = base + gap;
    pool->reserved = bytes;
    if (bytes > ROW_SLAB_BYTES) { /* a hint: fewer faults where the kernel agrees */
        (void)madvise(pool->base + ROW_SLAB_BYTES, bytes - ROW_SLAB_BYTES, MADV_HUGEPAGE);
    }
    return PSD_OK;
}

void
row_pool_fini(struct row_pool *pool)
{
    if (pool->base != NULL) {
        munmap(pool->base, pool->reserved);
        pool->base = NULL;
    }
}

uint64_t
row_pool_next_slab(const struct row_pool *pool)
{
    const uint64_t touched = atomic_load_explicit(&pool->slab_bytes, memory_order_relaxed);
    const uint64_t slab = touched < ROW_SLAB_BYTES ? FIRST_SLAB_BYTES : ROW_SLAB_BYTES;

    return touched < pool->reserved ? slab : 0;
}

/* Only from then on does the system count it as memory, where it counts what may be written. */
static bool
open_for_writing(char *from, uint64_t bytes)
{
    return mprotect(from, bytes, PROT_READ | PROT_WRITE) == 0;
}

/* Old kernels do not know how to do it at once: then every page is written. Nobody else has them. */
static void
touch(char *from, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0) {
        return;
    }
    for (uint64_t at = 0; at < bytes; at += page) {
        *(volatile char *)(from + at) = 0;
    }
}

bool
row_pool_grow(struct row_pool *pool)
{
    const uint64_t before = atomic_load_explicit(&pool->slab_bytes, memory_order_relaxed);
    const uint64_t bytes = row_pool_next_slab(pool);
    uint64_t ready;

    /* A row that is wider than a slab needs several. */
    psi_assert(bytes > 0);
    if (!open_for_writing(pool->base + before, bytes)) {
        return false;
    }
    touch(pool->base + before, bytes);
    atomic_store_explicit(&pool->slab_bytes, before + bytes, memory_order_relaxed);
    ready = (before + bytes) / pool->row_bytes;
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

/* The kernel does it without writing: so the lane may take the very same slab meanwhile. */
uint64_t
row_pool_touch_ahead(struct row_pool *pool, uint64_t bytes)
{
    const uint64_t taken = atomic_load_explicit(&pool->slab_bytes, memory_order_relaxed);
    const uint64_t done = atomic_load_explicit(&pool->ahead, memory_order_relaxed);
    const uint64_t from = round_up(done > taken ? done : taken, ROW_SLAB_BYTES);
    const uint64_t wanted = round_up(taken + bytes, ROW_SLAB_BYTES);
    const uint64_t to = wanted < pool->reserved ? wanted : pool->reserved;

    if (to > from && open_for_writing(pool->base + from, to - from) &&
        madvise(pool->base + from, to - from, MADV_POPULATE_WRITE) == 0) {
        atomic_store_explicit(&pool->ahead, to, memory_order_relaxed);
        return to - taken;
    }
    return from - taken;
}
