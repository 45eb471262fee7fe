/*
 * strangers_test.c - limits on those who have proved nothing yet, and what they may not cost those
 * who have. Real sockets; a scheme that takes loopback for a network, so that addresses count.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "secure/tls.h"
#include "transport/loop/loop.h"
#include "transport/stream/listener.h"
#include "transport/stream/stream.h"

enum { MEMBERS_MAX = 8, WAIT_MS = 10000 };

/* One connection of a member, on a loop of its own so that it can be made to stall. */
struct member {
    struct psi_loop *loop;
    struct psi_conn *conn;
    unsigned opens;
    unsigned closes;
    struct psd_error reason;
};

/* A listener of the job, and what it heard. */
struct house {
    struct psi_sockets sockets;
    struct psi_secret *secret;
    struct psi_tls *server_tls;
    struct psi_tls *worker_tls;
    struct psi_loop *loop;
    struct psi_listener *listener;
    struct psi_address address;
    unsigned accepts;
    unsigned frames;
    unsigned refusals;
    struct psd_error reason;
    struct member members[MEMBERS_MAX];
};

static bool
far_away(int fd)
{
    (void)fd;
    return false;
}

/* ---- what the house hears ---- */

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    (void)owner;
    (void)conn;
    (void)prefix;
    (void)err;
    *size_p = (struct psi_frame_size){0};
    return PSD_OK;
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct house *house = owner;

    (void)conn;
    (void)head;
    (void)head_bytes;
    (void)payload;
    (void)payload_bytes;
    (void)err;
    house->frames++;
    return PSD_OK;
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    (void)owner;
    (void)conn;
    (void)reason;
}

static const struct psi_conn_events house_conn_events = {
    .on_prefix = on_prefix, .on_frame = on_frame, .on_close = on_close};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct house *house = owner;

    (void)conn;
    house->accepts++;
    *events_p = &house_conn_events;
    *owner_p = house;
    return PSD_OK;
}

static void
on_refused(void *owner, const char *peer, const struct psd_error *reason)
{
    struct house *house = owner;

    assert_non_null(strstr(peer, "tcp://127."));
    house->refusals++;
    house->reason = *reason;
}

static const struct psi_listener_events house_events = {.on_accept = on_accept,
                                                        .on_refused = on_refused};

static struct house *
open_house(struct psi_loop_config config, bool loopback)
{
    struct house *house = calloc(1, sizeof(*house));
    char bound[PSI_ADDRESS_BYTES];

    assert_non_null(house);
    house->sockets = psi_sockets_tcp;
    house->sockets.loopback = loopback ? psi_sockets_tcp.loopback : far_away;
    assert_int_equal(psi_secret_create(&house->secret, NULL), PSD_OK);
    assert_int_equal(psi_tls_create(house->secret, "server:0.0", &house->server_tls, NULL), PSD_OK);
    assert_int_equal(psi_tls_create(house->secret, NULL, &house->worker_tls, NULL), PSD_OK);
    config.auth = &psi_tls_auth;
    config.credentials = house->server_tls;
    assert_int_equal(psi_loop_create(&config, &house->loop, NULL), PSD_OK);
    assert_int_equal(psi_address_parse("tcp://127.0.0.1:0", &house->address, NULL), PSD_OK);
    assert_int_equal(psi_listener_create(house->loop, &house->sockets, &house->address,
                                         &house->listener, bound, NULL),
                     PSD_OK);
    house->listener->events = &house_events;
    house->listener->owner = house;
    assert_int_equal(psi_address_parse(bound, &house->address, NULL), PSD_OK);
    return house;
}

static void
close_house(struct house *house)
{
    for (size_t i = 0; i < MEMBERS_MAX; i++) {
        psi_loop_destroy(house->members[i].loop);
    }
    psi_loop_destroy(house->loop);
    psi_tls_destroy(house->server_tls);
    psi_tls_destroy(house->worker_tls);
    psi_secret_destroy(house->secret);
    free(house);
}

static uint64_t
now_ms(void)
{
    return psi_monotonic_ms();
}

static void
run(struct psi_loop *loop)
{
    assert_int_equal(psi_loop_run_once(loop, 0, NULL), PSD_OK);
}

/* Runs the house until the condition holds. */
#define HOUSE_WAIT(house, condition)                                                               \
    do {                                                                                           \
        const uint64_t deadline_ms_ = now_ms() + WAIT_MS;                                          \
        while (!(condition)) {                                                                     \
            assert_true(now_ms() < deadline_ms_);                                                  \
            run((house)->loop);                                                                    \
        }                                                                                          \
    } while (0)

