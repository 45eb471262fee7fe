/*
 * crew_test.c - threads that help: every part is done once, whoever does it, and is seen when its task is done.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cores.h"
#include "base/crew.h"

enum { PARTS = 8, TASKS = 24, TURNS = 200, PRODUCERS = 3 };

/* Numbers that parts count up, without a lock: what a task did must be seen when it is done. */
struct work {
    uint64_t count[PARTS];
};

static void
count_up(void *object, uint32_t part)
{
    struct work *work = object;

    work->count[part]++;
}

static struct psi_crew_task
task_of(struct work *work, uint64_t bytes)
{
    return (struct psi_crew_task){.run = count_up, .object = work, .parts = PARTS, .bytes = bytes};
}

static void
check(const struct work *work, uint64_t times)
{
    for (unsigned i = 0; i < PARTS; i++) {
        assert_int_equal(work->count[i], times);
    }
}

/* A few tasks under way at a time, finished in the order of their beginning. */
static void
work_through(struct psi_crew *crew)
{
    static _Thread_local struct work work[TASKS];
    struct psi_crew_task task[TASKS];
    bool begun[TASKS];

    memset(work, 0, sizeof(work));
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (unsigned i = 0; i < TASKS; i++) {
            task[i] = task_of(&work[i], PSI_CREW_WORTH_BYTES);
            begun[i] = psi_crew_begin(crew, &task[i]);
        }
        for (unsigned i = 0; i < TASKS; i++) {
            if (begun[i]) {
                psi_crew_finish(crew, &task[i]);
            } else {
                psi_crew_do(NULL, &task[i]);
            }
            check(&work[i], turn + 1);
        }
    }
}

/* If this fails, a part of a copy is left out, done twice, or not seen by who waited for it. */
static void
test_every_part_is_done_once(void **state)
{
    struct psi_crew *crew = psi_crew_create(4, 20);

    (void)state;
    assert_non_null(crew);
    work_through(crew);
    psi_crew_destroy(crew);
}

static void *
produce(void *crew)
{
    work_through(crew);
    return NULL;
}

/* If this fails, two threads of a program that submit at once get into each other's way. */
static void
test_several_threads_have_tasks(void **state)
{
    struct psi_crew *crew = psi_crew_create(3, 20);
    pthread_t thread[PRODUCERS];

    (void)state;
    for (unsigned i = 0; i < PRODUCERS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, produce, crew), 0);
    }
    for (unsigned i = 0; i < PRODUCERS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    psi_crew_destroy(crew);
}

/* If this fails, a program that moves little has threads that it does not need. */
static void
test_no_thread_before_it_is_worth_it(void **state)
{
    struct psi_crew *crew = psi_crew_create(4, 0);
    struct work work = {{0}};
    struct psi_crew_task small = task_of(&work, PSI_CREW_WORTH_BYTES);
    struct psi_crew_task more = task_of(&work, 1);

    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        psi_crew_do(crew, &small);
    }
    check(&work, 10);
    assert_int_equal(psi_crew_started(crew), 0);

    assert_true(psi_crew_begin(crew, &small));
    psi_crew_do(crew, &more); /* together it is worth it */
    psi_crew_finish(crew, &small);
    check(&work, 12);
    assert_int_equal(psi_crew_started(crew), 3);
    psi_crew_destroy(crew);
}

struct meeting {
    _Atomic unsigned here;
    _Atomic bool alone;
};

/* Comes back when the others are here too, or never. */
static void
meet(void *object, uint32_t part)
{
    struct meeting *meeting = object;

    (void)part;
    atomic_fetch_add(&meeting->here, 1);
    while (atomic_load(&meeting->here) < 3) {
    }
}

/* If this fails, the threads do not help: parts run one after the other (and this hangs). */
static void
test_parts_run_at_the_same_time(void **state)
{
    struct psi_crew *crew = psi_crew_create(3, 0);
    struct meeting meeting = {0};
    struct psi_crew_task task = {
        .run = meet, .object = &meeting, .parts = 3, .bytes = 2 * PSI_CREW_WORTH_BYTES};

    (void)state;
    assert_true(psi_crew_begin(crew, &task));
    psi_crew_finish(crew, &task);
    assert_int_equal(meeting.here, 3);
    psi_crew_destroy(crew);
}

