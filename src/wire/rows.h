/*
 * rows.h - the payload of SPARSE_PUSH, SPARSE_PULL, SPARSE_PUSH_PULL and SPARSE_VALUE.
 *
 *     u32 pushed, u32 asked, u32 gradients, u32 0
 *     u64 ids[pushed], then their rows, padded with zeros to a multiple of 8 bytes
 *     u64 ids[asked]
 *
 * `gradients` is 1 if this is a worker's gradient, although perhaps of no row here; 0 if the worker
 * is present and adds nothing, and where nothing is pushed. Ids of each list are sorted by
 * psi_bucket_mix(), no id comes twice, and all are of the place that the frame is for. A
 * SPARSE_VALUE brings the rows that were asked for, as `pushed`, without ids. Of a table that is a sum
 * it brings all rows of the round as a gradient would: with ids, and nothing asked for.
 *
 * A decoder trusts nothing. What it found stays true only as long as nobody writes to the bytes: they
 * must not be a peer's own memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_WIRE_ROWS_H
#define PSI_WIRE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

enum {
    PSI_ROWS_HEAD_BYTES = 16,
    PSI_ROWS_MAX = 1 << 20, /* ids of a list */

    /* Of one request of a reader: what a lane does for it takes well below a millisecond. */
    PSI_READ_ROWS_MAX = 1 << 12,
    PSI_READ_COLD_ROWS_MAX = 1 << 8, /* ... where some may be on a disk */
    PSI_READ_BYTES_MAX = 1 << 20,
};

#define PSI_ROWS_STEP_MAX (UINT32_MAX - 2) /* a row remembers when it was pushed last */

/* Which rows a frame may be about. */
struct psi_rows_form {
    size_t row_bytes;
    uint32_t bucket_bits;
    uint32_t first_bucket; /* of the place ... */
    uint32_t end_bucket;   /* ... up to this one */
};

/* Borrowed from the payload. Ids are little-endian, at multiples of 8 bytes of it. */
struct psi_rows {
    uint32_t pushed;
    uint32_t asked;
    uint32_t gradients; /* 0 or 1 */
    const uint8_t *ids;
    const uint8_t *rows;
    const uint8_t *asked_ids;
};

/* Bytes of the payload, of counts within their bounds. */
size_t psi_rows_bytes(size_t row_bytes, uint64_t pushed, uint64_t asked);

/* How many pushed rows one payload holds, of so many bytes at most (0: as large as a frame may be). At
 * least one. */
uint32_t psi_rows_part(size_t row_bytes, uint32_t part_bytes);

/* How many rows may be asked for at once, when an answer has so many bytes at most (0: as many as a
 * frame may have). At least one. */
uint32_t psi_rows_ask_max(size_t row_bytes, uint32_t part_bytes);

/* How many rows a reader may ask for at once: a round waits for all of them. */
uint32_t psi_rows_read_max(size_t row_bytes, bool may_be_cold);

/* Where things lie in a payload that is to be filled in; writes its head, and its padding. */
struct psi_rows_room {
    uint8_t *ids;
    uint8_t *rows;
    uint8_t *asked_ids;
};
struct psi_rows_room psi_rows_encode(uint8_t *payload, size_t row_bytes,
                                     const struct psi_rows *counts);

/* PSD_ERR_PROTOCOL: the text says what is wrong. */
psd_status psi_rows_decode(const uint8_t *payload, size_t bytes, const struct psi_rows_form *form,
                           struct psi_rows *rows_p, struct psd_error *err);

/* Of a SPARSE_VALUE: so many rows. */
size_t psi_rows_value_bytes(size_t row_bytes, uint64_t count);
psd_status psi_rows_value_decode(const uint8_t *payload, size_t bytes, size_t row_bytes,
                                 uint32_t expected, const uint8_t **rows_p, struct psd_error *err);
uint8_t *psi_rows_value_encode(uint8_t *payload, uint32_t count);

/* Of the SPARSE_VALUE of a sum, which takes psi_rows_bytes(row_bytes, count, 0). */
void psi_rows_sum_encode(uint8_t *payload, size_t row_bytes, const uint64_t *ids, const void *rows,
                         uint32_t count);
psd_status psi_rows_sum_decode(const uint8_t *payload, size_t bytes,
                               const struct psi_rows_form *form, struct psi_rows *rows_p,
                               struct psd_error *err);

#endif
