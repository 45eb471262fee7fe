/*
 * watch_scale_test.c - servers that come while a job runs, and servers that leave it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/rules/watch_scale.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "launch/rules/watch.h"

enum { PARTS = 2, MAX = 4, WORKER = 1 + MAX };

/* What was ordered last. */
struct orders {
    uint32_t started;
    uint32_t signalled;
    int signal;
    uint32_t not_come;
    uint32_t drained; /* how often it was told that one has nothing more */
    struct psi_word word;
    bool asked;
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
    ((struct orders *)context)->asked = true;
}

static void
note_word(void *context, const struct psi_word *word)
{
    ((struct orders *)context)->word = *word;
}

static void
note_drained(void *context, uint32_t slot)
{
    (void)slot;
    ((struct orders *)context)->drained++;
}

static void
note_not_come(void *context, uint32_t slot)
{
    ((struct orders *)context)->not_come = slot;
}

static void
tell_nothing(void *context, uint32_t slot)
{
    (void)context;
    (void)slot;
}

static void
end(void *context, uint32_t grace_ms)
{
    (void)grace_ms;
    ((struct orders *)context)->ended = true;
}

static const struct watch_ops ops = {.start = start,
                                     .signal = note_signal,
                                     .ask = ask_all,
                                     .tell_master = note_word,
                                     .tell_failover = tell_nothing,
                                     .tell_not_come = note_not_come,
                                     .tell_drained = note_drained,
                                     .end = end};

static void
server_comes(struct watch *watch, uint32_t slot, uint64_t life)
{
    const struct psi_tiding joined = {
        .kind = PSI_TIDING_JOINED, .role = PSI_TIDING_SERVER, .rank = slot - 1, .life = life};

    watch_event(watch, &(struct watch_event){.kind = WATCH_STARTED, .slot = slot}, 2);
    watch_told(watch, &joined, 3);
}

static void
tell_place(struct watch *watch, uint32_t slot, uint32_t by)
{
    const struct psi_tiding place = {
        .kind = PSI_TIDING_PLACE,
        .role = PSI_TIDING_SERVER,
        .rank = slot - 1,
        .place = {.lanes = 1, .by = {by}, .copy = {PSI_TIDING_NOBODY}, .state = PSI_COPY_NONE}};

    watch_told(watch, &place, 4);
}

/* A job of two servers and a worker that run; there may be four servers. */
static void
begin(struct watch *watch, struct orders *orders, uint32_t replicas)
{
    const struct watch_config config = {.servers = MAX,
                                        .parts = PARTS,
                                        .may_scale_servers = true,
                                        .workers = 1,
                                        .server_restarts = 3,
                                        .replicas = replicas,
                                        .start_timeout_ms = 1000};
    const struct psi_tiding worker = {.kind = PSI_TIDING_JOINED, .role = PSI_TIDING_WORKER};

    *orders = (struct orders){0};
    assert_true(watch_init(watch, &config, &ops, orders));
    watch_begin(watch, 0);
    watch_event(watch, &(struct watch_event){.kind = WATCH_GATHERED}, 0);
    watch_event(watch, &(struct watch_event){.kind = WATCH_STARTED, .slot = 0}, 1);
    watch_event(watch, &(struct watch_event){.kind = WATCH_READY}, 1);
    assert_int_equal(orders->started, PARTS); /* and no more */
    for (uint32_t slot = 1; slot <= PARTS; slot++) {
        server_comes(watch, slot, 10 + slot);
    }
    assert_int_equal(orders->started, WORKER);
    watch_event(watch, &(struct watch_event){.kind = WATCH_STARTED, .slot = WORKER}, 2);
    watch_told(watch, &worker, 3);
    for (uint32_t slot = 1; slot <= PARTS; slot++) {
        tell_place(watch, slot, slot - 1);
    }
    assert_int_equal(watch->phase, WATCH_RUNNING);
}

