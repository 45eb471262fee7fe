/*
 * carrier_shm_test.c - what is particular to shared memory: what is lent and what is copied, for how long,
 * what happens when there is no room, and who does not get as far as that. The rest is in
 * conformance_test.c, liars are in shm_hostile_test.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/segment.h"
#include "transport/conformance_bed.h"
#include "transport/shm/shm_format.h"

enum { KIB = 1024, MIB = 1024 * 1024, NOBODY = 65534 };

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

static unsigned
count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        count += strstr(line, "/memfd:psd") != NULL;
    }
    fclose(maps);
    return count;
}

static struct bed *
linked_bed(struct end *end)
{
    struct bed *bed = bed_create(&shared, NULL, NULL);

    bed_connect(bed, end);
    BED_WAIT(bed, end->opens == 1 && bed->accepted_count == 1);
    assert_true(end->conn->lends && bed->accepted[0].conn->lends);
    return bed;
}

/* Memory that the client of the bed lends. */
static struct psi_segment *
lend(struct bed *bed, size_t bytes)
{
    struct psi_segment *segment = malloc(sizeof(*segment));

    assert_non_null(segment);
    assert_int_equal(psi_segment_create(segment, bytes, NULL), PSD_OK);
    psi_loop_env(bed->client)->ops->lend(psi_loop_env(bed->client), segment);
    return segment;
}

static void
take_back(struct bed *bed, struct psi_segment *segment)
{
    psi_loop_env(bed->client)->ops->take_back(psi_loop_env(bed->client), segment);
    psi_segment_destroy(segment);
    free(segment);
}

static uint8_t *
filled(uint64_t number, size_t bytes)
{
    uint8_t *payload = malloc(bytes + 1);

    assert_non_null(payload);
    bed_fill(payload, number, bytes);
    return payload;
}

/* ---- What is lent, what is copied ---- */

/* If this fails, a payload of some size goes another way than it should, or arrives damaged. */
static void
test_every_size_goes_its_way(void **state)
{
    static const size_t sizes[] = {1,
                                   4096,
                                   PSI_SHM_INLINE_MAX,
                                   PSI_SHM_INLINE_MAX + 1,
                                   64 * KIB,
                                   512 * KIB - 1,
                                   512 * KIB,
                                   512 * KIB + 1,
                                   MIB,
                                   5 * MIB,
                                   16 * MIB};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    struct end end = {0};
    struct bed *bed = linked_bed(&end);
    struct psi_segment *memory = lend(bed, 17 * MIB);
    const struct end *peer = &bed->accepted[0];
    unsigned number = 0;

    (void)state;
    for (unsigned i = 0; i < SIZES; i++) {
        const unsigned one = sizes[i] <= PSI_SHM_INLINE_MAX ? 0 : 1; /* small ones travel along */
        uint8_t *ordinary = filled(number, sizes[i]);
        const unsigned lent = peer->lent;
        const unsigned stayed = peer->stayed;

        /* from ordinary memory: copied, whatever its owner promises */
        assert_int_equal(bed_send_stable(&end, number, ordinary, sizes[i]), PSD_OK);
        number++;
        BED_WAIT(bed, peer->frames == number);
        assert_int_equal(peer->lent, lent + one);
        assert_int_equal(peer->stayed, stayed);
        free(ordinary);

        /* from lent memory: in place, at any offset */
        bed_fill(memory->base + 8 * i, number, sizes[i]);
        assert_int_equal(bed_send_stable(&end, number, memory->base + 8 * i, sizes[i]), PSD_OK);
        number++;
        BED_WAIT(bed, peer->frames == number);
        assert_int_equal(peer->lent, lent + 2 * one);
        assert_int_equal(peer->stayed, stayed + one);

        /* ... unless it may change */
        bed_fill(memory->base, number, sizes[i]);
        assert_int_equal(bed_send(&end, number, 3, memory->base, sizes[i]), PSD_OK);
        number++;
        BED_WAIT(bed, peer->frames == number);
        assert_int_equal(peer->lent, lent + 3 * one);
        assert_int_equal(peer->stayed, stayed + one);
        assert_int_equal(end.releases, number);
    }
    assert_int_equal(peer->bad, 0);
    take_back(bed, memory);
    bed_destroy(bed);
}

