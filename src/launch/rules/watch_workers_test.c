/*
 * watch_workers_test.c - workers that are added to a job that runs, or asked to leave it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_workers.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "launch/rules/watch.h"

enum { SERVERS = 1, FIRST = 1 + SERVERS };

/* What was ordered last. */
struct orders {
    uint32_t started;
    uint32_t signalled;
    int signal;
    bool ended;
};

static void
start(void *context, uint32_t slot, uint32_t restart)
{
    (void)restart;
    ((struct orders *)context)->started = slot;
}

static void
note_signal(void *context, uint32_t slot, int number)
{
    ((struct orders *)context)->signalled = slot;
    ((struct orders *)context)->signal = number;
}

static void
ask_all(void *context)
{
    (void)context;
}

static void
end(void *context, uint32_t grace_ms)
{
    (void)grace_ms;
    ((struct orders *)context)->ended = true;
}

static const struct watch_ops ops = {
    .start = start, .signal = note_signal, .ask = ask_all, .end = end};

static void
worker_comes(struct watch *watch, uint32_t rank)
{
    const struct psi_tiding joined = {
        .kind = PSI_TIDING_JOINED, .role = PSI_TIDING_WORKER, .rank = rank};

    watch_event(watch, &(struct watch_event){.kind = WATCH_STARTED, .slot = FIRST + rank}, 2);
    watch_told(watch, &joined, 3);
}

/* A job of so many workers that run. */
static void
begin(struct watch *watch, struct orders *orders, struct watch_config config)
{
    const struct psi_tiding server = {
        .kind = PSI_TIDING_JOINED, .role = PSI_TIDING_SERVER, .life = 1};

    *orders = (struct orders){0};
    config.servers = SERVERS;
    config.start_timeout_ms = 1000;
    config.leaders = config.workers;
    assert_true(watch_init(watch, &config, &ops, orders));
    watch_begin(watch, 0);
    watch_event(watch, &(struct watch_event){.kind = WATCH_GATHERED}, 0);
    watch_event(watch, &(struct watch_event){.kind = WATCH_STARTED, .slot = 0}, 1);
    watch_event(watch, &(struct watch_event){.kind = WATCH_READY}, 1);
    watch_event(watch, &(struct watch_event){.kind = WATCH_STARTED, .slot = 1}, 1);
    watch_told(watch, &server, 1);
    for (uint32_t rank = 0; rank < config.workers; rank++) {
        worker_comes(watch, rank);
    }
    assert_int_equal(watch->phase, WATCH_RUNNING);
}

static void
assert_refused(const struct watch *watch, char sign, uint32_t number, const char *text)
{
    struct watch_workers_change change;
    char why[400];

    assert_false(watch_workers_plan(watch, &(struct watch_workers_ask){sign, number}, &change, why,
                                    sizeof(why)));
    if (strstr(why, text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, why);
    }
}

static void
assert_planned(const struct watch *watch, char sign, uint32_t number, uint32_t more, uint32_t fewer)
{
    struct watch_workers_change change;
    char why[400];

    assert_true(watch_workers_plan(watch, &(struct watch_workers_ask){sign, number}, &change, why,
                                   sizeof(why)));
    assert_int_equal(change.more, more);
    assert_int_equal(change.fewer, fewer);
}

/* If this fails, a job is made larger than it may be or smaller than it can be. */
static void
test_numbers_that_are_not_possible(void **state)
{
    struct orders orders;
    struct watch watch;

    (void)state;
    begin(&watch, &orders,
          (struct watch_config){
              .workers = 3, .max_workers = 5, .min_workers = 2, .on_worker_death = WATCH_CONTINUE});
    assert_planned(&watch, '=', 3, 0, 0);
    assert_planned(&watch, '=', 5, 2, 0);
    assert_planned(&watch, '+', 2, 2, 0);
    assert_planned(&watch, '=', 2, 0, 1);
    assert_planned(&watch, '-', 1, 0, 1);
    assert_refused(&watch, '+', 3, "3 more: 3 of --max_workers 5 ranks have been used");
    assert_refused(&watch, '+', UINT32_MAX - 1, "4294967294 more: 3 of --max_workers 5");
    assert_refused(&watch, '-', 2, "2 fewer of 3 leaves 1, and --min_workers is 2");
    assert_refused(&watch, '-', 3, "leaves none");
    assert_refused(&watch, '=', 0, "to no workers");
    watch_fini(&watch);

    begin(&watch, &orders, (struct watch_config){.workers = 3});
    assert_refused(&watch, '+', 1, "started with --max_workers");
    assert_refused(&watch, '-', 1, "--on_worker_death=continue");
    watch_fini(&watch);

    begin(&watch, &orders, (struct watch_config){.workers = 3, .max_workers = 9, .alone = "odd"});
    assert_refused(&watch, '+', 1, "odd");
    watch_fini(&watch);
}

