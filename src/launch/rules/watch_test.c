/*
 * watch_test.c - the rules of ending, as lists of events and the orders they give.
 *
 * Two servers (slots 1, 2) and two workers (slots 3, 4) unless a test says otherwise. Orders are
 * written as a string: "s3" start slot 3, "s3.1" start it again, "t3" TERM, "k3" KILL, "e1000" end;
 * "l3" and "f1" tell people of a worker that is late, of a server that has another life.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <signal.h>

#include <cmocka.h>

#include "launch/rules/watch.h"
#include "launch/rules/watch_master.h"
#include "launch/rules/watch_restart.h"
#include "launch/rules/watch_rolling.h"
#include "launch/rules/watch_stop.h"

struct orders {
    char text[512];
    uint32_t machine_of[5]; /* by slot */
};

static void
note(struct orders *orders, char what, uint32_t number, uint32_t restart)
{
    const size_t used = strlen(orders->text);
    char again[16] = "";

    if (restart > 0) {
        snprintf(again, sizeof(again), ".%u", restart);
    }
    snprintf(orders->text + used, sizeof(orders->text) - used, "%s%c%u%s", used > 0 ? " " : "",
             what, number, again);
}

static void
order_start(void *context, uint32_t slot, uint32_t restart)
{
    note(context, 's', slot, restart);
}

static void
order_signal(void *context, uint32_t slot, int number)
{
    note(context, number == SIGKILL ? 'k' : 't', slot, 0);
}

static void
order_end(void *context, uint32_t grace_ms)
{
    note(context, 'e', grace_ms, 0);
}

/* answer() does: what is asked of machines is no order to processes. */
static void
order_ask(void *context)
{
    (void)context;
}

static void
order_tell_late(void *context, uint32_t slot, uint64_t waited_ms)
{
    note(context, 'l', slot, (uint32_t)(waited_ms / 1000));
}

static void
order_tell_failover(void *context, uint32_t slot)
{
    note(context, 'f', slot, 0);
}

/* "m2.3": slot 2 goes to machine 3; machine 0 is not told. */
static void
order_move(void *context, uint32_t slot, uint32_t machine)
{
    struct orders *orders = context;

    note(orders, 'm', slot, machine);
    orders->machine_of[slot] = machine;
}

/* "g2.5": the server in slot 2 is gone, life 5; "d1": worker 1 is done, "x1": is dead; "c2.7": number 7 of the server in
 * slot 2 is crossed out, of its first lane ("n3" before it: of lane 3); "v": save; "a": that is all. */
static void
order_tell_master(void *context, const struct psi_word *word)
{
    static const char letters[] = {
        [PSI_WORD_GONE] = 'g',    [PSI_WORD_DONE] = 'd', [PSI_WORD_DEAD] = 'x',
        [PSI_WORD_CROSSED] = 'c', [PSI_WORD_SAVE] = 'v', [PSI_WORD_ALL] = 'a'};
    const bool is_server = word->kind == PSI_WORD_GONE || word->kind == PSI_WORD_CROSSED;

    if (word->lane > 0) {
        note(context, 'n', word->lane, 0);
    }
    note(context, letters[word->kind], word->rank + is_server, (uint32_t)word->number);
}

static void
order_tell_rolling(void *context)
{
    note(context, 'r', 0, 0);
}

static const struct watch_ops ops = {.start = order_start,
                                     .move = order_move,
                                     .signal = order_signal,
                                     .ask = order_ask,
                                     .tell_late = order_tell_late,
                                     .tell_failover = order_tell_failover,
                                     .tell_master = order_tell_master,
                                     .tell_rolling = order_tell_rolling,
                                     .end = order_end};

struct job {
    struct watch watch;
    struct orders orders;
    uint64_t now_ms;
};

static void
tell_news(struct job *job, enum psi_tiding_kind kind, uint32_t slot)
{
    const uint32_t servers = job->watch.config.servers;
    const struct psi_tiding tiding = {
        .kind = kind,
        .role = (enum psi_tiding_role)role_of_slot(slot, servers),
        .rank = role_index(slot, servers),
    };

    watch_told(&job->watch, &tiding, job->now_ms);
}

static void
tell_joined(struct job *job, uint32_t slot)
{
    tell_news(job, PSI_TIDING_JOINED, slot);
}

/* Something failed while all else is well: the master misses who ended, and all machines answer.
 * How causes are found out otherwise is cause_test.c's business. */
static void
answer(struct job *job, const struct watch_event *event)
{
    const uint32_t machines = job->watch.inquest.config.machines;

    if (event->kind == WATCH_EXITED && event->slot != 0 && job->watch.phase == WATCH_ASKING) {
        tell_news(job, PSI_TIDING_CUT, event->slot);
    }
    for (uint32_t i = 0; i < machines && job->watch.phase == WATCH_ASKING; i++) {
        watch_event(&job->watch, &(struct watch_event){.kind = WATCH_ANSWERED, .slot = i},
                    job->now_ms);
    }
}

static void
tell(struct job *job, enum watch_event_kind kind, uint32_t slot, int code, int number)
{
    const struct watch_event event = {.kind = kind, .slot = slot, .code = code, .signal = number};

    watch_event(&job->watch, &event, job->now_ms);
    answer(job, &event);
}

/* The orders since the last look. */
static void
expect(struct job *job, const char *orders)
{
    assert_string_equal(job->orders.text, orders);
    job->orders.text[0] = '\0';
}

static void
begin(struct job *job, enum watch_policy policy)
{
    static const uint32_t machine_of[] = {0, 1, 2, 0, 3}; /* worker 1 has one to itself */
    const struct watch_config config = {.servers = 2,
                                        .workers = 2,
                                        .machine_of = machine_of,
                                        .machines = 4,
                                        .here = 0,
                                        .silence_ms = 2000,
                                        .lease_ms = 5000,
                                        .on_worker_death = policy,
                                        .max_restarts = 2,
                                        .restart_delay_ms = 500,
                                        .start_timeout_ms = 60000,
                                        .leave_ms = 10000};

    *job = (struct job){.now_ms = 1000};
    assert_true(watch_init(&job->watch, &config, &ops, &job->orders));
    watch_begin(&job->watch, job->now_ms);
    expect(job, "");
    tell(job, WATCH_GATHERED, 0, 0, 0);
    expect(job, "s0");
}

/* The master is ready: the servers start and join, then the workers start. */
static void
start_all(struct job *job)
{
    expect(job, "s1 s2");
    for (uint32_t slot = 1; slot <= 2; slot++) {
        expect(job, "");
        tell(job, WATCH_STARTED, slot, 0, 0);
        tell_joined(job, slot);
    }
    expect(job, "s3 s4");
    tell(job, WATCH_STARTED, 3, 0, 0);
    tell(job, WATCH_STARTED, 4, 0, 0);
}

static void
run(struct job *job, enum watch_policy policy)
{
    begin(job, policy);
    tell(job, WATCH_STARTED, 0, 0, 0);
    tell(job, WATCH_READY, 0, 0, 0);
    start_all(job);
    tell_joined(job, 3);
    tell_joined(job, 4);
    watch_tick(&job->watch, job->now_ms + 300);
    expect(job, "");
}

/* The same, but no worker has joined. */
static void
run_unjoined(struct job *job, enum watch_policy policy)
{
    begin(job, policy);
    tell(job, WATCH_STARTED, 0, 0, 0);
    tell(job, WATCH_READY, 0, 0, 0);
    start_all(job);
}

static void
finish(struct job *job, int code, enum watch_cause cause, uint32_t slot)
{
    tell(job, WATCH_ALL_GONE, 0, 0, 0);
    assert_int_equal(job->watch.phase, WATCH_ENDED);
    assert_int_equal(watch_exit_code(&job->watch), code);
    assert_int_equal(job->watch.cause, cause);
    assert_int_equal(job->watch.cause_slot, slot);
    watch_fini(&job->watch);
}

/* A job whose servers may have other lives. */
static void
run_lasting(struct job *job)
{
    run(job, WATCH_FAIL);
    job->watch.config.server_restarts = 2;
}

static void
start_again(struct job *job, uint32_t slot)
{
    tell(job, WATCH_STARTED, slot, 0, 0);
    tell_joined(job, slot);
}

/* If this fails, the death of a server ends a job that goes on, or the server is started before the
 * master has said that it wants another one. */
static void
test_server_lives_again(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_CUT, 1);
    tell_news(&job, PSI_TIDING_LOST, 1);
    expect(&job, "");
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    start_again(&job, 1);
    watch_tick(&job.watch, job.now_ms + 10000);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* A job whose master may have other lives. */
static void
run_under_masters(struct job *job)
{
    run_lasting(job);
    job->watch.config.master_restarts = 2;
}

/* If this fails, the death of the master ends a job that can wait for it, or it has no end of
 * lives. */
