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

/* Polynomials modulo the checksum's, reflected: the highest bit is x^0. */
static uint32_t
multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        product ^= (a & bit) != 0 ? b : 0;
        b = (b >> 1) ^ ((b & 1) != 0 ? POLYNOMIAL : 0);
    }
    return product;
}

/* [i]: x^(8 * 2^i), each the square of the one before. */
static const uint32_t powers[64] = {
    0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
    0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
    0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc,
    0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000,
    0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72,
    0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6,
    0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe,
    0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000,
};

#if defined(__x86_64__)

/* The instruction takes three cycles and can begin in each of them: so three stretches go on at once. */
enum { STRETCH_LOG2 = 13, STRETCH = 1 << STRETCH_LOG2 };

__attribute__((target("sse4.2"))) static uint32_t
three_stretches(uint32_t value, const uint8_t *at)
{
    uint64_t wide[3] = {value, 0, 0};

    for (size_t i = 0; i < STRETCH; i += 8) {
        uint64_t word[3];

        memcpy(&word[0], at + i, 8);
        memcpy(&word[1], at + STRETCH + i, 8);
        memcpy(&word[2], at + 2 * STRETCH + i, 8);
        wide[0] = __builtin_ia32_crc32di(wide[0], word[0]);
        wide[1] = __builtin_ia32_crc32di(wide[1], word[1]);
        wide[2] = __builtin_ia32_crc32di(wide[2], word[2]);
    }
    return multiply((uint32_t)wide[0], powers[STRETCH_LOG2 + 1]) ^
           multiply((uint32_t)wide[1], powers[STRETCH_LOG2]) ^ (uint32_t)wide[2];
}

__attribute__((target("sse4.2"))) static uint32_t
crc32c_sse42(uint32_t crc, const uint8_t *at, size_t bytes)
{
    uint64_t wide = ~crc;

    for (; bytes >= 3 * STRETCH; at += 3 * STRETCH, bytes -= 3 * STRETCH) {
        wide = three_stretches((uint32_t)wide, at);
    }
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

/* The register after so many zero bytes: times x^(8 * bytes). */
static uint32_t
pass_zeros(uint32_t value, uint64_t bytes)
{
    for (unsigned i = 0; bytes != 0; i++, bytes >>= 1) {
        if ((bytes & 1) != 0) {
            value = multiply(value, powers[i]);
        }
    }
    return value;
}

uint32_t
psi_crc32c_zeros(uint64_t bytes)
{
    return ~pass_zeros(UINT32_MAX, bytes);
}

/* Without its constants the checksum is linear, so pieces add up wherever they stand. */
uint32_t
psi_crc32c_change(uint32_t piece_crc, uint64_t piece_bytes, uint64_t bytes_behind)
{
    return pass_zeros(piece_crc ^ psi_crc32c_zeros(piece_bytes), bytes_behind);
}