/* If this fails, whoever has more tasks under way than there are places waits for ever, or loses one. */
static void
test_no_place_is_left(void **state)
{
    static struct work work[PSI_CREW_TASKS_MAX + 1];
    struct psi_crew_task task[PSI_CREW_TASKS_MAX + 1];
    struct psi_crew *crew = psi_crew_create(2, 0);

    (void)state;
    memset(work, 0, sizeof(work));
    for (unsigned i = 0; i <= PSI_CREW_TASKS_MAX; i++) {
        task[i] = task_of(&work[i], 1);
        assert_int_equal(psi_crew_begin(crew, &task[i]), i < PSI_CREW_TASKS_MAX);
    }
    psi_crew_do(crew, &task[PSI_CREW_TASKS_MAX]);
    for (unsigned i = 0; i < PSI_CREW_TASKS_MAX; i++) {
        psi_crew_finish(crew, &task[i]);
    }
    for (unsigned i = 0; i <= PSI_CREW_TASKS_MAX; i++) {
        check(&work[i], 1);
    }
    assert_true(psi_crew_begin(crew, &task[0]));
    psi_crew_finish(crew, &task[0]);
    psi_crew_destroy(crew);
}

struct look {
    pthread_t caller;
    _Atomic unsigned blocked; /* parts of helpers to which no signal comes ... */
    _Atomic unsigned helped;  /* ... of so many */
};

static void
look_at_signals(void *object, uint32_t part)
{
    struct look *look = object;
    sigset_t mask;

    (void)part;
    if (!pthread_equal(pthread_self(), look->caller)) {
        pthread_sigmask(SIG_SETMASK, NULL, &mask);
        atomic_fetch_add(&look->blocked, sigismember(&mask, SIGTERM) == 1);
        atomic_fetch_add(&look->helped, 1);
    }
    while (atomic_load(&look->helped) == 0) { /* a helper's part ends it */
    }
}

/* If this fails, a signal meant for the program is handled in a thread of the library. */
static void
test_helpers_take_no_signals(void **state)
{
    struct psi_crew *crew = psi_crew_create(2, 0);
    struct look look = {.caller = pthread_self()};
    struct psi_crew_task task = {
        .run = look_at_signals, .object = &look, .parts = 2, .bytes = 2 * PSI_CREW_WORTH_BYTES};

    (void)state;
    assert_true(psi_crew_begin(crew, &task));
    psi_crew_finish(crew, &task);
    assert_true(look.helped >= 1); /* both, where the caller got no time meanwhile */
    assert_int_equal(look.blocked, look.helped);
    psi_crew_destroy(crew);
}

static void
look_at_cores(void *object, uint32_t part)
{
    _Atomic int *most = object;
    cpu_set_t cores;

    (void)part;
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0 && CPU_COUNT(&cores) > *most) {
        *most = CPU_COUNT(&cores);
    }
    while (*most < 2) { /* the helper's part ends it */
    }
}

/* If this fails, a program that binds its thread to one core has all helpers there. */
static void
test_helpers_do_not_follow_to_one_core(void **state)
{
    struct psi_crew *crew = psi_crew_create(2, 0);
    _Atomic int most = 0;
    struct psi_crew_task task = {
        .run = look_at_cores, .object = &most, .parts = 2, .bytes = 2 * PSI_CREW_WORTH_BYTES};
    cpu_set_t before;

    (void)state;
    if (psi_usable_cores() < 2) {
        psi_crew_destroy(crew);
        skip();
    }
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    psi_cores_keep_to_share(0, psi_usable_cores());
    assert_int_equal(psi_usable_cores(), 1);
    assert_true(psi_crew_begin(crew, &task));
    psi_crew_finish(crew, &task);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(most, psi_usable_cores());
    psi_crew_destroy(crew);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_part_is_done_once),
        cmocka_unit_test(test_several_threads_have_tasks),
        cmocka_unit_test(test_no_thread_before_it_is_worth_it),
        cmocka_unit_test(test_parts_run_at_the_same_time),
        cmocka_unit_test(test_no_place_is_left),
        cmocka_unit_test(test_helpers_take_no_signals),
        cmocka_unit_test(test_helpers_do_not_follow_to_one_core),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
