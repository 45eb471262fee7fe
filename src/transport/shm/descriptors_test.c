/*
 * descriptors_test.c - messages with descriptors: none is lost, and none stays open by mistake.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/shm/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROOM = 16, MANY = 250 };

static unsigned
count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static void
open_pair(int type, int pair[2])
{
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
}

static void
close_pair(const int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

/* Sends what psi_unix_send() would not: any number of descriptors, any number of bytes. */
static void
send_raw(int fd, size_t bytes, unsigned fd_count)
{
    static uint8_t text[4096];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MANY * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = text, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        struct cmsghdr *item;

        memset(&control, 0, sizeof(control));
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        for (unsigned i = 0; i < fd_count; i++) {
            const int one = STDIN_FILENO;

            memcpy(CMSG_DATA(item) + i * sizeof(int), &one, sizeof(int));
        }
    }
    assert_int_equal(sendmsg(fd, &header, MSG_DONTWAIT), (ssize_t)bytes);
}

/* Whether two descriptors are the same file. */
static bool
are_same(int a, int b)
{
    const off_t before = lseek(b, 0, SEEK_CUR);
    const off_t moved = lseek(a, 7, SEEK_CUR);

    return moved == before + 7 && lseek(b, 0, SEEK_CUR) == moved;
}

/* If this fails, bytes or descriptors get lost, mixed up, or into the programs a worker starts. */
static void
test_bytes_and_descriptors_arrive(void **state)
{
    const unsigned before = count_descriptors();
    int pair[2];

    (void)state;
    open_pair(SOCK_SEQPACKET, pair);
    for (unsigned count = 0; count <= PSI_DESCRIPTORS_MAX; count++) {
        uint8_t sent[ROOM] = "hello";
        uint8_t got[ROOM] = {0};
        struct psi_unix_message out = {.bytes = sent, .size = 5 + count, .fd_count = count};
        struct psi_unix_message in = {.bytes = got, .size = sizeof(got)};

        for (unsigned i = 0; i < count; i++) {
            out.fds[i] = open("/etc/passwd", O_RDONLY);
            assert_true(out.fds[i] >= 0);
        }
        assert_int_equal(psi_unix_send(pair[0], &out, NULL, 0), 0);
        assert_int_equal(psi_unix_receive(pair[1], &in), 1);
        assert_int_equal(in.size, 5 + count);
        assert_memory_equal(got, sent, 5 + count);
        assert_int_equal(in.fd_count, count);
        for (unsigned i = 0; i < count; i++) {
            assert_true(are_same(in.fds[i], out.fds[i]));
            assert_int_equal(fcntl(in.fds[i], F_GETFD), FD_CLOEXEC);
        }
        psi_unix_close(&in);
        assert_int_equal(in.fd_count, 0);
        psi_unix_close(&out); /* still ours after sending */
    }
    close_pair(pair);
    assert_int_equal(count_descriptors(), before);
}

/* If this fails, a reader blocks, or does not learn that the peer is gone, or learns it before it
 * has heard everything. */
static void
test_nothing_yet_and_the_end(void **state)
{
    uint8_t byte = 0;
    struct psi_unix_message in = {.bytes = &byte, .size = 1};
    int pair[2];

    (void)state;
    open_pair(SOCK_SEQPACKET, pair);
    assert_int_equal(psi_unix_receive(pair[1], &in), -1);
    assert_int_equal(errno, EAGAIN);
    send_raw(pair[0], 1, 1);
    close(pair[0]);
    in.size = 1;
    assert_int_equal(psi_unix_receive(pair[1], &in), 1);
    assert_int_equal(in.fd_count, 1);
    psi_unix_close(&in);
    assert_int_equal(psi_unix_receive(pair[1], &in), 0);
    assert_int_equal(psi_unix_send(pair[1], &in, NULL, 0), -1); /* and no SIGPIPE */
    assert_int_equal(errno, EPIPE);
    close(pair[1]);
}

