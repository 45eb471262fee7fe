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
#include "store/sparse/state.h"

/* As many rows as the bound, or the machine, has memory for: more never come. */
static uint64_t
rows_that_fit(const struct sparse *store)
{
    const uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t bytes = store->memory_max < machine ? store->memory_max : machine;
    const uint64_t rows = bytes / store->pool.row_bytes + 1;

    return rows < ROW_NONE - 1 ? rows : ROW_NONE - 1;
}

psd_status
sparse_create(const struct sparse_layout *layout, struct sparse **store_p, struct psd_error *err)
{
    const struct psi_spec *spec = layout->spec;
    const size_t buckets = (size_t)1 << layout->bucket_bits;
    psd_status status = psi_spec_check_rows(spec, layout->policy, err);
    struct sparse *store;

    psi_assert(layout->bucket_bits >= 1 && layout->bucket_bits <= PSI_BUCKET_BITS_MAX);
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
    store->bucket_rows_max = psi_row_policy_bucket_rows(&store->policy, store->bits);
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
        row_index_fini(&store->buckets[i].index);
        free(store->buckets[i].counters);
    }
    row_pool_fini(&store->pool);
    free(store->candidates);
    free(store->work);
    free(store);
}

/* ---- Memory ---- */

void
sparse_memory(const struct sparse *store, struct sparse_memory *memory_p)
{
    const uint64_t total = room_bytes(store);

    *memory_p = (struct sparse_memory){
        .rows = store->rows,
        .row_bytes = store->pool.row_bytes,
        .slab_bytes = store->pool.slab_bytes,
        .index_bytes = store->index_bytes,
        .counter_bytes = store->counter_bytes,
        .other_bytes = total - store->pool.slab_bytes - store->index_bytes - store->counter_bytes,
        .total_bytes = total,
        .longest_growth_ns = store->longest_growth_ns,
    };
}

uint64_t
sparse_touch_ahead(struct sparse *store, uint64_t bytes)
{
    return row_pool_touch_ahead(&store->pool, bytes);
}

psd_status
sparse_refusal(const struct sparse *store, struct psd_error *err)
{
    const unsigned long long bytes = room_bytes(store);

    if (store->policy.capacity_rows != 0) {
        return psi_fail(
            err, PSD_ERR_TOO_BIG,
            "sparse table %s: no room for a new row: this lane has %llu rows in %llu "
            "bytes, at most %u in each of the table's %llu buckets: raise capacity_rows "
            "(%llu) or let the oldest rows go",
            store->spec->name, (unsigned long long)store->rows, bytes, store->bucket_rows_max,
            1ULL << store->bits, (unsigned long long)store->policy.capacity_rows);
    }
    return psi_fail(err, PSD_ERR_TOO_BIG,
                    "sparse table %s: no memory for a new row: this lane has %llu rows in %llu of "
                    "%llu bytes: raise memory_max_mib, add servers, or set capacity_rows",
                    store->spec->name, (unsigned long long)store->rows, bytes,
                    (unsigned long long)store->memory_max);
}
