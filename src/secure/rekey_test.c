/*
 * rekey_test.c - a key of TLS records is replaced before it has been used too often.
 *
 * tls_records.c is part of this file, so that "too often" comes soon.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define PSI_TLS_RECORDS_MAX 8
#include "tls_records.c"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "secure/tls.h"

enum { BYTES = 4 << 20, KEY_UPDATE = 24 };

/* One end of a connection, and what OpenSSL said and heard at it. */
struct end {
    struct psi_tls *tls;
    struct session *session;
    int fd;
    unsigned updates_sent;
    unsigned updates_heard;
    uint64_t records;     /* sent since the last update, and ... */
    uint64_t records_max; /* ... the most of them */
};

static void
watch(int sent, int version, int kind, const void *bytes, size_t count, SSL *ssl, void *argument)
{
    struct end *end = argument;

    (void)version;
    (void)ssl;
    if (kind == SSL3_RT_HANDSHAKE && count > 0 && *(const uint8_t *)bytes == KEY_UPDATE) {
        end->updates_sent += sent != 0;
        end->updates_heard += sent == 0;
        if (sent != 0) {
            end->records = 0;
        }
    } else if (kind == SSL3_RT_HEADER && sent != 0) {
        end->records++;
        end->records_max = end->records > end->records_max ? end->records : end->records_max;
    }
}

static void
meet(struct end ends[2])
{
    uint8_t said[2][PSI_AUTH_BYTES_MAX];
    size_t bytes[2] = {0, 0};
    psd_status status[2] = {PSD_PENDING, PSD_PENDING};

    for (unsigned turn = 0; status[0] == PSD_PENDING || status[1] == PSD_PENDING; turn ^= 1) {
        const uint8_t *heard = said[turn ^ 1];
        size_t left = bytes[turn ^ 1];

        bytes[turn] = 0;
        while (status[turn] == PSD_PENDING) {
            const size_t wants = psi_tls_auth.wants(ends[turn].session);
            size_t used = 0;
            size_t made = 0;

            status[turn] = psi_tls_auth.step(ends[turn].session, heard, left < wants ? left : wants,
                                             &used, said[turn] + bytes[turn],
                                             PSI_AUTH_BYTES_MAX - bytes[turn], &made, NULL);
            heard += used;
            left -= used;
            bytes[turn] += made;
            if (left == 0) {
                break;
            }
        }
        assert_true(status[turn] == PSD_OK || status[turn] == PSD_PENDING);
    }
}

struct line {
    struct psi_secret *secret;
    struct end ends[2];
};

/* Two ends of a TCP connection. */
static void
connect_pair(int fds[2])
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(here);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&here, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&here, &bytes), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&here, bytes), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    close(listener);
}

static int
open_line(void **state)
{
    struct line *line = calloc(1, sizeof(*line));
    int fds[2];

    assert_non_null(line);
    assert_int_equal(psi_secret_create(&line->secret, NULL), PSD_OK);
    connect_pair(fds);
    for (unsigned i = 0; i < 2; i++) {
        const struct psi_auth_args args = {.connecting = i == 0, .identity = "worker:3 master"};
        struct end *end = &line->ends[i];

        assert_int_equal(psi_tls_create(line->secret, i == 0 ? NULL : "master", &end->tls, NULL),
                         PSD_OK);
        end->session = psi_tls_auth.create(end->tls, &args);
        end->fd = fds[i];
    }
    meet(line->ends);
    for (unsigned i = 0; i < 2; i++) {
        SSL_set_msg_callback(line->ends[i].session->ssl, watch);
        SSL_set_msg_callback_arg(line->ends[i].session->ssl, &line->ends[i]);
    }
    *state = line;
    return 0;
}

static int
close_line(void **state)
{
    struct line *line = *state;

    for (unsigned i = 0; i < 2; i++) {
        psi_tls_auth.destroy(line->ends[i].session);
        psi_tls_destroy(line->ends[i].tls);
        close(line->ends[i].fd);
    }
    psi_secret_destroy(line->secret);
    free(line);
    return 0;
}

