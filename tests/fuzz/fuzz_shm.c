/*
 * fuzz_shm.c - everything that is heard of a peer on this host: words on the way to shared memory,
 * descriptors, rings, records. A whole connection is under test, and the input is what its peer
 * does (shm_script.h); the peer's side is worked by hand.
 *
 * Whatever comes, nothing is read outside of what was shared, nothing goes on for ever, and nothing
 * stays open.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "fuzz.h"
#include "shm_script.h"
#include "transport/loop/loop.h"
#include "transport/shm/descriptors.h"
#include "transport/shm/shm_format.h"
#include "transport/stream/carrier_shm.h"
#include "transport/stream/listener.h"
#include "transport/stream/strangers.h"
#include "transport/stream/stream.h"

enum {
    HAPPENINGS_MAX = 400,
    PAYLOAD_BYTES_MAX = 1 << 20,
    LENT_BYTES = 64 << 10,
    KEPT_MAX = 64,
    HEAD_BYTES_MAX = PSI_PREFIX_BYTES + PSI_META_BYTES_MAX,
    AT_WHAT = 8, /* in a prefix: meta bytes (4), payload bytes (4), what to do (1) */
};

struct input {
    const uint8_t *bytes;
    size_t left;
};

struct world {
    struct input input;
    enum shm_side side;
    bool alone;

    /* under test */
    struct psi_loop *loop;
    struct psi_listener listener;
    struct psi_conn *conn; /* NULL: closed */
    struct psi_segment lent;
    struct psi_loan *kept[KEPT_MAX];
    unsigned kept_count;
    uint8_t *sink;
    uint32_t crc;

    /* the peer */
    int stream_fd;
    int socket_fd;
    struct psi_shm_meet meet;
    struct psi_segment mine;
    struct psi_segment bell;
    struct psi_segment theirs;
    struct psi_ring ring;
    struct psi_shm_word offer;
    struct psi_segment segment; /* to announce */
};

/* ---- The input ---- */

static uint64_t
take(struct world *world, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes && world->input.left > 0; i++) {
        value |= (uint64_t)*world->input.bytes << 8 * i;
        world->input.bytes++;
        world->input.left--;
    }
    return value;
}

static size_t
take_bytes(struct world *world, uint8_t *to, size_t count)
{
    const size_t here = count < world->input.left ? count : world->input.left;

    memcpy(to, world->input.bytes, here);
    world->input.bytes += here;
    world->input.left -= here;
    return here;
}

/* ---- The owner of the connection under test ---- */

static uint32_t
load(const uint8_t *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return value;
}

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    (void)owner;
    (void)conn;
    size_p->meta_bytes = load(prefix);
    size_p->payload_bytes = load(prefix + 4);
    return size_p->payload_bytes > PAYLOAD_BYTES_MAX || (prefix[AT_WHAT] & SHM_REFUSE_PREFIX) != 0
               ? psi_fail(err, PSD_ERR_PROTOCOL, "prefix")
               : PSD_OK;
}

static void
close_conn(struct world *world)
{
    struct psi_conn *conn = world->conn;

    if (conn != NULL) {
        world->conn = NULL;
        conn->ops->close(conn);
    }
}

static psd_status
on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
        struct psi_sink *sink_p, struct psd_error *err)
{
    struct world *world = owner;
    const uint8_t what = head[AT_WHAT];

    psi_assert(conn == world->conn);
    psi_assert(head_bytes == PSI_PREFIX_BYTES + load(head));
    psi_assert((sink_p->lent != NULL) == (sink_p->loan != NULL));
    if ((what & SHM_REFUSE_HEAD) != 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "head");
    }
    if ((what & SHM_KEEP) != 0 && sink_p->lent != NULL && world->kept_count < KEPT_MAX) {
        world->kept[world->kept_count++] = sink_p->loan;
        sink_p->keep = true;
    } else if ((what & SHM_DISCARD) == 0) {
        free(world->sink);
        world->sink = malloc(load(head + 4));
        psi_assert(world->sink != NULL);
        sink_p->into = world->sink;
    }
    if ((what & SHM_CLOSE_IN_HEAD) != 0) {
        close_conn(world);
    }
    return PSD_OK;
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct world *world = owner;
    const uint8_t what = head[AT_WHAT];

    psi_assert(conn == world->conn);
    world->crc = psi_crc32c(world->crc, head, head_bytes);
    if (payload != NULL) {
        world->crc = psi_crc32c(world->crc, payload, payload_bytes); /* all of it can be read */
    }
    if ((what & SHM_CLOSE_IN_FRAME) != 0) {
        close_conn(world);
    }
    return (what & SHM_REFUSE_FRAME) != 0 ? psi_fail(err, PSD_ERR_PROTOCOL, "frame") : PSD_OK;
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct world *world = owner;

    psi_assert(conn == world->conn);
    psi_assert(reason->status != PSD_OK);
    world->conn = NULL;
}