/* ---- members ---- */

static void
member_on_open(void *owner, struct psi_conn *conn)
{
    static const uint8_t head[PSI_PREFIX_BYTES];
    struct member *member = owner;
    const struct psi_outgoing frame = {.head = head, .head_bytes = sizeof(head)};

    member->opens++;
    assert_int_equal(conn->ops->send(conn, &frame), PSD_OK);
}

static void
member_on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct member *member = owner;

    (void)conn;
    member->closes++;
    member->reason = *reason;
    member->conn = NULL;
}

static const struct psi_conn_events member_events = {.on_open = member_on_open,
                                                     .on_prefix = on_prefix,
                                                     .on_frame = on_frame,
                                                     .on_close = member_on_close};

/* Proves who it is, and says no more. */
static const struct psi_conn_events silent_events = {
    .on_prefix = on_prefix, .on_frame = on_frame, .on_close = member_on_close};

static void
call_with(struct house *house, struct member *member, struct psi_tls *tls,
          const struct psi_conn_events *events)
{
    const struct psi_loop_config config = {.auth = &psi_tls_auth, .credentials = tls};

    psi_loop_destroy(member->loop);
    *member = (struct member){0};
    assert_int_equal(psi_loop_create(&config, &member->loop, NULL), PSD_OK);
    assert_int_equal(
        psi_stream_connect(member->loop, &house->sockets, &house->address,
                           &(struct psi_conn_owner){events, member, "worker:0 server:0.0"},
                           &member->conn, NULL),
        PSD_OK);
}

static void
call(struct house *house, struct member *member, struct psi_tls *tls)
{
    call_with(house, member, tls, &member_events);
}

/* Its first words are on the way, the house has answered, and it does not go on. */
static void
call_and_stall(struct house *house, struct member *member)
{
    const uint32_t before = house->loop->stranger_count;

    call(house, member, house->worker_tls);
    run(member->loop); /* connected, and has spoken */
    HOUSE_WAIT(house, house->loop->stranger_count == before + 1);
}

static void
go_on(struct house *house, struct member *member, unsigned frames)
{
    const uint64_t deadline_ms = now_ms() + WAIT_MS;

    while (house->frames < frames) {
        assert_true(now_ms() < deadline_ms);
        assert_int_equal(member->closes, 0);
        run(member->loop);
        run(house->loop);
    }
    assert_int_equal(member->opens, 1);
}

/* ---- strangers ---- */

