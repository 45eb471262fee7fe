/*
 * carrier_shm_state.h - the inside of a connection whose peer is on this host. For carrier_shm*.c only.
 *
 * Invariants
 *   - everything the peer shows is copied before it is judged, and used only as copied;
 *   - a payload is lent only within a segment that the peer has the descriptor of: it is sent
 *     before the record that speaks of it;
 *   - a block is written again only after the peer has given it back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_CARRIER_SHM_STATE_H
#define PSI_TRANSPORT_STREAM_CARRIER_SHM_STATE_H

#include "base/segment.h"
#include "transport/loop/loop_state.h"
#include "transport/shm/bell.h"
#include "transport/shm/ring.h"
#include "transport/shm/shm_format.h"

enum {
    BLOCK_BYTES = 512 << 10, /* the largest chunk ... */
    LARGE_BYTES = 16 << 20,  /* ... and the largest payload; few are so large */
    BLOCKS_MAX = 256,        /* of the first kind, for one connection ... */
    LARGE_MAX = 16,          /* ... and of the other */
    BLOCKS_LEAST = 8,        /* there is room for, once one is needed */
    LENT_MAX = PSI_SHM_SEGMENTS_MAX - BLOCKS_MAX - LARGE_MAX, /* numbers for lent segments */
    COPIES_BYTES_MAX = 8 << 20, /* on loan at once; they stay in the cache until they are read */
    RECORDS_AT_ONCE = 128,      /* the other connections get their turn */
    MESSAGES_AT_ONCE = 1024,    /* over the socket; it holds fewer */
    NOT_TOLD = UINT16_MAX,
};

_Static_assert(2 * PSI_COPIES_KEPT_MAX <= BLOCKS_MAX &&
                   2 * PSI_COPIES_KEPT_BYTES_MAX <= COPIES_BYTES_MAX &&
                   2 * PSI_COPIES_KEPT_BYTES_MAX <= LARGE_MAX * BLOCK_BYTES,
               "there is room for more than a peer keeps");

/* A segment of the peer. Alive while known, or while something of it is on loan. */
struct foreign {
    struct psi_segment segment;
    uint32_t uses;
};

struct loan {
    struct psi_loan loan; /* first */
    struct psi_shm *shm;  /* NULL: the connection is gone */
    struct foreign *from;
    uint32_t block;
    struct loan *next; /* shm->loans, shm->returning or shm->spare_loans */
    struct loan *prev;
};

/* A copy of a payload, for the peer to read. */
struct block {
    struct psi_segment segment;
    uint16_t told;     /* the number that the peer knows its segment by */
    size_t lent_bytes; /* 0: it is free */
};

/* Numbers of segments that the peer knows. One may be used again only when the peer has forgotten
 * the old segment: descriptors and records take different ways. */
enum number_state { NUMBER_FREE, NUMBER_TOLD, NUMBER_LEAVING };

/* A set of them: few bytes, for a worker may have a thousand connections that need none of it. */
struct numbers {
    uint64_t has[PSI_SHM_SEGMENTS_MAX / 64];
    uint32_t count;
};

static inline void
numbers_add(struct numbers *numbers, uint32_t number)
{
    numbers->has[number / 64] |= UINT64_C(1) << number % 64;
    numbers->count++;
}

static inline bool
numbers_have(const struct numbers *numbers, uint32_t number)
{
    return (numbers->has[number / 64] >> number % 64 & 1) != 0;
}

static inline void
numbers_remove(struct numbers *numbers, uint32_t number)
{
    numbers->has[number / 64] &= ~(UINT64_C(1) << number % 64);
    numbers->count--;
}

/* Thread: owned by the loop. */
struct psi_shm {
    struct psi_loop *loop;
    struct psi_conn *conn;
    void (*heard)(void *object, psd_status status, struct psd_error *err);
    int fd;
    bool closed;
    struct psi_segment mine;
    struct psi_segment theirs;
    struct psi_segment bell;
    struct psi_ring ring;
    struct psi_loop_ring watch;

