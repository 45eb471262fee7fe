/*
 * shm_hand.c - one end of a connection through shared memory, worked by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/stream/shm_hand.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/shm/descriptors.h"

enum { PATIENCE_MS = 10000, FDS_MAX = 16 };

static void
begin(struct hand *hand)
{
    memset(hand, 0, sizeof(*hand));
    hand->stream_fd = -1;
    hand->socket_fd = -1;
}

void
hand_connect(struct hand *hand, const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    unsigned port;

    begin(hand);
    assert_int_equal(sscanf(address, "tcp://127.0.0.1:%u", &port), 1);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)port);
    hand->stream_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(hand->stream_fd >= 0);
    assert_int_equal(connect(hand->stream_fd, (const struct sockaddr *)&to, sizeof(to)), 0);
}

static bool
is_readable(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};

    return poll(&polled, 1, PATIENCE_MS) == 1;
}

void
hand_accept(struct hand *hand, int listen_fd)
{
    begin(hand);
    assert_true(is_readable(listen_fd));
    hand->stream_fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(hand->stream_fd >= 0);
}

static void
close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void
hand_close(struct hand *hand)
{
    close_fd(&hand->stream_fd);
    close_fd(&hand->socket_fd);
    psi_segment_destroy(&hand->mine);
    psi_segment_destroy(&hand->bell);
    psi_segment_destroy(&hand->theirs);
    psi_segment_destroy(&hand->their_bell);
}

/* ---- Over the stream ---- */

void
hand_send(struct hand *hand, const void *bytes, size_t count)
{
    assert_int_equal(send(hand->stream_fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

void
hand_say_word(struct hand *hand, uint8_t kind, const struct psi_shm_word *word)
{
    struct psi_shm_word said = *word;

    memcpy(said.magic, PSI_SHM_WORD_MAGIC, sizeof(said.magic));
    said.kind = kind;
    hand_send(hand, &said, sizeof(said));
}

void
hand_say(struct hand *hand, uint8_t kind)
{
    hand_say_word(hand, kind, &(struct psi_shm_word){0});
}

bool
hand_hear(struct hand *hand, struct psi_shm_word *word_p)
{
    size_t here = 0;

    while (here < sizeof(*word_p)) {
        ssize_t got;

        assert_true(is_readable(hand->stream_fd));
        got = recv(hand->stream_fd, (uint8_t *)word_p + here, sizeof(*word_p) - here, 0);
        if (got <= 0) {
            return false;
        }
        here += (size_t)got;
    }
    return true;
}

/* ---- Going over ---- */

void
hand_ask(struct hand *hand, struct psi_shm_word *offer_p)
{
    hand_say(hand, PSI_SHM_ASK);
    assert_true(hand_hear(hand, offer_p));
    assert_int_equal(offer_p->kind, PSI_SHM_OFFER);
}

void
hand_make(struct hand *hand)
{
    assert_int_equal(psi_segment_create(&hand->mine, sizeof(struct psi_ring_side), NULL), PSD_OK);
    assert_int_equal(psi_segment_create(&hand->bell, sizeof(struct psi_bell), NULL), PSD_OK);
}

void
hand_introduce(struct hand *hand, const struct psi_shm_word *offer, int socket_fd, int ring_fd,
               int bell_fd)
{
    struct psi_introduction introduction = {
        .socket_fd = socket_fd, .ring_fd = ring_fd, .bell_fd = bell_fd};
    int pair[2] = {-1, -1};

    if (socket_fd < 0) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        introduction.socket_fd = pair[1];
    }
    memcpy(introduction.token, offer->token, sizeof(introduction.token));
    assert_int_equal(psi_shm_meet_introduce(NULL, offer->name, &introduction, NULL), PSD_OK);
    close_fd(&pair[1]);
    hand->socket_fd = pair[0];
}

static void
take_answer(struct hand *hand)
{
    uint8_t byte;
    struct psi_unix_message answer = {.bytes = &byte, .size = 1};

    assert_int_equal(psi_unix_receive(hand->socket_fd, &answer), 1);
    assert_int_equal(answer.fd_count, 2);
    assert_int_equal(
        psi_segment_attach(&hand->theirs, answer.fds[0], sizeof(struct psi_ring_side), NULL),
        PSD_OK);
    assert_int_equal(
        psi_segment_attach(&hand->their_bell, answer.fds[1], sizeof(struct psi_bell), NULL),
        PSD_OK);
    psi_ring_init(&hand->ring, (struct psi_ring_side *)(void *)hand->mine.base,
                  (const struct psi_ring_side *)(const void *)hand->theirs.base);
}

void
hand_share(struct hand *hand, const char *address)
{
    struct psi_shm_word offer;
    struct psi_shm_word ready;

    hand_connect(hand, address);
    hand_ask(hand, &offer);
    hand_make(hand);
    hand_introduce(hand, &offer, -1, hand->mine.fd, hand->bell.fd);
    hand_say(hand, PSI_SHM_TAKEN);
    assert_true(hand_hear(hand, &ready));
    assert_int_equal(ready.kind, PSI_SHM_READY);
    take_answer(hand);
    close_fd(&hand->stream_fd);
}

/* ---- Through shared memory ---- */

void
hand_message(struct hand *hand, const void *bytes, size_t count, int fd, unsigned fd_count)
{
    uint8_t copy[256];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = copy, .iov_len = count};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    assert_true(count <= sizeof(copy) && fd_count <= FDS_MAX);
    memcpy(copy, bytes, count);
    if (fd_count > 0) {
        struct cmsghdr *item;

        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        for (unsigned i = 0; i < fd_count; i++) {
            memcpy(CMSG_DATA(item) + i * sizeof(int), &fd, sizeof(int));
        }
    }
    assert_int_equal(sendmsg(hand->socket_fd, &header, MSG_NOSIGNAL), (ssize_t)count);
}

void
hand_announce(struct hand *hand, uint32_t number, int fd, uint64_t bytes)
{
    const struct psi_shm_announcement text = {.segment = number, .bytes = bytes};

    hand_message(hand, &text, sizeof(text), fd, 1);
}

/* Whoever sleeps is woken in any case. */
void
hand_put(struct hand *hand, const struct psi_shm_record *record, const void *more,
         size_t more_bytes)
{
    psd_status status;
    uint8_t *room = psi_ring_reserve(&hand->ring, sizeof(*record) + more_bytes, &status);

    assert_int_equal(status, PSD_OK);
    assert_non_null(room);
    memcpy(room, record, sizeof(*record));
    if (more_bytes > 0) {
        memcpy(room + sizeof(*record), more, more_bytes);
    }
    psi_ring_commit(&hand->ring, true);
    (void)send(hand->socket_fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
expect_end(int fd)
{
    for (;;) {
        uint8_t bytes[4096];
        struct psi_unix_message message = {.bytes = bytes, .size = sizeof(bytes)};
        int got;

        assert_true(is_readable(fd));
        got = psi_unix_receive(fd, &message);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            return;
        }
        psi_unix_close(&message);
    }
}

void
hand_expect_end(struct hand *hand)
{
    expect_end(hand->socket_fd);
}

void
hand_expect_stream_end(struct hand *hand)
{
    expect_end(hand->stream_fd);
}

unsigned
hand_drain(struct hand *hand)
{
    unsigned count = 0;

    for (;;) {
        uint8_t bytes[256];
        struct psi_unix_message message = {.bytes = bytes, .size = sizeof(bytes)};

        if (psi_unix_receive(hand->socket_fd, &message) != 1) {
            return count;
        }
        psi_unix_close(&message);
        count++;
    }
}