/* If this fails, the end of a worker that nobody has counted on is the job's; or that of one that counts is not;
 * or a job ends while a worker that was added trains. */
static void
test_a_new_worker(void **state)
{
    const struct psi_tiding counts = {
        .kind = PSI_TIDING_COUNTS, .role = PSI_TIDING_WORKER, .rank = 2, .step = 7};
    struct orders orders;
    struct watch watch;

    (void)state;
    begin(&watch, &orders, (struct watch_config){.workers = 1, .max_workers = 3});
    assert_true(watch_workers_add(&watch, 2, NULL));
    assert_int_equal(orders.started, FIRST + 2);
    worker_comes(&watch, 1);
    worker_comes(&watch, 2);
    watch_told(&watch, &counts, 4);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = FIRST + 1, .code = 1},
                5);
    watch_tick(&watch, 2000);
    assert_int_equal(watch.phase, WATCH_RUNNING);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = FIRST}, 2001);
    assert_int_equal(watch.phase, WATCH_RUNNING);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = FIRST + 2, .code = 1},
                2002);
    assert_int_equal(watch.phase, WATCH_ASKING);
    watch_fini(&watch);
}

/* If this fails, a job that is over waits for a worker that was about to join it. */
static void
test_one_that_comes_too_late(void **state)
{
    struct orders orders;
    struct watch watch;

    (void)state;
    begin(&watch, &orders, (struct watch_config){.workers = 1, .max_workers = 2, .leave_ms = 9000});
    assert_true(watch_workers_add(&watch, 1, NULL));
    watch_event(&watch, &(struct watch_event){.kind = WATCH_STARTED, .slot = FIRST + 1}, 5);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = FIRST}, 6);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = 0}, 7);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = 1}, 8);
    assert_false(orders.ended);
    watch_tick(&watch, 2000);
    assert_int_equal(orders.signalled, FIRST + 1);
    assert_int_equal(orders.signal, SIGKILL);
    watch_event(&watch,
                &(struct watch_event){.kind = WATCH_EXITED, .slot = FIRST + 1, .signal = SIGKILL},
                2001);
    assert_true(orders.ended);
    assert_int_equal(watch_exit_code(&watch), 0);
    watch_fini(&watch);
}

/* If this fails, a worker that is to leave is not asked, has no time for it, or is never rid of. */
static void
test_one_that_leaves(void **state)
{
    struct orders orders;
    struct watch watch;

    (void)state;
    begin(&watch, &orders, (struct watch_config){.workers = 3, .on_worker_death = WATCH_CONTINUE});
    watch_tick(&watch, 999);
    assert_int_equal(watch_workers_remove(&watch, 500, 1000), FIRST + 2);
    assert_int_equal(orders.signalled, FIRST + 2);
    assert_int_equal(orders.signal, SIGTERM);
    assert_int_equal(watch_workers_present(&watch), 2);
    assert_int_equal(watch_workers_remove(&watch, 500, 1000), FIRST + 1);
    assert_int_equal(watch_deadline(&watch), 1500);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = FIRST + 1}, 1100);
    watch_tick(&watch, 1499);
    assert_int_equal(orders.signal, SIGTERM);
    watch_tick(&watch, 1500);
    assert_int_equal(orders.signalled, FIRST + 2);
    assert_int_equal(orders.signal, SIGKILL);
    watch_event(&watch,
                &(struct watch_event){.kind = WATCH_EXITED, .slot = FIRST + 2, .signal = SIGKILL},
                1501);
    assert_int_equal(watch.phase, WATCH_RUNNING);
    assert_false(orders.ended);
    watch_fini(&watch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_that_are_not_possible),
        cmocka_unit_test(test_a_new_worker),
        cmocka_unit_test(test_one_that_comes_too_late),
        cmocka_unit_test(test_one_that_leaves),
    };

    return cmocka_run_group_tests_name("watch_workers", tests, NULL, NULL);
}
