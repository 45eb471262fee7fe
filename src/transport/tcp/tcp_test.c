/*
 * tcp_test.c - what is particular to TCP: names, IPv6, tuning. The rest is in conformance_test.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/stream/sockets.h"

/* Two connected sockets. */
struct pair {
    int listen_fd;
    int near_fd;
    int far_fd;
    char bound[PSI_ADDRESS_BYTES];
    char peer[PSI_ADDRESS_BYTES];
};

static void
open_pair(struct pair *pair, const char *listen_at)
{
    struct psi_address address;
    struct psd_error err = {0};
    struct pollfd polled = {.events = POLLIN};

    assert_int_equal(psi_address_parse(listen_at, &address, &err), PSD_OK);
    assert_int_equal(psi_sockets_tcp.listen(&address, &pair->listen_fd, pair->bound, &err), PSD_OK);
    assert_int_equal(psi_address_parse(pair->bound, &address, &err), PSD_OK);
    assert_int_not_equal(address.port, 0);
    assert_int_equal(psi_sockets_tcp.connect(&address, &pair->near_fd, &err), PSD_OK);
    polled.fd = pair->listen_fd;
    assert_int_equal(poll(&polled, 1, 5000), 1);
    pair->far_fd = psi_sockets_tcp.accept(pair->listen_fd, pair->peer);
    assert_true(pair->far_fd >= 0);
    assert_int_equal(psi_sockets_tcp.connected(pair->near_fd, pair->bound, &err), PSD_OK);
}

static void
close_pair(struct pair *pair)
{
    close(pair->near_fd);
    close(pair->far_fd);
    psi_sockets_tcp.unlisten(pair->listen_fd);
}

static int
option(int fd, int name)
{
    int value = -1;
    socklen_t bytes = sizeof(value);

    assert_int_equal(getsockopt(fd, IPPROTO_TCP, name, &value, &bytes), 0);
    return value;
}

/* If this fails, small frames wait for acknowledgements, dead peers stay for minutes, urgent frames
 * queue behind megabytes, or loopback is paced as if it were the Internet. */
static void
test_tuning(void **state)
{
    struct pair pair;

    (void)state;
    open_pair(&pair, "tcp://127.0.0.1:0");
    for (int i = 0; i < 2; i++) {
        const int fd = i == 0 ? pair.near_fd : pair.far_fd;
        char name[32] = "";
        socklen_t bytes = sizeof(name) - 1;

        assert_int_equal(option(fd, TCP_NODELAY), 1);
        assert_int_equal(option(fd, TCP_USER_TIMEOUT), 2000);
        assert_int_equal(option(fd, TCP_NOTSENT_LOWAT), 256 * 1024);
        assert_int_equal(option(fd, TCP_KEEPIDLE), 5);
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
        assert_true(strcmp(name, "cubic") == 0 || strcmp(name, "reno") == 0);
    }
    close_pair(&pair);
}

/* If this fails, "localhost" as written by people does not meet itself. */
static void
test_host_name(void **state)
{
    struct pair pair;

    (void)state;
    open_pair(&pair, "tcp://localhost:0");
    close_pair(&pair);
}

static bool
has_v6(void)
{
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&here, sizeof(here)) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return has;
}

/* If this fails, IPv6 addresses are written so that they cannot be read back. */
static void
test_v6(void **state)
{
    struct psi_address peer;
    struct pair pair;

    (void)state;
    if (!has_v6()) {
        skip();
    }
    open_pair(&pair, "tcp://[::1]:0");
    assert_int_equal(psi_address_parse(pair.peer, &peer, NULL), PSD_OK);
    assert_string_equal(peer.host, "::1");
    close_pair(&pair);
}

static void
expect_the_same_ends(const char *listen_at, const char *host)
{
    char near_text[PSI_ENDS_BYTES];
    char far_text[PSI_ENDS_BYTES];
    char other_text[PSI_ENDS_BYTES];
    char expected[PSI_ENDS_BYTES];
    struct psi_address address;
    struct pair pair;
    struct pair other;

    open_pair(&pair, listen_at);
    open_pair(&other, listen_at);
    psi_sockets_tcp.ends(pair.near_fd, true, near_text);
    psi_sockets_tcp.ends(pair.far_fd, false, far_text);
    psi_sockets_tcp.ends(other.near_fd, true, other_text);
    assert_string_equal(near_text, far_text);
    assert_string_not_equal(near_text, other_text);
    assert_int_equal(psi_address_parse(pair.bound, &address, NULL), PSD_OK);
    snprintf(expected, sizeof(expected), " tcp://%s:%u", host, address.port);
    assert_string_equal(strrchr(near_text, ' '), expected);
    psi_sockets_tcp.ends(pair.far_fd, true, far_text); /* the other way round is not the same */
    assert_string_not_equal(near_text, far_text);
    psi_sockets_tcp.ends(pair.listen_fd, true, far_text);
    assert_string_equal(far_text, "");
    close_pair(&pair);
    close_pair(&other);
}

/* If this fails, the two ends of a connection do not agree on what it is, or two connections are
 * taken for the same one. */
static void
test_ends(void **state)
{
    (void)state;
    expect_the_same_ends("tcp://127.0.0.1:0", "127.0.0.1");
}

/* If this fails, the two ends of a connection over IPv6 do not agree on what it is. */
static void
test_ends_v6(void **state)
{
    (void)state;
    if (!has_v6()) {
        skip();
    }
    expect_the_same_ends("tcp://[::1]:0", "[::1]");
    expect_the_same_ends("tcp://[::ffff:127.0.0.1]:0", "127.0.0.1");
}

/* If this fails, a socket that meets itself on a free port is taken for a server. */
static void
test_socket_that_meets_itself(void **state)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(here);
    struct psd_error err = {0};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (const struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&here, &bytes), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(psi_sockets_tcp.connected(fd, "tcp://itself", &err), PSD_ERR_PEER_LOST);
    assert_string_equal(err.text, "connect tcp://itself: Connection refused");
    close(fd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tuning),  cmocka_unit_test(test_host_name),
        cmocka_unit_test(test_v6),      cmocka_unit_test(test_ends),
        cmocka_unit_test(test_ends_v6), cmocka_unit_test(test_socket_that_meets_itself),
    };

    return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
