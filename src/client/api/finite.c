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

enum { BLOCK = 1024 };

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
