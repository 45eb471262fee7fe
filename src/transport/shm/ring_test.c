/*
 * ring_test.c - records through a ring: every way they can lie in it, and a writer that lies.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "transport/shm/ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEAD = 8 }; /* bytes in front of every record */

struct dice {
    uint64_t state;
};

static size_t
roll(struct dice *dice, size_t sides)
{
    dice->state = dice->state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(dice->state >> 33) % sides;
}

static struct dice
new_dice(void)
{
    const struct dice dice = {(uint64_t)time(NULL)};

    print_message("seed %llu\n", (unsigned long long)dice.state);
    return dice;
}

/* One side with nothing behind it: whoever reads further dies. */
struct fenced {
    uint8_t *mapping;
    size_t bytes;
    struct psi_ring_side *side;
};

static void
fence(struct fenced *fenced)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = (sizeof(struct psi_ring_side) + page - 1) / page * page;

    fenced->bytes = body + 2 * page;
    fenced->mapping = mmap(NULL, fenced->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(fenced->mapping, MAP_FAILED);
    assert_int_equal(mprotect(fenced->mapping + page, body, PROT_READ | PROT_WRITE), 0);
    fenced->side = (struct psi_ring_side *)(void *)(fenced->mapping + page + body -
                                                    sizeof(struct psi_ring_side));
}

/* Both ends of one connection. */
struct rings {
    struct fenced near_memory;
    struct fenced far_memory;
    struct psi_ring near;
    struct psi_ring far;
};

static int
create_rings(void **state)
{
    struct rings *rings = calloc(1, sizeof(*rings));

    if (rings == NULL) {
        return -1;
    }
    fence(&rings->near_memory);
    fence(&rings->far_memory);
    psi_ring_init(&rings->near, rings->near_memory.side, rings->far_memory.side);
    psi_ring_init(&rings->far, rings->far_memory.side, rings->near_memory.side);
    *state = rings;
    return 0;
}

static int
destroy_rings(void **state)
{
    struct rings *rings = *state;

    munmap(rings->near_memory.mapping, rings->near_memory.bytes);
    munmap(rings->far_memory.mapping, rings->far_memory.bytes);
    free(rings);
    return 0;
}

static uint8_t
pattern(uint64_t number, size_t index)
{
    return (uint8_t)(index * 7 + (index >> 8) * 3 + number * 31);
}

/* Writes record `number`; false: the ring is full. */
static bool
put(struct psi_ring *ring, uint64_t number, size_t bytes)
{
    psd_status status = PSD_ERR_INTERNAL;
    uint8_t *room = psi_ring_reserve(ring, bytes, &status);

    assert_int_equal(status, PSD_OK);
    if (room == NULL) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        room[i] = pattern(number, i);
    }
    psi_ring_commit(ring, true);
    return true;
}

/* Reads a record and checks that it is `number`; false: there is none. */
static bool
get(struct psi_ring *ring, uint64_t number, size_t bytes)
{
    const uint8_t *record = NULL;
    size_t count = 0;
    const psd_status status = psi_ring_peek(ring, &record, &count);

    if (status == PSD_PENDING) {
        return false;
    }
    assert_int_equal(status, PSD_OK);
    assert_int_equal(count, bytes);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(record[i], pattern(number, i));
    }
    psi_ring_consume(ring);
    return true;
}

/* If this fails, a reserved record is seen before it is written, or a committed one is not. */
static void
test_committed_is_seen(void **state)
{
    struct rings *rings = *state;
    psd_status status;

    assert_false(psi_ring_is_ready(&rings->far));
    assert_false(get(&rings->far, 0, 0));
    assert_non_null(psi_ring_reserve(&rings->near, 100, &status));
    assert_false(psi_ring_is_ready(&rings->far));
    assert_false(get(&rings->far, 0, 0));
    assert_true(put(&rings->near, 1, 100));
    assert_true(psi_ring_is_ready(&rings->far));
    assert_true(put(&rings->near, 2, 0));
    assert_true(get(&rings->far, 1, 100));
    assert_true(get(&rings->far, 2, 0));
    assert_false(psi_ring_is_ready(&rings->far));
    assert_false(psi_ring_is_ready(&rings->near)); /* the other way is another ring */
}