static void
test_master_lives_again(void **state)
{
    struct job job;

    (void)state;
    run_under_masters(&job);
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL);
    expect(&job, "s0.1");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0); /* nobody is started a second time */
    expect(&job, "a0");
    tell(&job, WATCH_EXITED, 0, 3, 0); /* its port is taken, say */
    expect(&job, "");
    job.now_ms += 500;
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "s0.2");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL);
    answer(&job, &(struct watch_event){.kind = WATCH_EXITED, .slot = 0});
    expect(&job, "e1000");
    finish(&job, 137, WATCH_CAUSE_PROCESS, 0);
}

/* If this fails, a job waits for a master that hangs until all of it has died of that. */
static void
test_master_that_hangs_is_killed(void **state)
{
    struct job job;

    (void)state;
    run_under_masters(&job);
    watch_master_hangs(&job.watch, job.now_ms);
    watch_master_hangs(&job.watch, job.now_ms); /* once is enough */
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "f0 k0");
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL);
    expect(&job, "s0.1");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    watch_master_hangs(&job.watch, job.now_ms); /* it has to hear from the others first */
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "");
    watch_fini(&job.watch);
}

/* If this fails, a master that ended a job is started again, and the job never ends. */
static void
test_master_that_ended_the_job_is_not_missed(void **state)
{
    struct job job;

    (void)state;
    run_under_masters(&job);
    tell_news(&job, PSI_TIDING_END, 3);
    tell(&job, WATCH_EXITED, 0, 70, 0);
    assert_int_equal(job.watch.slots[0].restarts, 0);
    watch_fini(&job.watch);
}

/* If this fails, a job that ended well fails because its master died of the last breath. */
static void
test_master_that_dies_at_the_end(void **state)
{
    struct job job;

    (void)state;
    run_under_masters(&job);
    tell(&job, WATCH_EXITED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL); /* server 1 may not have heard that it is over */
    expect(&job, "s0.1");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0,
         0); /* it has; workers may still ask the master whether they may go */
    watch_tick(&job.watch, job.now_ms + 10000);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    watch_tick(&job.watch, job.now_ms);
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "k0"); /* nobody is left whom it could ask */
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a server that leaves well before the agent has started another life of the master
 * fails the job. */
static void
test_master_on_its_way_at_the_end(void **state)
{
    struct job job;

    (void)state;
    run_under_masters(&job);
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL);
    expect(&job, "s0.1");
    tell(&job, WATCH_EXITED, 1, 0, 0); /* it had heard that the job is over */
    tell(&job, WATCH_EXITED, 2, 0, 0);
    expect(&job, "");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "k0");
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, servers whose master dies twice after the last worker has ended wait for nobody. */
static void
test_master_dies_when_workers_have_ended(void **state)
{
    struct job job;

    (void)state;
    run_under_masters(&job);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL);
    expect(&job, "s0.1");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, SIGKILL);
    expect(&job, "");
    job.now_ms += 500;
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "s0.2");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a job whose parameters died with a server goes on, or somebody else is blamed. */
static void
test_server_that_the_job_needs(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell(&job, WATCH_EXITED, 2, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_LOST, 2);
    expect(&job, "");
    tell_news(&job, PSI_TIDING_END, 2);
    answer(&job, &(struct watch_event){.kind = WATCH_EXITED, .slot = 2});
    expect(&job, "e1000");
    finish(&job, 137, WATCH_CAUSE_PROCESS, 2);
}

/* If this fails, a job waits for ever for the word of a master that does not speak. */
static void
test_word_that_does_not_come(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell(&job, WATCH_EXITED, 2, 0, SIGKILL);
    assert_int_equal(watch_deadline(&job.watch), job.now_ms + 4000);
    job.now_ms += 4000;
    watch_tick(&job.watch, job.now_ms);
    answer(&job, &(struct watch_event){.kind = WATCH_EXITED, .slot = 2});
    expect(&job, "e1000");
    finish(&job, 137, WATCH_CAUSE_PROCESS, 2);
}

/* If this fails, a job ends, or waits in vain, because a server's other life ended so early that the
 * master has nothing to say of it. */
static void
test_life_that_the_master_never_saw(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    expect(&job, "");
    assert_int_equal(watch_deadline(&job.watch), job.now_ms + 4000);
    job.now_ms += 4000;
    watch_tick(&job.watch, job.now_ms);
    job.now_ms += 500; /* the second short life in a row: a pause */
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "f1 s1.2");
    start_again(&job, 1);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL); /* this one was seen: without a word the job is over */
    job.now_ms += 4000;
    watch_tick(&job.watch, job.now_ms);
    answer(&job, &(struct watch_event){.kind = WATCH_EXITED, .slot = 1});
    expect(&job, "e1000");
    finish(&job, 137, WATCH_CAUSE_PROCESS, 1);
}

/* If this fails, a server that was only silent runs on beside its other life. */
static void
test_silent_server_makes_room(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell_news(&job, PSI_TIDING_LOST, 1);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1");
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "k1");
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    expect(&job, "s1.1");
    start_again(&job, 1);
    watch_tick(&job.watch, job.now_ms + 10000);
    expect(&job, "");
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    watch_fini(&job.watch);
}

/* If this fails, people read of another life of a server that has none left, or the server that
 * psd_run kills is blamed for its death instead of its silence. */
static void
test_silent_server_without_lives(void **state)
{
    const struct psi_tiding lost = {
        .kind = PSI_TIDING_LOST, .role = PSI_TIDING_SERVER, .rank = 0, .loss = PSI_LOSS_SILENT};
    struct job job;

    (void)state;
    run_lasting(&job);
    job.watch.config.server_restarts = 0;
    watch_told(&job.watch, &lost, job.now_ms);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    answer(&job, &(struct watch_event){.kind = WATCH_EXITED, .slot = 1});
    expect(&job, "e1000");
    finish(&job, 71, WATCH_CAUSE_SILENT, 1);
}

/* If this fails, a job that ended well while a server was to be started again is reported as failed,
 * or the server is waited for. */