static uint8_t
byte_at(unsigned who, size_t at)
{
    return (uint8_t)(at * 131 + (at >> 8) * 7 + who);
}

/* As much as the socket takes of the rest. */
static void
say_some(struct end *end, const uint8_t *bytes, size_t *said)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)(bytes + *said), .iov_len = BYTES - *said};
    const ssize_t sent = psi_tls_auth.send(end->session, end->fd, &iov, 1);

    if (sent < 0) {
        assert_int_equal(errno, EAGAIN);
    } else {
        *said += (size_t)sent;
    }
}

static void
hear_some(struct end *end, uint8_t *bytes, size_t most, size_t *heard)
{
    const size_t left = BYTES - *heard;
    struct iovec iov = {.iov_base = bytes + *heard, .iov_len = left < most ? left : most};
    ssize_t got;

    if (left == 0) {
        return;
    }
    got = psi_tls_auth.receive(end->session, end->fd, &iov, 1);
    if (got < 0) {
        assert_int_equal(errno, EAGAIN);
    } else {
        *heard += (size_t)got;
    }
}

/* If this fails, a connection that lives long enough uses a key more often than its cipher allows,
 * or breaks, stalls or loses bytes when the key is replaced. */
static void
test_both_directions_at_once(void **state)
{
    struct line *line = *state;
    uint8_t *say[2];
    uint8_t *hear[2];
    size_t said[2] = {0, 0};
    size_t heard[2] = {0, 0};

    for (unsigned i = 0; i < 2; i++) {
        say[i] = malloc(BYTES);
        hear[i] = calloc(1, BYTES);
        assert_non_null(say[i]);
        assert_non_null(hear[i]);
        for (size_t k = 0; k < BYTES; k++) {
            say[i][k] = byte_at(i, k);
        }
    }
    for (unsigned round = 0; heard[0] < BYTES || heard[1] < BYTES; round++) {
        assert_true(round < 1000000); /* nobody is stuck */
        for (unsigned i = 0; i < 2; i++) {
            if (said[i] < BYTES) {
                say_some(&line->ends[i], say[i], &said[i]);
            }
            hear_some(&line->ends[i ^ 1], hear[i ^ 1], 1 + round * 977 % 60000, &heard[i ^ 1]);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        const struct end *end = &line->ends[i];

        assert_memory_equal(hear[i ^ 1], say[i], BYTES);
        assert_in_range(end->updates_sent, BYTES / RECORD_PLAIN / PSI_TLS_RECORDS_MAX / 2,
                        BYTES / RECORD_PLAIN);
        assert_true(end->records_max <= 2 * PSI_TLS_RECORDS_MAX + 1);
        assert_true(line->ends[i ^ 1].updates_heard >= end->updates_sent - 1);
        print_message("%u keys, at most %llu records with one\n", end->updates_sent + 1,
                      (unsigned long long)end->records_max);
    }
    for (unsigned i = 0; i < 2; i++) {
        free(say[i]);
        free(hear[i]);
    }
}

/* If this fails, small frames are not counted, of which a record holds one. */
static void
test_small_records(void **state)
{
    struct line *line = *state;
    struct end *from = &line->ends[0];
    struct end *to = &line->ends[1];

    for (unsigned i = 0; i < 10 * PSI_TLS_RECORDS_MAX; i++) {
        uint8_t byte = (uint8_t)i;
        struct iovec iov = {.iov_base = &byte, .iov_len = 1};

        assert_int_equal(psi_tls_auth.send(from->session, from->fd, &iov, 1), 1);
        byte = 0;
        assert_int_equal(psi_tls_auth.receive(to->session, to->fd, &iov, 1), 1);
        assert_int_equal(byte, (uint8_t)i);
    }
    assert_int_equal(from->updates_sent, 10);
    assert_int_equal(to->updates_heard, 9); /* the last comes with what is said next */
    assert_int_equal(to->updates_sent, 0);
}

int
main(void)
{
#define REKEY_TEST(function) cmocka_unit_test_setup_teardown(function, open_line, close_line)
    const struct CMUnitTest tests[] = {
        REKEY_TEST(test_both_directions_at_once),
        REKEY_TEST(test_small_records),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
