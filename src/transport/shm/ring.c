/*
 * ring.c - records from process to process through shared memory.
 *
 * A record is a head (how many bytes, and whether they are a gap at the end of the ring) and its
 * bytes, padded to eight. Records do not wrap: what does not fit before the end begins anew.
 *
 * A writer without room says so and then looks once more; a reader reads and then looks whether
 * somebody said so: one of the two notices.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/shm/ring.h"

#include <string.h>

#include "base/fail.h"

struct record_head {
    uint32_t bytes; /* without this head and the padding */
    uint32_t gap;   /* 1: nothing here, go on at the beginning */
};

enum { ALIGN = 8, HEAD_BYTES = sizeof(struct record_head) };

static uint64_t
padded(uint64_t bytes)
{
    return (bytes + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
}

void
psi_ring_init(struct psi_ring *ring, struct psi_ring_side *mine, const struct psi_ring_side *theirs)
{
    memset(ring, 0, sizeof(*ring));
    ring->mine = mine;
    ring->theirs = theirs;
}

static void
write_head(struct psi_ring *ring, uint64_t at, uint32_t bytes, uint32_t gap)
{
    const struct record_head head = {.bytes = bytes, .gap = gap};

    memcpy(ring->mine->data + at % PSI_RING_BYTES, &head, sizeof(head));
}

static uint64_t
room_left(const struct psi_ring *ring)
{
    return PSI_RING_BYTES -
           (ring->tail - atomic_load_explicit(&ring->read_to, memory_order_relaxed));
}

/* Looks up to where the other has read: from where it was last seen to where we have written. */
static psd_status
look_for_room(struct psi_ring *ring)
{
    const uint64_t seen = atomic_load_explicit(&ring->read_to, memory_order_relaxed);
    const uint64_t read_to = atomic_load_explicit(&ring->theirs->head, memory_order_acquire);

    if (ring->tail - read_to > ring->tail - seen) {
        return PSD_ERR_PROTOCOL;
    }
    atomic_store_explicit(&ring->read_to, read_to, memory_order_relaxed);
    return PSD_OK;
}

static bool
is_starved(const struct psi_ring *ring)
{
    return atomic_load_explicit(&ring->mine->starved, memory_order_relaxed) != 0;
}

static void
set_starved(struct psi_ring *ring, bool starved)
{
    if (is_starved(ring) != starved) {
        atomic_store_explicit(&ring->mine->starved, starved, memory_order_relaxed);
    }
}

/* Is there room for so many bytes? If not, the other is asked to say when it has read. */
static bool
has_room(struct psi_ring *ring, uint64_t bytes, psd_status *status_p)
{
    bool enough = room_left(ring) >= bytes;

    *status_p = PSD_OK;
    for (unsigned look = 0; look < 2 && !enough && *status_p == PSD_OK; look++) {
        if (look > 0) {
            set_starved(ring, true);
            atomic_thread_fence(memory_order_seq_cst);
        }
        *status_p = look_for_room(ring);
        enough = *status_p == PSD_OK && room_left(ring) >= bytes;
    }
    if (enough) {
        set_starved(ring, false);
    }
    return enough;
}

void *
psi_ring_reserve(struct psi_ring *ring, size_t bytes, psd_status *status_p)
{
    const uint64_t need = HEAD_BYTES + padded(bytes);
    const uint64_t to_end = PSI_RING_BYTES - ring->tail % PSI_RING_BYTES;
    const uint64_t gap = need > to_end ? to_end : 0;

    psi_assert(bytes <= PSI_RING_RECORD_MAX);
    if (!has_room(ring, gap + need, status_p)) {
        return NULL;
    }
    if (gap > 0) {
        write_head(ring, ring->tail, (uint32_t)gap - HEAD_BYTES, 1);
        ring->tail += gap;
    }
    write_head(ring, ring->tail, (uint32_t)bytes, 0);
    ring->reserved = ring->tail + need;
    return ring->mine->data + ring->tail % PSI_RING_BYTES + HEAD_BYTES;
}

uint64_t
psi_ring_put_off(struct psi_ring *ring)
{
    ring->tail = ring->reserved;
    return ring->tail;
}

void
psi_ring_commit_to(struct psi_ring *ring, uint64_t end, bool urgent)
{
    psi_assert(end - ring->shown <= ring->tail - ring->shown);
    ring->shown = end;
    ring->records++;
    atomic_store_explicit(&ring->mine->records, ring->records, memory_order_relaxed);
    if (urgent) {
        ring->urgent++;
        atomic_store_explicit(&ring->mine->urgent, ring->urgent, memory_order_relaxed);
    }
    atomic_store_explicit(&ring->mine->tail, end, memory_order_release);
}

void
psi_ring_commit(struct psi_ring *ring, bool urgent)
{
    psi_ring_commit_to(ring, psi_ring_put_off(ring), urgent);
}

void
psi_ring_set_waiting(struct psi_ring *ring, bool waiting)
{
    if ((atomic_load_explicit(&ring->mine->waiting, memory_order_relaxed) != 0) != waiting) {
        atomic_store_explicit(&ring->mine->waiting, waiting, memory_order_relaxed);
    }
}

bool
psi_ring_is_awaited(const struct psi_ring *ring)
{
    return ring->records >= atomic_load_explicit(&ring->theirs->wake_at, memory_order_relaxed);
}

void
psi_ring_wake_after(struct psi_ring *ring, uint64_t records)
{
    const uint64_t wake_at = ring->records_read + records;

    if (wake_at != atomic_load_explicit(&ring->wake_at, memory_order_relaxed)) {
        atomic_store_explicit(&ring->wake_at, wake_at, memory_order_relaxed);
        atomic_store_explicit(&ring->mine->wake_at, wake_at, memory_order_relaxed);
    }
}

/* Something urgent, or as many records as we wait for. */
static bool
is_worth_reading(const struct psi_ring *ring)
{
    const struct psi_ring_side *theirs = ring->theirs;

    return atomic_load_explicit(&theirs->waiting, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&theirs->urgent, memory_order_relaxed) !=
               atomic_load_explicit(&ring->urgent_read, memory_order_relaxed) ||
           atomic_load_explicit(&theirs->records, memory_order_relaxed) >=
               atomic_load_explicit(&ring->wake_at, memory_order_relaxed);
}

bool
psi_ring_is_ready(const struct psi_ring *ring)
{
    if (atomic_load_explicit(&ring->theirs->tail, memory_order_acquire) !=
            atomic_load_explicit(&ring->head, memory_order_relaxed) &&
        is_worth_reading(ring)) {
        return true;
    }
    return is_starved(ring) && atomic_load_explicit(&ring->theirs->head, memory_order_relaxed) !=
                                   atomic_load_explicit(&ring->read_to, memory_order_relaxed);
}

static void
advance(struct psi_ring *ring, uint64_t to)
{
    atomic_store_explicit(&ring->head, to, memory_order_relaxed);
    atomic_store_explicit(&ring->mine->head, to, memory_order_release);
}

psd_status
psi_ring_peek(struct psi_ring *ring, const uint8_t **record_p, size_t *bytes_p)
{
    /* Before the tail: an urgent record that is counted here is seen below. */
    const uint64_t urgent = atomic_load_explicit(&ring->theirs->urgent, memory_order_acquire);
    const uint64_t tail = atomic_load_explicit(&ring->theirs->tail, memory_order_acquire);
    uint64_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);

    for (;;) {
        const uint64_t here = tail - at;
        const uint64_t to_end = PSI_RING_BYTES - at % PSI_RING_BYTES;
        struct record_head head;
        uint64_t need;

        if (here == 0) {
            atomic_store_explicit(&ring->urgent_read, urgent, memory_order_relaxed);
            return PSD_PENDING;
        }
        if (here > PSI_RING_BYTES || here < HEAD_BYTES || here % ALIGN != 0) {
            return PSD_ERR_PROTOCOL;
        }
        memcpy(&head, ring->theirs->data + at % PSI_RING_BYTES, sizeof(head));
        need = HEAD_BYTES + padded(head.bytes);
        if (need > here || need > to_end || (head.gap != 0 && need != to_end)) {
            return PSD_ERR_PROTOCOL;
        }
        if (head.gap == 0) {
            *record_p = ring->theirs->data + at % PSI_RING_BYTES + HEAD_BYTES;
            *bytes_p = head.bytes;
            ring->current = (uint32_t)need;
            return PSD_OK;
        }
        at += need;
        advance(ring, at);
    }
}

void
psi_ring_consume(struct psi_ring *ring)
{
    psi_assert(ring->current > 0);
    advance(ring, atomic_load_explicit(&ring->head, memory_order_relaxed) + ring->current);
    ring->records_read++;
    ring->current = 0;
}
