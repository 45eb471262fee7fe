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
            const uint8_t name[PSI_HATCH_NAME_BYTES])
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, PSI_HATCH_NAME_BYTES); /* a leading NUL: no file */
    *bytes_p = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + PSI_HATCH_NAME_BYTES);
}

/* "psd-" and 120 random bits. */
static bool
choose_name(uint8_t name_p[PSI_HATCH_NAME_BYTES])
{
    static const char letters[64] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    static const char prefix[4] = "psd-";

    if (getrandom(name_p, PSI_HATCH_NAME_BYTES, 0) != PSI_HATCH_NAME_BYTES) {
        return false;
    }
    for (unsigned i = 0; i < PSI_HATCH_NAME_BYTES; i++) {
        name_p[i] = (uint8_t)(i < sizeof(prefix) ? prefix[i] : letters[name_p[i] % 64]);
    }
    return true;
}

psd_status
psi_hatch_open(struct psi_hatch *hatch, struct psd_error *err)
{
    const int on = 1;
    struct sockaddr_un address;
    socklen_t bytes;
    psd_status status;

    hatch->waiting_count = 0;
    hatch->uid = geteuid();
    hatch->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (hatch->fd < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "open a unix socket");
    }
    if (choose_name(hatch->name)) {
        set_address(&address, &bytes, hatch->name);
        if (setsockopt(hatch->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
            bind(hatch->fd, (const struct sockaddr *)&address, bytes) == 0) {
            return PSD_OK;
        }
    }
    status = psi_fail_errno(err, PSD_ERR_NO_MEMORY, "bind a unix socket");
    psi_hatch_close(hatch);
    return status;
}

void
psi_hatch_close(struct psi_hatch *hatch)
{
    while (hatch->waiting_count > 0) {
        psi_introduction_close(&hatch->waiting[--hatch->waiting_count]);
    }
    if (hatch->fd >= 0) {
        close(hatch->fd);
        hatch->fd = -1;
    }
}

psd_status
psi_hatch_introduce(const uint8_t name[PSI_HATCH_NAME_BYTES],
                    const struct psi_introduction *introduction, struct psd_error *err)
{
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint8_t token[PSI_HATCH_TOKEN_BYTES];
    const struct psi_unix_message message = {
        .bytes = token,
        .size = sizeof(token),
        .fds = {introduction->socket_fd, introduction->ring_fd, introduction->bell_fd},
        .fd_count = 3,
    };
    struct sockaddr_un address;
    socklen_t bytes;
    psd_status status = PSD_OK;

    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "open a unix socket");
    }
    memcpy(token, introduction->token, sizeof(token));
    set_address(&address, &bytes, name);
    if (psi_unix_send(fd, &message, (const struct sockaddr *)&address, bytes) != 0) {
        status = psi_fail_errno(err, PSD_ERR_PEER_LOST, "introduce ourselves on this host");
    }
    close(fd);
    return status;
}

static void
keep(struct psi_hatch *hatch, const struct psi_introduction *introduction)
{
    if (hatch->waiting_count == PSI_HATCH_WAITING_MAX) {
        psi_introduction_close(&hatch->waiting[0]);
        hatch->waiting_count--;
        memmove(&hatch->waiting[0], &hatch->waiting[1],
                hatch->waiting_count * sizeof(hatch->waiting[0]));
    }
    hatch->waiting[hatch->waiting_count++] = *introduction;
}

void
psi_hatch_listen(struct psi_hatch *hatch)
{
    /* Not for ever: whoever is on this host could go on sending. */
    for (unsigned i = 0; i < 2 * PSI_HATCH_WAITING_MAX; i++) {
        struct psi_introduction introduction;
        struct psi_unix_message message = {.bytes = introduction.token,
                                           .size = sizeof(introduction.token)};

        if (psi_unix_receive(hatch->fd, &message) <= 0) {
            return;
        }
        if (message.size != sizeof(introduction.token) || message.fd_count != 3 ||
            message.uid != hatch->uid) {
            psi_unix_close(&message);
            continue;
        }
        introduction.socket_fd = message.fds[0];
        introduction.ring_fd = message.fds[1];
        introduction.bell_fd = message.fds[2];
        keep(hatch, &introduction);
    }
}

/* In a time that does not tell how much of it is right. */
static bool
is_same(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;

    for (unsigned i = 0; i < PSI_HATCH_TOKEN_BYTES; i++) {
        difference |= (unsigned)(a[i] ^ b[i]);
    }
    return difference == 0;
}

bool
psi_hatch_take(struct psi_hatch *hatch, const uint8_t token[PSI_HATCH_TOKEN_BYTES],
               struct psi_introduction *introduction_p)
{
    psi_hatch_listen(hatch);
    for (uint32_t i = 0; i < hatch->waiting_count; i++) {
        if (is_same(hatch->waiting[i].token, token)) {
            *introduction_p = hatch->waiting[i];
            hatch->waiting_count--;
            memmove(&hatch->waiting[i], &hatch->waiting[i + 1],
                    (hatch->waiting_count - i) * sizeof(hatch->waiting[0]));
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