/* Connects from 127.0.HIGH.LOW. */
static int
knock(const struct house *house, unsigned high, unsigned low)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr = {htonl(0x7f000000u + (high << 8) + low)}};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(house->address.port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Whether the house has closed it; what it said before does not matter. */
static bool
is_closed(int fd)
{
    char bytes[4096];
    ssize_t got;

    do {
        got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    } while (got > 0);
    return got == 0 || errno != EAGAIN;
}

static void
say_garbage(struct house *house, unsigned low)
{
    const int fd = knock(house, 0, low);

    assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    HOUSE_WAIT(house, is_closed(fd));
    close(fd);
}

/* ---- the tests ---- */

/* If this fails, silent strangers keep a member out, or take more than their places. */
static void
test_flood_of_silence(void **state)
{
    enum { CROWD = 200, PLACES = 8 };
    struct house *house = open_house((struct psi_loop_config){.strangers_max = PLACES}, false);
    int fds[CROWD];

    (void)state;
    for (unsigned i = 0; i < CROWD; i++) {
        fds[i] = knock(house, 1, i + 1);
        run(house->loop);
        assert_true(house->loop->stranger_count <= PLACES);
    }
    HOUSE_WAIT(house, house->refusals == CROWD - PLACES);
    assert_int_equal(house->reason.status, PSD_ERR_BUSY);
    call(house, &house->members[0], house->worker_tls);
    go_on(house, &house->members[0], 1);
    assert_int_equal(house->accepts, 1);
    for (unsigned i = 0; i < CROWD; i++) {
        close(fds[i]);
    }
    close_house(house);
}

/* The lowest number that is free. */
static int
next_descriptor(void)
{
    const int fd = dup(0);

    assert_true(fd >= 0);
    close(fd);
    return fd;
}

/* If this fails, silent strangers hold every descriptor of a daemon, and members find none. */
static void
test_no_descriptor_left(void **state)
{
    enum { CROWD = 40, LEFT = 4 };
    struct house *house = open_house((struct psi_loop_config){0}, false);
    struct rlimit before;
    struct rlimit few;
    int fds[CROWD];

    (void)state;
    for (unsigned i = 0; i < CROWD; i++) {
        fds[i] = knock(house, 1, i + 1);
    }
    call(house, &house->members[0], house->worker_tls); /* behind all of them */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few =
        (struct rlimit){.rlim_cur = (rlim_t)next_descriptor() + LEFT, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    go_on(house, &house->members[0], 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(house->loop->stranger_count, LEFT - 1);
    assert_int_equal(house->refusals, CROWD - (LEFT - 1));
    assert_int_equal(house->reason.status, PSD_ERR_BUSY);
    for (unsigned i = 0; i < CROWD; i++) {
        close(fds[i]);
    }
    close_house(house);
}

/* If this fails, a flood throws out members who are half-way through their proof. */
static void
test_member_in_the_middle_of_a_flood(void **state)
{
    enum { CROWD = 100 };
    struct house *house = open_house((struct psi_loop_config){.strangers_max = 4}, false);
    int fds[CROWD];

    (void)state;
    call_and_stall(house, &house->members[0]);
    for (unsigned i = 0; i < CROWD; i++) {
        fds[i] = knock(house, 1, i + 1);
        run(house->loop);
    }
    HOUSE_WAIT(house, house->refusals == CROWD - 3);
    go_on(house, &house->members[0], 1);
    for (unsigned i = 0; i < CROWD; i++) {
        close(fds[i]);
    }
    close_house(house);
}

/* If this fails, one address takes the places of all. */
static void
test_share_of_one_address(void **state)
{
    enum { CROWD = 20, SHARE = 4 };
    struct house *house = open_house((struct psi_loop_config){.strangers_from_one = SHARE}, false);
    const int other = knock(house, 0, 3);
    int fds[CROWD];

    (void)state;
    HOUSE_WAIT(house, house->loop->stranger_count == 1);
    for (unsigned i = 0; i < CROWD; i++) {
        fds[i] = knock(house, 0, 2);
    }
    HOUSE_WAIT(house, house->refusals == CROWD - SHARE);
    assert_int_equal(house->loop->stranger_count, SHARE + 1);
    assert_false(is_closed(other));
    assert_true(is_closed(fds[0])); /* the oldest went */
    assert_false(is_closed(fds[CROWD - 1]));
    for (unsigned i = 0; i < CROWD; i++) {
        close(fds[i]);
    }
    close(other);
    close_house(house);
}

/* If this fails, many members behind one address fail instead of coming one after the other. */
static void
test_members_of_one_address_queue(void **state)
{
    enum { SHARE = 3 };
    struct house *house = open_house((struct psi_loop_config){.strangers_from_one = SHARE}, false);
    struct member *late = &house->members[SHARE];

    (void)state;
    for (unsigned i = 0; i < SHARE; i++) {
        call_and_stall(house, &house->members[i]);
    }
    call(house, late, house->worker_tls);
    while (late->closes == 0) { /* no room: it will call again, as psi_peer does */
        run(late->loop);
        run(house->loop);
    }
    assert_int_equal(late->reason.status, PSD_ERR_PEER_LOST);
    for (unsigned i = 0; i < SHARE; i++) { /* nobody lost the place */
        go_on(house, &house->members[i], i + 1);
    }
    call(house, late, house->worker_tls);
    go_on(house, late, SHARE + 1);
    close_house(house);
}

static void
exhaust_tries(struct house *house, unsigned low)
{
    for (unsigned i = 0; i < PSI_ADMISSION_TRIES_FROM_ONE_BURST; i++) {
        say_garbage(house, low);
    }
    /* Some came back while we tried; a slow machine must not make this endless. */
    for (unsigned i = 0; house->reason.status != PSD_ERR_BUSY; i++) {
        assert_true(i < 1000);
        say_garbage(house, low);
    }
}

/* If this fails, the secret can be guessed at full speed, or the wrong ones pay for it. */
static void
test_failures_slow_an_address_down(void **state)
{
    struct house *house = open_house((struct psi_loop_config){0}, false);
    const uint64_t begin_ms = now_ms();

    (void)state;
    exhaust_tries(house, 2);
    assert_true(house->refusals >= PSI_ADMISSION_TRIES_FROM_ONE_BURST);
    assert_true(house->refusals <=
                PSI_ADMISSION_TRIES_FROM_ONE_BURST + 1 +
                    (now_ms() - begin_ms + 1) * PSI_ADMISSION_TRIES_FROM_ONE_PER_S / 1000);
    assert_non_null(strstr(house->reason.text, "too many attempts, and no sign of the secret"));
    say_garbage(house, 3); /* another address is heard as before */
    assert_int_equal(house->reason.status, PSD_ERR_REFUSED);
    close_house(house);
}

/* If this fails, somebody on a member's machine, or in its network, keeps that member out by
 * failing: here it gets in at its first attempt, whatever others do. */
static void
test_member_beside_failures_of_its_own_address(void **state)
{
    struct house *house = open_house((struct psi_loop_config){0}, false);

    (void)state;
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        exhaust_tries(house, 1); /* 127.0.0.1, as the members */
        house->reason.status = PSD_OK;
        call(house, &house->members[i], house->worker_tls);
        go_on(house, &house->members[i], i + 1);
    }
    assert_int_equal(house->accepts, MEMBERS_MAX);
    close_house(house);
}

/* If this fails, whoever recorded a member's first words gets an answer to them, which costs a
 * listener much more than the recording costs its owner; or gets in by them. */
static void
test_recorded_greeting(void **state)
{
    enum { TIMES = 300 };
    struct house *house = open_house((struct psi_loop_config){0}, false);
    struct psi_tls *tls = house->worker_tls;
    const struct psi_auth_args args = {.connecting = true, .identity = "worker:0 server:0.0"};
    void *session = psi_tls_auth.create(tls, &args);
    uint8_t greeting[PSI_AUTH_BYTES_MAX];
    size_t bytes = 0;
    size_t used = 0;
    unsigned answers = 0;

    (void)state;
    assert_int_equal(
        psi_tls_auth.step(session, NULL, 0, &used, greeting, sizeof(greeting), &bytes, NULL),
        PSD_PENDING);
    psi_tls_auth.destroy(session);
    for (unsigned i = 0; i < TIMES; i++) {
        const int fd = knock(house, 0, 2);
        uint8_t answer[4096];
        ssize_t got;

        assert_int_equal(send(fd, greeting, bytes, MSG_NOSIGNAL), bytes);
        HOUSE_WAIT(house, house->refusals > i || house->loop->stranger_count > 0);
        got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
        answers += got > 7; /* more than an alert */
        close(fd);
        HOUSE_WAIT(house, house->refusals > i);
    }
    assert_int_equal(answers, 1);
    assert_int_equal(house->accepts, 0);
    call(house, &house->members[0], house->worker_tls);
    go_on(house, &house->members[0], 1);
    close_house(house);
}

/* If this fails, a member that is half-way through its proof loses its place to the next one. */
static void
test_members_wait_for_places(void **state)
{
    enum { PLACES = 3 };
    struct house *house = open_house((struct psi_loop_config){.strangers_max = PLACES}, false);
    struct member *late = &house->members[PLACES];

    (void)state;
    for (unsigned i = 0; i < PLACES; i++) {
        call_and_stall(house, &house->members[i]);
    }
    call(house, late, house->worker_tls);
    for (unsigned i = 0; i < PLACES; i++) { /* it waits, and so does its first frame */
        run(late->loop);
        go_on(house, &house->members[i], i + 1);
        assert_int_equal(late->closes, 0);
    }
    go_on(house, late, PLACES + 1);
    assert_int_equal(house->refusals, 0);
    close_house(house);
}

/* If this fails, processes of one machine shut each other out. */
static void
test_loopback_is_exempt(void **state)
{
    enum { CROWD = 40 };
    struct house *house = open_house((struct psi_loop_config){.strangers_from_one = 2}, true);
    int fds[CROWD];

    (void)state;
    for (unsigned i = 0; i < CROWD; i++) {
        say_garbage(house, 1);
    }
    assert_int_equal(house->refusals, CROWD);
    for (unsigned i = 0; i < CROWD; i++) {
        fds[i] = knock(house, 0, 1);
    }
    HOUSE_WAIT(house, house->loop->stranger_count == CROWD);
    for (unsigned i = 0; i < CROWD; i++) {
        close(fds[i]);
    }
    close_house(house);
}

/* If this fails, a peer that sends a byte now and then holds its place for ever. */
static void
test_slow_handshake_ends(void **state)
{
    struct house *house = open_house((struct psi_loop_config){.stranger_ms = 60}, false);
    const int fd = knock(house, 0, 2);
    const uint64_t begin_ms = now_ms();
    const uint8_t head[] = {22, 3, 1, 1, 0};
    size_t sent = 0;

    (void)state;
    while (!is_closed(fd)) {
        const uint8_t byte = sent < sizeof(head) ? head[sent] : 1;

        assert_true(now_ms() < begin_ms + WAIT_MS);
        if (sent < 200) {
            (void)!send(fd, &byte, 1, MSG_NOSIGNAL);
            sent++;
        }
        run(house->loop);
    }
    assert_true(now_ms() >= begin_ms + 59);
    assert_int_equal(house->refusals, 1);
    assert_int_equal(house->reason.status, PSD_ERR_TIMEOUT);
    assert_int_equal(house->loop->stranger_count, 0);
    close(fd);
    close_house(house);
}

/* If this fails, a peer that is slow with its proof gets as much time again for its first frame. */
static void
test_one_deadline_until_the_first_frame(void **state)
{
    struct house *house = open_house((struct psi_loop_config){0}, false);
    struct member *member = &house->members[0];
    const uint64_t begin_ms = now_ms();
    uint64_t deadline_ns;

    (void)state;
    call_with(house, member, house->worker_tls, &silent_events);
    run(member->loop);
    HOUSE_WAIT(house, house->loop->stranger_count == 1);
    deadline_ns = psi_loop_next_ns(house->loop);
    assert_true(deadline_ns != UINT64_MAX);
    while (house->accepts == 0) {
        assert_true(now_ms() < begin_ms + WAIT_MS);
        run(member->loop);
        run(house->loop);
    }
    assert_int_equal(house->loop->stranger_count, 1);
    assert_int_equal(psi_loop_next_ns(house->loop), deadline_ns);
    close_house(house);
}

/* If this fails, a stranger makes a daemon swallow bytes without end before it proves anything. */
static void
test_endless_handshake_ends(void **state)
{
    struct house *house = open_house((struct psi_loop_config){0}, false);
    const int fd = knock(house, 0, 2);
    static const uint8_t record[5 + 16384] = {22, 3, 3, 64, 0, 1, 0, 255, 255}; /* a huge hello */
    const uint64_t begin_ms = now_ms();

    (void)state;
    while (!is_closed(fd)) {
        assert_true(now_ms() < begin_ms + WAIT_MS);
        (void)!send(fd, record, sizeof(record), MSG_NOSIGNAL | MSG_DONTWAIT);
        run(house->loop);
    }
    assert_int_equal(house->refusals, 1);
    assert_int_equal(house->reason.status, PSD_ERR_REFUSED);
    assert_int_equal(house->accepts, 0);
    close(fd);
    close_house(house);
}

/* If this fails, a worker with a wrong secret is let in, or not told what is wrong. */
static void
test_wrong_secret_over_a_socket(void **state)
{
    struct house *house = open_house((struct psi_loop_config){0}, false);
    struct member *member = &house->members[0];
    struct psi_secret *secret;
    struct psi_tls *tls;

    (void)state;
    assert_int_equal(psi_secret_create(&secret, NULL), PSD_OK);
    assert_int_equal(psi_tls_create(secret, NULL, &tls, NULL), PSD_OK);
    call(house, member, tls);
    while (member->closes == 0) {
        run(member->loop);
        run(house->loop);
    }
    assert_int_equal(member->reason.status, PSD_ERR_REFUSED);
    assert_non_null(strstr(member->reason.text, "do both have the secret of the same job?"));
    assert_int_equal(house->refusals, 1);
    assert_int_equal(house->accepts + house->frames + member->opens, 0);
    close_house(house);
    psi_tls_destroy(tls);
    psi_secret_destroy(secret);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flood_of_silence),
        cmocka_unit_test(test_no_descriptor_left),
        cmocka_unit_test(test_member_in_the_middle_of_a_flood),
        cmocka_unit_test(test_share_of_one_address),
        cmocka_unit_test(test_members_of_one_address_queue),
        cmocka_unit_test(test_failures_slow_an_address_down),
        cmocka_unit_test(test_member_beside_failures_of_its_own_address),
        cmocka_unit_test(test_recorded_greeting),
        cmocka_unit_test(test_members_wait_for_places),
        cmocka_unit_test(test_loopback_is_exempt),
        cmocka_unit_test(test_slow_handshake_ends),
        cmocka_unit_test(test_one_deadline_until_the_first_frame),
        cmocka_unit_test(test_endless_handshake_ends),
        cmocka_unit_test(test_wrong_secret_over_a_socket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
