/*
 * descriptors.h - messages over unix sockets, with descriptors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_SHM_DESCRIPTORS_H
#define PSI_TRANSPORT_SHM_DESCRIPTORS_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { PSI_DESCRIPTORS_MAX = 3 };

struct psi_unix_message {
    void *bytes;
    size_t size; /* to send; to receive: at most; then: how many came */
    int fds[PSI_DESCRIPTORS_MAX];
    unsigned fd_count;
    uid_t uid; /* received, where the socket asks for it (SO_PASSCRED): the sender's */
};

/* Sends one message at once or not at all: 0, or -1 and errno. to may be NULL. The descriptors stay
 * the caller's. */
int psi_unix_send(int fd, const struct psi_unix_message *message, const struct sockaddr *to,
                  socklen_t to_bytes);

/* The next one: 1; 0 when the peer has closed; -1 and errno (EAGAIN: none yet). The descriptors are
 * the caller's; of a message with too many, or cut off, nothing is left: it arrives empty. */
int psi_unix_receive(int fd, struct psi_unix_message *message);

void psi_unix_close(struct psi_unix_message *message); /* its descriptors */

#endif