    bool rung; /* and the peer has read nothing since: it knows */
    uint64_t rung_at;
    bool socket_full; /* the last frame could not be sent for want of room there */

    uint32_t put_off; /* records that are shown when their payloads are copied: loop->copies */

    struct block *blocks; /* owned; as many as were ever needed at once */
    uint32_t block_capacity;
    uint32_t block_count;
    uint32_t large_count; /* of them */
    size_t copied_bytes;  /* in blocks that are on loan */
    uint16_t *told;       /* lent id -> number that the peer knows it by; NOT_TOLD */
    uint32_t told_capacity;
    uint32_t lent_count; /* numbers of lent segments, also of those that are being forgotten */
    uint8_t numbers[PSI_SHM_SEGMENTS_MAX]; /* enum number_state */
    uint32_t number_next;                  /* where to look for a free one first */

    struct foreign **foreign; /* owned; by number, as far as the highest that was told */
    uint32_t foreign_capacity;
    uint64_t foreign_bytes;
    struct loan *loans;
    struct loan *spare_loans;
    bool deaf; /* frames are read over */

    /* What the peer is to be told as soon as there is room in the ring. */
    struct loan *returning;
    struct numbers forget;
    struct numbers forgotten;
};

static inline const struct psi_bell *
psi_shm_bell(const struct psi_shm *shm)
{
    return (const struct psi_bell *)(const void *)shm->bell.base;
}

static inline bool
psi_shm_peer_sleeps(const struct psi_shm *shm)
{
    return psi_bell_peer_sleeps(psi_shm_bell(shm));
}

static inline bool
psi_shm_is_large(size_t bytes)
{
    return bytes > BLOCK_BYTES;
}

/* ---- carrier_shm_copies.c: copies that a crew helps with ---- */

/* May a payload of so many bytes be copied behind our back? */
bool psi_shm_may_put_off(struct psi_shm *shm, size_t bytes);

/* Copies a payload into a block, and shows the record that was reserved last when that is done. */
void psi_shm_put_off_sending(struct psi_shm *shm, void *to, const void *from, size_t bytes,
                             bool urgent);

/* All records that were put off, of all connections of the loop, are shown when this returns. */
void psi_shm_show_all(struct psi_loop *loop);

/* A frame whose payload is on its way to where it belongs. */
struct heard {
    const uint8_t *head;
    size_t head_bytes;
    void *into;
    const void *payload;
    size_t payload_bytes;
    struct loan *loan; /* given back when it is there; NULL: its owner keeps it */
};

/* Brings a payload home, and tells the owner of the frame when that is done. False: it cannot be put
 * off, and nothing was begun. */
bool psi_shm_put_off_hearing(struct psi_shm *shm, const struct heard *heard);

/* Frames that were put off are heard, of all connections of the loop. */
void psi_shm_hear_all(struct psi_loop *loop);
bool psi_shm_hears_later(const struct psi_loop *loop);

/* A connection ends: what was put off is shown, and nothing of it is heard any more. */
void psi_shm_end_copies(struct psi_shm *shm);

/* ---- carrier_shm_send.c, carrier_shm_receive.c ---- */

/* Shows records up to this end. cheap: as in psi_shm_send(). */
void psi_shm_commit_to(struct psi_shm *shm, uint64_t end, bool urgent, bool cheap);

void psi_shm_give_back(struct loan *loan);

/* Something was written, or read: wakes a peer that sleeps and waits for that. */
void psi_shm_ring_bell(struct psi_shm *shm);
void psi_shm_tell_of_room(const struct psi_shm *shm);
void psi_shm_wake(const struct psi_shm *shm);

/* Tells the peer what it gets back and what is forgotten, as far as there is room in the ring. */
psd_status psi_shm_send_notes(struct psi_shm *shm, struct psd_error *err);

void psi_shm_foreign_let_go(struct foreign *foreign); /* NULL is allowed */
void psi_shm_loan_unlink(struct loan **list, struct loan *loan);

#endif
