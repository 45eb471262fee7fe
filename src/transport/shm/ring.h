/*
 * ring.h - records from process to process through shared memory: one writer, one reader each way.
 *
 * Each side owns one segment, which only it can write: the ring it fills, its place in the ring it
 * empties, and whether it waits. What the other side shows is believed only as far as it makes
 * sense: a place outside the ring costs the connection, never more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_SHM_RING_H
#define PSI_TRANSPORT_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

enum {
    PSI_RING_BYTES = 512 << 10,
    PSI_RING_RECORD_MAX = 32 << 10, /* of one record */
};

/* What each side shows the other. Counters only grow; a byte's place is its number modulo
 * PSI_RING_BYTES. */
struct psi_ring_side {
    _Alignas(64) _Atomic uint64_t tail; /* of the ring it writes: bytes, ... */
    _Atomic uint64_t records;           /* ... records, ... */
    _Atomic uint64_t urgent;            /* ... and those among them that should be read at once */
    _Alignas(64) _Atomic uint64_t head; /* of the ring it reads: bytes used up */
    _Atomic uint64_t wake_at;           /* without an urgent one: records it waits for */
    _Atomic uint32_t starved;           /* wants to be told when the other has read something */
    _Atomic uint32_t
        waiting; /* cannot write before the other has read: the other is to read at once */
    _Alignas(64) uint8_t data[PSI_RING_BYTES];
};

/* Thread: owned by the connection's loop; psi_ring_is_ready() is for any thread. */
struct psi_ring {
    struct psi_ring_side *mine;
    const struct psi_ring_side *theirs;
    uint64_t tail;     /* of what we write; published when committed */
    uint64_t shown;    /* so far it is published: less than the tail while records are put off */
    uint64_t reserved; /* end of the record being written */
    _Atomic uint64_t read_to; /* of what the other has read of it, as last seen */
    uint64_t records;         /* written */
    uint64_t urgent;
    _Atomic uint64_t head;
    uint64_t records_read;
    _Atomic uint64_t urgent_read; /* at least so many urgent ones have been read */
    _Atomic uint64_t wake_at;
    uint32_t current; /* bytes of the record being read, its head included; 0: none */
};

void psi_ring_init(struct psi_ring *ring, struct psi_ring_side *mine,
                   const struct psi_ring_side *theirs);

/* Room for a record of `bytes`, contiguous. NULL: the ring is full, and the reader was asked to say
 * when it has read something; or, with PSD_ERR_PROTOCOL in *status_p, its place makes no sense. */
void *psi_ring_reserve(struct psi_ring *ring, size_t bytes, psd_status *status_p);

/* Shows the reserved record to the reader. Not urgent: it may wait for others. */
void psi_ring_commit(struct psi_ring *ring, bool urgent);

/* The reserved record is to be shown later: others may be reserved behind it. Returns its end. */
uint64_t psi_ring_put_off(struct psi_ring *ring);

/* Shows a record that was put off. They are shown in their order, and before anything is committed. */
void psi_ring_commit_to(struct psi_ring *ring, uint64_t end, bool urgent);

/* Something waits for what the reader will do: it is to read at once, however many records it waits for. */
void psi_ring_set_waiting(struct psi_ring *ring, bool waiting);

/* Does the reader want to hear of what was committed last? */
bool psi_ring_is_awaited(const struct psi_ring *ring);

/* The next record, contiguous, in the writer's memory: it may change at any time, so what matters
 * is copied before it is looked at. PSD_PENDING: none. PSD_ERR_PROTOCOL: it makes no sense. */
psd_status psi_ring_peek(struct psi_ring *ring, const uint8_t **record_p, size_t *bytes_p);

/* Uses it up. */
void psi_ring_consume(struct psi_ring *ring);

/* Is there something to read, and something urgent or as many records as we wait for? Or
 * room that was missing? Any thread. */
bool psi_ring_is_ready(const struct psi_ring *ring);

/* It is not worth looking before so many records more have come; at least 1. */
void psi_ring_wake_after(struct psi_ring *ring, uint64_t records);

#endif