/* If this fails, a peer that does not read stops the loop of the one who sends. */
static void
test_full_is_said(void **state)
{
    uint8_t byte = 0;
    const struct psi_unix_message out = {.bytes = &byte, .size = 1};
    unsigned sent = 0;
    int pair[2];

    (void)state;
    open_pair(SOCK_SEQPACKET, pair);
    while (psi_unix_send(pair[0], &out, NULL, 0) == 0) {
        assert_true(++sent < 100000);
    }
    assert_int_equal(errno, EAGAIN);
    assert_true(sent > 0);
    close_pair(pair);
}

/* If this fails, a peer can fill our table of descriptors, or keep a reader busy for ever with what
 * makes no sense. */
static void
test_too_much_arrives_empty(void **state)
{
    static const struct {
        size_t bytes;
        unsigned fds;
    } lies[] = {{1, 4}, {1, 5}, {1, 20}, {1, MANY}, {ROOM + 1, 0}, {ROOM + 1, 1}, {4096, 3}};
    uint8_t got[ROOM];
    int pair[2];
    unsigned before;

    (void)state;
    open_pair(SOCK_SEQPACKET, pair);
    before = count_descriptors();
    for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct psi_unix_message in = {.bytes = got, .size = sizeof(got)};

        send_raw(pair[0], lies[i].bytes, lies[i].fds);
        assert_int_equal(psi_unix_receive(pair[1], &in), 1);
        assert_int_equal(in.size, 0);
        assert_int_equal(in.fd_count, 0);
        assert_int_equal(count_descriptors(), before);
        send_raw(pair[0], 2, 2);
        in.size = sizeof(got);
        assert_int_equal(psi_unix_receive(pair[1], &in), 1);
        assert_int_equal(in.size, 2);
        assert_int_equal(in.fd_count, 2);
        psi_unix_close(&in);
    }
    close_pair(pair);
}

/* If this fails, the descriptors of a message without bytes stay open: whoever can send a datagram
 * can use up all that we have. */
static void
test_descriptors_without_bytes(void **state)
{
    const int on = 1;
    uint8_t got[ROOM];
    int pair[2];
    unsigned before;

    (void)state;
    open_pair(SOCK_DGRAM, pair);
    assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
    before = count_descriptors();
    for (unsigned fds = 0; fds <= 5; fds++) {
        struct psi_unix_message in = {.bytes = got, .size = sizeof(got)};

        send_raw(pair[0], 0, fds);
        assert_int_equal(psi_unix_receive(pair[1], &in), 1);
        assert_int_equal(in.size, 0);
        psi_unix_close(&in);
        assert_int_equal(count_descriptors(), before);
    }
    close_pair(pair);
}

/* If this fails, nobody knows whose message it is. */
static void
test_sender_is_known(void **state)
{
    const int on = 1;
    uint8_t got[ROOM];
    struct psi_unix_message in = {.bytes = got, .size = sizeof(got)};
    int pair[2];

    (void)state;
    open_pair(SOCK_DGRAM, pair);
    send_raw(pair[0], 1, 0);
    assert_int_equal(psi_unix_receive(pair[1], &in), 1);
    assert_true(in.uid == (uid_t)-1); /* nobody asked */
    assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
    send_raw(pair[0], 1, 3);
    in.size = sizeof(got);
    assert_int_equal(psi_unix_receive(pair[1], &in), 1);
    assert_true(in.uid == getuid());
    assert_int_equal(in.fd_count, 3);
    psi_unix_close(&in);
    close_pair(pair);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_and_descriptors_arrive),
        cmocka_unit_test(test_nothing_yet_and_the_end),
        cmocka_unit_test(test_full_is_said),
        cmocka_unit_test(test_too_much_arrives_empty),
        cmocka_unit_test(test_descriptors_without_bytes),
        cmocka_unit_test(test_sender_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
