/*
 * finite.c - the look at a gradient before it leaves.
 *
 * A number is not finite exactly if all bits of its exponent are set. Blocks are tested as a whole,
 * so that the loop vectorises; only a block that fails is looked through.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/api/finite.h"

#include <string.h>

#include "base/crew.h"

enum {
    BLOCK = 1024,
    PARTS = 32,                 /* at most, ... */
    PART_ELEMENTS = 256 * BLOCK /* ... of at least so many elements */
};

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define CLONES
#endif

#define DEFINE_SCAN(name, type, exponent)                                                          \
    CLONES static int64_t name(const uint8_t *data, uint64_t count)                                \
    {                                                                                              \
        for (uint64_t first = 0; first < count; first += BLOCK) {                                  \
            const uint64_t block = count - first < BLOCK ? count - first : BLOCK;                  \
            unsigned bad = 0;                                                                      \
                                                                                                   \
            for (uint64_t i = 0; i < block; i++) {                                                 \
                type bits;                                                                         \
                                                                                                   \
                memcpy(&bits, data + (first + i) * sizeof(bits), sizeof(bits));                    \
                bad |= (type)(bits & (exponent)) == (exponent);                                    \
            }                                                                                      \
            for (uint64_t i = 0; bad != 0 && i < block; i++) {                                     \
                type bits;                                                                         \
                                                                                                   \
                memcpy(&bits, data + (first + i) * sizeof(bits), sizeof(bits));                    \
                if ((type)(bits & (exponent)) == (exponent)) {                                     \
                    return (int64_t)(first + i);                                                   \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        return -1;                                                                                 \
    }

DEFINE_SCAN(scan_f32, uint32_t, UINT32_C(0x7f800000))
DEFINE_SCAN(scan_f64, uint64_t, UINT64_C(0x7ff0000000000000))
DEFINE_SCAN(scan_f16, uint16_t, 0x7c00u)
DEFINE_SCAN(scan_bf16, uint16_t, 0x7f80u)

int64_t
psi_find_not_finite(psd_dtype dtype, const void *data, uint64_t count)
{
    switch (dtype) {
    case PSD_F32:
        return scan_f32(data, count);
    case PSD_F64:
        return scan_f64(data, count);
    case PSD_F16:
        return scan_f16(data, count);
    case PSD_BF16:
        return scan_bf16(data, count);
    }
    return -1;
}

/* Thread: each part has a place of its own for what it finds. */
struct search {
    psd_dtype dtype;
    const uint8_t *data;
    uint64_t count;
    uint64_t part_elements; /* a multiple of BLOCK */
    int64_t found[PARTS];   /* from its part's beginning; -1: nothing */
};

static size_t
element_bytes(psd_dtype dtype)
{
    return dtype == PSD_F64 ? 8 : dtype == PSD_F32 ? 4 : 2;
}

static void
search_part(void *object, uint32_t part)
{
    struct search *search = object;
    const uint64_t first = part * search->part_elements;
    const uint64_t rest = search->count - first;

    search->found[part] =
        psi_find_not_finite(search->dtype, search->data + first * element_bytes(search->dtype),
                            rest < search->part_elements ? rest : search->part_elements);
}

int64_t
psi_find_not_finite_with(struct psi_crew *crew, psd_dtype dtype, const void *data, uint64_t count)
{
    struct search search = {.dtype = dtype, .data = data, .count = count};
    struct psi_crew_task task = {
        .run = search_part, .object = &search, .bytes = count * element_bytes(dtype)};

    if (crew == NULL || count < 2 * (uint64_t)PART_ELEMENTS) {
        return psi_find_not_finite(dtype, data, count);
    }
    search.part_elements = (count / PARTS / BLOCK + 1) * BLOCK;
    if (search.part_elements < PART_ELEMENTS) {
        search.part_elements = PART_ELEMENTS;
    }
    task.parts = (uint32_t)((count + search.part_elements - 1) / search.part_elements);
    psi_crew_do(crew, &task);
    for (uint32_t part = 0; part < task.parts; part++) {
        if (search.found[part] >= 0) {
            return (int64_t)(part * search.part_elements) + search.found[part];
        }
    }
    return -1;
}
