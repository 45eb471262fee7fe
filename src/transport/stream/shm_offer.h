/*
 * shm_offer.h - finding out whether the peer is on this host, and if so, sharing memory with it.
 *
 * Nothing is guessed from names or addresses. Whoever connected asks; the other offers the name of
 * its meeting place and a token; the first one introduces itself there. That works only in the same kernel,
 * for the same user and in the same network namespace, and proves all of it. If it does not work,
 * the stream stays what it is.
 *
 *     connected            accepted
 *     ASK          ->
 *                  <-      OFFER name, token      (or NONE: stay as you are)
 *     a datagram to the meeting place: token, socket, ring, bell
 *     TAKEN        ->                             (or DECLINED: stay as you are)
 *                          over the new socket: ring, bell
 *                  <-      READY                  (or NONE: stay as you are)
 *
 * Whoever connected keeps its frames back until then. The other must have heard a frame before it
 * sends one; every protocol here begins like that.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_SHM_OFFER_H
#define PSI_TRANSPORT_STREAM_SHM_OFFER_H

#include <stdbool.h>

struct psi_stream;

/* The stream is authenticated. The owner's events are held back until the offer is settled. Returns
 * false if there is no memory, or nothing to ask for; then the stream is open as it is. */
bool psi_shm_offer_ask(struct psi_stream *stream);

/* Accepted: the first thing to be heard may be the question. */
void psi_shm_offer_await(struct psi_stream *stream);

/* Frames have to wait for the end of it. */
bool psi_shm_offer_holds(const struct psi_stream *stream);

/* Connected: the owner has not been told that it is open. */
bool psi_shm_offer_is_asking(const struct psi_stream *stream);

/* Ends it, whatever it has come to: the owner hears its own events again. */
void psi_shm_offer_end(struct psi_stream *stream);

#endif
