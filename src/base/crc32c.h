/*
 * crc32c.h - the Castagnoli checksum: by instruction where the CPU has it, by table elsewhere.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_CRC32C_H
#define PSI_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 to begin) over bytes. psi_crc32c(0, "123456789", 9) == 0xe3069283. */
uint32_t psi_crc32c(uint32_t crc, const void *data, size_t bytes);

/*
 * The checksum of bytes that come in any order. It begins as that of zeros; XOR what each piece
 * changes, which is a function of the piece's own checksum and size and of how many bytes follow
 * it. When every byte has come once, it is that of the whole.
 */
uint32_t psi_crc32c_zeros(uint64_t bytes);
uint32_t psi_crc32c_change(uint32_t piece_crc, uint64_t piece_bytes, uint64_t bytes_behind);

/* The table version alone, for the test that compares the two. */
uint32_t psi_crc32c_portable(uint32_t crc, const void *data, size_t bytes);

#endif
