/*
 * view_test.c - views: what one has, what the next makes different.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "view/roster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { WORKERS = 4, PLACES = 3 };

/* View `id` of a job of four workers, and of server 0 with two lanes and server 1 with one. */
struct made {
    struct psi_view view;
    struct psi_view_worker worker[WORKERS + 1];
    struct psi_view_place place[PLACES + 1];
};

static void
make(struct made *made, uint32_t id)
{
    *made = (struct made){.view = {.id = id,
                                   .workers = WORKERS,
                                   .worker = made->worker,
                                   .places = PLACES,
                                   .place = made->place}};
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        made->worker[rank] = (struct psi_view_worker){.incarnation = 1, .member = true};
    }
    for (uint32_t i = 0; i < PLACES; i++) {
        made->place[i] = (struct psi_view_place){.server = i / 2, .lane = i % 2, .incarnation = 1};
        snprintf(made->place[i].address, sizeof(made->place[i].address), "tcp://host%u:%u", i / 2,
                 7000 + i);
    }
}

static void
take(struct psi_view *held, const struct made *next)
{
    struct psi_view old;

    assert_int_equal(psi_view_take(held, &next->view, &old), PSD_OK);
    psi_view_fini(&old);
}

/* If this fails, a core misses that a worker came, left or was replaced, or acts on one that did
 * not. */
static void
test_ranks_that_a_view_changes(void **state)
{
    const struct psi_view nobody = {0};
    struct made before;
    struct made after;

    (void)state;
    make(&before, 1);
    make(&after, 2);
    before.worker[3].member = false;
    assert_int_equal(psi_view_rank(&nobody, &before.view, 0), PSI_RANK_JOINS);
    assert_int_equal(psi_view_rank(&nobody, &before.view, 3), PSI_RANK_STAYS);
    after.worker[1].incarnation = 2;
    after.worker[2].member = false;
    after.worker[3] = (struct psi_view_worker){.incarnation = 5};
    assert_int_equal(psi_view_rank(&before.view, &after.view, 0), PSI_RANK_STAYS);
    assert_int_equal(psi_view_rank(&before.view, &after.view, 1), PSI_RANK_REPLACED);
    assert_int_equal(psi_view_rank(&before.view, &after.view, 2), PSI_RANK_LEAVES);
    assert_int_equal(psi_view_rank(&before.view, &after.view, 3), PSI_RANK_STAYS); /* still none */
    after.view.workers = WORKERS + 1;
    after.worker[WORKERS] = (struct psi_view_worker){.incarnation = 1, .member = true};
    assert_int_equal(psi_view_rank(&before.view, &after.view, WORKERS), PSI_RANK_JOINS);
    assert_int_equal(psi_view_rank(&after.view, &before.view, WORKERS), PSI_RANK_LEAVES);
}

/* If this fails, a life that the job has gone on without is heard, or the one it goes on with is
 * not. */
static void
test_one_life_of_a_rank_is_heard(void **state)
{
    struct psi_view held;
    struct made next;

    (void)state;
    assert_int_equal(psi_view_init(&held, WORKERS), PSD_OK);
    assert_int_equal(held.id, 0);
    assert_false(psi_view_has(&held, 1, 0)); /* nobody is in it, whatever life */
    make(&next, 1);
    take(&held, &next);
    assert_true(psi_view_has(&held, 1, 1));
    assert_false(psi_view_has(&held, 1, 2));
    assert_false(psi_view_has(&held, WORKERS, 1));
    psi_view_fence(&held, 1);
    assert_false(psi_view_has(&held, 1, 1));
    assert_true(psi_view_has(&held, 2, 1));
    make(&next, 2);
    next.worker[1].incarnation = 2;
    next.worker[2].member = false;
    take(&held, &next);
    assert_false(psi_view_has(&held, 1, 1));
    assert_true(psi_view_has(&held, 1, 2));
    assert_false(psi_view_has(&held, 2, 1)); /* the last one it had: it has left */
    psi_view_fini(&held);
}

