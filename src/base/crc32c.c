/*
 * crc32c.c - the Castagnoli checksum.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

/* One byte through the shift register; the compiler makes a loop of it once per table entry. */
static uint32_t
shift_byte(uint32_t value)
{
    for (int bit = 0; bit < 8; bit++) {
        value = (value >> 1) ^ ((value & 1) ? POLYNOMIAL : 0);
    }
    return value;
}

uint32_t
psi_crc32c_portable(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc = (crc >> 8) ^ shift_byte((crc ^ at[i]) & 0xff);
    }
    return ~crc;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t
crc32c_sse42(uint32_t crc, const uint8_t *at, size_t bytes)
{
    uint64_t wide = ~crc;

    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;

        memcpy(&word, at, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    for (; bytes > 0; at++, bytes--) {
        wide = __builtin_ia32_crc32qi((uint32_t)wide, *at);
    }
    return ~(uint32_t)wide;
}

uint32_t
psi_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    if (__builtin_cpu_supports("sse4.2")) {
        return crc32c_sse42(crc, data, bytes);
    }
    return psi_crc32c_portable(crc, data, bytes);
}

#else

uint32_t
psi_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return psi_crc32c_portable(crc, data, bytes);
}

#endif