/* If this fails, a record that is looked at twice is used up, or used up without being heard. */
static void
test_peek_does_not_consume(void **state)
{
    struct rings *rings = *state;
    const uint8_t *first;
    const uint8_t *again;
    size_t bytes;

    assert_true(put(&rings->near, 1, 24));
    assert_int_equal(psi_ring_peek(&rings->far, &first, &bytes), PSD_OK);
    assert_int_equal(psi_ring_peek(&rings->far, &again, &bytes), PSD_OK);
    assert_ptr_equal(first, again);
    assert_true(get(&rings->far, 1, 24));
    assert_false(get(&rings->far, 0, 0));
}

/* If this fails, a ring that is full loses records, or never takes any again. */
static void
test_full(void **state)
{
    enum { BYTES = 1024 - HEAD, FIT = PSI_RING_BYTES / 1024 };
    struct rings *rings = *state;

    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < FIT; i++) {
            assert_true(put(&rings->near, i, BYTES));
        }
        assert_false(put(&rings->near, 0, 0));
        assert_false(put(&rings->near, 0, BYTES));
        for (unsigned i = 0; i < FIT; i++) {
            assert_true(get(&rings->far, i, BYTES));
            assert_true(put(&rings->near, FIT + i, BYTES));
            assert_false(put(&rings->near, 0, 0));
        }
        for (unsigned i = 0; i < FIT; i++) {
            assert_true(get(&rings->far, FIT + i, BYTES));
        }
        assert_false(get(&rings->far, 0, 0));
    }
}

/* If this fails, some way to end at the end of the ring breaks a record in two, or leaves a gap
 * that the reader takes for a record. */
static void
test_every_way_to_the_end(void **state)
{
    struct rings *rings = *state;
    uint64_t number = 0;

    for (size_t left = 0; left <= 64; left += 8) {
        for (size_t bytes = 0; bytes <= 72; bytes++) {
            /* Go to where so many bytes are left before the end. */
            while (rings->near.tail % PSI_RING_BYTES != (PSI_RING_BYTES - left) % PSI_RING_BYTES) {
                const size_t to_go =
                    (2 * PSI_RING_BYTES - left - rings->near.tail % PSI_RING_BYTES) %
                    PSI_RING_BYTES;
                const size_t step = to_go > 16384 ? 16384 : to_go;

                assert_true(put(&rings->near, number, step - HEAD));
                assert_true(get(&rings->far, number, step - HEAD));
                number++;
            }
            assert_true(put(&rings->near, number, bytes));
            assert_true(put(&rings->near, number + 1, bytes));
            assert_true(get(&rings->far, number, bytes));
            assert_true(get(&rings->far, number + 1, bytes));
            assert_false(get(&rings->far, 0, 0));
            number += 2;
        }
    }
}

/* If this fails, some sequence of records comes out different from how it went in. */
static void
test_random_sizes_against_a_model(void **state)
{
    enum { TURNS = 200000, MODEL = PSI_RING_BYTES / HEAD };
    struct rings *rings = *state;
    struct dice dice = new_dice();
    size_t *model = calloc(MODEL, sizeof(*model)); /* sizes of what is in the ring */
    uint64_t written = 0;
    uint64_t read = 0;

    assert_non_null(model);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        /* Sometimes the one is faster, sometimes the other. */
        if (roll(&dice, 100) < (turn / 5000 % 2 == 0 ? 60u : 40u)) {
            const size_t scale = roll(&dice, 3);
            const size_t bytes = roll(&dice, scale == 0   ? 64
                                             : scale == 1 ? 4096
                                                          : PSI_RING_RECORD_MAX + 1);

            if (put(&rings->near, written, bytes)) {
                model[written % MODEL] = bytes;
                written++;
            }
        } else {
            assert_int_equal(get(&rings->far, read, model[read % MODEL]), read < written);
            read += read < written;
        }
    }
    while (read < written) {
        assert_true(get(&rings->far, read, model[read % MODEL]));
        read++;
    }
    assert_false(get(&rings->far, 0, 0));
    free(model);
}

/* ---- Two threads ---- */

enum { THREAD_RECORDS = 300000 };

static size_t
size_of(uint64_t number)
{
    return (size_t)(number * 2654435761u >> 7) % (number % 100 == 0 ? 20000 : 100);
}

