/*
 * dense.c - tables of a fixed number of elements: a store whose chunks are arrays.
 *
 * table_memory.c says where they lie, apply.c adds gradients and updates them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/dense/dense.h"

#include <stdlib.h>

#include "base/fail.h"
#include "shard/shard.h"
#include "store/dense/apply.h"
#include "store/dense/table_memory.h"

enum {
    SHARED_MIN = 64 << 10
}; /* smaller tables are not worth a segment: their values are copied */

_Static_assert((size_t)STORE_SCRATCH_BYTES >= (size_t)APPLY_SCRATCH_BYTES,
               "a lane's scratch is enough");

struct dense_chunk {
    uint64_t first; /* element of the table */
    uint32_t elements;
    struct chunk_memory memory;
};

struct dense {
    struct store store; /* first */
    const struct psi_spec *spec;
    const struct kernels *kernels;
    psd_dtype real;       /* what is computed in, and what the sum of several gradients comes in */
    uint32_t value_bytes; /* of an element */
    bool retain;
    struct table_memory memory;
    struct dense_chunk chunks[];
};

static struct table_extent
extent_of(const struct store_layout *layout)
{
    return (struct table_extent){.elements = layout->elements,
                                 .chunks = layout->chunks,
                                 .retain = layout->retain,
                                 .copied = layout->copied};
}

static uint64_t
dense_bytes(const struct store_layout *layout)
{
    const struct table_extent extent = extent_of(layout);

    return table_memory_bytes(layout->spec, &extent) + sizeof(struct dense) +
           layout->chunks * sizeof(struct dense_chunk);
}

static psd_status
dense_create(const struct store_layout *layout, struct store **store_p, struct psd_error *err)
{
    const struct table_extent extent = extent_of(layout);
    struct dense *dense = calloc(1, sizeof(*dense) + layout->chunks * sizeof(struct dense_chunk));
    psd_status status;
    bool shared;

    if (dense == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for %llu chunks",
                        layout->spec->name, (unsigned long long)layout->chunks);
    }
    dense->store.ops = &store_dense;
    dense->spec = layout->spec;
    dense->kernels = psi_kernel_level_kernels(layout->level);
    dense->real = psi_dtype_real(layout->spec->dtype);
    dense->value_bytes = (uint32_t)psi_dtype_bytes(layout->spec->dtype);
    dense->retain = layout->retain;
    shared = layout->shared && table_memory_bytes(layout->spec, &extent) >= SHARED_MIN;
    status = table_memory_init(&dense->memory, layout->spec, &extent, shared, err);
    if (status != PSD_OK) {
        free(dense);
        return status;
    }
    dense->store.bytes = dense_bytes(layout);
    dense->store.values = dense->memory.values.base != NULL ? &dense->memory.values : NULL;
    dense->store.state = dense->memory.state.base != NULL ? &dense->memory.state : NULL;
    *store_p = &dense->store;
    return PSD_OK;
}

static void
dense_destroy(struct store *store)
{
    struct dense *dense = (struct dense *)store;

    table_memory_fini(&dense->memory);
    free(dense);
}

static void
dense_place(struct store *store, uint64_t chunk, uint64_t index)
{
    struct dense *dense = (struct dense *)store;
    struct dense_chunk *here = &dense->chunks[chunk];

    here->first = psi_chunk_first(index);
    here->elements = psi_chunk_elements(dense->spec->count, index);
    table_memory_carve(&dense->memory, dense->spec, here->elements, dense->retain, &here->memory);
}

static size_t
dense_prepare(struct store *store, uint64_t chunk)
{
    const struct dense *dense = (const struct dense *)store;
    const struct dense_chunk *here = &dense->chunks[chunk];

    table_memory_prepare(dense->spec, here->first, here->elements, &here->memory);
    return (size_t)here->elements * 16;
}

static struct store_form
dense_sink(const struct store *store, uint64_t chunk, bool is_sum)
{
    const struct dense *dense = (const struct dense *)store;

    return (struct store_form){.numbers = dense->chunks[chunk].elements,
                               .dtype = is_sum ? dense->real : dense->spec->dtype};
}

static int64_t
dense_apply(struct store *store, uint64_t chunk, const struct store_change *change)
{
    const struct dense *dense = (const struct dense *)store;
    const struct psi_spec *spec = dense->spec;
    const struct dense_chunk *here = &dense->chunks[chunk];
    const struct apply apply = {
        .kernels = dense->kernels,
        .dtype = spec->dtype,
        .use = spec->use,
        .rule = &spec->rule,
        .elements = here->elements,
        .leaves = change->leaves,
        .leaf_count = change->leaf_count,
        .divisor = change->divisor,
        .check = spec->nan_policy != PSD_NAN_ALLOW,
        .was_checked = spec->nan_policy != PSD_NAN_ALLOW && change->was_checked,
        .sum_out = change->sum_out,
        .update = change->update,
        .from = here->memory.value[change->from],
        .to = here->memory.value[change->to],
        .master = here->memory.master,
        .state = {here->memory.state[0], here->memory.state[1]},
    };

    return store_apply(&apply, change->scratch);
}

static uint64_t
dense_numbers(const struct store *store, const struct store_change *change)
{
    (void)change;
    return ((const struct dense *)store)->spec->count;
}

static struct store_piece
dense_part(const struct store *store, uint64_t chunk, unsigned part, uint32_t buffer)
{
    const struct dense *dense = (const struct dense *)store;
    const struct dense_chunk *here = &dense->chunks[chunk];
    const size_t bytes = here->elements * psi_spec_part_bytes(dense->spec, part);

    return (struct store_piece){
        .base = bytes > 0 ? table_memory_part(&here->memory, part, buffer) : NULL, .bytes = bytes};
}

static struct store_piece
dense_read(const struct store *store, uint64_t chunk, uint32_t buffer)
{
    const struct dense *dense = (const struct dense *)store;
    const struct dense_chunk *here = &dense->chunks[chunk];

    return (struct store_piece){.base = here->memory.value[buffer],
                                .bytes = (size_t)here->elements * dense->value_bytes};
}

static void
dense_value_loaded(struct store *store, uint64_t chunk, uint32_t buffer)
{
    const struct dense *dense = (const struct dense *)store;
    const struct dense_chunk *here = &dense->chunks[chunk];

    table_memory_widen(dense->spec, here->elements, &here->memory, buffer);
}

const struct store_ops store_dense = {
    .bytes = dense_bytes,
    .create = dense_create,
    .destroy = dense_destroy,
    .place = dense_place,
    .prepare = dense_prepare,
    .sink = dense_sink,
    .apply = dense_apply,
    .numbers = dense_numbers,
    .read = dense_read,
    .part = dense_part,
    .value_loaded = dense_value_loaded,
};