static const struct psi_conn_events conn_events = {
    .on_prefix = on_prefix,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_close = on_close,
};

static psd_status
on_accept(void *owner, struct psi_conn *conn, const struct psi_conn_events **events_p,
          void **owner_p)
{
    struct world *world = owner;

    world->conn = conn;
    *events_p = &conn_events;
    *owner_p = world;
    return PSD_OK;
}

static const struct psi_listener_events listener_events = {.on_accept = on_accept};

/* ---- A stream that is a pair of sockets ---- */

static int next_fd; /* for connect(), which is told an address only */

static psd_status
pair_connect(const struct psi_address *address, int *fd_p, struct psd_error *err)
{
    (void)address;
    (void)err;
    *fd_p = next_fd;
    return PSD_OK;
}

static psd_status
pair_connected(int fd, const char *peer, struct psd_error *err)
{
    (void)fd;
    (void)peer;
    (void)err;
    return PSD_OK;
}

static bool
pair_loopback(int fd)
{
    (void)fd;
    return true;
}

static const struct psi_sockets pair_sockets = {
    .connect = pair_connect, .connected = pair_connected, .loopback = pair_loopback};

static void
lend(struct world *world)
{
    struct psi_env *env = psi_loop_env(world->loop);

    psi_assert(psi_segment_create(&world->lent, LENT_BYTES, NULL) == PSD_OK);
    env->ops->lend(env, &world->lent);
}

static void
begin(struct world *world)
{
    const struct psi_loop_config config = {.conns_max = 4, .lends = !world->alone};
    const struct psi_address address = {.scheme = PSI_SCHEME_INPROC, .host = "fuzz"};
    int pair[2];

    psi_assert(psi_loop_create(&config, &world->loop, NULL) == PSD_OK);
    psi_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    world->stream_fd = pair[0];
    world->socket_fd = -1;
    world->meet.fd = -1;
    psi_assert(psi_shm_meet_open(&world->meet, NULL) == PSD_OK);
    psi_assert(psi_segment_create(&world->mine, sizeof(struct psi_ring_side), NULL) == PSD_OK);
    psi_assert(psi_segment_create(&world->bell, sizeof(struct psi_bell), NULL) == PSD_OK);
    psi_assert(psi_segment_create(&world->segment, LENT_BYTES, NULL) == PSD_OK);
    lend(world);
    if (world->side == SHM_ACCEPTED) {
        world->listener = (struct psi_listener){.loop = world->loop,
                                                .sockets = &pair_sockets,
                                                .events = &listener_events,
                                                .owner = world};
        psi_stream_accept(&world->listener, pair[1], "inproc://fuzz");
    } else {
        const struct psi_conn_owner owner = {.events = &conn_events, .owner = world};

        next_fd = pair[1];
        psi_assert(psi_stream_connect(world->loop, &pair_sockets, &address, &owner, &world->conn,
                                      NULL) == PSD_OK);
    }
}

static void
give_back_all(struct world *world)
{
    for (unsigned i = 0; i < world->kept_count; i++) {
        world->kept[i]->give_back(world->kept[i]);
    }
    world->kept_count = 0;
}

static void
close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* What is on loan outlives the connection every other time. */
static void
end(struct world *world)
{
    if (world->input.left % 2 == 0) {
        give_back_all(world);
    }
    psi_loop_destroy(world->loop);
    give_back_all(world);
    free(world->sink);
    psi_segment_destroy(&world->lent);
    close_fd(&world->stream_fd);
    close_fd(&world->socket_fd);
    psi_shm_meet_close(&world->meet);
    psi_segment_destroy(&world->mine);
    psi_segment_destroy(&world->bell);
    psi_segment_destroy(&world->theirs);
    psi_segment_destroy(&world->segment);
}

