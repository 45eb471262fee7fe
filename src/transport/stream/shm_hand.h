/*
 * shm_hand.h - one end of a connection through shared memory, worked by hand: it says and writes
 * whatever a test wants, right or wrong.
 *
 * Everything waits at most a few seconds and then fails the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_STREAM_SHM_HAND_H
#define PSI_TRANSPORT_STREAM_SHM_HAND_H

#include "base/segment.h"
#include "transport/shm/ring.h"
#include "transport/shm/shm_format.h"
#include "transport/shm/shm_meet.h"
#include "transport/stream/carrier_shm.h"

struct hand {
    int stream_fd; /* -1: closed */
    int socket_fd; /* -1: none yet, or closed */
    struct psi_segment mine;
    struct psi_segment bell;
    struct psi_segment theirs;
    struct psi_segment their_bell;
    struct psi_ring ring;
};

/* Connects to "tcp://127.0.0.1:PORT". */
void hand_connect(struct hand *hand, const char *address);

/* Takes the next one who comes to listen_fd. */
void hand_accept(struct hand *hand, int listen_fd);

void hand_close(struct hand *hand);

/* ---- Over the stream ---- */

void hand_say(struct hand *hand, uint8_t kind);
void hand_say_word(struct hand *hand, uint8_t kind, const struct psi_shm_word *word);
void hand_send(struct hand *hand, const void *bytes, size_t count);

/* The next word or frame without payload. False: the other side has closed. */
bool hand_hear(struct hand *hand, struct psi_shm_word *word_p);

/* ---- Going over ---- */

/* Asks, and expects an offer. */
void hand_ask(struct hand *hand, struct psi_shm_word *offer_p);

/* Makes the memory that is ours. */
void hand_make(struct hand *hand);

/* All of it, as it should be. */
void hand_share(struct hand *hand, const char *address);

/* Introduces itself with these descriptors; the socket's other end is kept if socket_fd is -1. */
void hand_introduce(struct hand *hand, const struct psi_shm_word *offer, int socket_fd, int ring_fd,
                    int bell_fd);

/* ---- Through shared memory ---- */

/* Sends a message over the socket with so many copies of one descriptor. */
void hand_message(struct hand *hand, const void *bytes, size_t count, int fd, unsigned fd_count);
void hand_announce(struct hand *hand, uint32_t number, int fd, uint64_t bytes);

/* Writes a record; `more` follows it. */
void hand_put(struct hand *hand, const struct psi_shm_record *record, const void *more,
              size_t more_bytes);

/* Waits for the other side to close the new socket. */
void hand_expect_end(struct hand *hand);

/* Same of the stream. */
void hand_expect_stream_end(struct hand *hand);

/* How many messages wait in the socket; they are used up, their descriptors closed. */
unsigned hand_drain(struct hand *hand);

#endif