static void
test_job_ends_before_the_server_is_back(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    start_again(&job, 1);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1"); /* later */
    tell(&job, WATCH_EXITED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, the end of a life that was not needed any more is the end of a job that was well. */
static void
test_server_that_is_not_needed_any_more(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 1, 73, 0); /* refused: the job is over */
    tell(&job, WATCH_EXITED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a server that died too often ends a job in which another one takes its part, or is
 * started in vain. */
static void
test_another_server_takes_its_part(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    job.watch.config.others_take_over = true;
    job.watch.config.server_restarts = 0;
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    tell_news(&job, PSI_TIDING_HOSTED, 1);
    tell_joined(&job, 1);
    watch_tick(&job.watch, job.now_ms + 10000);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a server whose copy has its part is killed when it is back, or missed when it died too
 * often. */
static void
test_a_copy_takes_its_part(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    job.watch.config.others_take_over = true;
    job.watch.config.server_restarts = 1;
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    tell_news(&job, PSI_TIDING_COPIED, 1);
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell_joined(&job, 1); /* it stands by */
    watch_tick(&job.watch, job.now_ms + 1000);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1); /* too often */
    tell_news(&job, PSI_TIDING_COPIED, 1);
    watch_tick(&job.watch, job.now_ms + 100000);
    expect(&job, "");
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    watch_fini(&job.watch);
}

/* If this fails, the death of a server that only stands by ends a job that does not need it. */
static void
test_a_server_that_stands_by_dies(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    job.watch.config.others_take_over = true;
    job.watch.config.server_restarts = 2;
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    tell_news(&job, PSI_TIDING_COPIED, 1);
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell_joined(&job, 1); /* it stands by */
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    expect(&job, ""); /* it may have got a place again: that is the master's to say */
    watch_tick(&job.watch, job.now_ms + 30000);
    expect(&job, "f1");
    watch_tick(&job.watch, job.now_ms + 60000);
    expect(&job, "s1.2");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell_joined(&job, 1);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL); /* too often */
    watch_tick(&job.watch, job.now_ms + 30000);
    expect(&job, "");
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    watch_fini(&job.watch);
}

/* Who has the part of a server, and its copy. */
static void
tell_place(struct job *job, uint32_t slot, uint32_t by, enum psi_copy_state state, uint32_t copy)
{
    const struct psi_tiding tiding = {
        .kind = PSI_TIDING_PLACE,
        .role = PSI_TIDING_SERVER,
        .rank = slot - 1,
        .place = {.lanes = 1, .by = {by}, .copy = {copy}, .state = state}};

    watch_told(&job->watch, &tiding, job->now_ms);
}

/* If this fails, a server that only stands by is missed for seconds, though nobody needs a word. */
static void
test_a_server_without_a_part_dies(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell_place(&job, 1, 1, PSI_COPY_WHOLE, 0);
    tell_place(&job, 2, 1, PSI_COPY_WHOLE, 0);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    expect(&job, "f1 s1.1");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell_joined(&job, 1);
    tell_place(&job, 2, PSI_TIDING_NOBODY, PSI_COPY_WHOLE, 0); /* it may be on its way here */
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    expect(&job, "");
    watch_fini(&job.watch);
}

/* News of server 0 that name its life. */
static void
tell_life(struct job *job, enum psi_tiding_kind kind, uint64_t life)
{
    watch_told(
        &job->watch,
        &(struct psi_tiding){.kind = kind, .role = PSI_TIDING_SERVER, .rank = 0, .life = life},
        job->now_ms);
}

/* If this fails, the master waits for a server that is dead, or takes the next life for the last. */
static void
test_the_master_is_told_who_is_gone(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    tell_life(&job, PSI_TIDING_JOINED, 77);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    expect(&job, "g1.77");
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL); /* of this one the master knows nothing */
    expect(&job, "");
    watch_fini(&job.watch);
}

/* If this fails, a master that returns does not hear what those knew who died with the last one. */
static void
test_the_next_master_is_reminded(void **state)
{
    const uint32_t server = 1;
    struct job job;

    (void)state;
    run_lasting(&job);
    tell_life(&job, PSI_TIDING_JOINED, 77);
    tell_life(&job, PSI_TIDING_CROSSED, 5);
    watch_told(&job.watch,
               &(struct psi_tiding){
                   .kind = PSI_TIDING_CROSSED, .role = PSI_TIDING_SERVER, .lane = 3, .life = 9},
               job.now_ms);
    tell_joined(&job, 1 + job.watch.config.servers);
    tell_news(&job, PSI_TIDING_DONE, 1 + job.watch.config.servers);
    tell(&job, WATCH_EXITED, server, 0, SIGKILL);
    expect(&job, "g1.77");
    tell(&job, WATCH_READY, 0, 0, 0);
    expect(&job, "g1.77 c1.5 n3 c1.9 d0 a0");
    watch_fini(&job.watch);
}

/* Machine 0 has the master and worker 0; 1 and 2 have a server each; 3 has worker 1. */
static void
run_on_machines(struct job *job)
{
    static const uint32_t machine_of[] = {0, 1, 2, 0, 3};

    run_lasting(job);
    memcpy(job->orders.machine_of, machine_of, sizeof(machine_of));
    job->watch.config.machine_of = job->orders.machine_of;
    job->watch.inquest.config.machine_of = job->orders.machine_of;
}

static void
lose_machine(struct job *job, uint32_t machine)
{
    watch_event(&job->watch,
                &(struct watch_event){.kind = WATCH_MACHINE_LOST, .slot = machine, .silent = true},
                job->now_ms);
}

/* If this fails, a machine that has but servers takes a job with it that could go on. */
static void
test_servers_of_a_lost_machine_go_elsewhere(void **state)
{
    struct job job;

    (void)state;
    run_on_machines(&job);
    lose_machine(&job, 1);
    expect(&job, ""); /* whether the job can do without what it had is the master's to say */
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 m1 s1.1"); /* the first of those without a server */
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell_joined(&job, 1);
    tell_news(&job, PSI_TIDING_AWAITED, 2); /* it is silent: the master was faster */
    expect(&job, "f2");
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "k2");
    lose_machine(&job, 2);
    expect(&job, "m2.3 s2.1");
    watch_fini(&job.watch);
}

/* If this fails, a job waits for servers of a machine that it cannot do without. */
static void
test_machines_that_cannot_be_done_without(void **state)
{
    struct job job;

    (void)state;
    run_on_machines(&job);
    job.orders.machine_of[4] = 1; /* a worker beside the server, which the job cannot lose */
    lose_machine(&job, 1);
    assert_int_equal(job.watch.phase, WATCH_ASKING);
    watch_fini(&job.watch);

    run_on_machines(&job);
    job.orders.machine_of[0] = 1; /* the master */
    lose_machine(&job, 1);
    assert_int_equal(job.watch.phase, WATCH_ASKING);
    watch_fini(&job.watch);

    run_on_machines(&job);
    job.watch.config.server_restarts = 0;
    lose_machine(&job, 1);
    assert_int_equal(job.watch.phase, WATCH_ASKING);
    watch_fini(&job.watch);
}

/* Machine 1 has the master and a server, 2 the other server, 0 and 3 a worker each. */
static void
run_with_master_away(struct job *job, enum watch_policy policy)
{
    static const uint32_t machine_of[] = {1, 1, 2, 0, 3};

    run(job, policy);
    job->watch.config.server_restarts = 2;
    job->watch.config.master_restarts = 2;
    memcpy(job->orders.machine_of, machine_of, sizeof(machine_of));
    job->watch.config.machine_of = job->orders.machine_of;
    job->watch.inquest.config.machine_of = job->orders.machine_of;
}

/* If this fails, a job ends with the machine of its master, or waits for what was lost there. */
static void
test_master_of_a_lost_machine_goes_elsewhere(void **state)
{
    struct job job;

    (void)state;
    run_with_master_away(&job, WATCH_FAIL);
    tell_life(&job, PSI_TIDING_JOINED, 5); /* the server beside it */
    lose_machine(&job, 1);
    expect(&job, "f0 m0.2 s0.1"); /* where a server is, because workers reach it */
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0);
    expect(&job, "g1.5 a0"); /* it is not to wait for that server */
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 m1 s1.1");
    start_again(&job, 1);
    lose_machine(&job, 2); /* the next one, too: but a life was short */
    expect(&job, "f0 m0");
    job.now_ms += 500;
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "s0.2");
    watch_fini(&job.watch);
}

/* If this fails, people are told twice that a master is gone. */
static void
test_master_that_hangs_on_a_lost_machine(void **state)
{
    struct job job;

    (void)state;
    run_with_master_away(&job, WATCH_FAIL);
    watch_master_hangs(&job.watch, job.now_ms);
    expect(&job, "f0");
    lose_machine(&job, 1);
    expect(&job, "m0.2 s0.1");
    watch_fini(&job.watch);
}

/* If this fails, a job whose workers have ended ends badly, because the machine of the master did. */
static void
test_machine_of_the_master_is_lost_at_the_end(void **state)
{
    struct job job;

    (void)state;
    run_with_master_away(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    assert_int_equal(job.watch.phase, WATCH_LEAVING);
    lose_machine(&job, 1);
    expect(&job, "f0 m0.2 s0.1");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);

    run_with_master_away(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0); /* it has heard that all is well: nobody misses a master */
    lose_machine(&job, 1);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

static void
expect_end_with(struct job *job, uint32_t machine, int code)
{
    const struct watch_event event = {.kind = WATCH_MACHINE_LOST, .slot = machine};

    lose_machine(job, machine);
    answer(job, &event);
    expect(job, "e1000");
    finish(job, code, WATCH_CAUSE_MACHINE, machine);
}

/* If this fails, a job ends with its master's machine and says that it is the master that it misses, where
 * it is a worker; or it goes on without workers that it needs. */
static void
test_workers_on_the_machine_of_the_master(void **state)
{
    struct job job;

    (void)state;
    run_with_master_away(&job, WATCH_FAIL);
    job.orders.machine_of[3] = 1;
    expect_end_with(&job, 1, 70);

    run_with_master_away(&job, WATCH_WAIT);
    job.orders.machine_of[3] = 1;
    expect_end_with(&job, 1, 70);

    run_with_master_away(&job, WATCH_CONTINUE);
    job.orders.machine_of[3] = 1;
    lose_machine(&job, 1);
    expect(&job, "f0 m0.2 s0.1");
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0);
    expect(&job, "x0 a0"); /* nor is it to wait for the worker */
    watch_fini(&job.watch);

    run_with_master_away(&job, WATCH_FAIL);
    job.watch.config.master_restarts = 0;
    expect_end_with(&job, 1, 72);

    run_with_master_away(&job, WATCH_FAIL);
    job.watch.config.server_restarts = 0;
    expect_end_with(&job, 1, 72); /* with it a server is lost, of which no other life is allowed */

    run_with_master_away(&job, WATCH_FAIL);
    job.watch.config.here = 1;
    job.watch.inquest.config.here = 1;
    expect_end_with(&job, 1, 72);

    run_with_master_away(&job, WATCH_FAIL);
    job.orders.machine_of[3] = 1;
    job.watch.woke_ms = job.now_ms - 1; /* all agents have taken us for dead */
    expect_end_with(&job, 1, 72);
}

/* If this fails, a job that ends with a machine blames the workers there, where what its server had is lost as well; or
 * the server, which the job could have done without. */
