/*
 * hostile_test.c - strangers at the master's and the servers' doors: whatever they send, and
 * however many they are, the job goes on and its results are right.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bed.h"
#include "wire/frame.h"
#include "wire/message.h"

enum { WORKERS = 2, DOORS_MAX = 4, IDLE = 1000, SCANS = 1000, CLOSED_MS = 10000 };

/* Where strangers knock: the master and the servers. */
struct doors {
    char address[DOORS_MAX][72];
    size_t count;
};

/* Thread: `over` and `steps` atomic; doors written by rank 0 before the first turn. */
struct siege {
    struct doors doors;
    atomic_bool over;
    _Atomic uint64_t steps;
};

/* ---- the job ------------------------------------------------------------------------------ */

static void
find_doors(struct worker *worker)
{
    struct siege *siege = worker->user;
    struct psd_node nodes[DOORS_MAX];
    size_t count;

    CHECK_OK(worker, psd_nodes(worker->context, nodes, sizeof(struct psd_node), DOORS_MAX, &count));
    for (size_t i = 0; i < count && nodes[i].role != PSD_ROLE_WORKER; i++) {
        memcpy(siege->doors.address[siege->doors.count++], nodes[i].address, 72);
    }
}

/* Trains until the siege is over; everybody stops after the same step. */
static void
train_under_siege(struct worker *worker)
{
    struct siege *siege = worker->user;
    const float one = 1;
    float value = 0;
    float stop = 0;
    psd_table *table;
    psd_table *enough;

    CHECK_OK(worker,
             psd_table_open(worker->context,
                            TABLE("w", PSD_F32, 1, .rule = RULE(.rule = PSD_RULE_ADD)), &table));
    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("enough", PSD_F32, 1, .use = PSD_USE_SUM), &enough));
    if (worker->rank == 0) {
        find_doors(worker);
        bed_next_turn(worker->bed);
    }
    for (uint64_t step = 0; stop == 0; step++) {
        const float over = atomic_load(&siege->over) ? 1 : 0;

        CHECK_OK(worker, push_pull(table, step, &one, &value));
        CHECK(worker, value == (float)(step + 1));
        CHECK_OK(worker, push_pull(enough, step, &over, &stop));
        atomic_store(&siege->steps, step);
    }
}

/* ---- strangers ---------------------------------------------------------------------------- */

static int
knock(const char *address)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    name.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    while (connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0) {
        assert_int_equal(errno, EINTR);
    }
    return fd;
}

static void
say(int fd, const void *bytes, size_t count)
{
    /* The other side may have closed already: that is its right. */
    (void)!send(fd, bytes, count, MSG_NOSIGNAL);
}

/* Waits until the other side closes; what it says before does not matter. */
static void
expect_closed(int fd)
{
    const uint64_t deadline_ms = bed_now_ms() + CLOSED_MS;
    char bytes[4096];
    ssize_t got = 1;

    while (got > 0) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        assert_true(bed_now_ms() < deadline_ms);
        if (poll(&poll_fd, 1, 100) > 0) {
            got = read(fd, bytes, sizeof(bytes));
        }
    }
    close(fd);
}

static void
send_garbage(const char *address)
{
    uint8_t bytes[8192];

    for (unsigned kind = 0; kind < 8; kind++) {
        const int fd = knock(address);

        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)(kind == 0 ? 0 : kind == 1 ? 0xff : mix(kind, i, 0));
        }
        if (kind == 2) {
            strcpy((char *)bytes, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        say(fd, bytes, sizeof(bytes));
        expect_closed(fd);
    }
}

/* A frame with a right header, of a size or a kind that a stranger has no business with. */
static void
send_frame(const char *address, const struct psi_frame *frame, size_t payload_bytes)
{
    static const uint8_t payload[65536];
    uint8_t head[PSI_FRAME_BYTES];
    const int fd = knock(address);

    psi_frame_encode(frame, head);
    say(fd, head, sizeof(head));
    say(fd, payload, payload_bytes);
    expect_closed(fd);
}

static void
send_wrong_frames(const char *address)
{
    send_frame(address, &(struct psi_frame){.type = PSI_FRAME_HELLO, .payload_bytes = UINT32_MAX},
               65536);
    send_frame(address, &(struct psi_frame){.type = PSI_FRAME_HELLO, .payload_bytes = 65536},
               65536);
    send_frame(address, &(struct psi_frame){.type = PSI_FRAME_HELLO, .payload_bytes = 64}, 64);
    send_frame(address,
               &(struct psi_frame){.type = PSI_FRAME_PUSH, .payload_bytes = 16 << 20, .dtype = 1},
               65536);
    send_frame(address, &(struct psi_frame){.type = PSI_FRAME_END}, 0);
    send_frame(address, &(struct psi_frame){.type = PSI_FRAME_BYE, .rank = 0, .incarnation = 1}, 0);
    send_frame(address, &(struct psi_frame){.type = 200}, 0);
}

