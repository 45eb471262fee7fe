/*
 * shm_meet.c - where peers on this host introduce themselves.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/shm/shm_meet.h"

#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fail.h"
#include "transport/shm/descriptors.h"

static void
set_address(struct sockaddr_un *address, socklen_t *bytes_p,
            const uint8_t name[PSI_SHM_MEET_NAME_BYTES])
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, PSI_SHM_MEET_NAME_BYTES); /* a leading NUL: no file */
    *bytes_p = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + PSI_SHM_MEET_NAME_BYTES);
}

/* "psd-" and 120 random bits. */
static bool
choose_name(uint8_t name_p[PSI_SHM_MEET_NAME_BYTES])
{
    static const char letters[64] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    static const char prefix[4] = "psd-";

    if (getrandom(name_p, PSI_SHM_MEET_NAME_BYTES, 0) != PSI_SHM_MEET_NAME_BYTES) {
        return false;
    }
    for (unsigned i = 0; i < PSI_SHM_MEET_NAME_BYTES; i++) {
        name_p[i] = (uint8_t)(i < sizeof(prefix) ? prefix[i] : letters[name_p[i] % 64]);
    }
    return true;
}

psd_status
psi_shm_meet_open(struct psi_shm_meet *meet, struct psd_error *err)
{
    const int on = 1;
    struct sockaddr_un address;
    socklen_t bytes;
    psd_status status;

    meet->waiting_count = 0;
    meet->uid = geteuid();
    meet->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (meet->fd < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "open a unix socket");
    }
    if (choose_name(meet->name)) {
        set_address(&address, &bytes, meet->name);
        if (setsockopt(meet->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
            bind(meet->fd, (const struct sockaddr *)&address, bytes) == 0) {
            return PSD_OK;
        }
    }
    status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "bind a unix socket");
    psi_shm_meet_close(meet);
    return status;
}

void
psi_shm_meet_close(struct psi_shm_meet *meet)
{
    while (meet->waiting_count > 0) {
        psi_introduction_close(&meet->waiting[--meet->waiting_count]);
    }
    if (meet->fd >= 0) {
        close(meet->fd);
        meet->fd = -1;
    }
}

static psd_status
send_from(int fd, const uint8_t name[PSI_SHM_MEET_NAME_BYTES],
          const struct psi_introduction *introduction, struct psd_error *err)
{
    uint8_t token[PSI_SHM_MEET_TOKEN_BYTES];
    const struct psi_unix_message message = {
        .bytes = token,
        .size = sizeof(token),
        .fds = {introduction->socket_fd, introduction->ring_fd, introduction->bell_fd},
        .fd_count = 3,
    };
    struct sockaddr_un address;
    socklen_t bytes;

    memcpy(token, introduction->token, sizeof(token));
    set_address(&address, &bytes, name);
    if (psi_unix_send(fd, &message, (const struct sockaddr *)&address, bytes) != 0) {
        return psi_fail_errno(err, PSD_ERR_PEER_LOST, "introduce ourselves on this host");
    }
    return PSD_OK;
}

/* A socket of its own waits until there is room; a hardened daemon may make none. */
psd_status
psi_shm_meet_introduce(const struct psi_shm_meet *ours, const uint8_t name[PSI_SHM_MEET_NAME_BYTES],
                       const struct psi_introduction *introduction, struct psd_error *err)
{
    psd_status status;
    int fd;

    if (ours != NULL && ours->fd >= 0 && send_from(ours->fd, name, introduction, NULL) == PSD_OK) {
        return PSD_OK;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "open a unix socket");
    }
    status = send_from(fd, name, introduction, err);
    close(fd);
    return status;
}

static void
keep(struct psi_shm_meet *meet, const struct psi_introduction *introduction)
{
    if (meet->waiting_count == PSI_SHM_MEET_WAITING_MAX) {
        psi_introduction_close(&meet->waiting[0]);
        meet->waiting_count--;
        memmove(&meet->waiting[0], &meet->waiting[1],
                meet->waiting_count * sizeof(meet->waiting[0]));
    }
    meet->waiting[meet->waiting_count++] = *introduction;
}

void
psi_shm_meet_listen(struct psi_shm_meet *meet)
{
    /* Not for ever: whoever is on this host could go on sending. */
    for (unsigned i = 0; i < 2 * PSI_SHM_MEET_WAITING_MAX; i++) {
        struct psi_introduction introduction;
        struct psi_unix_message message = {.bytes = introduction.token,
                                           .size = sizeof(introduction.token)};

        if (psi_unix_receive(meet->fd, &message) <= 0) {
            return;
        }
        if (message.size != sizeof(introduction.token) || message.fd_count != 3 ||
            message.uid != meet->uid) {
            psi_unix_close(&message);
            continue;
        }
        introduction.socket_fd = message.fds[0];
        introduction.ring_fd = message.fds[1];
        introduction.bell_fd = message.fds[2];
        keep(meet, &introduction);
    }
}

/* In a time that does not tell how much of it is right. */
static bool
is_same(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;

    for (unsigned i = 0; i < PSI_SHM_MEET_TOKEN_BYTES; i++) {
        difference |= (unsigned)(a[i] ^ b[i]);
    }
    return difference == 0;
}

bool
psi_shm_meet_take(struct psi_shm_meet *meet, const uint8_t token[PSI_SHM_MEET_TOKEN_BYTES],
                  struct psi_introduction *introduction_p)
{
    psi_shm_meet_listen(meet);
    for (uint32_t i = 0; i < meet->waiting_count; i++) {
        if (is_same(meet->waiting[i].token, token)) {
            *introduction_p = meet->waiting[i];
            meet->waiting_count--;
            memmove(&meet->waiting[i], &meet->waiting[i + 1],
                    (meet->waiting_count - i) * sizeof(meet->waiting[0]));
            return true;
        }
    }
    return false;
}

void
psi_introduction_close(struct psi_introduction *introduction)
{
    close(introduction->socket_fd);
    close(introduction->ring_fd);
    close(introduction->bell_fd);
}