static void *
write_many(void *context)
{
    struct psi_ring *ring = context;

    for (uint64_t i = 0; i < THREAD_RECORDS; i++) {
        const size_t bytes = size_of(i);
        psd_status status = PSD_OK;
        uint8_t *room;

        while ((room = psi_ring_reserve(ring, bytes, &status)) == NULL) {
            if (status != PSD_OK) {
                return ring;
            }
            sched_yield();
        }
        memset(room, (int)(i & 0xff), bytes);
        psi_ring_commit(ring, true);
    }
    return NULL;
}

/* If this fails, a reader on another core sees a record before its bytes, or a writer overwrites
 * one that is still being read. */
static void
test_two_threads(void **state)
{
    struct rings *rings = *state;
    pthread_t writer;
    void *failed = NULL;

    assert_int_equal(pthread_create(&writer, NULL, write_many, &rings->near), 0);
    for (uint64_t i = 0; i < THREAD_RECORDS; i++) {
        const uint8_t *record;
        size_t bytes;
        psd_status status;

        while ((status = psi_ring_peek(&rings->far, &record, &bytes)) == PSD_PENDING) {
            sched_yield();
        }
        assert_int_equal(status, PSD_OK);
        assert_int_equal(bytes, size_of(i));
        for (size_t j = 0; j < bytes; j++) {
            assert_int_equal(record[j], i & 0xff);
        }
        psi_ring_consume(&rings->far);
    }
    pthread_join(writer, &failed);
    assert_null(failed);
}

/* ---- A peer that lies ---- */

static void
write_head(struct psi_ring_side *side, uint64_t at, uint32_t bytes, uint32_t gap)
{
    memcpy(side->data + at % PSI_RING_BYTES, &bytes, sizeof(bytes));
    memcpy(side->data + at % PSI_RING_BYTES + sizeof(bytes), &gap, sizeof(gap));
}

static psd_status
peek_only(struct psi_ring *ring)
{
    const uint8_t *record;
    size_t bytes;

    return psi_ring_peek(ring, &record, &bytes);
}

/* If this fails, a writer can make its reader believe in bytes that are not there. */
static void
test_hostile_tails(void **state)
{
    static const uint64_t tails[] = {1,
                                     7,
                                     9,
                                     12,
                                     PSI_RING_BYTES + 8,
                                     PSI_RING_BYTES + 4,
                                     2 * PSI_RING_BYTES,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX - 7,
                                     UINT64_MAX};
    struct rings *rings = *state;
    struct psi_ring_side *liar = rings->near_memory.side;

    for (unsigned i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        atomic_store(&liar->tail, tails[i]);
        assert_true(psi_ring_is_ready(&rings->far));
        assert_int_equal(peek_only(&rings->far), PSD_ERR_PROTOCOL);
    }

    /* ... and one that goes back behind what was read. */
    atomic_store(&liar->tail, 0);
    assert_true(put(&rings->near, 0, 100));
    assert_true(get(&rings->far, 0, 100));
    atomic_store(&liar->tail, 0);
    assert_int_equal(peek_only(&rings->far), PSD_ERR_PROTOCOL);
    atomic_store(&liar->tail, 104 - 8);
    assert_int_equal(peek_only(&rings->far), PSD_ERR_PROTOCOL);
}

/* If this fails, a reader can make its writer overwrite what it never read, or write outside. */
static void
test_hostile_heads(void **state)
{
    static const uint64_t heads[] = {PSI_RING_BYTES + 8, PSI_RING_BYTES + 1, UINT64_C(1) << 40,
                                     UINT64_MAX, UINT64_MAX - PSI_RING_BYTES};
    struct rings *rings = *state;
    struct psi_ring_side *liar = rings->far_memory.side;
    psd_status status;

    while (put(&rings->near, 0, 1024 - HEAD)) {
    }
    for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        atomic_store(&liar->head, heads[i]);
        assert_null(psi_ring_reserve(&rings->near, 8, &status));
        assert_int_equal(status, PSD_ERR_PROTOCOL);
        assert_null(psi_ring_reserve(&rings->near, 8, &status)); /* and again */
        assert_int_equal(status, PSD_ERR_PROTOCOL);
    }
    atomic_store(&liar->head, 1024); /* sense again */
    assert_non_null(psi_ring_reserve(&rings->near, 8, &status));
    psi_ring_commit(&rings->near, true);

    /* ... and one that takes back what it has said. */
    atomic_store(&liar->head, 0);
    while (psi_ring_reserve(&rings->near, 8, &status) != NULL) {
        psi_ring_commit(&rings->near, true);
    }
    assert_int_equal(status, PSD_ERR_PROTOCOL);
}