/* If this fails, what is called lent is a copy after all, or a copy is not one. */
static void
test_lent_is_the_same_memory(void **state)
{
    enum { BYTES = 100 * KIB };
    struct end end = {0};
    struct bed *bed = linked_bed(&end);
    struct psi_segment *memory = lend(bed, BYTES);
    struct end *peer = &bed->accepted[0];

    (void)state;
    peer->keep = true;
    bed_fill(memory->base, 0, BYTES);
    assert_int_equal(bed_send_stable(&end, 0, memory->base, BYTES), PSD_OK);
    assert_int_equal(bed_send(&end, 1, 0, memory->base, BYTES), PSD_OK);
    assert_int_equal(end.releases, 2);
    BED_WAIT(bed, peer->frames == 2);
    memory->base[0] ^= 0xff;
    assert_int_equal(peer->kept[0].payload[0], memory->base[0]);
    assert_int_not_equal(peer->kept[1].payload[0], memory->base[0]);
    bed_give_back(peer);
    take_back(bed, memory);
    bed_destroy(bed);
}

/* If this fails, a piece that lies half in lent memory is read beyond its end. */
static void
test_half_in_lent_memory_is_copied(void **state)
{
    enum { BYTES = 64 * KIB };
    struct end end = {0};
    struct bed *bed = linked_bed(&end);
    struct psi_segment *memory = lend(bed, BYTES);
    uint8_t head[PSI_PREFIX_BYTES];
    const struct psi_outgoing frame = {
        .head = head,
        .head_bytes = bed_head(head, 0, 0, BYTES),
        .buffers = {{memory->base, BYTES / 2}, {memory->base + BYTES / 2, BYTES / 2}},
        .buffer_count = 2,
        .stable = true,
    };

    (void)state;
    bed_fill(memory->base, 0, BYTES);
    assert_int_equal(end.conn->ops->send(end.conn, &frame), PSD_OK); /* two pieces: copied */
    BED_WAIT(bed, bed->accepted[0].frames == 1);
    assert_int_equal(bed->accepted[0].stayed, 0);
    assert_int_equal(bed->accepted[0].bad, 0);
    take_back(bed, memory);
    bed_destroy(bed);
}

/* ---- For how long ---- */

/* If this fails, a gradient that was given vanishes with the connection, or with its worker. */
static void
test_loans_outlive_the_connection(void **state)
{
    enum { BYTES = 100 * KIB };
    enum { BY_US, BY_PEER, BY_LOOP, ENDINGS };
    const unsigned descriptors = count_descriptors();
    uint8_t *copied = filled(1, BYTES);

    (void)state;
    for (int ending = 0; ending < ENDINGS; ending++) {
        struct end end = {0};
        struct bed *bed = linked_bed(&end);
        struct psi_segment *memory = lend(bed, BYTES);
        struct end *peer = &bed->accepted[0];
        struct end kept;

        peer->keep = true;
        bed_fill(memory->base, 0, BYTES);
        assert_int_equal(bed_send_stable(&end, 0, memory->base, BYTES), PSD_OK);
        assert_int_equal(bed_send(&end, 1, 0, copied, BYTES), PSD_OK);
        BED_WAIT(bed, peer->frames == 2);
        assert_int_equal(peer->kept_count, 2);
        if (ending == BY_US) {
            bed_hang_up(&end);
            BED_WAIT(bed, peer->closes == 1);
        } else if (ending == BY_PEER) {
            bed_hang_up(peer);
            BED_WAIT(bed, end.closes == 1);
        }
        take_back(bed, memory); /* the lender has no more of it */
        kept = *peer;
        peer->kept = NULL;
        peer->kept_count = 0;
        bed_destroy(bed);
        assert_true(bed_kept_are_right(&kept));
        bed_give_back(&kept);
        assert_int_equal(count_mappings(), 0);
        assert_int_equal(count_descriptors(), descriptors);
    }
    free(copied);
}

/* If this fails, memory that was freed and made anew is taken for the old, a loan of the old one
 * changes, or numbers run out some day and all is copied from then on. */