/* If this fails, a frame meant for an earlier owner of a chunk counts with a later one. */
static void
test_frames_from_before_a_place_are_refused(void **state)
{
    struct psi_view held = {0};
    struct made next;

    (void)state;
    make(&next, 7);
    take(&held, &next);
    assert_int_equal(psi_view_place(&held, 1, 0)->since, 0); /* from the start */
    make(&next, 8);
    next.place[PLACES] = (struct psi_view_place){.server = 1, .lane = 1, .incarnation = 1};
    next.view.places = PLACES + 1;
    take(&held, &next);
    assert_int_equal(psi_view_place(&held, 1, 0)->since, 0);
    assert_int_equal(psi_view_place(&held, 1, 1)->since, 8);
    next.view.id = 9;
    next.place[0].incarnation = 2; /* wherever it is */
    take(&held, &next);
    assert_int_equal(psi_view_place(&held, 0, 0)->since, 9);
    assert_int_equal(psi_view_place(&held, 0, 1)->since, 0);
    assert_int_equal(psi_view_place(&held, 1, 1)->since, 8);
    assert_null(psi_view_place(&held, 2, 0));
    assert_true(
        psi_view_admits(&held, &(struct psi_stamp){.rank = 0, .incarnation = 1, .view = 9}, 9));
    assert_false(
        psi_view_admits(&held, &(struct psi_stamp){.rank = 0, .incarnation = 1, .view = 8}, 9));
    assert_true(psi_view_admits(&held, &(struct psi_stamp){.rank = 0, .incarnation = 1}, 0));
    assert_false(
        psi_view_admits(&held, &(struct psi_stamp){.rank = 0, .incarnation = 2, .view = 9}, 0));
    psi_view_fini(&held);
}

/* If this fails, a worker that was cut off at the start does not tell a server's other life what it has,
 * and everybody waits for that. */
static void
test_a_first_view_may_have_later_lives(void **state)
{
    struct psi_view held = {0};
    struct made next;

    (void)state;
    make(&next, 2);
    next.place[0].incarnation = 2;
    take(&held, &next);
    assert_int_equal(psi_view_place(&held, 0, 0)->since, 2);
    assert_int_equal(psi_view_place(&held, 1, 0)->since, 0);
    psi_view_fini(&held);
}

/* If this fails, a core that is told of two views sees the same one twice. */
static void
test_the_old_view_outlives_the_new(void **state)
{
    struct psi_view held = {0};
    struct psi_view old;
    struct made next;

    (void)state;
    make(&next, 1);
    take(&held, &next);
    make(&next, 2);
    next.worker[0].incarnation = 2;
    next.view.change = PSI_VIEW_WORKER_REPLACED;
    next.view.tables = 1;
    assert_int_equal(psi_view_take(&held, &next.view, &old), PSD_OK);
    assert_int_equal(old.id, 1);
    assert_int_equal(held.id, 2);
    assert_int_equal(psi_view_rank(&old, &held, 0), PSI_RANK_REPLACED);
    assert_int_equal(held.change, PSI_VIEW_FIRST); /* what was decided is told once */
    assert_null(held.table);
    psi_view_fini(&old);
    psi_view_fini(&held);
}

/* If this fails, a view of a master that has died is taken for a later one than its successor's. */
static void
test_a_later_term_has_higher_numbers(void **state)
{
    const uint32_t first = psi_view_next_id(0, 1);
    const uint32_t second = psi_view_next_id(first, 1);

    (void)state;
    assert_int_equal(psi_view_next_id(0, 0), 1);
    assert_int_equal(psi_view_next_id(7, 0), 8);
    assert_int_equal(psi_view_term(first), 1);
    assert_true(second == first + 1);
    assert_true(psi_view_next_id(first, 2) > second + 1000);
    assert_int_equal(psi_view_term(psi_view_next_id(first, PSI_TERM_MAX)), PSI_TERM_MAX);
}