static void
test_workers_beside_a_server(void **state)
{
    static const struct {
        uint32_t by, copy;
        enum psi_copy_state state;
        uint32_t restarts;
        int code;
    } rows[] = {
        {0, 1, PSI_COPY_NONE, 2, 71},    {0, 1, PSI_COPY_FORMING, 2, 71},
        {0, 1, PSI_COPY_WHOLE, 2, 70},   {0, 1, PSI_COPY_NEEDLESS, 2, 70},
        {0, 1, PSI_COPY_WHOLE, 0, 70},   {0, 1, PSI_COPY_NEEDLESS, 0, 71},
        {1, 0, PSI_COPY_NONE, 2, 70}, /* its copy has taken over already */
        {1, 0, PSI_COPY_FORMING, 0, 70}, {PSI_TIDING_NOBODY, 1, PSI_COPY_WHOLE, 2, 70},
        {0, 0, PSI_COPY_WHOLE, 2, 71}, /* both are gone */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct job job;

        run_on_machines(&job);
        job.orders.machine_of[4] = 1;
        job.watch.config.server_restarts = rows[i].restarts;
        tell_place(&job, 1, rows[i].by, rows[i].state, rows[i].copy);
        expect_end_with(&job, 1, rows[i].code);
    }
}

/* Servers 0 and 1 have copies in each other, and are to be restarted. */
static void
begin_rolling(struct job *job)
{
    char why[256];

    run_lasting(job);
    job->watch.config.others_take_over = true;
    job->watch.config.replicas = 1;
    assert_false(watch_rolling_begin(&job->watch, 10000, job->now_ms, why, sizeof(why)));
    assert_string_equal(why, "it has not begun: not all of its processes have joined");
    tell_place(job, 1, 0, PSI_COPY_WHOLE, 1);
    tell_place(job, 2, 1, PSI_COPY_FORMING, 0);
    assert_true(watch_rolling_begin(&job->watch, 10000, job->now_ms, why, sizeof(why)));
    assert_false(watch_rolling_begin(&job->watch, 10000, job->now_ms, why, sizeof(why)));
    expect(job, ""); /* one of them has no whole copy yet */
}

/* If this fails, a server is restarted while the job needs it, or the others wait for ever. */
static void
test_servers_are_restarted_one_after_the_other(void **state)
{
    struct job job;

    (void)state;
    begin_rolling(&job);
    tell_place(&job, 2, 1, PSI_COPY_WHOLE, 0);
    expect(&job, "r0 k1");
    tell_place(&job, 2, 1, PSI_COPY_WHOLE, 0); /* of before its death */
    expect(&job, "");
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    tell_place(&job, 1, PSI_TIDING_NOBODY, PSI_COPY_WHOLE, 1);
    tell_place(&job, 2, 1, PSI_COPY_NONE, PSI_TIDING_NOBODY);
    expect(&job, "f1 s1.1");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell_joined(&job, 1);
    tell_place(&job, 1, 1, PSI_COPY_WHOLE, 0);
    expect(&job, "");
    tell_place(&job, 2, 1, PSI_COPY_WHOLE, 0);
    expect(&job, "r0 r0 k2");
    tell(&job, WATCH_EXITED, 2, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 2);
    expect(&job, "f2 s2.1");
    tell(&job, WATCH_STARTED, 2, 0, 0);
    tell_place(&job, 1, 0, PSI_COPY_WHOLE, 1);
    expect(&job, ""); /* it has not joined */
    tell_joined(&job, 2);
    expect(&job, "r0");
    assert_int_equal(job.watch.rolling.stage, ROLLING_DONE);
    assert_int_equal(job.watch.slots[1].hasty + job.watch.slots[2].hasty, 0);
    watch_fini(&job.watch);
}

/* If this fails, a server is killed as the master begins to move a place, which then is lost. */
static void
test_no_server_is_restarted_while_places_move(void **state)
{
    struct job job;

    (void)state;
    begin_rolling(&job);
    job.watch.config.may_scale_servers = true;
    tell_place(&job, 2, 1, PSI_COPY_WHOLE, 0);
    expect(&job, "");
    assert_int_equal(watch_deadline(&job.watch), job.now_ms + 2000);
    job.now_ms += 1999;
    tell_place(&job, 2, 1, PSI_COPY_FORMING, 0); /* it is on its way */
    tell_place(&job, 2, 1, PSI_COPY_WHOLE, 0);
    watch_tick(&job.watch, job.now_ms + 1999);
    expect(&job, "");
    watch_tick(&job.watch, job.now_ms + 2000);
    expect(&job, "r0 k1");
    watch_fini(&job.watch);
}

/* If this fails, one who restarts servers waits for ever for a copy that is never whole. */
static void
test_servers_that_cannot_be_restarted(void **state)
{
    struct job job;
    char why[256];

    (void)state;
    begin_rolling(&job);
    assert_int_equal(watch_deadline(&job.watch), job.now_ms + 10000);
    watch_tick(&job.watch, job.now_ms + 10000);
    expect(&job, "r0");
    assert_int_equal(job.watch.rolling.stage, ROLLING_FAILED);
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    job.watch.config.replicas = 0;
    tell_place(&job, 2, 1, PSI_COPY_NONE, PSI_TIDING_NOBODY);
    assert_false(watch_rolling_begin(&job.watch, 10000, job.now_ms, why, sizeof(why)));
    assert_non_null(strstr(why, "server 1 has what nobody else has"));
    watch_fini(&job.watch);
}

/* If this fails, two servers have one place: one that was started again too late lives on. */
static void
test_server_that_comes_too_late(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    job.watch.config.others_take_over = true;
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell_news(&job, PSI_TIDING_HOSTED, 1);
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "k1");
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    watch_tick(&job.watch, job.now_ms + 10000);
    expect(&job, "");
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    watch_fini(&job.watch);
}

/* If this fails, a server whose copy died with it is said to run, or its next life is to blame for the end. */
static void
test_its_copy_is_lost_when_it_is_started_again(void **state)
{
    struct psi_tiding end = {
        .kind = PSI_TIDING_END, .role = PSI_TIDING_SERVER, .code = 71, .loss = PSI_LOSS_CLOSED};
    struct job job;

    (void)state;
    run_lasting(&job);
    tell_joined(&job, 1);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1 s1.1");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    watch_told(&job.watch, &end, job.now_ms);
    tell(&job, WATCH_EXITED, 1, 73, 0);
    expect(&job, "e1000");
    assert_true(job.watch.cause_before);
    finish(&job, 137, WATCH_CAUSE_PROCESS, 1);
}

/* If this fails, a job waits for ever for another server to take a lost one's part. */
static void
test_nobody_takes_its_part(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    job.watch.config.others_take_over = true;
    job.watch.config.server_restarts = 0;
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "");
    job.now_ms = watch_deadline(&job.watch);
    watch_tick(&job.watch, job.now_ms);
    answer(&job, &(struct watch_event){.kind = WATCH_EXITED, .slot = 1});
    expect(&job, "e1000");
    finish(&job, 137, WATCH_CAUSE_PROCESS, 1);
}

/* If this fails, a server that dies again and again is started for ever, or one that served for
 * long has no more lives. */
static void
test_short_lives_of_a_server_are_counted(void **state)
{
    struct job job;

    (void)state;
    run_lasting(&job);
    for (unsigned life = 1; life <= 3; life++) { /* after a minute each */
        char again[16];

        job.now_ms += 61000;
        tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
        tell_news(&job, PSI_TIDING_AWAITED, 1);
        snprintf(again, sizeof(again), "f1 s1.%u", life);
        expect(&job, again);
        start_again(&job, 1);
    }
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    tell_news(&job, PSI_TIDING_AWAITED, 1);
    expect(&job, "f1"); /* not at once, this time */
    job.now_ms += 500;
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "s1.4");
    start_again(&job, 1);
    tell(&job, WATCH_EXITED, 1, 0, SIGKILL);
    expect(&job, "e1000");
    finish(&job, 137, WATCH_CAUSE_PROCESS, 1);
}

/* If this fails, a job that went well is not reported so, or its servers are not waited for. */
static void
test_all_well(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, servers that never leave hold a finished job for ever, or spoil its code. */
static void
test_services_that_stay_are_ended(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    watch_tick(&job.watch, 10999);
    assert_int_equal(watch_deadline(&job.watch), 11000);
    expect(&job, "");
    watch_tick(&job.watch, 11000);
    expect(&job, "e1000");
    tell(&job, WATCH_EXITED, 0, 0, SIGTERM);
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, the survivors of a failure run on, or one of them is blamed. */
static void
test_first_failure_is_the_cause(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 4, 0, SIGKILL);
    expect(&job, "e1000");
    tell(&job, WATCH_EXITED, 0, 5, 0);
    tell(&job, WATCH_EXITED, 3, 1, 0);
    tell(&job, WATCH_EXITED, 1, 0, SIGTERM);
    finish(&job, 137, WATCH_CAUSE_PROCESS, 4);
}

/* If this fails, a worker that ended well hides another's failure. */
static void
test_failure_after_success(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 3, 0);
    expect(&job, "e1000");
    finish(&job, 3, WATCH_CAUSE_PROCESS, 4);
}