static void
test_memory_taken_back(void **state)
{
    enum { BYTES = 16 * KIB, TIMES = 5 * PSI_SHM_SEGMENTS_MAX };
    struct end end = {0};
    struct bed *bed = linked_bed(&end);
    struct end *peer = &bed->accepted[0];
    unsigned mappings = 0;

    (void)state;
    peer->keep = true;
    for (unsigned i = 0; i < TIMES; i++) {
        struct psi_segment *memory = lend(bed, BYTES);

        bed_fill(memory->base, i, BYTES);
        assert_int_equal(bed_send_stable(&end, i, memory->base, BYTES), PSD_OK);
        BED_WAIT(bed, peer->frames == i + 1);
        take_back(bed, memory);
        assert_true(bed_kept_are_right(peer));
        bed_give_back(peer);
        bed_pump(bed);
        if (i == 10) {
            mappings = count_mappings();
        } else if (i % PSI_SHM_SEGMENTS_MAX == PSI_SHM_SEGMENTS_MAX / 2) {
            assert_int_equal(count_mappings(), mappings); /* nothing of the old stays */
        }
    }
    assert_int_equal(peer->stayed, TIMES);
    assert_int_equal(peer->bad, 0);
    bed_destroy(bed);
}

/* ---- When there is no room ---- */

/* If this fails, two that speak at once without listening block each other for ever. */
static void
test_both_rings_full(void **state)
{
    enum { FRAMES = 2000, BYTES = 1000 };
    struct end end = {0};
    struct bed *bed = linked_bed(&end);
    struct end *peer = &bed->accepted[0];
    uint8_t *payloads = malloc((size_t)FRAMES * BYTES);

    (void)state;
    assert_non_null(payloads);
    for (unsigned i = 0; i < FRAMES; i++) {
        bed_fill(payloads + (size_t)i * BYTES, i, BYTES);
        assert_int_equal(bed_send(&end, i, 0, payloads + (size_t)i * BYTES, BYTES), PSD_OK);
        assert_int_equal(bed_send(peer, i, 0, payloads + (size_t)i * BYTES, BYTES), PSD_OK);
    }
    assert_true(end.conn->ops->queued_bytes(end.conn) > 0);
    assert_true(peer->conn->ops->queued_bytes(peer->conn) > 0);
    BED_WAIT(bed, end.frames == FRAMES && peer->frames == FRAMES);
    assert_int_equal(end.bad + peer->bad, 0);
    assert_int_equal(end.releases, FRAMES);
    bed_destroy(bed);
    free(payloads);
}

/* If this fails, a peer that keeps copies stops more than what would exceed its share, or what
 * waited is lost when it gives them back. */
static void
test_copies_run_out(void **state)
{
    static const size_t sizes[] = {9000, 256 * KIB, 512 * KIB, MIB};

    (void)state;
    for (unsigned s = 0; s < 4; s++) {
        enum { FRAMES = 400 };
        const unsigned frames = sizes[s] > 100000 ? FRAMES / 4 : FRAMES;
        struct end end = {0};
        struct bed *bed = linked_bed(&end);
        struct end *peer = &bed->accepted[0];
        uint8_t *payload = filled(0, sizes[s]);
        unsigned heard;

        peer->keep = true;
        for (unsigned i = 0; i < frames; i++) {
            bed_fill(payload, i, sizes[s]);
            assert_int_equal(bed_send(&end, i, 0, payload, sizes[s]), PSD_OK);
            assert_int_equal(end.conn->ops->unshare(end.conn, payload, sizes[s]), PSD_OK);
            if (end.conn->ops->queued_bytes(end.conn) > 32 * MIB) {
                break; /* more than enough waits */
            }
        }
        for (unsigned i = 0; i < 20; i++) {
            bed_pump(bed);
        }
        heard = peer->frames;
        assert_true(heard < end.releases);
        assert_true(heard > PSI_COPIES_KEPT_MAX ||
                    heard * sizes[s] > PSI_COPIES_KEPT_BYTES_MAX); /* what may be kept */
        assert_true(bed_kept_are_right(peer));
        while (peer->frames < end.releases) {
            heard = peer->frames;
            bed_give_back(peer);
            BED_WAIT(bed, peer->frames > heard);
            assert_true(bed_kept_are_right(peer));
        }
        assert_int_equal(peer->bad, 0);
        bed_give_back(peer);
        bed_destroy(bed);
        free(payload);
    }
}

