/*
 * shm_hostile_test.c - a peer that shares memory and lies in every way it can: each lie costs its
 * own connection and nothing else. The server's loop goes on serving a good peer, and no signal
 * ends it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/conformance_bed.h"
#include "transport/stream/shm_hand.h"

enum { KIB = 1024, HEAD_MAX = PSI_PREFIX_BYTES + PSI_META_BYTES_MAX, ECHO_BYTES = 50 * KIB };

static const struct bed_transport shared = {
    .name = "shared memory", .listen_at = "tcp://127.0.0.1:0", .lends = true};

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

/* ---- A server on its own thread, and somebody who deserves to be served ---- */

struct scene {
    struct bed *bed;
    struct end good;
    uint8_t *payload;
    unsigned descriptors; /* while only the good one is there */
};

/* The good one says something and gets its answer, through shared memory. */
static void
serve_good(struct scene *scene)
{
    const unsigned number = scene->good.frames;

    bed_fill(scene->payload, number, ECHO_BYTES);
    assert_int_equal(bed_send(&scene->good, number, 0, scene->payload, ECHO_BYTES), PSD_OK);
    BED_WAIT(scene->bed, scene->good.frames == number + 1 || scene->good.closes > 0);
    assert_int_equal(scene->good.closes + scene->good.bad, 0);
}

static int
begin(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    assert_non_null(scene);
    scene->payload = malloc(ECHO_BYTES);
    assert_non_null(scene->payload);
    scene->bed = bed_create(&shared, NULL, NULL);
    scene->bed->model.echo = true;
    bed_start_thread(scene->bed);
    bed_connect(scene->bed, &scene->good);
    BED_WAIT(scene->bed, scene->good.opens == 1);
    assert_true(scene->good.conn->lends);
    serve_good(scene);
    scene->descriptors = count_descriptors();
    *state = scene;
    return 0;
}

static int
end(void **state)
{
    struct scene *scene = *state;

    bed_destroy(scene->bed);
    free(scene->payload);
    free(scene);
    return 0;
}

/* After a liar has gone: all is as before. */
static void
expect_peace(struct scene *scene)
{
    const uint64_t deadline_ms = psi_monotonic_ms() + 10000;

    serve_good(scene);
    while (count_descriptors() != scene->descriptors) { /* the server closes its side, too */
        assert_true(psi_monotonic_ms() < deadline_ms);
        serve_good(scene);
    }
}

/* ---- Records ---- */

/* A frame that makes sense, without payload; returns the bytes of its head. */
static struct psi_shm_record
good_record(uint8_t *head, uint64_t payload_bytes)
{
    return (struct psi_shm_record){.kind = PSI_SHM_FRAME,
                                   .head_bytes = (uint32_t)bed_head(head, 0, 0, payload_bytes),
                                   .payload_bytes = payload_bytes};
}

struct bad_record {
    const char *what;
    struct psi_shm_record record;
    size_t more; /* bytes that follow: the first are a head that fits the record */
};

enum { P = PSI_PREFIX_BYTES };

static const struct bad_record bad_records[] = {
    {"a kind there is not", {.kind = 4, .head_bytes = P}, P},
    {"the last of all kinds", {.kind = UINT32_MAX, .head_bytes = P}, P},
    {"a frame without a head", {.kind = PSI_SHM_FRAME}, 0},
    {"a head too small", {.kind = PSI_SHM_FRAME, .head_bytes = P - 1}, P - 1},
    {"a head too large", {.kind = PSI_SHM_FRAME, .head_bytes = HEAD_MAX + 1}, HEAD_MAX + 1},
    {"the largest head of all", {.kind = PSI_SHM_FRAME, .head_bytes = UINT32_MAX}, P},
    {"less than it says", {.kind = PSI_SHM_FRAME, .head_bytes = P, .payload_bytes = 100}, P + 99},
    {"more than it says", {.kind = PSI_SHM_FRAME, .head_bytes = P, .payload_bytes = 100}, P + 101},
    {"too much in the ring",
     {.kind = PSI_SHM_FRAME, .head_bytes = P, .payload_bytes = PSI_SHM_INLINE_MAX + 1},
     P + PSI_SHM_INLINE_MAX + 1},
    {"as much as there is",
     {.kind = PSI_SHM_FRAME, .head_bytes = P, .payload_bytes = UINT64_MAX - P - 39},
     P},
    {"lent: nothing", {.kind = PSI_SHM_LENT, .head_bytes = P, .segment = 0}, P},
    {"lent: a segment never told of",
     {.kind = PSI_SHM_LENT, .head_bytes = P, .segment = 1, .payload_bytes = 16},
     P},
    {"lent: a number too large",
     {.kind = PSI_SHM_LENT, .head_bytes = P, .segment = PSI_SHM_SEGMENTS_MAX, .payload_bytes = 16},
     P},
    {"lent: the largest number",
     {.kind = PSI_SHM_LENT, .head_bytes = P, .segment = UINT32_MAX, .payload_bytes = 16},
     P},
    {"lent: more than the segment has",
     {.kind = PSI_SHM_LENT, .head_bytes = P, .payload_bytes = 64 * KIB + 1},
     P},
    {"lent: beyond the end",
     {.kind = PSI_SHM_LENT, .head_bytes = P, .offset = 64 * KIB - 15, .payload_bytes = 16},
     P},
    {"lent: an offset that wraps",
     {.kind = PSI_SHM_LENT, .head_bytes = P, .offset = UINT64_MAX - 7, .payload_bytes = 16},
     P},
    {"lent: a size that wraps",
     {.kind = PSI_SHM_LENT, .head_bytes = P, .offset = 16, .payload_bytes = UINT64_MAX - 8},
     P},
    {"returned: none", {.kind = PSI_SHM_RETURNED}, 0},
    {"returned: one that was never lent", {.kind = PSI_SHM_RETURNED, .block = 1}, 0},
    {"returned: the largest number", {.kind = PSI_SHM_RETURNED, .block = UINT32_MAX}, 0},
    {"forget what was never told of", {.kind = PSI_SHM_FORGET, .segment = 1}, 0},
    {"forget a number too large", {.kind = PSI_SHM_FORGET, .segment = PSI_SHM_SEGMENTS_MAX}, 0},
    {"forget the largest number", {.kind = PSI_SHM_FORGET, .segment = UINT32_MAX}, 0},
    {"forgotten what nobody asked to", {.kind = PSI_SHM_FORGOTTEN, .segment = 0}, 0},
    {"forgotten: a number too large",
     {.kind = PSI_SHM_FORGOTTEN, .segment = PSI_SHM_SEGMENTS_MAX},
     0},
    {"forgotten: the largest number", {.kind = PSI_SHM_FORGOTTEN, .segment = UINT32_MAX}, 0},
};