/* If this fails, a dead server is noticed only when the workers time out. */
static void
test_service_failure_ends_the_job(void **state)
{
    for (uint32_t slot = 0; slot <= 2; slot++) {
        struct job job;

        (void)state;
        run(&job, WATCH_CONTINUE);
        tell(&job, WATCH_EXITED, slot, 7, 0);
        expect(&job, "e1000");
        finish(&job, 7, WATCH_CAUSE_PROCESS, slot);
    }
}

/* If this fails, a worker that still writes its results after psd_close() is killed. */
static void
test_master_may_leave_before_the_last_worker_process(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    watch_tick(&job.watch, 60000);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a job that is over in no time fails, because the news that a worker was started is on its way
 * from another machine for longer than the whole job lasted. */
static void
test_job_that_is_over_before_its_start_is_known(void **state)
{
    struct job job;

    (void)state;
    begin(&job, WATCH_FAIL);
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0);
    for (uint32_t slot = 1; slot <= 2; slot++) {
        tell(&job, WATCH_STARTED, slot, 0, 0);
        tell_joined(&job, slot);
    }
    expect(&job, "s1 s2 s3 s4");
    tell_joined(&job, 3);
    tell_joined(&job, 4);
    tell(&job, WATCH_STARTED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    expect(&job, "");
    tell(&job, WATCH_STARTED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a server that quits with code 0 in the middle of a job counts as fine. */
static void
test_server_that_leaves_alone_is_a_failure(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    assert_int_equal(watch_deadline(&job.watch), 3000);
    watch_tick(&job.watch, 3000);
    expect(&job, "e1000");
    finish(&job, 1, WATCH_CAUSE_SERVICE_LEFT, 2);
}

/* If this fails, a short job fails because another machine says late that its workers were started. */
static void
test_server_that_leaves_before_a_start_was_told(void **state)
{
    struct job job;

    (void)state;
    begin(&job, WATCH_FAIL);
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0);
    tell(&job, WATCH_STARTED, 1, 0, 0);
    expect(&job, "s1 s2");
    tell(&job, WATCH_EXITED, 1, 0, 0);
    expect(&job, "");
    watch_tick(&job.watch, watch_deadline(&job.watch));
    expect(&job, "e1000"); /* and nothing else came */
    finish(&job, 1, WATCH_CAUSE_SERVICE_LEFT, 1);
}

/* If this fails, a master that quits before the workers exist counts as fine. */
static void
test_master_that_leaves_before_the_start_is_a_failure(void **state)
{
    struct job job;

    (void)state;
    begin(&job, WATCH_FAIL);
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0);
    tell(&job, WATCH_STARTED, 1, 0, 0);
    expect(&job, "s1 s2");
    tell(&job, WATCH_EXITED, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 1, WATCH_CAUSE_SERVICE_LEFT, 0);
}

/* If this fails, on_worker_death=continue ends the job or forgets that somebody succeeded. */
static void
test_continue(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_CONTINUE);
    tell(&job, WATCH_EXITED, 3, 0, SIGKILL);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 4, 0, 0);
    assert_int_equal(job.watch.phase, WATCH_LEAVING);
    tell(&job, WATCH_EXITED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);

    run(&job, WATCH_CONTINUE);
    tell(&job, WATCH_EXITED, 4, 9, 0);
    tell(&job, WATCH_EXITED, 3, 8, 0);
    expect(&job, "e1000");
    finish(&job, 9, WATCH_CAUSE_PROCESS, 4);
}

/* If this fails, on_worker_death=wait does not restart, or restarts for ever. */
static void
test_wait_restarts_up_to_the_limit(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_WAIT);
    job.now_ms += 10000; /* it has lived for a while: no reason to wait */
    tell(&job, WATCH_EXITED, 4, 0, SIGKILL);
    expect(&job, "s4.1");
    tell(&job, WATCH_STARTED, 4, 0, 0);
    job.now_ms += 10000;
    tell(&job, WATCH_EXITED, 4, 2, 0);
    expect(&job, "s4.2");
    tell(&job, WATCH_STARTED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 4, 2, 0);
    expect(&job, "e1000");
    finish(&job, 2, WATCH_CAUSE_PROCESS, 4);
}

/* If this fails, a worker that fails at once uses all its restarts up in no time. */
static void
test_short_lives_are_restarted_later_and_later(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_WAIT);
    tell(&job, WATCH_EXITED, 4, 1, 0);
    expect(&job, "");
    assert_true(watch_deadline(&job.watch) == job.now_ms + 500);
    watch_tick(&job.watch, job.now_ms + 499);
    expect(&job, "");
    job.now_ms += 500;
    watch_tick(&job.watch, job.now_ms);
    expect(&job, "s4.1");
    watch_tick(&job.watch, job.now_ms + 300);
    expect(&job, "");
    tell(&job, WATCH_STARTED, 4, 0, 0);
    tell(&job, WATCH_EXITED, 4, 1, 0);
    assert_true(watch_deadline(&job.watch) == job.now_ms + 1000);
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGINT); /* nothing is started in a job that stops */
    expect(&job, "t3");
    watch_tick(&job.watch, job.now_ms + 1000);
    expect(&job, "");
    watch_fini(&job.watch);
}

/* If this fails, restarts wait for ever, or not at all after a life that was long. */
static void
test_delays_of_restarts(void **state)
{
    static const uint32_t wanted_ms[] = {500, 1000, 2000, 4000, 8000, 16000, 30000, 30000};
    uint32_t hasty = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(wanted_ms) / sizeof(wanted_ms[0]); i++) {
        assert_int_equal(watch_restart_delay_ms(500, 9999, &hasty), wanted_ms[i]);
    }
    assert_int_equal(watch_restart_delay_ms(500, 10000, &hasty), 0);
    assert_int_equal(watch_restart_delay_ms(500, 0, &hasty), 500);
    assert_int_equal(watch_restart_delay_ms(0, 0, &hasty), 0);
    assert_int_equal(watch_restart_delay_ms(60000, 0, &hasty), 30000);
}

/* If this fails, Ctrl-C takes servers away from workers that are saving, or hangs on one. */
static void
test_interrupt_stops_workers_then_servers_then_master(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_WAIT);
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGINT);
    expect(&job, "t3 t4");
    tell(&job, WATCH_EXITED, 3, 0, SIGTERM);
    expect(&job, "");
    watch_tick(&job.watch, 6000);
    expect(&job, "k4");
    tell(&job, WATCH_EXITED, 4, 0, SIGKILL);
    expect(&job, "t1 t2");
    tell(&job, WATCH_EXITED, 1, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    expect(&job, "t0");
    tell(&job, WATCH_EXITED, 0, 0, SIGTERM);
    expect(&job, "e1000");
    finish(&job, 130, WATCH_CAUSE_INTERRUPT, 0);
}

/* If this fails, an impatient second Ctrl-C is ignored or skips the cleaning up. */
static void
test_second_interrupt_kills(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGTERM);
    expect(&job, "t3 t4");
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGINT);
    expect(&job, "e0");
    tell(&job, WATCH_EXITED, 3, 0, SIGKILL);
    expect(&job, "");
    finish(&job, 143, WATCH_CAUSE_INTERRUPT, 0);
}

/* If this fails, a batch system's warning costs the steps since the last checkpoint, or Ctrl-C waits for a
 * disk. */
static void
test_a_warning_lets_the_job_save_first(void **state)
{
    const struct psi_tiding saved = {
        .kind = PSI_TIDING_SAVED, .role = PSI_TIDING_MASTER, .step = 12};
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    job.watch.config.save_ms = 30000;
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGTERM);
    expect(&job, "v0");
    assert_true(watch_is_saving(&job.watch));
    watch_told(&job.watch, &saved, job.now_ms);
    expect(&job, "t3 t4");
    assert_int_equal(job.watch.saved_step, 12);
    finish(&job, 143, WATCH_CAUSE_INTERRUPT, 0);

    run(&job, WATCH_FAIL);
    job.watch.config.save_ms = 30000;
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGTERM);
    expect(&job, "v0");
    assert_int_equal(watch_deadline(&job.watch), job.now_ms + 30000);
    watch_tick(&job.watch, job.now_ms + 30000); /* no word: it has waited long enough */
    expect(&job, "t3 t4");
    finish(&job, 143, WATCH_CAUSE_INTERRUPT, 0);

    run(&job, WATCH_FAIL);
    job.watch.config.save_ms = 30000;
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGTERM);
    expect(&job, "v0");
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGTERM); /* said twice */
    expect(&job, "t3 t4");
    finish(&job, 143, WATCH_CAUSE_INTERRUPT, 0);

    run(&job, WATCH_FAIL);
    job.watch.config.save_ms = 30000;
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGINT);
    expect(&job, "t3 t4");
    finish(&job, 130, WATCH_CAUSE_INTERRUPT, 0);
}