static void
assert_refused(const struct watch *watch, char sign, uint32_t number, const char *text)
{
    struct watch_workers_change change;
    char why[400] = "";

    assert_false(watch_servers_plan(watch, &(struct watch_workers_ask){sign, number}, &change, why,
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

    assert_true(watch_servers_plan(watch, &(struct watch_workers_ask){sign, number}, &change, why,
                                   sizeof(why)));
    assert_int_equal(change.more, more);
    assert_int_equal(change.fewer, fewer);
}

/* If this fails, a job gets servers that it has no room for, or loses the last one. */
static void
test_how_many_there_may_be(void **state)
{
    struct orders orders;
    struct watch watch;

    (void)state;
    begin(&watch, &orders, 0);
    assert_planned(&watch, '=', 2, 0, 0);
    assert_planned(&watch, '+', 2, 2, 0);
    assert_planned(&watch, '=', 4, 2, 0);
    assert_planned(&watch, '-', 1, 0, 1);
    assert_refused(&watch, '+', 3, "3 more: 2 of --max_servers 4 are there");
    assert_refused(&watch, '=', 0, "to no servers, and it takes 1");
    assert_refused(&watch, '-', 2, "2 fewer of 2 leaves none");
    watch.config.replicas = 1;
    assert_refused(&watch, '-', 1, "the copy of a server is in another one");
    watch.config.may_scale_servers = false;
    assert_refused(&watch, '+', 1, "is started with --max_servers");
    watch_fini(&watch);
}

/* If this fails, a server that is added does not run, or one that is to leave is ended before it has given away what it has, or
 * its end is taken for a failure. */
static void
test_one_comes_and_leaves(void **state)
{
    struct orders orders;
    struct watch watch;
    struct psi_tiding drained = {
        .kind = PSI_TIDING_DRAINED, .role = PSI_TIDING_SERVER, .rank = 2, .life = 20};

    (void)state;
    begin(&watch, &orders, 0);
    assert_int_equal(watch_servers_next(&watch), 3);
    watch_server_add(&watch, 3);
    assert_int_equal(orders.started, 3);
    assert_refused(&watch, '+', 1, "wait until they have joined");
    server_comes(&watch, 3, 20);
    assert_int_equal(watch_servers_present(&watch), 3);
    assert_int_equal(watch_server_remove(&watch), 3);
    assert_int_equal(orders.word.kind, PSI_WORD_LEAVE);
    assert_int_equal(orders.word.rank, 2);
    assert_int_equal(orders.word.number, 20);
    assert_int_equal(orders.signalled, 0);
    drained.life = 19; /* of an earlier life */
    watch_told(&watch, &drained, 5);
    assert_int_equal(orders.signalled, 0);
    drained.life = 20;
    watch_told(&watch, &drained, 6);
    assert_int_equal(orders.signalled, 3);
    assert_int_equal(orders.signal, SIGTERM);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = 3, .signal = SIGTERM},
                7);
    assert_false(orders.asked);
    assert_true(watch.slots[3].has_left); /* which is no failure */
    assert_int_equal(watch.phase, WATCH_RUNNING);
    assert_int_equal(watch_servers_next(&watch), 3); /* there is room again */
    watch_told(&watch, &drained, 8);                 /* by a master that has returned */
    assert_int_equal(orders.drained, 1);
    watch_fini(&watch);
}

/* If this fails, a server that ends before it is in the job takes the job along, or is started without end. */
static void
test_one_that_does_not_come(void **state)
{
    struct orders orders;
    struct watch watch;

    (void)state;
    begin(&watch, &orders, 0);
    watch_server_add(&watch, 3);
    watch_event(&watch, &(struct watch_event){.kind = WATCH_STARTED, .slot = 3}, 5);
    orders.started = 0;
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = 3, .code = 3}, 6);
    assert_int_equal(orders.not_come, 3);
    assert_int_equal(orders.started, 0);
    assert_false(orders.asked);
    assert_true(watch_server_is_out(&watch, 3));
    watch_fini(&watch);
}

/* If this fails, a server that is to leave and dies stays when it is started again. */
static void
test_one_that_dies_while_it_leaves(void **state)
{
    const struct psi_tiding awaited = {
        .kind = PSI_TIDING_AWAITED, .role = PSI_TIDING_SERVER, .rank = 1};
    struct orders orders;
    struct watch watch;

    (void)state;
    begin(&watch, &orders, 1);
    watch_server_add(&watch, 3);
    server_comes(&watch, 3, 20);
    watch.slots[3].is_leaving = false;
    assert_int_equal(watch_server_remove(&watch), 3);
    watch.slots[3].is_leaving = false;
    assert_int_equal(watch_server_remove(&watch), 3);
    orders.word = (struct psi_word){0};
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = 2, .signal = SIGKILL},
                6);
    watch_told(&watch, &awaited, 7);
    assert_int_equal(orders.started, 2); /* another one, which stays */
    watch_event(&watch, &(struct watch_event){.kind = WATCH_EXITED, .slot = 3, .signal = SIGKILL},
                8);
    assert_int_equal(orders.started, 3); /* it had nothing */
    server_comes(&watch, 3, 21);
    assert_int_equal(orders.word.kind, PSI_WORD_LEAVE);
    assert_int_equal(orders.word.number, 21);
    watch_fini(&watch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_many_there_may_be),
        cmocka_unit_test(test_one_comes_and_leaves),
        cmocka_unit_test(test_one_that_does_not_come),
        cmocka_unit_test(test_one_that_dies_while_it_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