/* If this fails, a record that makes no sense is believed, or costs more than its connection. */
static void
test_bad_records(void **state)
{
    struct scene *scene = *state;
    uint8_t *more = calloc(1, 64 * KIB);

    assert_non_null(more);
    for (unsigned i = 0; i < sizeof(bad_records) / sizeof(bad_records[0]); i++) {
        const struct bad_record *bad = &bad_records[i];
        struct psi_segment lent;
        struct hand hand;

        hand_share(&hand, scene->bed->address);
        assert_int_equal(psi_segment_create(&lent, 64 * KIB, NULL), PSD_OK);
        hand_announce(&hand, 0, lent.fd, 64 * KIB);
        (void)bed_head(more, 0, 0, bad->record.payload_bytes);
        hand_put(&hand, &bad->record, more, bad->more);
        print_message("%s\n", bad->what);
        hand_expect_end(&hand);
        hand_close(&hand);
        psi_segment_destroy(&lent);
        expect_peace(scene);
    }
    free(more);
}

/* If this fails, a record's head and the frame's own words may contradict each other. */
static void
test_frames_that_contradict_their_record(void **state)
{
    struct scene *scene = *state;

    for (unsigned i = 0; i < 3; i++) {
        uint8_t frame[PSI_PREFIX_BYTES + 200] = {0};
        struct psi_shm_record record = {.kind = PSI_SHM_FRAME, .head_bytes = PSI_PREFIX_BYTES};
        struct hand hand;

        hand_share(&hand, scene->bed->address);
        if (i == 0) {
            (void)bed_head(frame, 0, 8, 0); /* meta that is not there */
        } else if (i == 1) {
            (void)bed_head(frame, 0, 0, 100); /* a payload that is not there */
        } else {
            (void)bed_head(frame, 0, 0, 0); /* one that should not be */
            record.payload_bytes = 100;
        }
        hand_put(&hand, &record, frame, PSI_PREFIX_BYTES + record.payload_bytes);
        hand_expect_end(&hand);
        hand_close(&hand);
        expect_peace(scene);
    }
}

/* If this fails, a ring's own words lead out of it, or a wild one keeps its reader for ever. */
static void
test_bad_tails(void **state)
{
    static const uint64_t tails[] = {1, 4, 7, 9, PSI_RING_BYTES + 8, UINT64_C(1) << 40, UINT64_MAX};
    struct scene *scene = *state;

    for (unsigned i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        struct hand hand;

        hand_share(&hand, scene->bed->address);
        atomic_store(&hand.ring.mine->tail, tails[i]);
        hand_message(&hand, "!", 1, -1, 0);
        hand_expect_end(&hand);
        hand_close(&hand);
        expect_peace(scene);
    }
}