/* If this fails, a process that was being started when Ctrl-C came is forgotten. */
static void
test_interrupt_during_start(void **state)
{
    struct job job;

    (void)state;
    begin(&job, WATCH_FAIL);
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0);
    tell(&job, WATCH_STARTED, 1, 0, 0);
    expect(&job, "s1 s2");
    tell(&job, WATCH_INTERRUPTED, 0, 0, SIGINT);
    expect(&job, "t1");
    tell(&job, WATCH_STARTED, 2, 0, 0);
    expect(&job, "t2");
    finish(&job, 130, WATCH_CAUSE_INTERRUPT, 0);
}

/* If this fails, a master that cannot bind, hangs or is missing gives the wrong code. */
static void
test_start_failures(void **state)
{
    struct job job;

    (void)state;
    begin(&job, WATCH_FAIL);
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_EXITED, 0, 1, 0);
    expect(&job, "e1000");
    finish(&job, 3, WATCH_CAUSE_NOT_STARTED, 0);

    begin(&job, WATCH_FAIL);
    tell(&job, WATCH_STARTED, 0, 0, 0);
    watch_tick(&job.watch, 61000);
    expect(&job, "e1000");
    finish(&job, 124, WATCH_CAUSE_START_TIMEOUT, 0);

    begin(&job, WATCH_FAIL);
    tell(&job, WATCH_START_FAILED, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 3, WATCH_CAUSE_NOT_STARTED, 0);
}

/* If this fails, psd_run goes on without a machine that holds a part of the job, or gives another
 * code than what was lost deserves. */
static void
test_machine_lost(void **state)
{
    static const int codes[] = {72, 71, 71, 70};

    (void)state;
    for (uint32_t machine = 0; machine < 4; machine++) {
        struct job job;

        run(&job, WATCH_FAIL);
        tell(&job, WATCH_MACHINE_LOST, machine, 0, 0);
        expect(&job, "e1000");
        finish(&job, codes[machine], WATCH_CAUSE_MACHINE, machine);
    }
}

/* If this fails, an agent that was killed looks like something else. */
static void
test_agent_killed(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    tell(&job, WATCH_MACHINE_LOST, 0, 0, 0);
    expect(&job, "e1000");
    finish(&job, 72, WATCH_CAUSE_MACHINE, 0);
}

/* If this fails, a worker that somebody stopped holds up the end of a job that goes on without it,
 * or is never started again. */
static void
test_worker_taken_for_dead(void **state)
{
    static const enum watch_policy policies[] = {WATCH_CONTINUE, WATCH_WAIT};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct psi_tiding lost = {
            .kind = PSI_TIDING_LOST, .role = PSI_TIDING_WORKER, .rank = 1, .loss = PSI_LOSS_SILENT};
        struct job job;

        run(&job, policies[i]);
        job.now_ms += 60000; /* it has lived long enough to be restarted without a pause */
        watch_told(&job.watch, &lost, job.now_ms);
        assert_int_equal(watch_deadline(&job.watch), job.now_ms + 1000);
        watch_tick(&job.watch, job.now_ms + 999);
        expect(&job, "");
        watch_tick(&job.watch, job.now_ms + 1000);
        expect(&job, "k4");
        tell(&job, WATCH_EXITED, 4, 0, SIGKILL);
        expect(&job, policies[i] == WATCH_WAIT ? "s4.1" : "");
        watch_fini(&job.watch);
    }
}

/* If this fails, a job whose workers wait for one that was stopped before it joined says nothing.
 */
static void
test_worker_that_does_not_join_is_told(void **state)
{
    struct job job;

    (void)state;
    run_unjoined(&job, WATCH_FAIL);
    tell_joined(&job, 3);
    watch_tick(&job.watch, job.now_ms + 300);
    assert_int_equal(watch_deadline(&job.watch), job.now_ms + 30000);
    watch_tick(&job.watch, job.now_ms + 29999);
    expect(&job, "");
    watch_tick(&job.watch, job.now_ms + 30000);
    expect(&job, "l4.30");
    watch_tick(&job.watch, job.now_ms + 59999);
    expect(&job, "");
    watch_tick(&job.watch, job.now_ms + 60000);
    expect(&job, "l4.60");
    tell_joined(&job, 4);
    watch_tick(&job.watch, job.now_ms + 60300);
    assert_int_equal(watch_deadline(&job.watch), UINT64_MAX);
    watch_tick(&job.watch, job.now_ms + 120000);
    expect(&job, "");
    watch_fini(&job.watch);
}

/* If this fails, a worker that was restarted is killed for the death of its predecessor, of which
 * the master tells half a second later. */
static void
test_successor_is_not_killed_for_its_predecessor(void **state)
{
    const struct psi_tiding lost = {
        .kind = PSI_TIDING_LOST, .role = PSI_TIDING_WORKER, .rank = 1, .loss = PSI_LOSS_CLOSED};
    const struct psi_tiding joined = {
        .kind = PSI_TIDING_JOINED, .role = PSI_TIDING_WORKER, .rank = 1};
    struct job job;

    (void)state;
    run(&job, WATCH_WAIT);
    watch_told(&job.watch, &joined, job.now_ms);
    job.now_ms += 60000;
    tell(&job, WATCH_EXITED, 4, 1, 0);
    expect(&job, "s4.1");
    tell(&job, WATCH_STARTED, 4, 0, 0);
    watch_told(&job.watch, &lost, job.now_ms);
    watch_tick(&job.watch, job.now_ms + 5000);
    expect(&job, "");
    watch_told(&job.watch, &joined, job.now_ms + 5000);
    watch_told(&job.watch, &lost, job.now_ms + 5000); /* this time it is the one */
    watch_tick(&job.watch, job.now_ms + 6000);
    expect(&job, "k4");
    watch_fini(&job.watch);
}

/* If this fails, a job that waits for replacements is killed for a worker that gave up by itself.
 */
static void
test_worker_that_gave_up_is_not_killed(void **state)
{
    const struct psi_tiding lost = {
        .kind = PSI_TIDING_LOST, .role = PSI_TIDING_WORKER, .rank = 1, .loss = PSI_LOSS_GAVE_UP};
    struct job job;

    (void)state;
    run(&job, WATCH_CONTINUE);
    watch_told(&job.watch, &lost, job.now_ms);
    watch_tick(&job.watch, job.now_ms + 5000);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 4, 1, 0);
    expect(&job, "");
    watch_fini(&job.watch);
}

/* If this fails, survivors are stopped before it is known who failed, and one that was about to
 * tell is taken for the cause. */
static void
test_nobody_is_stopped_before_the_cause_is_known(void **state)
{
    const struct watch_event victim = {.kind = WATCH_EXITED, .slot = 3, .code = 1};
    struct psi_tiding end = {.kind = PSI_TIDING_END,
                             .role = PSI_TIDING_SERVER,
                             .rank = 1,
                             .loss = PSI_LOSS_SILENT,
                             .code = 71};
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    watch_event(&job.watch, &victim, job.now_ms);
    assert_int_equal(job.watch.phase, WATCH_ASKING);
    for (uint32_t i = 0; i < 4; i++) {
        tell(&job, WATCH_ANSWERED, i, 0, 0);
    }
    expect(&job, "");
    watch_told(&job.watch, &end, job.now_ms);
    expect(&job, "e1000");
    finish(&job, 71, WATCH_CAUSE_SILENT, 2);
}

/* If this fails, a job that may lose workers ends with a machine that had nothing but one. */
static void
test_machine_of_a_worker_lost_policy_continue(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_CONTINUE);
    tell(&job, WATCH_MACHINE_LOST, 3, 0, 0);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 3, 0, 0);
    assert_int_equal(job.watch.phase, WATCH_LEAVING);
    assert_int_equal(job.watch.workers_failed, 1);
    watch_fini(&job.watch);
}

/* If this fails, a machine that never comes is waited for until the start times out. */
static void
test_machine_that_cannot_start(void **state)
{
    const struct watch_config config = {.servers = 1, .workers = 1, .start_timeout_ms = 100};
    struct job job = {.now_ms = 1000};

    (void)state;
    assert_true(watch_init(&job.watch, &config, &ops, &job.orders));
    watch_begin(&job.watch, job.now_ms);
    tell(&job, WATCH_CANNOT_START, 1, 0, 0);
    expect(&job, "e1000");
    finish(&job, 3, WATCH_CAUSE_NO_MACHINE, 1);

    assert_true(watch_init(&job.watch, &config, &ops, &job.orders));
    watch_begin(&job.watch, job.now_ms);
    watch_tick(&job.watch, 1100);
    expect(&job, "e1000");
    finish(&job, 124, WATCH_CAUSE_START_TIMEOUT, 0);
}

