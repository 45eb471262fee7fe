/*
 * link.c - the line between psd_run and its agent.
 *
 * A SOCK_SEQPACKET socket pair: a message arrives whole or not at all, and the end of either side
 * is seen at once by the other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/fail.h"

static int
write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t written = write(fd, bytes, count);

        if (written < 0) {
            return -1;
        }
        bytes += written;
        count -= (size_t)written;
    }
    return 0;
}

/* Returns how many strings were written, or -1. */
static int64_t
write_strings(int fd, char *const *strings)
{
    int64_t count = 0;

    for (; strings[count] != NULL; count++) {
        if (write_all(fd, strings[count], strlen(strings[count]) + 1) != 0) {
            return -1;
        }
    }
    return count;
}

int
link_pack(char *const *argv, char *const *environment, struct link_request *request)
{
    const int fd = memfd_create("psd_run", MFD_CLOEXEC);
    int64_t argc;
    int64_t envc;

    if (fd < 0) {
        return -1;
    }
    argc = write_strings(fd, argv);
    envc = argc < 0 ? -1 : write_strings(fd, environment);
    if (envc < 0) {
        close(fd);
        return -1;
    }
    request->argc = (uint32_t)argc;
    request->envc = (uint32_t)envc;
    return fd;
}

/* Points the strings at the block, a NULL behind each of the two lists. False: it ends too early.
 */
static int
point_strings(char **strings, const struct link_request *request, char *block, size_t bytes)
{
    const char *const end = block + bytes;
    char *at = block;

    for (uint32_t i = 0; i < request->argc + request->envc; i++) {
        char *stop = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

        if (stop == NULL) {
            return 0;
        }
        strings[i < request->argc ? i : i + 1] = at;
        at = stop + 1;
    }
    return 1;
}

psd_status
link_unpack(int block_fd, const struct link_request *request, char ***strings_p,
            struct psd_error *err)
{
    const size_t pointers = ((size_t)request->argc + request->envc + 2) * sizeof(char *);
    struct stat info;
    char **strings;
    char *block;

    if (request->argc == 0 || fstat(block_fd, &info) != 0) {
        return psi_fail(err, PSD_ERR_INTERNAL, "agent: a start without a program");
    }
    strings = calloc(1, pointers + (size_t)info.st_size);
    if (strings == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "agent: no %zu bytes", pointers);
    }
    block = (char *)strings + pointers;
    if (pread(block_fd, block, (size_t)info.st_size, 0) != (ssize_t)info.st_size ||
        !point_strings(strings, request, block, (size_t)info.st_size)) {
        free(strings);
        return psi_fail(err, PSD_ERR_INTERNAL, "agent: cannot read the arguments");
    }
    *strings_p = strings;
    return PSD_OK;
}

/* Waits for room: the messages are few, and the other side always reads. */
static int
send_message(int fd, const struct msghdr *message)
{
    for (;;) {
        if (sendmsg(fd, message, MSG_NOSIGNAL) >= 0) {
            return 0;
        }
        if (errno == EAGAIN) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            return -1;
        }
    }
}

/* Room for the descriptors of one message, aligned as the kernel wants it. */
union control {
    char bytes[CMSG_SPACE(sizeof(int) * LINK_FDS)];
    struct cmsghdr header;
};

int
link_send_request(int fd, const struct link_request *request, const int *fds)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)request, .iov_len = sizeof(*request)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union control control = {.bytes = {0}};
    size_t count = 0;

    while (fds != NULL && count < LINK_FDS && fds[count] >= 0) {
        count++;
    }
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * count);
    }
    return send_message(fd, &message);
}

int
link_send_report(int fd, const struct link_report *report)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)report, .iov_len = sizeof(*report)};
    const struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    return send_message(fd, &message);
}

static int
next_message(int fd, struct msghdr *message, size_t bytes_want)
{
    const ssize_t bytes = recvmsg(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (bytes < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }
    return (size_t)bytes == bytes_want ? 1 : -1;
}

int
link_next_request(int fd, struct link_request *request_p, int fds_p[LINK_FDS])
{
    struct iovec part = {.iov_base = request_p, .iov_len = sizeof(*request_p)};
    union control control = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    const int result = next_message(fd, &message, sizeof(*request_p));
    const struct cmsghdr *header = result == 1 ? CMSG_FIRSTHDR(&message) : NULL;

    for (size_t i = 0; i < LINK_FDS; i++) {
        fds_p[i] = -1;
    }
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        memcpy(fds_p, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    }
    return result;
}

int
link_next_report(int fd, struct link_report *report_p)
{
    struct iovec part = {.iov_base = report_p, .iov_len = sizeof(*report_p)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    return next_message(fd, &message, sizeof(*report_p));
}
