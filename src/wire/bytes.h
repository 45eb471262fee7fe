/*
 * bytes.h - little-endian numbers at any address, on any host.
 *
 * Written as shifts: compilers turn them into one load or store where the host allows it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_WIRE_BYTES_H
#define PSI_WIRE_BYTES_H

#include <stdint.h>

static inline void
psi_store_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static inline void
psi_store_u32(uint8_t *at, uint32_t value)
{
    psi_store_u16(at, (uint16_t)value);
    psi_store_u16(at + 2, (uint16_t)(value >> 16));
}

static inline void
psi_store_u64(uint8_t *at, uint64_t value)
{
    psi_store_u32(at, (uint32_t)value);
    psi_store_u32(at + 4, (uint32_t)(value >> 32));
}

static inline uint16_t
psi_load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t
psi_load_u32(const uint8_t *at)
{
    return psi_load_u16(at) | (uint32_t)psi_load_u16(at + 2) << 16;
}

static inline uint64_t
psi_load_u64(const uint8_t *at)
{
    return psi_load_u32(at) | (uint64_t)psi_load_u32(at + 4) << 32;
}

#endif
