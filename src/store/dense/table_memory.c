/*
 * table_memory.c - the memory of one table's chunks on one lane.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/dense/table_memory.h"

#include <string.h>
#include <sys/mman.h>

#include "base/fail.h"
#include "store/half.h"
#include "store/initial.h"

enum { PIECE_ALIGN = 64 }; /* every piece begins on a cache line */

static uint64_t
aligned(uint64_t bytes)
{
    return (bytes + PIECE_ALIGN - 1) & ~(uint64_t)(PIECE_ALIGN - 1);
}

static bool
has_master(const struct psi_spec *spec)
{
    return psi_spec_part_bytes(spec, PSI_PART_MASTER) > 0;
}

static unsigned
states(const struct psi_spec *spec)
{
    return spec->use == PSD_USE_UPDATE ? psi_rule_states(spec->rule.rule) : 0;
}

static uint64_t
values_bytes(const struct psi_spec *spec, const struct table_extent *extent)
{
    return extent->elements * psi_dtype_bytes(spec->dtype) * (extent->retain ? 2u : 1u) +
           extent->chunks * 2u * PIECE_ALIGN;
}

static uint64_t
other_bytes(const struct psi_spec *spec, const struct table_extent *extent)
{
    const uint64_t master_bytes = has_master(spec) ? sizeof(float) : 0;
    const uint64_t state_bytes = psi_dtype_state_bytes(spec->dtype) * states(spec);

    if (master_bytes + state_bytes == 0) {
        return 0;
    }
    return extent->elements * (master_bytes + state_bytes) +
           extent->chunks * (1u + PSI_STATES_MAX) * PIECE_ALIGN;
}

uint64_t
table_memory_bytes(const struct psi_spec *spec, const struct table_extent *extent)
{
    return values_bytes(spec, extent) + other_bytes(spec, extent);
}

static psd_status
map_private(struct table_memory *memory, uint64_t bytes, struct psd_error *err)
{
    void *base;

    if (bytes == 0) {
        return PSD_OK;
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "map %llu bytes", (unsigned long long)bytes);
    }
    (void)madvise(base, bytes, MADV_HUGEPAGE); /* a hint: fewer faults where the kernel agrees */
    memory->base = base;
    memory->bytes = bytes;
    return PSD_OK;
}

psd_status
table_memory_init(struct table_memory *memory, const struct psi_spec *spec,
                  const struct table_extent *extent, bool shared, struct psd_error *err)
{
    const uint64_t values = values_bytes(spec, extent);
    const uint64_t others = other_bytes(spec, extent);
    psd_status status;

    memset(memory, 0, sizeof(*memory));
    /* Without a segment, for want of descriptors perhaps, values are copied:
     * that is only slower. */
    shared = shared && values > 0 && psi_segment_create(&memory->values, values, NULL) == PSD_OK;
    if (shared && extent->copied && others > 0 &&
        psi_segment_create(&memory->state, others, NULL) == PSD_OK) {
        memory->base = memory->state.base;
        memory->bytes = others;
        status = PSD_OK;
    } else {
        status = map_private(memory, shared ? others : values + others, err);
    }
    if (status != PSD_OK) {
        table_memory_fini(memory);
        return status;
    }
    memory->bytes_in_all = values + others;
    return PSD_OK;
}

void
table_memory_fini(struct table_memory *memory)
{
    if (memory->base != NULL && memory->state.base == NULL) {
        munmap(memory->base, memory->bytes);
    }
    memory->base = NULL;
    psi_segment_destroy(&memory->state);
    psi_segment_destroy(&memory->values);
}

static uint8_t *
carve(struct table_memory *memory, uint64_t bytes)
{
    uint8_t *piece = memory->base + memory->used;

    memory->used += aligned(bytes);
    psi_assert(memory->used <= memory->bytes);
    return piece;
}

/* Chunks of full size follow each other without a gap, each on pages of its own. */
static uint8_t *
carve_value(struct table_memory *memory, uint64_t bytes)
{
    uint8_t *piece;

    if (memory->values.base == NULL) {
        return carve(memory, bytes);
    }
    piece = memory->values.base + memory->values_used;
    memory->values_used += aligned(bytes);
    psi_assert(memory->values_used <= memory->values.bytes);
    return piece;
}

void
table_memory_carve(struct table_memory *memory, const struct psi_spec *spec, uint32_t elements,
                   bool retain, struct chunk_memory *chunk_p)
{
    const uint64_t value_bytes = elements * psi_dtype_bytes(spec->dtype);

    memset(chunk_p, 0, sizeof(*chunk_p));
    chunk_p->value[0] = carve_value(memory, value_bytes);
    chunk_p->value[1] = retain ? carve_value(memory, value_bytes) : chunk_p->value[0];
    if (has_master(spec)) {
        chunk_p->master = (float *)(void *)carve(memory, elements * sizeof(float));
    }
    for (unsigned i = 0; i < states(spec); i++) {
        chunk_p->state[i] = carve(memory, elements * psi_dtype_state_bytes(spec->dtype));
    }
}

void
table_memory_prepare(const struct psi_spec *spec, uint64_t first, uint32_t elements,
                     const struct chunk_memory *chunk)
{
    const size_t value_bytes = elements * psi_dtype_bytes(spec->dtype);

    store_initial(spec->init, spec->init_value, spec->seed, spec->dtype, first, elements,
                  chunk->value[0]);
    if (chunk->value[1] != chunk->value[0]) {
        memcpy(chunk->value[1], chunk->value[0], value_bytes);
    }
    if (chunk->master != NULL) {
        store_initial(spec->init, spec->init_value, spec->seed, PSD_F32, first, elements,
                      chunk->master);
    }
    for (unsigned i = 0; i < states(spec); i++) {
        memset(chunk->state[i], 0, elements * psi_dtype_state_bytes(spec->dtype));
    }
}

void
table_memory_widen(const struct psi_spec *spec, uint32_t elements, const struct chunk_memory *chunk,
                   uint32_t buffer)
{
    const uint8_t *value = chunk->value[buffer];

    for (uint32_t i = 0; chunk->master != NULL && i < elements; i++) {
        uint16_t half;

        memcpy(&half, value + i * sizeof(half), sizeof(half));
        chunk->master[i] = spec->dtype == PSD_F16 ? float_from_f16(half) : float_from_bf16(half);
    }
}

uint8_t *
table_memory_part(const struct chunk_memory *chunk, unsigned part, uint32_t buffer)
{
    if (part == PSI_PART_VALUE) {
        return chunk->value[buffer];
    }
    return part == PSI_PART_MASTER ? (uint8_t *)chunk->master : chunk->state[part - PSI_PART_STATE];
}