/* If this fails, more new memory than the socket has room for breaks the connection. */
static void
test_socket_full_of_memory(void **state)
{
    enum { SEGMENTS = 500, BYTES = 16 * KIB };
    struct end end = {0};
    struct bed *bed = linked_bed(&end);
    struct end *peer = &bed->accepted[0];
    struct psi_segment **memory = calloc(SEGMENTS, sizeof(*memory));
    struct psi_loop_ready ready;

    (void)state;
    assert_non_null(memory);
    for (unsigned i = 0; i < SEGMENTS; i++) {
        memory[i] = lend(bed, BYTES);
        bed_fill(memory[i]->base, i, BYTES);
        assert_int_equal(bed_send_stable(&end, i, memory[i]->base, BYTES), PSD_OK);
    }
    assert_true(end.conn->ops->queued_bytes(end.conn) > 0);
    BED_WAIT(bed, peer->frames == SEGMENTS);
    assert_int_equal(peer->bad, 0);
    assert_int_equal(peer->stayed, SEGMENTS);
    /* Nobody is woken any more because there is room. */
    bed_pump(bed);
    assert_int_equal(psi_loop_wait(bed->client, 0, &ready, NULL), PSD_OK);
    assert_int_equal(ready.count, 0);
    for (unsigned i = 0; i < SEGMENTS; i++) {
        take_back(bed, memory[i]);
    }
    bed_destroy(bed);
    free(memory);
}

/* If this fails, a number is used again before the peer has forgotten what it was: descriptors and
 * records take different ways, so they may overtake each other. */
static void
test_memory_comes_and_goes_unread(void **state)
{
    enum { ROUNDS = 8, TIMES = 300, BYTES = 12 * KIB };
    struct end end = {0};
    struct bed *bed = linked_bed(&end);
    const struct end *peer = &bed->accepted[0];
    unsigned number = 0;

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < TIMES; i++) {
            struct psi_segment *memory = lend(bed, BYTES);

            bed_fill(memory->base, number, BYTES);
            assert_int_equal(bed_send_stable(&end, number, memory->base, BYTES), PSD_OK);
            assert_int_equal(end.conn->ops->unshare(end.conn, memory->base, BYTES), PSD_OK);
            take_back(bed, memory);
            number++;
        }
        BED_WAIT(bed, peer->frames == number);
        assert_int_equal(end.closes + peer->closes, 0);
    }
    assert_int_equal(peer->bad, 0);
    assert_true(peer->stayed > TIMES); /* what finds no room is copied */
    bed_destroy(bed);
}

/* If this fails, last words are lost when they do not fit the ring, or a peer that goes on speaking
 * holds up one that is leaving. */
static void
test_leaving_with_much_to_say(void **state)
{
    enum { FRAMES = 4000, BYTES = 1000 };
    struct bed *bed = bed_create(&shared, NULL, NULL);
    struct end end = {0};
    struct end *peer = &bed->accepted[0];
    uint8_t *payloads = malloc((size_t)FRAMES * BYTES);

    (void)state;
    assert_non_null(payloads);
    bed->model.echo = true; /* all of it is answered, to one who does not listen any more */
    bed_connect(bed, &end);
    BED_WAIT(bed, end.opens == 1 && bed->accepted_count == 1);
    for (unsigned i = 0; i < FRAMES; i++) {
        bed_fill(payloads + (size_t)i * BYTES, i, BYTES);
        assert_int_equal(bed_send(&end, i, 0, payloads + (size_t)i * BYTES, BYTES), PSD_OK);
    }
    assert_true(end.conn->ops->queued_bytes(end.conn) > 2 * MIB);
    end.conn->ops->close_after_send(end.conn, 60000);
    end.conn = NULL;
    bed_start_thread(bed);
    while (end.releases < FRAMES) {
        assert_int_equal(psi_loop_run_once(bed->client, 10000, NULL), PSD_OK);
    }
    bed_stop_thread(bed);
    BED_WAIT(bed, peer->closes == 1);
    assert_int_equal(peer->frames, FRAMES);
    assert_int_equal(peer->bad, 0);
    assert_int_equal(end.frames + end.closes, 0);
    bed_destroy(bed);
    free(payloads);
}

