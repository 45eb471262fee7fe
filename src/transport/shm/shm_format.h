/*
 * shm_format.h - what two processes on one host write for each other, before and after they share
 * memory. Native byte order: it is the same machine.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_SHM_SHM_FORMAT_H
#define PSI_TRANSPORT_SHM_SHM_FORMAT_H

#include "transport/shm/shm_meet.h"
#include "transport/transport.h"

enum {
    PSI_SHM_INLINE_MAX = 8192,   /* payloads up to here travel in the ring */
    PSI_SHM_SEGMENTS_MAX = 1024, /* that one side tells the other of */
};

/* ---- Over the stream: shm_offer.h has the order ---- */

enum psi_shm_word_kind {
    PSI_SHM_ASK = 1,
    PSI_SHM_OFFER,
    PSI_SHM_NONE,
    PSI_SHM_TAKEN,
    PSI_SHM_DECLINED,
    PSI_SHM_READY,
};

/* Begins like a frame, with a version that no frame has: whoever knows frames knows us by it. */
#define PSI_SHM_WORD_MAGIC "PSD1near"

/* As long as the prefix of a frame, so that the same parser reads it. */
struct psi_shm_word {
    uint8_t magic[8];
    uint8_t kind; /* enum psi_shm_word_kind */
    uint8_t reserved[7];
    uint8_t name[PSI_SHM_MEET_NAME_BYTES];   /* OFFER */
    uint8_t token[PSI_SHM_MEET_TOKEN_BYTES]; /* OFFER */
    uint8_t unused[8];
};

_Static_assert(sizeof(struct psi_shm_word) == PSI_PREFIX_BYTES, "read by the parser of frames");

/* ---- Over the socket, with one descriptor ---- */

struct psi_shm_announcement {
    uint32_t segment; /* its number, until the peer has said FORGOTTEN */
    uint32_t reserved;
    uint64_t bytes;
};

/* ---- Through the ring ---- */

enum psi_shm_record_kind {
    PSI_SHM_FRAME,     /* followed by the head and the payload */
    PSI_SHM_LENT,      /* followed by the head; the payload is in a segment */
    PSI_SHM_RETURNED,  /* the peer's block can be used again */
    PSI_SHM_FORGET,    /* the segment is not spoken of any more ... */
    PSI_SHM_FORGOTTEN, /* ... and its number may be that of another from now on */
};

struct psi_shm_record {
    uint32_t kind; /* enum psi_shm_record_kind */
    uint32_t head_bytes;
    uint32_t block;   /* LENT: to be given back; RETURNED: which; 0: none, numbers begin at 1 */
    uint32_t segment; /* LENT, FORGET, FORGOTTEN */
    uint64_t offset;  /* LENT: where in the segment */
    uint64_t payload_bytes;
};

#endif