static bool
has_ended(const struct hand *hand)
{
    char byte;

    return recv(hand->socket_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* If this fails, a reader that lies about what it has read makes the server write over what is
 * still to be read, or outside. */
static void
test_bad_heads(void **state)
{
    static const uint64_t heads[] = {PSI_RING_BYTES * UINT64_C(100), UINT64_MAX,
                                     UINT64_MAX - PSI_RING_BYTES, UINT64_C(1) << 63};
    struct scene *scene = *state;

    for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        uint8_t frame[PSI_PREFIX_BYTES + 8000] = {0};
        const struct psi_shm_record record = good_record(frame, 8000);
        const uint64_t deadline_ms = psi_monotonic_ms() + 10000;
        unsigned sent = 0;
        struct hand hand;
        psd_status status;

        hand_share(&hand, scene->bed->address);
        atomic_store(&hand.ring.mine->head, heads[i]);
        /* Every frame is answered: at some time the server wants to know how much was read. */
        while (sent < 2 * PSI_RING_BYTES / 8000 && !has_ended(&hand)) {
            uint8_t *room = psi_ring_reserve(&hand.ring, sizeof(record) + sizeof(frame), &status);

            assert_int_equal(status, PSD_OK);
            assert_true(psi_monotonic_ms() < deadline_ms);
            if (room == NULL) {
                continue;
            }
            memcpy(room, &record, sizeof(record));
            memcpy(room + sizeof(record), frame, sizeof(frame));
            psi_ring_commit(&hand.ring, true);
            (void)send(hand.socket_fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
            sent++;
        }
        hand_expect_end(&hand);
        hand_close(&hand);
        expect_peace(scene);
    }
}

/* If this fails, a block is used again while it is being read: the peer returns it twice. */
static void
test_block_returned_twice(void **state)
{
    struct scene *scene = *state;
    uint8_t head[PSI_PREFIX_BYTES];
    struct psi_shm_record record = good_record(head, 10000);
    const struct psi_shm_record returned = {.kind = PSI_SHM_RETURNED, .block = 1};
    const uint8_t *answer;
    size_t bytes;
    psd_status status;
    struct psi_segment lent;
    struct hand hand;
    const uint64_t deadline_ms = psi_monotonic_ms() + 10000;

    hand_share(&hand, scene->bed->address);
    assert_int_equal(psi_segment_create(&lent, 10000, NULL), PSD_OK);
    bed_fill(lent.base, 0, 10000);
    hand_announce(&hand, 0, lent.fd, 10000);
    record.kind = PSI_SHM_LENT;
    hand_put(&hand, &record, head, sizeof(head));
    while ((status = psi_ring_peek(&hand.ring, &answer, &bytes)) == PSD_PENDING) {
        assert_true(psi_monotonic_ms() < deadline_ms);
    }
    assert_int_equal(status, PSD_OK); /* the echo, in block 1 */
    memcpy(&record, answer, sizeof(record));
    assert_int_equal(record.kind, PSI_SHM_LENT);
    assert_int_equal(record.block, 1);
    hand_put(&hand, &returned, NULL, 0);
    hand_put(&hand, &returned, NULL, 0);
    hand_expect_end(&hand);
    hand_close(&hand);
    psi_segment_destroy(&lent);
    expect_peace(scene);
}

/* ---- Announcements ---- */

static int
memfd(size_t bytes, int seals)
{
    const int fd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

enum { SEALED = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | 0x10 };

/* Announces something wrong. */
static void
announce_number_too_large(struct hand *hand)
{
    hand_announce(hand, PSI_SHM_SEGMENTS_MAX, hand->mine.fd, hand->mine.bytes);
}

static void
announce_twice(struct hand *hand)
{
    hand_announce(hand, 3, hand->mine.fd, hand->mine.bytes);
    hand_announce(hand, 3, hand->mine.fd, hand->mine.bytes);
}

static void
announce_fd(struct hand *hand, int fd, uint64_t bytes)
{
    assert_true(fd >= 0);
    hand_announce(hand, 0, fd, bytes);
    close(fd);
}

static void
announce_unsealed(struct hand *hand)
{
    announce_fd(hand, memfd(4096, 0), 4096);
}

static void
announce_that_can_shrink(struct hand *hand)
{
    announce_fd(hand, memfd(4096, SEALED & ~F_SEAL_SHRINK), 4096);
}

static void
announce_that_can_be_unsealed(struct hand *hand)
{
    announce_fd(hand, memfd(4096, SEALED & ~F_SEAL_SEAL), 4096);
}

static void
announce_more_than_it_has(struct hand *hand)
{
    announce_fd(hand, memfd(4096, SEALED), 8192);
}

static void
announce_less_than_it_has(struct hand *hand)
{
    announce_fd(hand, memfd(8192, SEALED), 4096);
}

static void
announce_nothing(struct hand *hand)
{
    announce_fd(hand, memfd(0, SEALED), 0);
}

static void
announce_the_largest(struct hand *hand)
{
    announce_fd(hand, memfd(4096, SEALED), UINT64_MAX);
}

static void
announce_a_file(struct hand *hand)
{
    announce_fd(hand, open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 4096);
}

static void
announce_a_device(struct hand *hand)
{
    announce_fd(hand, open("/dev/zero", O_RDWR | O_CLOEXEC), 4096);
}

static void
announce_a_directory(struct hand *hand)
{
    announce_fd(hand, open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 4096);
}

static void
announce_a_socket(struct hand *hand)
{
    hand_announce(hand, 0, hand->socket_fd, 4096);
}

static void
announce_with_two_descriptors(struct hand *hand)
{
    const struct psi_shm_announcement text = {.bytes = hand->mine.bytes};

    hand_message(hand, &text, sizeof(text), hand->mine.fd, 2);
}

static void
announce_with_many_descriptors(struct hand *hand)
{
    const struct psi_shm_announcement text = {.bytes = hand->mine.bytes};

    hand_message(hand, &text, sizeof(text), hand->mine.fd, 16);
}

static void
announce_too_little(struct hand *hand)
{
    const struct psi_shm_announcement text = {.bytes = hand->mine.bytes};

    hand_message(hand, &text, sizeof(text) - 1, hand->mine.fd, 1);
}

static void
announce_too_much(struct hand *hand)
{
    uint8_t text[200] = {0};

    hand_message(hand, text, sizeof(text), hand->mine.fd, 1);
}

static void
message_too_long(struct hand *hand)
{
    uint8_t text[200] = {0};

    hand_message(hand, text, sizeof(text), -1, 0);
}

/* If this fails, memory that can vanish is mapped, or a descriptor of a liar stays open. */
static void
test_bad_announcements(void **state)
{
    static void (*const lies[])(struct hand * hand) = {
        announce_number_too_large,
        announce_twice,
        announce_unsealed,
        announce_that_can_shrink,
        announce_that_can_be_unsealed,
        announce_more_than_it_has,
        announce_less_than_it_has,
        announce_nothing,
        announce_the_largest,
        announce_a_file,
        announce_a_device,
        announce_a_directory,
        announce_a_socket,
        announce_with_two_descriptors,
        announce_with_many_descriptors,
        announce_too_little,
        announce_too_much,
        message_too_long,
    };
    struct scene *scene = *state;

    for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct hand hand;

        print_message("lie %u\n", i);
        hand_share(&hand, scene->bed->address);
        lies[i](&hand);
        hand_expect_end(&hand);
        hand_close(&hand);
        expect_peace(scene);
    }
}

/* If this fails, a peer that was told of can take its pages away while they are read: SIGBUS. */
static void
test_lent_memory_cannot_be_taken_away(void **state)
{
    enum { BYTES = 64 * KIB };
    struct scene *scene = *state;
    uint8_t head[PSI_PREFIX_BYTES];
    struct psi_shm_record record = good_record(head, BYTES);
    struct psi_segment lent;
    struct hand hand;

    hand_share(&hand, scene->bed->address);
    assert_int_equal(psi_segment_create(&lent, BYTES, NULL), PSD_OK);
    hand_announce(&hand, 0, lent.fd, BYTES);
    assert_int_equal(ftruncate(lent.fd, 0), -1);
    assert_int_equal(ftruncate(hand.mine.fd, 0), -1);
    assert_int_equal(ftruncate(hand.bell.fd, 0), -1);
    assert_int_equal(fallocate(lent.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), -1);
    psi_segment_destroy(&lent); /* and nobody but the server has it any more */
    record.kind = PSI_SHM_LENT;
    hand_put(&hand, &record, head, sizeof(head));
    serve_good(scene);
    hand_close(&hand);
    expect_peace(scene);
}

/* ---- Going over ---- */

/* If this fails, what a peer introduces itself with is believed, or a refusal leaves a trace. */
static void
test_bad_introductions(void **state)
{
    enum { LIES = 9 };
    struct scene *scene = *state;

    for (unsigned lie = 0; lie < LIES; lie++) {
        struct psi_shm_word offer;
        struct psi_shm_word word;
        struct hand hand;
        int other = -1;

        hand_connect(&hand, scene->bed->address);
        hand_ask(&hand, &offer);
        hand_make(&hand);
        switch (lie) {
        case 0: /* the ring is too small */
            hand_introduce(&hand, &offer, -1, hand.bell.fd, hand.bell.fd);
            break;
        case 1: /* the bell is too large */
            hand_introduce(&hand, &offer, -1, hand.mine.fd, hand.mine.fd);
            break;
        case 2: /* a ring that can be cut */
            other = memfd(sizeof(struct psi_ring_side), F_SEAL_GROW);
            hand_introduce(&hand, &offer, -1, other, hand.bell.fd);
            break;
        case 3: /* a bell that can be cut */
            other = memfd(sizeof(struct psi_bell), F_SEAL_GROW);
            hand_introduce(&hand, &offer, -1, hand.mine.fd, other);
            break;
        case 4: /* no socket but a file */
            other = open("/dev/null", O_RDWR | O_CLOEXEC);
            hand_introduce(&hand, &offer, other, hand.mine.fd, hand.bell.fd);
            break;
        case 5: /* a socket of the wrong kind */
            other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
            hand_introduce(&hand, &offer, other, hand.mine.fd, hand.bell.fd);
            break;
        case 6: /* a socket whose other end is gone */
            hand_introduce(&hand, &offer, -1, hand.mine.fd, hand.bell.fd);
            close(hand.socket_fd);
            hand.socket_fd = -1;
            break;
        case 7: /* a token that was not offered */
            offer.token[0] ^= 1;
            hand_introduce(&hand, &offer, -1, hand.mine.fd, hand.bell.fd);
            break;
        default: /* no introduction at all */
            break;
        }
        hand_say(&hand, PSI_SHM_TAKEN);
        print_message("introduction %u\n", lie);
        if (lie < 4) { /* READY may have been said, but nothing comes of it */
            hand_expect_stream_end(&hand);
        } else {
            assert_true(hand_hear(&hand, &word));
            assert_int_equal(word.kind, PSI_SHM_NONE);
        }
        if (other >= 0) {
            close(other);
        }
        hand_close(&hand);
        if (lie != 7) { /* that one waits at the meeting place until others come */
            expect_peace(scene);
        } else {
            serve_good(scene);
            scene->descriptors += 3;
        }
    }
}

/* If this fails, a word at the wrong time confuses the one who hears it. */
static void
test_words_at_the_wrong_time(void **state)
{
    struct scene *scene = *state;
    struct psi_shm_word offer;
    struct hand hand;

    /* instead of the question */
    for (unsigned kind = 0; kind < 256; kind++) {
        if (kind != PSI_SHM_ASK) {
            hand_connect(&hand, scene->bed->address);
            hand_say(&hand, (uint8_t)kind);
            hand_expect_stream_end(&hand);
            hand_close(&hand);
        }
    }
    /* after the offer */
    for (unsigned kind = 0; kind < 16; kind++) {
        if (kind != PSI_SHM_TAKEN && kind != PSI_SHM_DECLINED) {
            hand_connect(&hand, scene->bed->address);
            hand_ask(&hand, &offer);
            hand_say(&hand, (uint8_t)kind);
            hand_expect_stream_end(&hand);
            hand_close(&hand);
        }
    }
    /* a frame after the offer */
    {
        uint8_t head[PSI_PREFIX_BYTES];

        hand_connect(&hand, scene->bed->address);
        hand_ask(&hand, &offer);
        hand_send(&hand, head, bed_head(head, 0, 0, 0));
        hand_expect_stream_end(&hand);
        hand_close(&hand);
    }
    expect_peace(scene);
}

/* If this fails, a peer that does not share cannot speak, or has to ask first. */
static void
test_staying_with_the_stream(void **state)
{
    struct scene *scene = *state;

    for (unsigned i = 0; i < 2; i++) {
        uint8_t head[PSI_PREFIX_BYTES];
        struct psi_shm_word offer;
        struct psi_shm_word echo;
        struct hand hand;

        hand_connect(&hand, scene->bed->address);
        if (i == 1) {
            hand_ask(&hand, &offer);
            hand_say(&hand, PSI_SHM_DECLINED);
        }
        for (unsigned number = 0; number < 3; number++) {
            hand_send(&hand, head, bed_head(head, number, 0, 0));
            assert_true(hand_hear(&hand, &echo));
            assert_memory_equal(&echo, head, sizeof(head));
        }
        hand_close(&hand);
        expect_peace(scene);
    }
}

/* ---- A server that lies ---- */

static int
listen_somewhere(char *address, size_t bytes)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t at_bytes = sizeof(at);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &at_bytes), 0);
    snprintf(address, bytes, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

/* Pumps the client until there is something to read at fd. */
static void
pump_until_readable(struct psi_loop *loop, int fd)
{
    const uint64_t deadline_ms = psi_monotonic_ms() + 10000;
    char byte;

    while (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        assert_true(psi_monotonic_ms() < deadline_ms);
        bed_pump_loop(loop);
    }
}

/* If this fails, whoever answers a worker's question can take its process with it. */
static void
test_answers_that_make_no_sense(void **state)
{
    enum { LIES = 12 };
    struct scene *scene = *state;
    char address[PSI_ADDRESS_BYTES];
    const int listen_fd = listen_somewhere(address, sizeof(address));
    const unsigned descriptors = count_descriptors();

    for (unsigned lie = 0; lie < LIES; lie++) {
        const uint64_t deadline_ms = psi_monotonic_ms() + 10000;
        struct bed bed = {0}; /* only a client */
        struct end connected = {0};
        struct psi_shm_meet meet = {.fd = -1};
        struct psi_introduction peer;
        struct psi_shm_word offer = {0};
        struct psi_shm_word word;
        struct hand hand;
        bool stays = false; /* it goes on without shared memory */

        bed.client = NULL;
        assert_int_equal(
            psi_loop_create(&(struct psi_loop_config){.lends = true}, &bed.client, NULL), PSD_OK);
        assert_int_equal(psi_shm_meet_open(&meet, NULL), PSD_OK);
        memcpy(bed.address, address, sizeof(address));
        memcpy(offer.name, meet.name, sizeof(offer.name));
        bed_connect(&bed, &connected);
        hand_accept(&hand, listen_fd);
        pump_until_readable(bed.client, hand.stream_fd);
        assert_true(hand_hear(&hand, &word));
        assert_int_equal(word.kind, PSI_SHM_ASK);
        print_message("answer %u\n", lie);
        if (lie < 4) { /* a word that is no answer */
            static const uint8_t kinds[] = {PSI_SHM_ASK, PSI_SHM_TAKEN, PSI_SHM_READY, 77};

            hand_say(&hand, kinds[lie]);
        } else if (lie == 4) { /* a frame, such as a refusal: its owner hears it */
            uint8_t head[PSI_PREFIX_BYTES];

            hand_send(&hand, head, bed_head(head, 0, 0, 0));
            stays = true;
        } else if (lie == 5) { /* a meeting place that is not there */
            memset(offer.name, 7, sizeof(offer.name));
            hand_say_word(&hand, PSI_SHM_OFFER, &offer);
            pump_until_readable(bed.client, hand.stream_fd);
            assert_true(hand_hear(&hand, &word));
            assert_int_equal(word.kind, PSI_SHM_DECLINED);
            stays = true;
        } else {
            hand_say_word(&hand, PSI_SHM_OFFER, &offer);
            pump_until_readable(bed.client, hand.stream_fd);
            assert_true(hand_hear(&hand, &word));
            assert_int_equal(word.kind, PSI_SHM_TAKEN);
            assert_true(psi_shm_meet_take(&meet, offer.token, &peer));
            hand.socket_fd = peer.socket_fd;
            close(peer.ring_fd);
            close(peer.bell_fd);
            hand_make(&hand);
            if (lie == 6) { /* nothing is shared */
                hand_say(&hand, PSI_SHM_READY);
            } else if (lie == 7) { /* one of two */
                hand_message(&hand, "", 1, hand.mine.fd, 1);
                hand_say(&hand, PSI_SHM_READY);
            } else if (lie == 8) { /* twice the ring */
                hand_message(&hand, "", 1, hand.mine.fd, 2);
                hand_say(&hand, PSI_SHM_READY);
            } else if (lie == 9) { /* twice a file */
                hand_message(&hand, "", 1, listen_fd, 2);
                hand_say(&hand, PSI_SHM_READY);
            } else if (lie == 10) { /* a second offer */
                hand_say_word(&hand, PSI_SHM_OFFER, &offer);
            } else { /* it has thought better of it */
                hand_say(&hand, PSI_SHM_NONE);
                stays = true;
            }
        }
        while (stays ? connected.opens == 0 : connected.closes == 0) {
            assert_true(psi_monotonic_ms() < deadline_ms);
            bed_pump_loop(bed.client);
        }
        assert_int_equal(connected.opens, stays ? 1 : 0);
        assert_true(!stays || !connected.conn->lends);
        assert_true(stays || connected.reason.status == PSD_ERR_PROTOCOL);
        psi_shm_meet_close(&meet);
        hand_close(&hand);
        psi_loop_destroy(bed.client);
        assert_int_equal(count_descriptors(), descriptors);
    }
    close(listen_fd);
    serve_good(scene);
}

/* ---- Without end ---- */

/* Something that goes on until it is stopped. */
struct flood {
    struct hand hand;
    atomic_bool stop;
    atomic_uint_fast64_t turns;
};

static void
wait_for_turns(struct flood *flood, uint64_t turns)
{
    const uint64_t until = atomic_load(&flood->turns) + turns;
    const uint64_t deadline_ms = psi_monotonic_ms() + 10000;

    while (atomic_load(&flood->turns) < until) {
        assert_true(psi_monotonic_ms() < deadline_ms);
        sched_yield();
    }
}

static void *
write_without_end(void *context)
{
    struct flood *flood = context;
    struct psi_shm_record record = {.kind = PSI_SHM_FRAME, .head_bytes = PSI_PREFIX_BYTES};
    uint8_t head[PSI_PREFIX_BYTES];

    (void)bed_head(head, 0, 0, 0);
    while (!atomic_load(&flood->stop)) {
        psd_status status;
        uint8_t *room = psi_ring_reserve(&flood->hand.ring, sizeof(record) + sizeof(head), &status);

        if (room != NULL) {
            memcpy(room, &record, sizeof(record));
            memcpy(room + sizeof(record), head, sizeof(head));
            psi_ring_commit(&flood->hand.ring, true);
        }
        atomic_fetch_add(&flood->turns, 1);
    }
    return NULL;
}

/* If this fails, a peer that writes as fast as it can, also when it has closed its socket, keeps
 * the server for itself. */
static void
test_writes_without_end(void **state)
{
    struct scene *scene = *state;
    struct flood flood = {0};
    pthread_t thread;

    hand_share(&flood.hand, scene->bed->address);
    assert_int_equal(pthread_create(&thread, NULL, write_without_end, &flood), 0);
    for (unsigned i = 0; i < 5; i++) {
        wait_for_turns(&flood, 100);
        serve_good(scene);
    }
    close(flood.hand.socket_fd);
    flood.hand.socket_fd = -1;
    for (unsigned i = 0; i < 5; i++) {
        serve_good(scene);
    }
    atomic_store(&flood.stop, true);
    pthread_join(thread, NULL);
    hand_close(&flood.hand);
    expect_peace(scene);
}

/* For every frame that is heard another one is there. */
static void
feed(struct end *end, void *context)
{
    struct hand *hand = context;
    uint8_t head[PSI_PREFIX_BYTES];
    const struct psi_shm_record record = good_record(head, 0);

    if (end->frames < 1000000) {
        hand_put(hand, &record, head, sizeof(head));
    }
}

/* If this fails, a peer whose words never end is heard for ever once it has closed its socket. */
static void
test_words_after_its_end(void **state)
{
    struct bed *bed = bed_create(&shared, NULL, NULL);
    struct end *accepted = &bed->accepted[0];
    uint8_t head[PSI_PREFIX_BYTES];
    const struct psi_shm_record record = good_record(head, 0);
    struct hand hand;

    (void)state;
    bed->model.heard = feed;
    bed->model.heard_context = &hand;
    bed_start_thread(bed);
    hand_share(&hand, bed->address);
    bed_stop_thread(bed);
    for (unsigned i = 0; i < 1000; i++) {
        hand_put(&hand, &record, head, sizeof(head));
    }
    assert_int_equal(shutdown(hand.socket_fd, SHUT_RDWR), 0);
    bed_pump_loop(bed->server);
    assert_int_equal(accepted->closes, 1);
    assert_in_range(accepted->frames, 1000, PSI_RING_BYTES / sizeof(record));
    hand_close(&hand);
    bed_destroy(bed);
}

static void *
knock_without_end(void *context)
{
    struct flood *flood = context;

    while (!atomic_load(&flood->stop)) {
        (void)send(flood->hand.socket_fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        atomic_fetch_add(&flood->turns, 1);
    }
    return NULL;
}

/* If this fails, a peer that wakes the server again and again keeps it for itself. */
static void
test_knocks_without_end(void **state)
{
    struct scene *scene = *state;
    struct flood flood = {0};
    pthread_t thread;

    hand_share(&flood.hand, scene->bed->address);
    assert_int_equal(pthread_create(&thread, NULL, knock_without_end, &flood), 0);
    for (unsigned i = 0; i < 20; i++) {
        wait_for_turns(&flood, 100);
        serve_good(scene);
    }
    atomic_store(&flood.stop, true);
    pthread_join(thread, NULL);
    hand_close(&flood.hand);
    expect_peace(scene);
}

/* If this fails, a socket full of messages is read to its end before anybody else is served. */
static void
test_many_messages_take_many_turns(void **state)
{
    enum { MESSAGES = 5000, ROOM = 64 << 20 };
    const int room = ROOM;
    struct bed *bed;
    struct hand hand;
    int before = 0;
    int after = 0;

    (void)state;
    if (geteuid() != 0) {
        skip(); /* only root can make a socket so large */
    }
    bed = bed_create(&shared, NULL, NULL);
    bed_start_thread(bed);
    hand_share(&hand, bed->address);
    bed_stop_thread(bed);
    assert_int_equal(setsockopt(hand.socket_fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)),
                     0);
    for (unsigned i = 0; i < MESSAGES; i++) {
        hand_message(&hand, "!", 1, -1, 0);
    }
    assert_int_equal(ioctl(hand.socket_fd, SIOCOUTQ, &before), 0);
    bed_pump_loop(bed->server);
    assert_int_equal(ioctl(hand.socket_fd, SIOCOUTQ, &after), 0);
    assert_in_range(after, before / 2, before - 1); /* some, not all */
    while (after > 0) {
        bed_pump_loop(bed->server);
        assert_int_equal(ioctl(hand.socket_fd, SIOCOUTQ, &after), 0);
    }
    assert_int_equal(bed->accepted[0].closes, 0);
    hand_close(&hand);
    bed_destroy(bed);
}

static void *
scribble_without_end(void *context)
{
    struct flood *flood = context;
    volatile uint8_t *bytes = flood->hand.mine.base;
    uint64_t dice = 88172645463325252u;

    while (!atomic_load(&flood->stop)) {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        /* now the counters, now the first records, now anywhere */
        bytes[dice % (dice >> 62 == 0   ? 136
                      : dice >> 62 == 1 ? 4096
                                        : flood->hand.mine.bytes)] = (uint8_t)(dice >> 32);
        atomic_fetch_add(&flood->turns, 1);
    }
    return NULL;
}

/* If this fails, a peer that writes anything anywhere in its own memory, while it is being read,
 * does more than end its connection. */
static void
test_scribbles(void **state)
{
    enum { ROUNDS = 60 };
    struct scene *scene = *state;

    for (unsigned round = 0; round < ROUNDS; round++) {
        uint8_t frame[PSI_PREFIX_BYTES + 64];
        const struct psi_shm_record record = good_record(frame, 64);
        struct flood flood = {0};
        pthread_t thread;

        hand_share(&flood.hand, scene->bed->address);
        for (unsigned i = 0; i < round; i++) {
            hand_put(&flood.hand, &record, frame, sizeof(frame)); /* begins well */
        }
        assert_int_equal(pthread_create(&thread, NULL, scribble_without_end, &flood), 0);
        for (unsigned i = 0; i < 3; i++) {
            wait_for_turns(&flood, 100);
            (void)send(flood.hand.socket_fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        serve_good(scene);
        atomic_store(&flood.stop, true);
        pthread_join(thread, NULL);
        hand_close(&flood.hand);
    }
    expect_peace(scene);
}

/* ---- Wake-ups ---- */

/* If this fails, a peer that read everything just before it fell asleep is not woken for the next
 * record: it was woken for nothing before. */
static void
test_woken_for_what_is_unread(void **state)
{
    enum { RECORD = 8 + sizeof(struct psi_shm_record) + PSI_PREFIX_BYTES };
    struct bed *bed = bed_create(&shared, NULL, NULL);
    struct end *accepted = &bed->accepted[0];
    struct psi_bell *bell;
    struct hand hand;

    (void)state;
    bed_start_thread(bed);
    hand_share(&hand, bed->address);
    bed_stop_thread(bed);
    bell = (struct psi_bell *)(void *)hand.bell.base;
    atomic_store(&bell->sleepers, 1);

    /* It reads the first record the moment it is there, and sleeps. */
    atomic_store(&hand.ring.mine->head, RECORD);
    assert_int_equal(bed_send(accepted, 0, 0, NULL, 0), PSD_OK);
    assert_int_equal(hand_drain(&hand), 0);

    /* The second wakes it, once however many follow, until it has read something. */
    assert_int_equal(bed_send(accepted, 1, 0, NULL, 0), PSD_OK);
    assert_int_equal(hand_drain(&hand), 1);
    assert_int_equal(bed_send(accepted, 2, 0, NULL, 0), PSD_OK);
    assert_int_equal(hand_drain(&hand), 0);
    atomic_store(&hand.ring.mine->head, 2 * RECORD);
    assert_int_equal(bed_send(accepted, 3, 0, NULL, 0), PSD_OK);
    assert_int_equal(hand_drain(&hand), 1);
    hand_close(&hand);
    bed_destroy(bed);
}

/* If this fails, a peer that waits for room is told of it once and never again. */
static void
test_told_of_room_every_time(void **state)
{
    struct bed *bed = bed_create(&shared, NULL, NULL);
    struct psi_bell *bell;
    uint8_t head[PSI_PREFIX_BYTES];
    const struct psi_shm_record record = good_record(head, 0);
    struct hand hand;

    (void)state;
    bed_start_thread(bed);
    hand_share(&hand, bed->address);
    bed_stop_thread(bed);
    bell = (struct psi_bell *)(void *)hand.bell.base;
    atomic_store(&bell->sleepers, 1);
    for (unsigned i = 0; i < 3; i++) {
        hand_put(&hand, &record, head, sizeof(head));
        atomic_store(&hand.ring.mine->starved, 1);
        bed_pump_loop(bed->server);
        assert_int_equal(bed->accepted[0].frames, i + 1);
        assert_int_equal(hand_drain(&hand), 1);
    }
    hand_put(&hand, &record, head, sizeof(head)); /* there was room: it does not wait any more */
    bed_pump_loop(bed->server);
    assert_int_equal(bed->accepted[0].frames, 4);
    assert_int_equal(hand_drain(&hand), 0);
    hand_close(&hand);
    bed_destroy(bed);
}

int
main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_bad_records),
        TEST(test_frames_that_contradict_their_record),
        TEST(test_bad_tails),
        TEST(test_bad_heads),
        TEST(test_block_returned_twice),
        TEST(test_bad_announcements),
        TEST(test_lent_memory_cannot_be_taken_away),
        TEST(test_bad_introductions),
        TEST(test_words_at_the_wrong_time),
        TEST(test_staying_with_the_stream),
        TEST(test_answers_that_make_no_sense),
        TEST(test_writes_without_end),
        TEST(test_knocks_without_end),
        TEST(test_scribbles),
        cmocka_unit_test(test_words_after_its_end),
        cmocka_unit_test(test_many_messages_take_many_turns),
        cmocka_unit_test(test_woken_for_what_is_unread),
        cmocka_unit_test(test_told_of_room_every_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
