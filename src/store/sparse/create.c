/*
 * create.c - a store is made, and says what it takes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "store/kernels.h"
#include "store/sparse/room.h"
#include "store/sparse/snapshot.h"
#include "store/sparse/state.h"
#include "store/sparse/tier.h"

/* Indexes are touched ahead by this part of what rows are. */
enum { INDEX_SHARE = 16 };

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* As many rows as the bounds let come, or the machine has memory for: more never come. */
static uint64_t
rows_that_fit(const struct sparse *store)
{
    const uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t rows = smaller(store->memory_max, machine) / store->pool.row_bytes + 1;

    return smaller(smaller(rows, store->rows_max), ROW_NONE - 1);
}

psd_status
sparse_create(const struct sparse_layout *layout, struct sparse **store_p, struct psd_error *err)
{
    const struct psi_spec *spec = layout->spec;
    const size_t buckets = (size_t)1 << layout->bucket_bits;
    psd_status status = psi_spec_check_rows(spec, layout->policy, err);
    struct sparse *store;

    psi_assert(layout->bucket_bits >= 1 && layout->bucket_bits <= PSI_BUCKET_BITS_MAX);
    psi_assert(layout->first_bucket + layout->bucket_count <= buckets);
    if (status != PSD_OK) {
        return status;
    }
    store = calloc(1, sizeof(*store) + buckets * sizeof(struct bucket));
    if (store == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "sparse table %s: no memory for %zu buckets",
                        spec->name, buckets);
    }
    store->spec = spec;
    store->policy = *layout->policy;
    store->kernels = psi_kernel_level_kernels(layout->level);
    store->width = (uint32_t)spec->count;
    store->states = psi_row_state_numbers(&store->policy, spec->rule.rule, store->width);
    store->bits = layout->bucket_bits;
    store->rows_max = store->policy.full == PSI_FULL_SPILL
                          ? UINT64_MAX /* what is too much for a bucket leaves memory */
                          : psi_row_policy_share(&store->policy, store->bits, layout->first_bucket,
                                                 layout->bucket_count);
    store->memory_max = layout->memory_max != 0 ? layout->memory_max : UINT64_MAX;
    store->work = malloc(store->width * sizeof(float));
    if (store->work == NULL) {
        status = psi_fail(err, PSD_ERR_NO_MEMORY, "sparse table %s: no memory", spec->name);
    }
    if (status == PSD_OK) {
        store->pool.row_bytes =
            ROW_HEAD_BYTES + (store->width + store->states) * (uint32_t)sizeof(float);
        status = row_pool_init(&store->pool, store->pool.row_bytes, rows_that_fit(store), err);
    }
    if (status == PSD_OK) {
        status = index_memory_init(&store->indexes, store->pool.row_max, buckets, err);
    }
    if (status == PSD_OK && store->policy.full == PSI_FULL_SPILL) {
        status = tier_create(store, layout->cold, err);
    }
    if (status != PSD_OK) {
        sparse_destroy(store);
        return status;
    }
    *store_p = store;
    return PSD_OK;
}

void
sparse_destroy(struct sparse *store)
{
    for (size_t i = 0; i < (size_t)1 << store->bits; i++) {
        free(store->buckets[i].counters);
    }
    sparse_snapshot_end(store);
    tier_destroy(store);
    row_pool_fini(&store->pool);
    index_memory_fini(&store->indexes);
    free(store->candidates);
    free(store->work);
    free(store);
}

/* ---- Memory ---- */

void
sparse_memory(const struct sparse *store, struct sparse_memory *memory_p)
{
    const uint64_t total = room_bytes(store);
    const struct tier *tier = store->tier;

    *memory_p = (struct sparse_memory){
        .rows = store->rows + (tier != NULL ? tier->rows : 0),
        .row_bytes = store->pool.row_bytes,
        .slab_bytes = slabs_taken(&store->pool.slabs),
        .index_bytes = store->index_bytes,
        .counter_bytes = store->counter_bytes,
        .other_bytes =
            total - slabs_taken(&store->pool.slabs) - store->index_bytes - store->counter_bytes,
        .total_bytes = total,
        .spare_bytes = store->memory_max == UINT64_MAX ? UINT64_MAX
                       : total < store->memory_max     ? store->memory_max - total
                                                       : 0,
        .longest_growth_ns = store->longest_growth_ns,
    };
    if (tier != NULL) {
        memory_p->cold_rows = tier->rows;
        memory_p->cold_bytes = tier->cold->ops->bytes(tier->cold);
        memory_p->cold_reads = tier->reads;
        memory_p->cold_writes = tier->writes;
        memory_p->cold_ns = tier->busy_ns;
        memory_p->cold_full = tier->full.status != PSD_OK ? &tier->full : NULL;
    }
}

uint64_t
sparse_touch_ahead(struct sparse *store, uint64_t bytes)
{
    (void)slabs_touch_ahead(&store->indexes.slabs, bytes / INDEX_SHARE);
    return slabs_touch_ahead(&store->pool.slabs, bytes);
}

bool
sparse_is_sound(const struct sparse *store)
{
    return store->tier == NULL || store->tier->trouble.status == PSD_OK;
}

static psd_status
refusal_of_tier(const struct sparse *store, struct psd_error *err)
{
    const struct tier *tier = store->tier;
    const unsigned long long rows = store->rows;
    const unsigned long long bytes = room_bytes(store);
    const unsigned long long max = store->memory_max;

    if (tier->full.status != PSD_OK) {
        return psi_fail(err, PSD_ERR_TOO_BIG,
                        "sparse table %s: no memory for a row: this lane has %llu rows in %llu of "
                        "%llu bytes, and could not write those beyond capacity_rows: %s",
                        store->spec->name, rows, bytes, max, tier->full.text);
    }
    return psi_fail(err, PSD_ERR_TOO_BIG,
                    "sparse table %s: no memory for a row: this lane has %llu rows in %llu of %llu "
                    "bytes, and %llu elsewhere: lower capacity_rows (%llu), push fewer rows in a "
                    "step, raise memory_max_mib, or add servers",
                    store->spec->name, rows, bytes, max, (unsigned long long)tier->rows,
                    (unsigned long long)store->policy.capacity_rows);
}

psd_status
sparse_refusal(const struct sparse *store, struct psd_error *err)
{
    const unsigned long long bytes = room_bytes(store);

    if (!sparse_is_sound(store)) {
        if (err != NULL) {
            *err = store->tier->trouble;
        }
        return store->tier->trouble.status;
    }
    if (store->tier != NULL) {
        return refusal_of_tier(store, err);
    }
    if (store->rows >= store->rows_max) {
        return psi_fail(err, PSD_ERR_TOO_BIG,
                        "sparse table %s: no room for a new row: this lane has %llu rows in %llu "
                        "bytes, its whole share of capacity_rows (%llu): %s",
                        store->spec->name, (unsigned long long)store->rows, bytes,
                        (unsigned long long)store->policy.capacity_rows,
                        store->policy.full == PSI_FULL_OLDEST
                            ? "the rows of one step do not fit beside the others: raise it"
                            : "raise it, or let the oldest rows go (full)");
    }
    return psi_fail(err, PSD_ERR_TOO_BIG,
                    "sparse table %s: no memory for a new row: this lane has %llu rows in %llu of "
                    "%llu bytes: raise memory_max_mib, add servers, or set capacity_rows",
                    store->spec->name, (unsigned long long)store->rows, bytes,
                    (unsigned long long)store->memory_max);
}