/* If this fails, plain programs keep servers waiting that nobody will ever talk to. */
static void
test_plain_programs(void **state)
{
    struct job job;

    (void)state;
    run_unjoined(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    watch_tick(&job.watch, job.now_ms + 300);
    expect(&job, ""); /* the other may still be one, too */
    tell(&job, WATCH_EXITED, 4, 0, 0);
    assert_int_equal(watch_deadline(&job.watch), job.now_ms + 300);
    watch_tick(&job.watch, job.now_ms + 300);
    expect(&job, "e1000");
    assert_true(watch_was_plain(&job.watch));
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, workers wait for one that ended long ago, until a minute has passed. */
static void
test_worker_that_never_joined(void **state)
{
    struct job job;

    (void)state;
    run_unjoined(&job, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell_joined(&job, 4);
    watch_tick(&job.watch, job.now_ms + 300);
    expect(&job, "e1000");
    finish(&job, 70, WATCH_CAUSE_NEVER_JOINED, 3);

    run_unjoined(&job, WATCH_CONTINUE);
    tell_joined(&job, 4);
    tell(&job, WATCH_EXITED, 3, 0, SIGKILL);
    watch_tick(&job.watch, job.now_ms + 300);
    expect(&job, "e1000");
    finish(&job, 137, WATCH_CAUSE_NEVER_JOINED, 3);
}

/* If this fails, news that come in another order than things happened end a job that is well. */
static void
test_joining_may_be_heard_of_late(void **state)
{
    struct job job;

    (void)state;
    run_unjoined(&job, WATCH_FAIL);
    tell_joined(&job, 4);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    watch_tick(&job.watch, job.now_ms + 200);
    tell_joined(&job, 3);
    watch_tick(&job.watch, job.now_ms + 600);
    expect(&job, "");
    watch_fini(&job.watch);
}

/* If this fails, --timeout does not end a job, or ends one that is leaving. */
static void
test_timeout_of_the_job(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_FAIL);
    job.watch.timeout_ms = 5000;
    assert_int_equal(watch_deadline(&job.watch), 5000);
    watch_tick(&job.watch, 5000);
    expect(&job, "e1000");
    finish(&job, 124, WATCH_CAUSE_TIMEOUT, 0);
}

/* Two servers and three workers of the user's own; the first slot is empty. */
static void
run_foreign(struct job *job, uint32_t leaders, enum watch_policy policy)
{
    const struct watch_config config = {.servers = 2,
                                        .workers = 3,
                                        .on_worker_death = policy,
                                        .start_timeout_ms = 60000,
                                        .leave_ms = 10000,
                                        .foreign = true,
                                        .masterless = true,
                                        .leaders = leaders};

    *job = (struct job){.now_ms = 1000};
    assert_true(watch_init(&job->watch, &config, &ops, &job->orders));
    watch_begin(&job->watch, job->now_ms);
    tell(job, WATCH_GATHERED, 0, 0, 0);
    expect(job, "s1 s2 s3 s4 s5");
    for (uint32_t slot = 1; slot <= 5; slot++) {
        tell(job, WATCH_STARTED, slot, 0, 0);
    }
}

/* If this fails, servers that wait for ever hold a job whose workers are done, or are blamed for
 * dying of our signal. */
static void
test_foreign_servers_are_ended(void **state)
{
    struct job job;

    (void)state;
    run_foreign(&job, 0, WATCH_FAIL);
    for (uint32_t slot = 3; slot <= 5; slot++) {
        tell(&job, WATCH_EXITED, slot, 0, 0);
    }
    assert_int_equal(watch_deadline(&job.watch), 11000);
    tell(&job, WATCH_EXITED, 1, 1, 0); /* as it lost its last client: no failure any more */
    expect(&job, "");
    watch_tick(&job.watch, 11000);
    expect(&job, "e1000");
    tell(&job, WATCH_EXITED, 2, 0, SIGTERM);
    assert_false(watch_was_plain(&job.watch));
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a job whose processes have all gone waits for nobody. */
static void
test_foreign_servers_that_leave(void **state)
{
    struct job job;

    (void)state;
    run_foreign(&job, 0, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 1, 0, 0); /* its workers told it that they are done */
    tell(&job, WATCH_EXITED, 2, 0, 0);
    assert_int_equal(watch_deadline(&job.watch), 11000);
    for (uint32_t slot = 3; slot <= 5; slot++) {
        expect(&job, "");
        tell(&job, WATCH_EXITED, slot, 0, 0);
    }
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a server that is slow to start is cut off by workers that are quick to end. */
static void
test_foreign_server_on_its_way(void **state)
{
    const struct watch_config config = {
        .servers = 1, .workers = 1, .leave_ms = 1000, .foreign = true, .masterless = true};
    struct job job = {.now_ms = 1000};

    (void)state;
    assert_true(watch_init(&job.watch, &config, &ops, &job.orders));
    watch_begin(&job.watch, job.now_ms);
    tell(&job, WATCH_GATHERED, 0, 0, 0);
    expect(&job, "s1 s2");
    tell(&job, WATCH_STARTED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    expect(&job, "");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    expect(&job, "");
    watch_tick(&job.watch, 2000);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, workers wait for ever for a server of theirs that is gone. */
static void
test_foreign_server_that_dies_first(void **state)
{
    struct job job;

    (void)state;
    run_foreign(&job, 0, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 2, 4, 0);
    expect(&job, "e1000");
    finish(&job, 4, WATCH_CAUSE_PROCESS, 2);
    run_foreign(&job, 0, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 2, 0, 0);
    watch_tick(&job.watch, 10999);
    expect(&job, "");
    watch_tick(&job.watch, 11000);
    expect(&job, "e1000");
    finish(&job, 1, WATCH_CAUSE_SERVICE_LEFT, 2);
}

/* If this fails, workers that end slowly fail a job whose servers ended before them, although it
 * was given more time to end. */
static void
test_foreign_server_that_ends_before_slow_workers(void **state)
{
    const struct watch_config config = {
        .servers = 1, .workers = 1, .leave_ms = 60000, .foreign = true, .masterless = true};
    struct job job = {.now_ms = 1000};

    (void)state;
    assert_true(watch_init(&job.watch, &config, &ops, &job.orders));
    watch_begin(&job.watch, job.now_ms);
    tell(&job, WATCH_GATHERED, 0, 0, 0);
    expect(&job, "s1 s2");
    tell(&job, WATCH_STARTED, 1, 0, 0);
    tell(&job, WATCH_STARTED, 2, 0, 0);
    tell(&job, WATCH_EXITED, 1, 0, 0);
    watch_tick(&job.watch, 60999);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 2, 0, 0);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a job with a chief waits for workers that only serve it, or ends before it. */
static void
test_chief_decides(void **state)
{
    struct job job;

    (void)state;
    run_foreign(&job, 1, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 5, 0, 0);
    assert_int_equal(job.watch.phase, WATCH_RUNNING);
    tell(&job, WATCH_EXITED, 3, 0, 0);
    assert_int_equal(job.watch.phase, WATCH_LEAVING);
    watch_tick(&job.watch, 11000);
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
    run_foreign(&job, 1, WATCH_CONTINUE);
    tell(&job, WATCH_EXITED, 4, 6, 0); /* one of those it can do without */
    expect(&job, "");
    tell(&job, WATCH_EXITED, 3, 7, 0);
    expect(&job, "e1000");
    finish(&job, 6, WATCH_CAUSE_PROCESS, 4);
    run_foreign(&job, 1, WATCH_FAIL);
    tell(&job, WATCH_EXITED, 4, 6, 0);
    expect(&job, "e1000");
    finish(&job, 6, WATCH_CAUSE_PROCESS, 4);
}

/* If this fails, the scheduler, in the first slot, is not started or its end is not noticed. */
static void
test_foreign_master(void **state)
{
    const struct watch_config config = {
        .servers = 1, .workers = 1, .start_timeout_ms = 60000, .leave_ms = 10000, .foreign = true};
    struct job job = {.now_ms = 1000};

    (void)state;
    assert_true(watch_init(&job.watch, &config, &ops, &job.orders));
    watch_begin(&job.watch, job.now_ms);
    tell(&job, WATCH_GATHERED, 0, 0, 0);
    expect(&job, "s0 s1 s2");
    for (uint32_t slot = 0; slot <= 2; slot++) {
        tell(&job, WATCH_STARTED, slot, 0, 0);
    }
    tell(&job, WATCH_EXITED, 0, 0, 0);
    watch_tick(&job.watch, 11000);
    expect(&job, "e1000");
    finish(&job, 1, WATCH_CAUSE_SERVICE_LEFT, 0);
}

/* Worker 1 has machine 3 to itself; machines may come back within 30 s. */
static void
run_replaced(struct job *job)
{
    run(job, WATCH_WAIT);
    job->watch.config.replace_ms = 30000;
    tell(job, WATCH_MACHINE_LOST, 3, 0, 0);
    expect(job, "");
    assert_int_equal(watch_deadline(&job->watch), job->now_ms + 30000);
}

/* If this fails, a worker that its batch system moved ends the job, or is not started again. */
static void
test_lost_worker_is_replaced(void **state)
{
    struct job job;

    (void)state;
    run_replaced(&job);
    watch_tick(&job.watch, job.now_ms + 29999);
    expect(&job, "");
    tell(&job, WATCH_MACHINE_BACK, 3, 0, 0);
    expect(&job, "s4.1");
    tell(&job, WATCH_STARTED, 4, 0, 0);
    watch_tick(&job.watch, job.now_ms + 31000);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 3, 0, 0);
    tell(&job, WATCH_EXITED, 4, 0, 0);
    for (uint32_t slot = 0; slot <= 2; slot++) {
        tell(&job, WATCH_EXITED, slot, 0, 0);
    }
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a job waits for ever for a machine that is gone for good. */
static void
test_lost_worker_is_not_waited_for_for_ever(void **state)
{
    struct job job;

    (void)state;
    run_replaced(&job);
    watch_tick(&job.watch, job.now_ms + 30000);
    expect(&job, "e1000");
    finish(&job, 70, WATCH_CAUSE_MACHINE, 3);
}

/* If this fails, somebody who leaves after its work is done costs the work of all. */
static void
test_lost_machine_whose_worker_is_done(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_WAIT);
    job.watch.config.replace_ms = 30000;
    tell(&job, WATCH_EXITED, 4, 0, 0);
    tell(&job, WATCH_MACHINE_LOST, 3, 0, 0);
    tell(&job, WATCH_MACHINE_BACK, 3, 0, 0);
    watch_tick(&job.watch, job.now_ms + 31000);
    expect(&job, "");
    tell(&job, WATCH_EXITED, 3, 0, 0);
    for (uint32_t slot = 0; slot <= 2; slot++) {
        tell(&job, WATCH_EXITED, slot, 0, 0);
    }
    expect(&job, "e1000");
    finish(&job, 0, WATCH_CAUSE_NONE, 0);
}

/* If this fails, a job goes on without a server. */
static void
test_lost_server_is_not_replaced(void **state)
{
    struct job job;

    (void)state;
    run(&job, WATCH_WAIT);
    job.watch.config.replace_ms = 30000;
    tell(&job, WATCH_MACHINE_LOST, 1, 0, 0);
    expect(&job, "e1000");
    finish(&job, 71, WATCH_CAUSE_MACHINE, 1);
}

/* If this fails, a worker that is lost while the master starts ends the job. */
static void
test_worker_is_lost_while_the_master_starts(void **state)
{
    struct job job;

    (void)state;
    begin(&job, WATCH_WAIT);
    job.watch.config.replace_ms = 30000;
    tell(&job, WATCH_MACHINE_LOST, 3, 0, 0);
    tell(&job, WATCH_MACHINE_BACK, 3, 0, 0);
    expect(&job, "");
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0);
    start_all(&job);
    watch_fini(&job.watch);
}

/* If this fails, a worker lost before its servers had joined starts twice, or never. */
static void
test_worker_is_lost_before_it_started(void **state)
{
    struct job job;

    (void)state;
    begin(&job, WATCH_WAIT);
    job.watch.config.replace_ms = 30000;
    tell(&job, WATCH_STARTED, 0, 0, 0);
    tell(&job, WATCH_READY, 0, 0, 0);
    expect(&job, "s1 s2");
    tell(&job, WATCH_MACHINE_LOST, 3, 0, 0);
    for (uint32_t slot = 1; slot <= 2; slot++) {
        tell(&job, WATCH_STARTED, slot, 0, 0);
        tell_joined(&job, slot);
    }
    expect(&job, "s3");
    tell(&job, WATCH_MACHINE_BACK, 3, 0, 0);
    expect(&job, "s4");
    watch_fini(&job.watch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_well),
        cmocka_unit_test(test_server_lives_again),
        cmocka_unit_test(test_master_lives_again),
        cmocka_unit_test(test_master_that_hangs_is_killed),
        cmocka_unit_test(test_master_that_ended_the_job_is_not_missed),
        cmocka_unit_test(test_master_that_dies_at_the_end),
        cmocka_unit_test(test_master_on_its_way_at_the_end),
        cmocka_unit_test(test_master_dies_when_workers_have_ended),
        cmocka_unit_test(test_server_that_the_job_needs),
        cmocka_unit_test(test_word_that_does_not_come),
        cmocka_unit_test(test_life_that_the_master_never_saw),
        cmocka_unit_test(test_silent_server_makes_room),
        cmocka_unit_test(test_silent_server_without_lives),
        cmocka_unit_test(test_job_ends_before_the_server_is_back),
        cmocka_unit_test(test_server_that_is_not_needed_any_more),
        cmocka_unit_test(test_another_server_takes_its_part),
        cmocka_unit_test(test_a_copy_takes_its_part),
        cmocka_unit_test(test_a_server_that_stands_by_dies),
        cmocka_unit_test(test_a_server_without_a_part_dies),
        cmocka_unit_test(test_the_master_is_told_who_is_gone),
        cmocka_unit_test(test_the_next_master_is_reminded),
        cmocka_unit_test(test_servers_of_a_lost_machine_go_elsewhere),
        cmocka_unit_test(test_machines_that_cannot_be_done_without),
        cmocka_unit_test(test_master_of_a_lost_machine_goes_elsewhere),
        cmocka_unit_test(test_master_that_hangs_on_a_lost_machine),
        cmocka_unit_test(test_machine_of_the_master_is_lost_at_the_end),
        cmocka_unit_test(test_workers_on_the_machine_of_the_master),
        cmocka_unit_test(test_workers_beside_a_server),
        cmocka_unit_test(test_servers_are_restarted_one_after_the_other),
        cmocka_unit_test(test_no_server_is_restarted_while_places_move),
        cmocka_unit_test(test_servers_that_cannot_be_restarted),
        cmocka_unit_test(test_server_that_comes_too_late),
        cmocka_unit_test(test_its_copy_is_lost_when_it_is_started_again),
        cmocka_unit_test(test_nobody_takes_its_part),
        cmocka_unit_test(test_short_lives_of_a_server_are_counted),
        cmocka_unit_test(test_foreign_servers_are_ended),
        cmocka_unit_test(test_foreign_servers_that_leave),
        cmocka_unit_test(test_foreign_server_on_its_way),
        cmocka_unit_test(test_foreign_server_that_dies_first),
        cmocka_unit_test(test_foreign_server_that_ends_before_slow_workers),
        cmocka_unit_test(test_chief_decides),
        cmocka_unit_test(test_foreign_master),
        cmocka_unit_test(test_services_that_stay_are_ended),
        cmocka_unit_test(test_first_failure_is_the_cause),
        cmocka_unit_test(test_failure_after_success),
        cmocka_unit_test(test_service_failure_ends_the_job),
        cmocka_unit_test(test_master_may_leave_before_the_last_worker_process),
        cmocka_unit_test(test_job_that_is_over_before_its_start_is_known),
        cmocka_unit_test(test_server_that_leaves_alone_is_a_failure),
        cmocka_unit_test(test_server_that_leaves_before_a_start_was_told),
        cmocka_unit_test(test_master_that_leaves_before_the_start_is_a_failure),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_wait_restarts_up_to_the_limit),
        cmocka_unit_test(test_short_lives_are_restarted_later_and_later),
        cmocka_unit_test(test_delays_of_restarts),
        cmocka_unit_test(test_interrupt_stops_workers_then_servers_then_master),
        cmocka_unit_test(test_second_interrupt_kills),
        cmocka_unit_test(test_a_warning_lets_the_job_save_first),
        cmocka_unit_test(test_interrupt_during_start),
        cmocka_unit_test(test_start_failures),
        cmocka_unit_test(test_machine_lost),
        cmocka_unit_test(test_agent_killed),
        cmocka_unit_test(test_worker_taken_for_dead),
        cmocka_unit_test(test_worker_that_gave_up_is_not_killed),
        cmocka_unit_test(test_nobody_is_stopped_before_the_cause_is_known),
        cmocka_unit_test(test_worker_that_does_not_join_is_told),
        cmocka_unit_test(test_successor_is_not_killed_for_its_predecessor),
        cmocka_unit_test(test_machine_of_a_worker_lost_policy_continue),
        cmocka_unit_test(test_machine_that_cannot_start),
        cmocka_unit_test(test_plain_programs),
        cmocka_unit_test(test_worker_that_never_joined),
        cmocka_unit_test(test_joining_may_be_heard_of_late),
        cmocka_unit_test(test_timeout_of_the_job),
        cmocka_unit_test(test_lost_worker_is_replaced),
        cmocka_unit_test(test_lost_worker_is_not_waited_for_for_ever),
        cmocka_unit_test(test_lost_machine_whose_worker_is_done),
        cmocka_unit_test(test_lost_server_is_not_replaced),
        cmocka_unit_test(test_worker_is_lost_before_it_started),
        cmocka_unit_test(test_worker_is_lost_while_the_master_starts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