/* If this fails, words to a peer that has gone are an error before it is known, or never one. */
static void
test_peer_gone_is_noticed_by_the_loop(void **state)
{
    struct end end = {0};
    struct bed *bed = linked_bed(&end);
    unsigned sent;

    (void)state;
    bed_hang_up(&bed->accepted[0]);
    for (sent = 0; sent < 10000; sent++) {
        assert_int_equal(bed_send(&end, sent, 0, NULL, 0), PSD_OK);
    }
    assert_int_equal(end.closes, 0);
    BED_WAIT(bed, end.closes == 1);
    assert_int_equal(end.reason.status, PSD_ERR_PEER_LOST);
    assert_int_equal(end.releases, sent);
    bed_destroy(bed);
}

/* ---- A peer that dies ---- */

/* Sends what it can and is gone without a word. */
static void
die_sending(const char *address, unsigned frames, size_t bytes)
{
    struct bed bed = {0}; /* only a client */
    struct end end = {0};
    struct psi_segment memory;
    const struct psi_loop_config config = {.lends = true};

    if (psi_loop_create(&config, &bed.client, NULL) != PSD_OK ||
        psi_segment_create(&memory, frames * bytes, NULL) != PSD_OK) {
        _exit(1);
    }
    psi_loop_env(bed.client)->ops->lend(psi_loop_env(bed.client), &memory);
    snprintf(bed.address, sizeof(bed.address), "%s", address);
    bed_connect(&bed, &end);
    while (end.opens == 0) {
        if (psi_loop_run_once(bed.client, 1000, NULL) != PSD_OK) {
            _exit(1);
        }
    }
    for (unsigned i = 0; i < frames; i++) {
        bed_fill(memory.base + i * bytes, i, bytes);
        if (bed_send_stable(&end, i, memory.base + i * bytes, bytes) != PSD_OK) {
            _exit(1);
        }
    }
    kill(getpid(), SIGKILL);
}

/* If this fails, what a peer had given before it was killed does not count, or takes its memory
 * along. */
static void
test_peer_killed_between_records(void **state)
{
    static const size_t sizes[] = {1000, 100 * KIB};

    (void)state;
    for (unsigned s = 0; s < 2; s++) {
        enum { FRAMES = 100 };
        struct bed *bed = bed_create(&shared, NULL, NULL);
        struct end *peer = &bed->accepted[0];
        pid_t child;
        int status;

        bed->model.keep = true;
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            die_sending(bed->address, FRAMES, sizes[s]);
        }
        BED_WAIT(bed, peer->closes == 1);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(peer->frames, FRAMES);
        assert_int_equal(peer->bad, 0);
        assert_int_equal(peer->reason.status, PSD_ERR_PEER_LOST);
        assert_int_equal(peer->kept_count, s == 0 ? 0 : FRAMES);
        assert_true(bed_kept_are_right(peer));
        bed_give_back(peer);
        assert_int_equal(count_mappings(), 2); /* the bells of our own loops */
        bed_destroy(bed);
    }
}

/* ---- Who does not share ---- */

static void
expect_plain(struct bed *bed, struct end *end)
{
    uint8_t *payload = filled(0, 100 * KIB);

    bed->model.echo = true;
    bed_connect(bed, end);
    assert_int_equal(bed_send(end, 0, 0, payload, 100 * KIB), PSD_OK);
    BED_WAIT(bed, end->frames == 1);
    assert_false(end->conn->lends);
    assert_false(bed->accepted[0].conn->lends);
    assert_int_equal(end->bad + bed->accepted[0].bad + bed->accepted[0].lent, 0);
    free(payload);
}

/* If this fails, a side that does not want to share is made to, or cannot be reached any more. */
static void
test_one_side_does_not_want_to(void **state)
{
    static const struct bed_transport plain = {.name = "tcp", .listen_at = "tcp://127.0.0.1:0"};
    const struct psi_loop_config shares = {.lends = true};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct end end = {0};
        struct bed *bed = bed_create(&plain, i == 0 ? &shares : NULL, i == 0 ? NULL : &shares);

        expect_plain(bed, &end);
        bed_destroy(bed);
    }
}