static void
assert_members(const struct made *made, uint64_t step, struct psi_roster expected,
               const uint32_t *expected_ranks)
{
    uint32_t ranks[WORKERS];
    const struct psi_roster members = psi_view_roster(&made->view, step, 2, ranks, WORKERS);

    assert_int_equal(members.count, expected.count);
    assert_int_equal(members.index, expected.index);
    assert_int_equal(members.version, expected.version);
    assert_int_equal(members.since, expected.since);
    assert_memory_equal(ranks, expected_ranks, members.count * sizeof(*ranks));
}

/* If this fails, workers that have different views deal the data of a step out differently. */
static void
test_a_later_view_changes_no_earlier_step(void **state)
{
    struct made made;

    (void)state;
    make(&made, 1);
    made.worker[3] = (struct psi_view_worker){0}; /* has not come */
    assert_members(&made, 0, (struct psi_roster){.count = 3, .index = 2},
                   (const uint32_t[]){0, 1, 2});
    assert_members(&made, 70, (struct psi_roster){.count = 3, .index = 2},
                   (const uint32_t[]){0, 1, 2});

    psi_view_count(&made.worker[3], true, 9);
    made.view.changes = 1;
    assert_members(&made, 8, (struct psi_roster){.count = 3, .index = 2},
                   (const uint32_t[]){0, 1, 2});
    assert_members(&made, 9, (struct psi_roster){1, 9, 4, 2}, (const uint32_t[]){0, 1, 2, 3});

    psi_view_count(&made.worker[1], false, 12);
    made.view.changes = 2;
    assert_members(&made, 8, (struct psi_roster){.count = 3, .index = 2},
                   (const uint32_t[]){0, 1, 2});
    assert_members(&made, 11, (struct psi_roster){1, 9, 4, 2}, (const uint32_t[]){0, 1, 2, 3});
    assert_members(&made, 12, (struct psi_roster){2, 12, 3, 1}, (const uint32_t[]){0, 2, 3});

    psi_view_count(&made.worker[1], true, 20); /* the rank comes again */
    psi_view_count(&made.worker[2], false, 15);
    made.view.changes = 4;
    assert_members(&made, 11, (struct psi_roster){1, 9, 4, 2}, (const uint32_t[]){0, 1, 2, 3});
    assert_members(&made, 14, (struct psi_roster){2, 12, 3, 1}, (const uint32_t[]){0, 2, 3});
    assert_members(&made, 15, (struct psi_roster){3, 15, 2, PSI_INDEX_NONE},
                   (const uint32_t[]){0, 3});
    assert_members(&made, UINT64_MAX, (struct psi_roster){4, 20, 3, PSI_INDEX_NONE},
                   (const uint32_t[]){0, 1, 3});
}

/* If this fails, one that died before its first step counts in some. */
static void
test_who_left_before_it_counted_never_counts(void **state)
{
    struct made made;

    (void)state;
    make(&made, 1);
    made.worker[3] = (struct psi_view_worker){0};
    psi_view_count(&made.worker[3], true, 9);
    psi_view_count(&made.worker[3], false, 4);
    for (uint64_t step = 0; step < 20; step++) {
        assert_false(psi_view_counts(&made.view, 3, step));
        assert_true(psi_view_counts(&made.view, 0, step));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_that_a_view_changes),
        cmocka_unit_test(test_one_life_of_a_rank_is_heard),
        cmocka_unit_test(test_frames_from_before_a_place_are_refused),
        cmocka_unit_test(test_a_first_view_may_have_later_lives),
        cmocka_unit_test(test_the_old_view_outlives_the_new),
        cmocka_unit_test(test_a_later_term_has_higher_numbers),
        cmocka_unit_test(test_a_later_view_changes_no_earlier_step),
        cmocka_unit_test(test_who_left_before_it_counted_never_counts),
    };

    return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
