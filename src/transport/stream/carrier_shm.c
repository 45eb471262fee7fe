/*
 * carrier_shm.c - a connection whose peer is on this host: its life, and the bells that wake the peer.
 *
 * Sending is in carrier_shm_send.c, hearing in carrier_shm_receive.c; what holds for all three in
 * carrier_shm_state.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <sys/socket.h>

#include "base/fail.h"
#include "transport/stream/carrier_shm.h"
#include "transport/stream/carrier_shm_state.h"

void
psi_shm_wake(const struct psi_shm *shm)
{
    (void)send(shm->fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* full: enough to wake it */
}

/* Something was written. A peer that has read nothing since it was woken, although there was
 * something to read, is still awake because of that; what is reserved but not shown yet is nothing
 * to read. */
static void
ring_bell(struct psi_shm *shm, bool urgent)
{
    uint64_t read_to;
    uint64_t shown;

    if (!psi_shm_peer_sleeps(shm) || (!urgent && !psi_ring_is_awaited(&shm->ring))) {
        return;
    }
    read_to = atomic_load_explicit(&shm->ring.theirs->head, memory_order_relaxed);
    shown = atomic_load_explicit(&shm->ring.mine->tail, memory_order_relaxed);
    if (read_to != shown && (!shm->rung || shm->rung_at != read_to)) {
        shm->rung = true;
        shm->rung_at = read_to;
        psi_shm_wake(shm);
    }
}

void
psi_shm_ring_bell(struct psi_shm *shm)
{
    const bool urgent = shm->watch.owes == PSI_URGENT_BELL;

    shm->watch.owes = PSI_NO_BELL;
    ring_bell(shm, urgent);
}

/* Something was read: the peer may have waited for that. */
void
psi_shm_tell_of_room(const struct psi_shm *shm)
{
    if (psi_shm_peer_sleeps(shm) &&
        atomic_load_explicit(&shm->ring.theirs->starved, memory_order_relaxed) != 0) {
        psi_shm_wake(shm);
    }
}

void
psi_shm_wake_after(struct psi_shm *shm, uint32_t frames)
{
    psi_ring_wake_after(&shm->ring, frames);
}

struct psi_shm *
psi_shm_create(const struct psi_shm_args *args)
{
    struct psi_shm *shm = calloc(1, sizeof(*shm));

    if (shm == NULL) {
        return NULL;
    }
    shm->loop = args->loop;
    shm->conn = args->conn;
    shm->heard = args->heard;
    shm->fd = args->fd;
    shm->mine = args->mine;
    shm->theirs = args->theirs;
    shm->bell = args->bell;
    psi_segment_close_fd(&shm->mine); /* mapped, and the peer has its own descriptor */
    psi_segment_close_fd(&shm->theirs);
    psi_segment_close_fd(&shm->bell);
    psi_ring_init(&shm->ring, (struct psi_ring_side *)(void *)shm->mine.base,
                  (const struct psi_ring_side *)(const void *)shm->theirs.base);
    shm->watch = (struct psi_loop_ring){
        .ring = &shm->ring,
        .neighbour = psi_shm_bell(shm),
        .ready = args->ready,
        .object = args->object,
        .ring_bell = psi_shm_ring_bell,
        .shm = shm,
    };
    psi_loop_watch_ring(shm->loop, &shm->watch);
    return shm;
}

static void
free_loans(struct loan *loan)
{
    while (loan != NULL) {
        struct loan *next = loan->next;

        free(loan);
        loan = next;
    }
}

static void
destroy(void *object)
{
    struct psi_shm *shm = object;

    for (uint32_t i = 0; i < shm->foreign_capacity; i++) {
        psi_shm_foreign_let_go(shm->foreign[i]);
    }
    for (uint32_t i = 0; i < shm->block_count; i++) {
        psi_segment_destroy(&shm->blocks[i].segment);
    }
    free_loans(shm->returning);
    free_loans(shm->spare_loans);
    psi_segment_destroy(&shm->mine);
    psi_segment_destroy(&shm->theirs);
    psi_segment_destroy(&shm->bell);
    free((void *)shm->foreign);
    free(shm->blocks);
    free(shm->told);
    free(shm);
}

void
psi_shm_close(struct psi_shm *shm)
{
    psi_assert(!shm->closed);
    psi_shm_end_copies(shm);
    shm->closed = true;
    while (shm->loans != NULL) {
        struct loan *loan = shm->loans;

        psi_shm_loan_unlink(&shm->loans, loan);
        loan->shm = NULL; /* its owner still has it */
    }
    psi_loop_unwatch_ring(shm->loop, &shm->watch);
    psi_loop_free_later(shm->loop, destroy, shm); /* a waiting thread may be looking at the ring */
}