/* ---- The peer, over the stream ---- */

static void
say(struct world *world, const void *bytes, size_t count)
{
    if (world->stream_fd >= 0 && count > 0) {
        (void)!send(world->stream_fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

static void
say_word(struct world *world)
{
    const unsigned kind = (unsigned)take(world, 1);
    struct psi_shm_word word = {.kind = (uint8_t)(kind % SHM_NOWHERE)};

    memcpy(word.magic, PSI_SHM_WORD_MAGIC, sizeof(word.magic));
    if ((kind & SHM_NOWHERE) == 0) {
        memcpy(word.name, world->meet.name, sizeof(word.name));
    }
    say(world, &word, sizeof(word));
}

static void
say_bytes(struct world *world)
{
    uint8_t bytes[256];
    const size_t count = (size_t)take(world, 1);

    say(world, bytes, take_bytes(world, bytes, count));
}

/* Remembers the last offer that was made to it. */
static void
hear_stream(struct world *world)
{
    struct psi_shm_word word;

    while (world->stream_fd >= 0 &&
           recv(world->stream_fd, &word, sizeof(word), MSG_DONTWAIT) == (ssize_t)sizeof(word)) {
        if (word.kind == PSI_SHM_OFFER) {
            world->offer = word;
        }
    }
}

/* ---- The peer, going over ---- */

static int
open_unsealed(void)
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    psi_assert(fd >= 0);
    psi_assert(ftruncate(fd, (off_t)sizeof(struct psi_bell)) == 0);
    return fd;
}

static void
map_theirs(struct world *world, int ring_fd, int bell_fd)
{
    psi_segment_destroy(&world->theirs);
    close(bell_fd);
    psi_assert(psi_segment_attach(&world->theirs, ring_fd, sizeof(struct psi_ring_side), NULL) ==
               PSD_OK);
    psi_segment_close_fd(&world->theirs);
    psi_ring_init(&world->ring, (struct psi_ring_side *)(void *)world->mine.base,
                  (const struct psi_ring_side *)(const void *)world->theirs.base);
}

/* Accepted: to the meeting place of the loop under test. */
static void
introduce_at(struct world *world, unsigned lies, int ring_fd, int bell_fd)
{
    struct psi_introduction introduction = {.ring_fd = ring_fd, .bell_fd = bell_fd};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        return;
    }
    close_fd(&world->socket_fd);
    world->socket_fd = pair[0];
    introduction.socket_fd = pair[1];
    memcpy(introduction.token, world->offer.token, sizeof(introduction.token));
    introduction.token[0] ^= (lies & SHM_WRONG_TOKEN) != 0;
    (void)psi_shm_meet_introduce(NULL, world->offer.name, &introduction, NULL);
    close(pair[1]);
    if ((lies & SHM_SOCKET_IS_CLOSED) != 0) {
        close_fd(&world->socket_fd);
    }
}

/* Connected: it has come to our meeting place, with the token of the OFFER: zeros. */
static void
answer_to(struct world *world, unsigned lies, int ring_fd, int bell_fd)
{
    static const uint8_t token[PSI_SHM_MEET_TOKEN_BYTES];
    uint8_t byte = 0;
    struct psi_unix_message answer = {.bytes = &byte,
                                      .size = 1,
                                      .fds = {ring_fd, bell_fd},
                                      .fd_count = (lies & SHM_TOO_FEW) != 0 ? 1 : 2};
    struct psi_introduction peer;

    if (psi_shm_meet_take(&world->meet, token, &peer)) {
        close_fd(&world->socket_fd);
        world->socket_fd = peer.socket_fd;
        map_theirs(world, peer.ring_fd, peer.bell_fd);
        (void)psi_unix_send(world->socket_fd, &answer, NULL, 0);
    }
}

static void
introduce(struct world *world)
{
    const unsigned lies = (unsigned)take(world, 1);
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    int unsealed = open_unsealed();
    const int ring_fd = (lies & SHM_RING_IS_BELL) != 0   ? world->bell.fd
                        : (lies & SHM_RING_IS_FILE) != 0 ? file
                                                         : world->mine.fd;
    const int bell_fd = (lies & SHM_BELL_IS_RING) != 0       ? world->mine.fd
                        : (lies & SHM_BELL_IS_UNSEALED) != 0 ? unsealed
                                                             : world->bell.fd;

    if (world->side == SHM_ACCEPTED) {
        introduce_at(world, lies, ring_fd, bell_fd);
    } else {
        answer_to(world, lies, ring_fd, bell_fd);
    }
    close_fd(&file);
    close_fd(&unsealed);
}

/* What the loop under test has shared over the new socket, and its knocks. */
static void
hear_socket(struct world *world)
{
    uint8_t bytes[64];
    struct psi_unix_message message = {.bytes = bytes, .size = sizeof(bytes)};

    while (world->socket_fd >= 0 && psi_unix_receive(world->socket_fd, &message) == 1) {
        if (message.fd_count == 2) {
            map_theirs(world, message.fds[0], message.fds[1]);
        } else {
            psi_unix_close(&message);
        }
        message.size = sizeof(bytes);
    }
}

/* The lowest descriptor that is free. */
static int
lowest_free(void)
{
    const int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

/* The loop under test finds few descriptors left. */
static void
pump_poor(struct world *world)
{
    struct rlimit plenty;
    struct rlimit none;

    psi_assert(getrlimit(RLIMIT_NOFILE, &plenty) == 0);
    none = plenty;
    none.rlim_cur = (rlim_t)lowest_free() + take(world, 1) % 8;
    psi_assert(setrlimit(RLIMIT_NOFILE, &none) == 0);
    psi_assert(psi_loop_run_once(world->loop, 0, NULL) == PSD_OK);
    psi_assert(setrlimit(RLIMIT_NOFILE, &plenty) == 0);
}

static void
pump(struct world *world)
{
    psi_assert(psi_loop_run_once(world->loop, 0, NULL) == PSD_OK);
    hear_stream(world);
    hear_socket(world);
}

/* ---- The peer, through shared memory ---- */

static void
put_record(struct world *world)
{
    uint8_t bytes[sizeof(struct psi_shm_record) + HEAD_BYTES_MAX + PSI_SHM_INLINE_MAX + 64] = {0};
    struct psi_shm_record record = {.kind = (uint32_t)take(world, 1)};
    uint8_t *head = bytes + sizeof(record);
    uint32_t meta_bytes;
    unsigned lies;
    size_t size;
    psd_status status;
    uint8_t *room;

    record.head_bytes = (uint32_t)take(world, 2);
    record.block = (uint32_t)take(world, 1);
    record.segment = (uint32_t)take(world, 2);
    record.offset = take(world, 4);
    record.payload_bytes = take(world, 4);
    lies = (unsigned)take(world, 1);
    memcpy(bytes, &record, sizeof(record));
    meta_bytes = record.head_bytes - PSI_PREFIX_BYTES + ((lies & SHM_HEAD_CONTRADICTS) != 0);
    memcpy(head, &meta_bytes, sizeof(meta_bytes));
    memcpy(head + 4, &record.payload_bytes, 4);
    head[AT_WHAT] = (uint8_t)take(world, 1);

    size = sizeof(record);
    if (record.kind == PSI_SHM_FRAME || record.kind == PSI_SHM_LENT) {
        size += record.head_bytes;
    }
    if (record.kind == PSI_SHM_FRAME) {
        size += record.payload_bytes;
    }
    size += lies & SHM_SIZE_LIE_MASK;
    size = size > sizeof(bytes) ? sizeof(bytes) : size;
    if ((lies & SHM_SIZE_LIE_MASK) == SHM_SIZE_LIE_MASK) {
        size = sizeof(record) - 1;
    }
    room = world->theirs.base == NULL ? NULL : psi_ring_reserve(&world->ring, size, &status);
    if (room != NULL) {
        memcpy(room, bytes, size);
        psi_ring_commit(&world->ring, true);
    }
}

static void
scribble(struct world *world)
{
    const size_t at = (size_t)take(world, 3) % world->mine.bytes;
    size_t count = (size_t)take(world, 1);

    count = count < world->mine.bytes - at ? count : world->mine.bytes - at;
    (void)take_bytes(world, world->mine.base + at, count);
}

static void
set_counter(struct world *world)
{
    struct psi_ring_side *side = (struct psi_ring_side *)(void *)world->mine.base;
    struct psi_bell *bell = (struct psi_bell *)(void *)world->bell.base;
    const enum shm_counter counter = (enum shm_counter)(take(world, 1) % SHM_COUNTERS);
    const uint64_t value = take(world, 4);

    switch (counter) {
    case SHM_TAIL:
        atomic_store(&side->tail, value);
        break;
    case SHM_TAIL_MORE:
        atomic_fetch_add(&side->tail, value);
        break;
    case SHM_HEAD:
        atomic_store(&side->head, value);
        break;
    case SHM_HEAD_MORE:
        atomic_fetch_add(&side->head, value);
        break;
    case SHM_HEAD_LESS:
        atomic_fetch_sub(&side->head, value);
        break;
    case SHM_STARVED:
        atomic_store(&side->starved, (uint32_t)value);
        break;
    default:
        atomic_store(&bell->sleepers, (uint32_t)value);
        break;
    }
}

static void
announce(struct world *world)
{
    struct psi_shm_announcement text = {.segment = (uint32_t)take(world, 2), .bytes = LENT_BYTES};
    const enum shm_descriptor what = (enum shm_descriptor)(take(world, 1) % SHM_DESCRIPTORS);
    int unsealed = open_unsealed();
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct psi_unix_message message = {
        .bytes = &text,
        .size = sizeof(text),
        .fds = {what == SHM_UNSEALED ? unsealed
                : what == SHM_FILE   ? file
                                     : world->segment.fd},
        .fd_count = 1,
    };

    text.bytes += what == SHM_WRONG_SIZE;
    if (world->socket_fd >= 0) {
        (void)psi_unix_send(world->socket_fd, &message, NULL, 0);
    }
    close_fd(&unsealed);
    close_fd(&file);
}

/* Any bytes with any descriptors, more than psi_unix_send() takes, too. */
static void
send_anything(struct world *world, int fd, const struct sockaddr_un *to)
{
    enum { FDS_MAX = 6 };
    uint8_t bytes[256];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control = {0};
    const size_t count = (size_t)take(world, 1);
    const size_t fd_bytes = (size_t)take(world, 1) % (FDS_MAX + 1) * sizeof(int);
    struct iovec iov = {.iov_base = bytes, .iov_len = take_bytes(world, bytes, count)};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (to != NULL) {
        header.msg_name = (void *)(uintptr_t)to;
        header.msg_namelen =
            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + PSI_SHM_MEET_NAME_BYTES);
    }
    if (fd_bytes > 0) {
        struct cmsghdr *item;

        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(fd_bytes);
        item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(fd_bytes);
        for (size_t i = 0; i < fd_bytes; i += sizeof(int)) {
            memcpy(CMSG_DATA(item) + i, &(int){STDERR_FILENO}, sizeof(int));
        }
    }
    if (fd >= 0) {
        (void)sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

static void
send_datagram(struct world *world)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    memcpy(to.sun_path + 1, world->offer.name, sizeof(world->offer.name));
    send_anything(world, fd, &to);
    close_fd(&fd);
}

/* Reads as it should, and gives back what it was lent. */
static void
read_records(struct world *world)
{
    const unsigned count = (unsigned)take(world, 1);

    for (unsigned i = 0; i < count && world->theirs.base != NULL; i++) {
        struct psi_shm_record record = {0};
        const uint8_t *bytes;
        size_t size;
        psd_status status;

        if (psi_ring_peek(&world->ring, &bytes, &size) != PSD_OK) {
            return;
        }
        psi_assert(size >= sizeof(record)); /* what is under test speaks well itself */
        memcpy(&record, bytes, sizeof(record));
        psi_assert(record.kind <= PSI_SHM_FORGOTTEN);
        psi_ring_consume(&world->ring);
        if (record.kind == PSI_SHM_LENT && record.block != 0) {
            const struct psi_shm_record returned = {.kind = PSI_SHM_RETURNED,
                                                    .block = record.block};
            uint8_t *room = psi_ring_reserve(&world->ring, sizeof(returned), &status);

            if (room != NULL) {
                memcpy(room, &returned, sizeof(returned));
                psi_ring_commit(&world->ring, true);
            }
        }
    }
}

/* ---- What the owner does ---- */

static void
owner_sends(struct world *world)
{
    static const uint8_t ordinary[PAYLOAD_BYTES_MAX];
    const size_t wanted = (size_t)take(world, 3) % (PAYLOAD_BYTES_MAX + 1);
    const uint64_t how = take(world, 1);
    const enum shm_source source = (enum shm_source)(how % SHM_PATIENT % SHM_SOURCES);
    const size_t bytes = source == SHM_ORDINARY || wanted < LENT_BYTES ? wanted : LENT_BYTES;
    uint8_t head[PSI_PREFIX_BYTES] = {0};
    const struct psi_outgoing frame = {
        .head = head,
        .head_bytes = sizeof(head),
        .buffers = {{source == SHM_ORDINARY ? ordinary : world->lent.base, bytes}},
        .buffer_count = bytes > 0 ? 1 : 0,
        .stable = source != SHM_LENT_BUT_CHANGING,
        .patient = how >= SHM_PATIENT,
    };

    if (world->conn != NULL) {
        if (frame.patient && world->conn->ops->wake_after != NULL) {
            world->conn->ops->wake_after(world->conn, (uint32_t)(how % SHM_PATIENT));
        }
        (void)world->conn->ops->send(world->conn, &frame);
    }
}

static void
owner_relends(struct world *world)
{
    struct psi_env *env = psi_loop_env(world->loop);

    if (world->conn != NULL) {
        (void)world->conn->ops->unshare(world->conn, world->lent.base, world->lent.bytes);
    }
    env->ops->take_back(env, &world->lent);
    psi_segment_destroy(&world->lent);
    lend(world);
}

static void
owner_closes(struct world *world)
{
    const bool gently = take(world, 1) != 0;
    struct psi_conn *conn = world->conn;

    if (conn != NULL && gently) {
        world->conn = NULL;
        conn->ops->close_after_send(conn, 60000);
    } else {
        close_conn(world);
    }
}

static void
happen(struct world *world)
{
    switch ((enum shm_happening)(take(world, 1) % SHM_HAPPENINGS)) {
    case SHM_WORD:
        say_word(world);
        break;
    case SHM_BYTES:
        say_bytes(world);
        break;
    case SHM_INTRODUCE:
        introduce(world);
        break;
    case SHM_RECORD:
        put_record(world);
        break;
    case SHM_SCRIBBLE:
        scribble(world);
        break;
    case SHM_COUNTER:
        set_counter(world);
        break;
    case SHM_ANNOUNCE:
        announce(world);
        break;
    case SHM_MESSAGE:
        send_anything(world, world->socket_fd, NULL);
        break;
    case SHM_DATAGRAM:
        send_datagram(world);
        break;
    case SHM_PUMP_POOR:
        pump_poor(world);
        break;
    case SHM_SEND:
        owner_sends(world);
        break;
    case SHM_GIVE_BACK:
        give_back_all(world);
        break;
    case SHM_RELEND:
        owner_relends(world);
        break;
    case SHM_CLOSE:
        owner_closes(world);
        break;
    case SHM_READ:
        read_records(world);
        break;
    case SHM_HANG_UP:
        close_fd(take(world, 1) == 0 ? &world->stream_fd : &world->socket_fd);
        break;
    default:
        pump(world);
        break;
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int before = lowest_free();
    struct world *world = calloc(1, sizeof(*world));
    unsigned first;

    psi_assert(world != NULL);
    world->input = (struct input){data, size};
    first = (unsigned)take(world, 1);
    world->side = (enum shm_side)(first % SHM_SIDES);
    world->alone = (first & SHM_ALONE) != 0;
    begin(world);
    for (unsigned i = 0; i < HAPPENINGS_MAX && world->input.left > 0; i++) {
        happen(world);
    }
    pump(world);
    pump(world);
    end(world);
    free(world);
    psi_assert(lowest_free() == before);
    return 0;
}
