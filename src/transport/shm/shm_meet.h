/*
 * shm_meet.h - where peers on this host introduce themselves.
 *
 * A datagram socket with an unguessable name in the kernel's own space: nothing in a file system,
 * nothing left behind, and not visible in another network namespace. Whoever was told its name and
 * a token over an authenticated connection sends one datagram with everything that a connection
 * through shared memory needs. The kernel says which user sent it; only our own is heard.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_SHM_SHM_MEET_H
#define PSI_TRANSPORT_SHM_SHM_MEET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <psd/status.h>

enum {
    PSI_SHM_MEET_NAME_BYTES = 24, /* printable: the kernel shows it in a list */
    PSI_SHM_MEET_TOKEN_BYTES = 16,
    PSI_SHM_MEET_WAITING_MAX = 64, /* the oldest gives way */
};

/* What a peer sends: its end of a pair of sockets, its ring, its bell. */
struct psi_introduction {
    uint8_t token[PSI_SHM_MEET_TOKEN_BYTES];
    int socket_fd;
    int ring_fd;
    int bell_fd;
};

/* Thread: owned by the loop. */
struct psi_shm_meet {
    int fd;    /* -1: there is none */
    uid_t uid; /* whose processes are heard: our own */
    uint8_t name[PSI_SHM_MEET_NAME_BYTES];
    struct psi_introduction
        waiting[PSI_SHM_MEET_WAITING_MAX]; /* came, and were not asked for yet */
    uint32_t waiting_count;
};

/* An error: peers on this host are served like any other. */
psd_status psi_shm_meet_open(struct psi_shm_meet *meet, struct psd_error *err);
void psi_shm_meet_close(struct psi_shm_meet *meet);

/* Sends an introduction; its descriptors stay the caller's. An error: nobody of that name is on
 * this host and in our network namespace, or it does not take it.
 * ours: (optional) sent from there, if that is possible: a daemon may not be allowed another one. */
psd_status psi_shm_meet_introduce(const struct psi_shm_meet *ours,
                                  const uint8_t name[PSI_SHM_MEET_NAME_BYTES],
                                  const struct psi_introduction *introduction,
                                  struct psd_error *err);

/* Takes in what has come: the kernel keeps few datagrams,
 * and whoever finds it full stays with tcp. */
void psi_shm_meet_listen(struct psi_shm_meet *meet);

/* The one with that token, if it came and was sent by a process of our user. */
bool psi_shm_meet_take(struct psi_shm_meet *meet, const uint8_t token[PSI_SHM_MEET_TOKEN_BYTES],
                       struct psi_introduction *introduction_p);

void psi_introduction_close(struct psi_introduction *introduction);

#endif
