/*
 * index_memory_test.c - the memory of indexes is used again, and they do not all grow at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/monotonic.h"
#include "store/sparse/ahead.h"
#include "store/sparse/index_memory.h"
#include "store/sparse/sparse_bed.h"
#include "store/sparse/state.h"

enum { LINE = 64 };

static struct index_memory
create(uint64_t rows)
{
    struct index_memory memory;
    struct psd_error err = {0};

    if (index_memory_init(&memory, rows, 1, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    return memory;
}

static char *
take(struct index_memory *memory, uint64_t lines)
{
    char *piece = (char *)(void *)index_memory_take(memory, lines * LINE);

    assert_non_null(piece);
    assert_int_equal((uintptr_t)piece % LINE, 0);
    for (uint64_t i = 0; i < lines * LINE; i++) {
        assert_int_equal(piece[i], 0);
    }
    memset(piece, 1, lines * LINE);
    return piece;
}

static void
give(struct index_memory *memory, char *piece, uint64_t lines)
{
    index_memory_give(memory, (struct group *)(void *)piece, lines * LINE);
}

/* If this fails, an index gets memory that another one has, or that is not zeroed, or indexes that
 * have grown leave holes which nobody uses. */
static void
test_holes_are_used(void **state)
{
    struct index_memory memory = create(100000);
    char *a = take(&memory, 4);
    char *b = take(&memory, 2);
    char *c = take(&memory, 3);
    char *d = take(&memory, 1);

    (void)state;
    give(&memory, a, 4);
    give(&memory, c, 3);
    assert_ptr_equal(take(&memory, 3), c); /* the smallest that fits, not the first */
    give(&memory, b, 2);                   /* beside a's: one of six */
    assert_int_equal(memory.hole_count, 1);
    assert_ptr_equal(take(&memory, 6), a);
    assert_int_equal(memory.hole_count, 0);
    give(&memory, a, 6);
    give(&memory, d, 1);
    give(&memory, c, 3); /* between two: all are one, which is the end */
    assert_int_equal(memory.hole_count, 0);
    assert_int_equal(memory.end, 0);
    index_memory_fini(&memory);
}

enum { PIECES = 300, TURNS = 20000, LINES_MAX = 40 };

/* If this fails, pieces that come and go lie over each other, or memory becomes more and more. */
static void
test_pieces_come_and_go(void **state)
{
    struct index_memory memory = create(100000);
    char *pieces[PIECES] = {0};
    uint64_t lines[PIECES] = {0};
    uint64_t random = 7;

    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        const uint64_t i = bed_below(&random, PIECES);

        if (pieces[i] != NULL) {
            for (uint64_t at = 0; at < lines[i] * LINE; at += LINE) {
                assert_int_equal(*(uint32_t *)(void *)(pieces[i] + at), i);
            }
            give(&memory, pieces[i], lines[i]);
            pieces[i] = NULL;
            continue;
        }
        lines[i] = 1 + bed_below(&random, LINES_MAX);
        pieces[i] = take(&memory, lines[i]);
        for (uint64_t at = 0; at < lines[i] * LINE; at += LINE) {
            *(uint32_t *)(void *)(pieces[i] + at) = (uint32_t)i;
        }
    }
    assert_true(memory.end <= (uint64_t)2 * PIECES * LINES_MAX / 2 * LINE);
    assert_true(memory.hole_count <= memory.used);
    index_memory_fini(&memory);
}

/* If this fails, the store takes more for its indexes than it has said, and goes beyond its bound. */
static void
test_what_it_wants_is_what_it_takes(void **state)
{
    struct index_memory memory = create(1000000);
    uint64_t random = 3;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        const uint64_t lines = 1 + bed_below(&random, LINES_MAX);
        const uint64_t before = slabs_taken(&memory.slabs);
        const uint64_t wants = index_memory_wants(&memory, lines * LINE);

        take(&memory, lines);
        assert_int_equal(slabs_taken(&memory.slabs), before + wants);
    }
    assert_true(slabs_taken(&memory.slabs) > (uint64_t)SLAB_BYTES);
    assert_true(index_memory_wants(&memory, memory.slabs.reserved) == UINT64_MAX);
    index_memory_fini(&memory);
}

/* If this fails, the indexes of a large table grow within the same few pushes, and these take long:
 * mixed ids fill all buckets alike. */
