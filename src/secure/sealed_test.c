/*
 * sealed_test.c - bytes through TLS records, over real sockets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/tls.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <openssl/err.h>

static const struct psi_auth_ops *const ops = &psi_tls_auth;

/* Two members that have met, and the sockets between them: [0] is the worker's end. */
struct line {
    struct psi_secret *secret;
    struct psi_tls *tls[2];
    void *session[2];
    int fd[2];
};

/* One step of one end; what it says is put into `said`. */
static psd_status
step(void *session, const uint8_t *heard, size_t heard_bytes, uint8_t *said, size_t *said_bytes_p)
{
    psd_status status = PSD_PENDING;

    *said_bytes_p = 0;
    do {
        const size_t wants = ops->wants(session);
        const size_t here = heard_bytes < wants ? heard_bytes : wants;
        size_t used = 0;
        size_t made = 0;

        status = ops->step(session, heard, here, &used, said + *said_bytes_p,
                           PSI_AUTH_BYTES_MAX - *said_bytes_p, &made, NULL);
        heard += used;
        heard_bytes -= used;
        *said_bytes_p += made;
    } while (status == PSD_PENDING && heard_bytes > 0);
    return status;
}

static void
meet(struct line *line)
{
    uint8_t said[2][PSI_AUTH_BYTES_MAX];
    size_t bytes[2] = {0, 0};
    psd_status status[2] = {PSD_PENDING, PSD_PENDING};

    for (unsigned turn = 0; status[0] == PSD_PENDING || status[1] == PSD_PENDING; turn ^= 1) {
        if (status[turn] == PSD_PENDING) {
            status[turn] = step(line->session[turn], said[turn ^ 1], bytes[turn ^ 1], said[turn],
                                &bytes[turn]);
        }
    }
    assert_int_equal(status[0], PSD_OK);
    assert_int_equal(status[1], PSD_OK);
}

static int
open_line(void **state)
{
    struct line *line = calloc(1, sizeof(*line));

    assert_non_null(line);
    assert_int_equal(psi_secret_create(&line->secret, NULL), PSD_OK);
    for (unsigned i = 0; i < 2; i++) {
        const struct psi_auth_args args = {.connecting = i == 0, .identity = "worker:3 server:0.1"};

        assert_int_equal(
            psi_tls_create(line->secret, i == 0 ? NULL : "server:0.1", &line->tls[i], NULL),
            PSD_OK);
        line->session[i] = ops->create(line->tls[i], &args);
        assert_non_null(line->session[i]);
    }
    meet(line);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line->fd), 0);
    *state = line;
    return 0;
}

static int
close_line(void **state)
{
    struct line *line = *state;

    for (unsigned i = 0; i < 2; i++) {
        ops->destroy(line->session[i]);
        psi_tls_destroy(line->tls[i]);
        close(line->fd[i]);
    }
    psi_secret_destroy(line->secret);
    free(line);
    return 0;
}

static ssize_t
say(const struct line *line, unsigned who, const void *bytes, size_t count)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};

    return ops->send(line->session[who], line->fd[who], &iov, 1);
}

static ssize_t
hear(const struct line *line, unsigned who, void *bytes, size_t count)
{
    struct iovec iov = {.iov_base = bytes, .iov_len = count};

    return ops->receive(line->session[who], line->fd[who], &iov, 1);
}

/* If this fails, an error that some other part of the program left in OpenSSL's queue cuts healthy
 * connections. */
static void
test_errors_of_others(void **state)
{
    const struct line *line = *state;
    char heard[16] = "";

    for (unsigned who = 0; who < 2; who++) {
        assert_int_equal(say(line, who, "first", 5), 5);
        assert_int_equal(hear(line, who ^ 1, heard, 5), 5);
        ERR_raise(ERR_LIB_USER, 1);
        assert_int_equal(hear(line, who ^ 1, heard, 5), -1); /* nothing there */
        assert_int_equal(errno, EAGAIN);
        ERR_raise(ERR_LIB_USER, 1);
        assert_int_equal(say(line, who, "again", 5), 5);
        ERR_raise(ERR_LIB_USER, 1);
        assert_int_equal(hear(line, who ^ 1, heard, 5), 5);
        assert_memory_equal(heard, "again", 5);
    }
}

/* If this fails, an error that somebody else left in OpenSSL's queue cuts a connection whose socket
 * takes no more. */
static void
test_errors_of_others_on_a_full_socket(void **state)
{
    static uint8_t bytes[1 << 20];
    const struct line *line = *state;
    ssize_t sent;

    do {
        ERR_raise(ERR_LIB_USER, 1);
        sent = say(line, 0, bytes, sizeof(bytes));
    } while (sent > 0);
    assert_int_equal(sent, -1);
    assert_int_equal(errno, EAGAIN);
    ERR_clear_error();
}

/* If this fails, an end that closed is taken for one that is slow, or the other way round. */
static void
test_other_end_closes(void **state)
{
    struct line *line = *state;
    char heard[16];

    assert_int_equal(say(line, 0, "last", 4), 4);
    assert_int_equal(shutdown(line->fd[0], SHUT_WR), 0);
    assert_int_equal(hear(line, 1, heard, sizeof(heard)), 4);
    assert_int_equal(hear(line, 1, heard, sizeof(heard)), 0);
    close(line->fd[1]);
    line->fd[1] = dup(line->fd[0]);
    assert_int_equal(say(line, 0, "to nobody", 9), -1);
    assert_int_equal(errno, EPIPE);
}

int
main(void)
{
#define SEALED_TEST(function) cmocka_unit_test_setup_teardown(function, open_line, close_line)
    const struct CMUnitTest tests[] = {
        SEALED_TEST(test_errors_of_others),
        SEALED_TEST(test_errors_of_others_on_a_full_socket),
        SEALED_TEST(test_other_end_closes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