/* Connects as another user and tells by the exit status whether memory was shared. */
static void
connect_as_nobody(const char *address)
{
    struct bed bed = {0};
    struct end end = {0};
    const struct psi_loop_config config = {.lends = true};
    uint8_t payload[100];

    bed_fill(payload, 0, sizeof(payload));
    if (setuid(NOBODY) != 0 || psi_loop_create(&config, &bed.client, NULL) != PSD_OK) {
        _exit(1);
    }
    snprintf(bed.address, sizeof(bed.address), "%s", address);
    bed_connect(&bed, &end);
    if (bed_send(&end, 0, 0, payload, sizeof(payload)) != PSD_OK) {
        _exit(1);
    }
    while (end.frames == 0 && end.closes == 0) {
        if (psi_loop_run_once(bed.client, 1000, NULL) != PSD_OK) {
            _exit(1);
        }
    }
    _exit(end.closes > 0 || end.bad > 0 ? 1 : end.conn->lends ? 2 : 0);
}

/* If this fails, another user of this host gets a look at our memory, or is not served at all. */
static void
test_another_user_is_served_over_tcp(void **state)
{
    const unsigned descriptors = count_descriptors();
    struct bed *bed;
    pid_t child;
    int status;

    (void)state;
    if (geteuid() != 0) {
        skip(); /* only root can become somebody else */
    }
    bed = bed_create(&shared, NULL, NULL);
    bed->model.echo = true;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        connect_as_nobody(bed->address);
    }
    BED_WAIT(bed, bed->accepted_count == 1 && bed->accepted[0].closes == 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    bed_destroy(bed);
    assert_int_equal(count_descriptors(), descriptors);
}

/* ---- Nothing stays behind ---- */

/* If this fails, a connection that ends somewhere between tcp and shared memory leaves descriptors
 * or mappings. */
static void
test_ended_at_every_moment(void **state)
{
    const unsigned descriptors = count_descriptors();
    enum { PUMPS = 14 };
    bool opened = false;

    (void)state;
    for (unsigned pumps = 0; pumps < PUMPS; pumps++) {
        for (unsigned who = 0; who < 3; who++) {
            struct bed *bed = bed_create(&shared, NULL, NULL);
            struct end end = {0};

            bed_connect(bed, &end);
            for (unsigned i = 0; i < pumps; i++) {
                bed_pump_loop(i % 2 == 0 ? bed->client : bed->server);
            }
            opened = opened || end.opens == 1;
            if (who == 0) {
                bed_hang_up(&end);
                if (bed->accepted_count == 1) {
                    BED_WAIT(bed, bed->accepted[0].closes == 1);
                }
            } else if (who == 1 && bed->accepted_count == 1) {
                bed_hang_up(&bed->accepted[0]);
                BED_WAIT(bed, end.closes == 1);
            }
            bed_destroy(bed);
            assert_int_equal(count_mappings(), 0);
            assert_int_equal(count_descriptors(), descriptors);
        }
    }
    assert_true(opened); /* so that all moments were among them */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size_goes_its_way),
        cmocka_unit_test(test_lent_is_the_same_memory),
        cmocka_unit_test(test_half_in_lent_memory_is_copied),
        cmocka_unit_test(test_loans_outlive_the_connection),
        cmocka_unit_test(test_memory_taken_back),
        cmocka_unit_test(test_both_rings_full),
        cmocka_unit_test(test_copies_run_out),
        cmocka_unit_test(test_socket_full_of_memory),
        cmocka_unit_test(test_memory_comes_and_goes_unread),
        cmocka_unit_test(test_leaving_with_much_to_say),
        cmocka_unit_test(test_peer_gone_is_noticed_by_the_loop),
        cmocka_unit_test(test_peer_killed_between_records),
        cmocka_unit_test(test_one_side_does_not_want_to),
        cmocka_unit_test(test_another_user_is_served_over_tcp),
        cmocka_unit_test(test_ended_at_every_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
