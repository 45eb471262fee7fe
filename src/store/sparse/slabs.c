/*
 * slabs.c - memory that grows and never moves.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/slabs.h"

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
slabs_init(struct slabs *slabs, uint64_t wanted, const char *what, struct psd_error *err)
{
    const uint64_t bytes = round_up(wanted, SLAB_BYTES);
    uint64_t gap;
    char *base;

    *slabs = (struct slabs){0};
    /* One slab more, so that slabs can begin where huge pages do. */
    base = mmap(NULL, bytes + SLAB_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (base == MAP_FAILED) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY,
                              "reserve %llu bytes of addresses for %s (set capacity_rows or "
                              "memory_max_mib, or raise ulimit -v)",
                              (unsigned long long)bytes, what);
    }
    gap = round_up((uintptr_t)base, SLAB_BYTES) - (uintptr_t)base;
    if (gap > 0) {
        munmap(base, gap);
    }
    munmap(base + gap + bytes, SLAB_BYTES - gap);
    slabs->base = base + gap;
    slabs->reserved = bytes;
    if (bytes > SLAB_BYTES) { /* a hint: fewer faults where the kernel agrees */
        (void)madvise(slabs->base + SLAB_BYTES, bytes - SLAB_BYTES, MADV_HUGEPAGE);
    }
    return PSD_OK;
}

void
slabs_fini(struct slabs *slabs)
{
    if (slabs->base != NULL) {
        munmap(slabs->base, slabs->reserved);
        slabs->base = NULL;
    }
}

uint64_t
slabs_next(const struct slabs *slabs)
{
    const uint64_t taken = slabs_taken(slabs);
    const uint64_t slab = taken < SLAB_BYTES ? FIRST_SLAB_BYTES : SLAB_BYTES;

    return taken < slabs->reserved ? slab : 0;
}

uint64_t
slabs_wanted(const struct slabs *slabs, uint64_t bytes)
{
    const uint64_t taken = slabs_taken(slabs);
    const uint64_t slab = bytes <= SLAB_BYTES ? FIRST_SLAB_BYTES : SLAB_BYTES;

    if (bytes > slabs->reserved) {
        return UINT64_MAX;
    }
    return bytes <= taken ? 0 : round_up(bytes, slab) - taken;
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
slabs_grow(struct slabs *slabs)
{
    const uint64_t before = slabs_taken(slabs);
    const uint64_t bytes = slabs_next(slabs);

    psi_assert(bytes > 0);
    if (before + bytes > atomic_load_explicit(&slabs->ahead, memory_order_acquire)) {
        if (!open_for_writing(slabs->base + before, bytes)) {
            return false;
        }
        touch(slabs->base + before, bytes);
    }
    atomic_store_explicit(&slabs->taken, before + bytes, memory_order_relaxed);
    return true;
}

/* The kernel does it without writing: so the owner may take the very same slab meanwhile. One slab at
 * a time, because whoever maps memory waits for whoever touches it. */
uint64_t
slabs_touch_ahead(struct slabs *slabs, uint64_t bytes)
{
    const uint64_t taken = slabs_taken(slabs);
    const uint64_t wanted = round_up(taken + bytes, SLAB_BYTES);
    const uint64_t to = wanted < slabs->reserved ? wanted : slabs->reserved;
    uint64_t done = atomic_load_explicit(&slabs->ahead, memory_order_relaxed);

    if (done < taken) {
        done = taken / SLAB_BYTES * SLAB_BYTES; /* a small slab's rest, too */
    }
    while (done < to && open_for_writing(slabs->base + done, SLAB_BYTES) &&
           madvise(slabs->base + done, SLAB_BYTES, MADV_POPULATE_WRITE) == 0) {
        done += SLAB_BYTES;
        atomic_store_explicit(&slabs->ahead, done, memory_order_release);
    }
    return done > taken ? done - taken : 0;
}