static void
test_indexes_grow_at_different_times(void **state)
{
    enum { BUCKETS = 4096, ROWS = 12000, STEP = ROWS / 100, PARTS = ROWS / STEP };
    static uint32_t growths[PARTS];
    uint32_t most = 0;
    uint32_t all = 0;

    (void)state;
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) {
        struct row_index index = {0};

        while (index.rows < ROWS) {
            const uint64_t bytes = row_index_next_bytes(&index, bucket);

            if (bytes > 0) {
                index.group_count = (uint32_t)(bytes / GROUP_BYTES);
                growths[index.rows / STEP]++;
            }
            index.rows++;
        }
    }
    for (uint32_t part = PARTS / 2; part < PARTS; part++) {
        most = growths[part] > most ? growths[part] : most;
        all += growths[part];
    }
    assert_in_range(all, BUCKETS * 3, BUCKETS * 6); /* from half of the rows on, by 13 to 25 % */
    assert_true(most < 3 * all / (PARTS / 2));
}

/* If this fails, memory that was touched ahead is touched again when its owner takes it, or his
 * memory is less than he was told. */
static void
test_slabs_that_are_ready(void **state)
{
    struct slabs slabs;

    (void)state;
    assert_int_equal(slabs_init(&slabs, 5 * SLAB_BYTES, "nobody", NULL), PSD_OK);
    assert_true(slabs_grow(&slabs)); /* a small one: its huge page is touched ahead, too */
    assert_true(slabs_touch_ahead(&slabs, 2 * SLAB_BYTES) >= 2 * SLAB_BYTES);
    while (slabs_next(&slabs) > 0) {
        const uint64_t before = slabs_taken(&slabs);
        const uint64_t bytes = slabs_next(&slabs);

        assert_true(slabs_grow(&slabs));
        memset(slabs.base + before, 1, bytes);
    }
    assert_int_equal(slabs_taken(&slabs), 5 * SLAB_BYTES);
    assert_int_equal(slabs_touch_ahead(&slabs, SLAB_BYTES), 0);
    assert_true(slabs_wanted(&slabs, 5 * SLAB_BYTES + 1) == UINT64_MAX);
    slabs_fini(&slabs);
}

enum { GROWING_BATCH = 2000, GROWING_WIDTH = 64 };

/* Makes so many rows. */
static void
grow(struct sparse *store, uint64_t first, uint64_t rows)
{
    static const float gradients[GROWING_BATCH][GROWING_WIDTH];
    static uint64_t ids[GROWING_BATCH];

    for (uint64_t done = 0; done < rows; done += GROWING_BATCH) {
        for (uint64_t i = 0; i < GROWING_BATCH; i++) {
            ids[i] = first + done + i;
        }
        bed_sort(ids, GROWING_BATCH);
        assert_int_equal(bed_apply(store, ids, gradients[0], GROWING_BATCH, 0).created,
                         GROWING_BATCH);
    }
}

static uint64_t
bytes_ahead(const struct sparse *store)
{
    const struct slabs *slabs = &store->pool.slabs;
    const uint64_t ahead = atomic_load(&slabs->ahead);

    return ahead > slabs_taken(slabs) ? ahead - slabs_taken(slabs) : 0;
}

/* If this fails, a large table's lane waits for the kernel whenever the table grows, a small one has
 * a thread, or more is touched than the table may have. */
static void
test_a_large_table_has_memory_touched_ahead(void **state)
{
    const struct psi_spec spec = bed_spec(PSD_RULE_ADAGRAD, GROWING_WIDTH);
    struct psi_row_policy policy = {0};
    struct sparse *store = bed_create(&spec, &policy, 10);
    struct ahead *ahead = ahead_create(store);
    const uint64_t until_ns = psi_monotonic_ns() + UINT64_C(30000000000);
    struct sparse_memory memory;

    (void)state;
    assert_non_null(ahead);
    grow(store, 0, 10000); /* 5 MB */
    ahead_note(ahead);
    assert_int_equal(bytes_ahead(store), 0);
    grow(store, 10000, 50000); /* 32 MB */
    while (bytes_ahead(store) < 3 << 20 && psi_monotonic_ns() < until_ns) {
        ahead_note(ahead);
        sched_yield();
    }
    assert_in_range(bytes_ahead(store), 3 << 20, 8 << 20);
    sparse_memory(store, &memory);
    store->memory_max = memory.total_bytes; /* there is nothing left */
    ahead_note(ahead);
    ahead_destroy(ahead);
    ahead = ahead_create(store);
    atomic_store(&store->pool.slabs.ahead, 0);
    ahead_note(ahead);
    ahead_destroy(ahead);
    assert_int_equal(bytes_ahead(store), 0);
    sparse_destroy(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holes_are_used),
        cmocka_unit_test(test_pieces_come_and_go),
        cmocka_unit_test(test_what_it_wants_is_what_it_takes),
        cmocka_unit_test(test_indexes_grow_at_different_times),
        cmocka_unit_test(test_slabs_that_are_ready),
        cmocka_unit_test(test_a_large_table_has_memory_touched_ahead),
    };

    return cmocka_run_group_tests_name("store_sparse_index_memory", tests, NULL, NULL);
}
