/*
 * descriptors.c - messages over unix sockets, with descriptors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/shm/descriptors.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fail.h"

int
psi_unix_send(int fd, const struct psi_unix_message *message, const struct sockaddr *to,
              socklen_t to_bytes)
{
    struct iovec iov = {.iov_base = message->bytes, .iov_len = message->size};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(PSI_DESCRIPTORS_MAX * sizeof(int))];
    } control;
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    const size_t fd_bytes = message->fd_count * sizeof(int);
    ssize_t sent;

    psi_assert(message->fd_count <= PSI_DESCRIPTORS_MAX);
    if (to != NULL) {
        header.msg_name = (void *)(uintptr_t)to;
        header.msg_namelen = to_bytes;
    }
    if (message->fd_count > 0) {
        struct cmsghdr *item;

        memset(&control, 0, sizeof(control));
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(fd_bytes);
        item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(fd_bytes);
        memcpy(CMSG_DATA(item), message->fds, fd_bytes);
    }
    do {
        sent = sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

/* Keeps what there is room for; the rest must not stay open. */
static bool
take(struct psi_unix_message *message, struct msghdr *header)
{
    bool all = (header->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;

    for (struct cmsghdr *item = CMSG_FIRSTHDR(header); item != NULL;
         item = CMSG_NXTHDR(header, item)) {
        if (item->cmsg_level != SOL_SOCKET) {
            continue;
        }
        if (item->cmsg_type == SCM_CREDENTIALS) {
            struct ucred sender;

            memcpy(&sender, CMSG_DATA(item), sizeof(sender));
            message->uid = sender.uid;
        } else if (item->cmsg_type == SCM_RIGHTS) {
            const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);

            for (size_t i = 0; i < count; i++) {
                int fd;

                memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
                if (message->fd_count < PSI_DESCRIPTORS_MAX) {
                    message->fds[message->fd_count++] = fd;
                } else {
                    close(fd);
                    all = false;
                }
            }
        }
    }
    return all;
}

int
psi_unix_receive(int fd, struct psi_unix_message *message)
{
    struct iovec iov = {.iov_base = message->bytes, .iov_len = message->size};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE((PSI_DESCRIPTORS_MAX + 1) * sizeof(int)) +
                   CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t got;

    do {
        got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return -1;
    }
    message->size = (size_t)got;
    message->fd_count = 0;
    message->uid = (uid_t)-1;
    if (got == 0 && header.msg_controllen == 0) {
        return 0;
    }
    if (!take(message, &header)) {
        psi_unix_close(message);
        message->size = 0;
    }
    return 1;
}

void
psi_unix_close(struct psi_unix_message *message)
{
    for (unsigned i = 0; i < message->fd_count; i++) {
        close(message->fds[i]);
    }
    message->fd_count = 0;
}