/* If this fails, a record's own words lead outside of the ring, or beyond what was written. */
static void
test_hostile_records(void **state)
{
    static const struct {
        uint64_t tail;
        uint32_t bytes;
        uint32_t gap;
    } lies[] = {
        {8, 1, 0},                           /* more than there is */
        {16, 9, 0},                          /* the padding is not there either */
        {16, UINT32_MAX, 0},                 /* padded, it does not fit 32 bits */
        {16, UINT32_MAX - 7, 0},             /* ... */
        {PSI_RING_BYTES, PSI_RING_BYTES, 0}, /* beyond the end of the ring */
        {PSI_RING_BYTES, PSI_RING_BYTES - 7, 0},
        {64, 56, 1}, /* a gap that does not end at the end */
        {64, 8, UINT32_MAX},
        {PSI_RING_BYTES, PSI_RING_BYTES - 16, 1},
        {8, PSI_RING_BYTES - 8, 1}, /* a gap that has not come yet */
    };
    struct rings *rings = *state;
    struct psi_ring_side *liar = rings->near_memory.side;

    for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        write_head(liar, 0, lies[i].bytes, lies[i].gap);
        atomic_store(&liar->tail, lies[i].tail);
        assert_int_equal(peek_only(&rings->far), PSD_ERR_PROTOCOL);
    }
}

/* If this fails, a ring of nothing but gaps keeps its reader for ever. */
static void
test_gaps_end(void **state)
{
    struct rings *rings = *state;
    struct psi_ring_side *liar = rings->near_memory.side;

    write_head(liar, 0, PSI_RING_BYTES - HEAD, 1);
    atomic_store(&liar->tail, PSI_RING_BYTES);
    assert_int_equal(peek_only(&rings->far), PSD_PENDING);
    atomic_store(&liar->tail, PSI_RING_BYTES + HEAD); /* the same gap once more, not all of it */
    assert_int_equal(peek_only(&rings->far), PSD_ERR_PROTOCOL);
}

/* If this fails, some bytes of a mad writer make its reader look outside of the ring (it dies), or
 * go on for ever. */
static void
test_scribbled_rings(void **state)
{
    enum { ROUNDS = 20000 };
    struct rings *rings = *state;
    struct psi_ring_side *liar = rings->near_memory.side;
    struct dice dice = new_dice();

    for (unsigned round = 0; round < ROUNDS; round++) {
        const uint64_t start = roll(&dice, 2 * PSI_RING_BYTES) / 8 * 8;
        const uint8_t *record;
        size_t bytes;
        unsigned heard = 0;

        psi_ring_init(&rings->far, rings->far_memory.side, liar);
        atomic_store(&rings->far.head, start);
        for (unsigned i = 0; i < 8; i++) { /* some of it nearly right */
            write_head(liar, start + roll(&dice, 128) / 8 * 8, (uint32_t)roll(&dice, 300),
                       (uint32_t)roll(&dice, 3) / 2);
        }
        liar->data[roll(&dice, PSI_RING_BYTES)] = (uint8_t)roll(&dice, 256);
        atomic_store(&liar->tail, start + roll(&dice, 4096) / 8 * 8);
        while (psi_ring_peek(&rings->far, &record, &bytes) == PSD_OK) {
            const size_t at = (size_t)(record - liar->data);

            assert_true(record >= liar->data);
            assert_true(at <= PSI_RING_BYTES && bytes <= PSI_RING_BYTES - at);
            if (bytes > 0) {
                assert_true(record[0] + record[bytes - 1] < 512); /* readable */
            }
            psi_ring_consume(&rings->far);
            assert_true(++heard <= 4096 / HEAD);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(function) cmocka_unit_test_setup_teardown(function, create_rings, destroy_rings)
        TEST(test_committed_is_seen),
        TEST(test_peek_does_not_consume),
        TEST(test_full),
        TEST(test_every_way_to_the_end),
        TEST(test_random_sizes_against_a_model),
        TEST(test_two_threads),
        TEST(test_hostile_tails),
        TEST(test_hostile_heads),
        TEST(test_hostile_records),
        TEST(test_gaps_end),
        TEST(test_scribbled_rings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
