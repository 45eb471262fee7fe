/*
 * carrier_shm.h - a connection whose peer is on this host: frames through rings, payloads where they are.
 *
 * What shm_offer.c makes out of a stream. Small payloads travel in the ring. Large ones stay where
 * they are if they are stable and lie in lent memory; else they are copied once, into a block that
 * the peer gives back. The socket carries descriptors of segments and wakes a peer that sleeps; its
 * end is the end of the connection, after everything in the ring has been heard.
 *
 * What finds no room, in the ring or in a block, waits in the stream's queue as it would for a
 * socket.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_CARRIER_SHM_H
#define PSI_TRANSPORT_STREAM_CARRIER_SHM_H

#include "base/segment.h"
#include "transport/loop/loop_state.h"
#include "transport/shm/bell.h"
#include "transport/shm/ring.h"

struct psi_shm;

/* At most this many calls of psi_shm_receive() empty a full ring. */
enum { PSI_SHM_TURNS_MAX = 128 };

struct psi_shm_args {
    struct psi_loop *loop;
    struct psi_conn *conn;
    int fd;                      /* the socket; the caller's */
    struct psi_segment mine;     /* a psi_ring_side; taken */
    struct psi_segment theirs;   /* taken */
    struct psi_segment bell;     /* the peer's psi_bell; taken */
    void (*ready)(void *object); /* there is something in the ring, or room */

    /* A frame was heard after psi_shm_receive() had returned; not PSD_OK: the connection is to end. */
    void (*heard)(void *object, psd_status status, struct psd_error *err);
    void *object;
};

/* NULL: no memory; nothing was taken. */
struct psi_shm *psi_shm_create(const struct psi_shm_args *args);

/* Ends it; what the peer has lent stays until it is given back. */
void psi_shm_close(struct psi_shm *shm);

/* Sends a frame: when this returns, the peer has what it needs, and nothing is borrowed any more;
 * the release is the caller's. lasting: the payload stays as it is until psi_shm_finish_sending(), or
 * the next psi_loop_ring_bells(); then that may be true only after these. PSD_PENDING: nothing was taken, because there is no room yet; try
 * again when `ready` is called or the socket is. */
psd_status psi_shm_send(struct psi_shm *shm, const struct psi_outgoing *frame, bool lasting,
                        struct psd_error *err);

/* Nothing is borrowed any more. */
void psi_shm_finish_sending(struct psi_shm *shm);

/* The socket must become writable before anything else can be sent. */
bool psi_shm_awaits_socket(const struct psi_shm *shm);

/* Hears a bounded number of frames. *frames_p: how many; *more_p: whether there are more. */
psd_status psi_shm_receive(struct psi_shm *shm, unsigned *frames_p, bool *more_p,
                           struct psd_error *err);

/* From now on frames are read over, without events. */
void psi_shm_deafen(struct psi_shm *shm);

/* Takes what came over the socket. *ended_p: it was closed by the peer. */
psd_status psi_shm_read_socket(struct psi_shm *shm, bool *ended_p, struct psd_error *err);

/* As psi_conn_ops.wake_after. */
void psi_shm_wake_after(struct psi_shm *shm, uint32_t frames);

/* The loop no longer lends that segment. */
void psi_shm_take_back(struct psi_shm *shm, uint32_t lent_id);

#endif
