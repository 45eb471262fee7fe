/*
 * copies_test.c - memory for copies: how much is made ready, and what becomes of the rest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/copies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>

#include <cmocka.h>

enum { BYTES = 1 << 20, PIECES = 4 };

static void
fill(struct copies *copies)
{
    size_t bytes;

    while ((bytes = copies_wants(copies)) > 0) {
        struct copy *copy = copy_make(bytes, true);

        assert_non_null(copy);
        copies_add(copies, copy);
    }
}

static void
free_idle(struct copies *copies)
{
    struct copy *copy;

    while ((copy = copies_take_idle(copies)) != NULL) {
        copy_free(copy);
    }
}

static size_t
touched_pages(struct copy *copy)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char there[BYTES / 4096];
    size_t count = 0;

    assert_int_equal(mincore(copy_memory(copy), BYTES, there), 0);
    for (size_t i = 0; i < BYTES / page; i++) {
        count += there[i] & 1;
    }
    return count * page;
}

/* If this fails, rounds wait while the kernel clears the pages that their chunks are copied to. */
static void
test_what_is_taken_was_touched_before(void **state)
{
    struct copies copies = {0};
    struct copy *copy;
    size_t made;

    (void)state;
    copies_expect(&copies, PIECES * BYTES, PIECES * BYTES, BYTES);
    fill(&copies);
    assert_int_equal(copies.ready_bytes, PIECES * BYTES);
    copy = copies_take(&copies, BYTES - 8, &made);
    assert_non_null(copy);
    assert_int_equal(made, BYTES);
    assert_int_equal(touched_pages(copy), BYTES);
    memset(copy_memory(copy), 1, BYTES);
    copies_give(&copies, copy);
    copies_expect_nothing(&copies);
    free_idle(&copies);
    assert_int_equal(copies.ready_bytes + copies.used_bytes, 0);
}

/* If this fails, copies take more memory than they may, or what is not needed any more is kept. */
static void
test_no_more_than_there_is_room_for(void **state)
{
    struct copies copies = {0};
    struct copy *taken[2];
    size_t made;

    (void)state;
    copies_expect(&copies, PIECES * BYTES, 2 * BYTES, BYTES);
    fill(&copies);
    assert_int_equal(copies.ready_bytes, 2 * BYTES);
    taken[0] = copies_take(&copies, BYTES, &made);
    taken[1] = copies_take(&copies, BYTES, &made);
    assert_true(taken[0] != NULL && taken[1] != NULL);
    assert_int_equal(copies_wants(&copies), 0);
    assert_null(copies_take(&copies, BYTES, &made)); /* who needs one more makes it ... */
    copies_not_made(&copies, made);                  /* ... or cannot */
    copies_give(&copies, taken[0]);
    assert_null(copies_take_idle(&copies)); /* one more will come */
    copies_expect(&copies, 0, 2 * BYTES, BYTES / 2);
    free_idle(&copies);
    assert_int_equal(copies.ready_bytes, 0);
    copies_give(&copies, taken[1]); /* of another size than those that come now */
    free_idle(&copies);
    assert_int_equal(copies.used_bytes, 0);
    assert_null(copies.idle);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_taken_was_touched_before),
        cmocka_unit_test(test_no_more_than_there_is_room_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