static void
send_truncated(const char *address)
{
    uint8_t head[PSI_FRAME_BYTES];

    psi_frame_encode(&(struct psi_frame){.type = PSI_FRAME_HELLO, .payload_bytes = 200}, head);
    for (size_t bytes = 0; bytes <= sizeof(head); bytes += 7) {
        const int fd = knock(address);

        say(fd, head, bytes);
        close(fd);
    }
}

/* An impostor with a well-formed HELLO: for a rank that is taken, of a job it does not know. */
static void
send_impostor(const char *address)
{
    const struct psi_hello hello = {
        .role = PSI_ROLE_WORKER, .rank = 0, .incarnation = 1, .life = 99, .job = 12345};
    uint8_t body[512];
    uint8_t head[PSI_FRAME_BYTES];
    struct psi_pack pack;
    const int fd = knock(address);

    psi_pack_init(&pack, body, sizeof(body));
    psi_hello_encode(&pack, &hello);
    assert_false(pack.overflow);
    psi_frame_encode(
        &(struct psi_frame){.type = PSI_FRAME_HELLO, .payload_bytes = (uint32_t)pack.used}, head);
    say(fd, head, sizeof(head));
    say(fd, body, pack.used);
    expect_closed(fd);
}

/* ---- the tests ---------------------------------------------------------------------------- */

static void
besiege_one(void (*attack)(const char *address), struct bed_config config)
{
    struct siege siege = {.over = false};
    struct psd_node nodes[DOORS_MAX + WORKERS];
    size_t count;
    uint64_t seen;
    struct bed *bed;

    config.workers = WORKERS;
    bed = bed_start(&config);
    bed_start_workers(bed, train_under_siege, &siege);
    bed_wait_turn(bed, 1);
    for (size_t i = 0; i < siege.doors.count; i++) {
        attack(siege.doors.address[i]);
    }
    /* Friends still get in, and steps are still made. */
    assert_ok(psd_nodes_at(bed_address(bed), 10000, nodes, sizeof(struct psd_node),
                           DOORS_MAX + WORKERS, &count));
    seen = atomic_load(&siege.steps);
    while (atomic_load(&siege.steps) < seen + 10) {
        assert_ok(psd_nodes_at(bed_address(bed), 10000, nodes, sizeof(struct psd_node),
                               DOORS_MAX + WORKERS, &count));
        assert_int_equal(nodes[count - 1].state, PSD_NODE_RUNNING);
    }
    atomic_store(&siege.over, true);
    bed_join_workers(bed);
    bed_finish(bed);
}

/* Without a secret strangers reach the frames' decoder, with one they should not. */
static void
besiege(void (*attack)(const char *address), struct bed_config config)
{
    config.security = BED_INSECURE;
    besiege_one(attack, config);
    config.security = BED_SECRET;
    besiege_one(attack, config);
}

/* If this fails, bytes that are no frame hurt more than their own connection. */
static void
test_garbage(void **state)
{
    (void)state;
    besiege(send_garbage, (struct bed_config){.servers = 2});
}

/* If this fails, a stranger can make a daemon allocate, stop or listen to what it sends. */
static void
test_frames_that_strangers_may_not_send(void **state)
{
    (void)state;
    besiege(send_wrong_frames, (struct bed_config){.servers = 2});
}

/* If this fails, half a frame is taken for a whole one, or waited for. */
static void
test_truncated_frames(void **state)
{
    (void)state;
    besiege(send_truncated, (struct bed_config){.servers = 2});
}

/* If this fails, somebody who pretends to be a worker can push that worker out. */
static void
test_impostor(void **state)
{
    (void)state;
    besiege(send_impostor, (struct bed_config){.servers = 2});
}

static int idle_fds[DOORS_MAX * IDLE]; /* the test's own; never touched by two threads */
static size_t idle_count;

static void
connect_and_be_silent(const char *address)
{
    for (unsigned i = 0; i < IDLE; i++) {
        idle_fds[idle_count++] = knock(address);
    }
}

/* If this fails, a thousand silent connections keep workers or observers out. */
static void
test_idle_connections(void **state)
{
    struct rlimit limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < 4 * IDLE + 256) {
        print_message("only %llu descriptors: not run\n", (unsigned long long)limit.rlim_cur);
        skip();
    }
    besiege(connect_and_be_silent, (struct bed_config){.servers = 1});
    while (idle_count > 0) {
        close(idle_fds[--idle_count]);
    }
}

static void
connect_and_leave(const char *address)
{
    for (unsigned i = 0; i < SCANS; i++) {
        close(knock(address));
    }
}

/* If this fails, a port scan wears a daemon out. */
static void
test_port_scan(void **state)
{
    (void)state;
    besiege(connect_and_leave, (struct bed_config){.servers = 1});
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_frames_that_strangers_may_not_send),
        cmocka_unit_test(test_truncated_frames),
        cmocka_unit_test(test_impostor),
        cmocka_unit_test(test_idle_connections),
        cmocka_unit_test(test_port_scan),
    };

    bed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
