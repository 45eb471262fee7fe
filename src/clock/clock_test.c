/*
 * clock_test.c - the rules of consistency, compared with their definition in every interleaving of
 * small jobs.
 *
 * Two sides walk through the same events. One is the code under test, driven as a server drives it.
 * The other, the oracle, knows only the list of events; from it it works out which gradients were
 * given and which rounds closed, as sets, and answers by the definition in words.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <psd/psd.h>

#include "clock/clock.h"

enum { WORKERS = 3, STEPS = 3, ASKED = STEPS + 2, EVENTS_MAX = 64, NOBODY = -1 };

/* One small job. */
struct setup {
    struct psi_clock_rule rule;
    uint64_t steps;
    int leaver;          /* the rank that leaves, at any point; NOBODY */
    int joiner;          /* the rank that begins with step 1; NOBODY */
    bool drop_last;      /* what it gave to the open round does not count */
    bool announce_early; /* backup: HAVE comes before the push, not with it */
    bool start_at_once;  /* backup: a worker starts a step as soon as it may, not whenever */
    int duplicates;      /* how often a last push may come again */
};

enum kind { EVENT_START, EVENT_PUSH, EVENT_LEAVE, EVENT_CHOSEN };

struct event {
    enum kind kind;
    uint32_t rank;
    uint64_t step;           /* push: of the gradient; leave: the first without the rank */
    struct psi_ranks chosen; /* of a round with backup workers */
};

/* Where a worker is in its program: for each step, start, push, wait until that has ended. */
struct worker {
    bool started;
    bool waiting;
    bool pushed; /* at least once; then `step` is that of the last push, or of the one started */
    bool left;
    uint64_t step;
    uint64_t last; /* step of the last push */
};

/* The code under test and the programs around it, at one point of one interleaving. */
struct job {
    uint64_t version;
    uint64_t next[WORKERS];
    struct psi_mark marks[WORKERS];
    struct psi_quorum quorum;
    struct psi_ranks closing;
    bool chosen;    /* the coordinator has chosen `closing` ... */
    bool delivered; /* ... and the chunk knows */
    struct worker workers[WORKERS];
    int duplicates;
    int events;
};

/* What the whole exploration shares. */
struct search {
    const struct setup *setup;
    struct psi_members members;
    uint64_t joined_at[WORKERS];
    uint64_t left_at[WORKERS];
    struct event history[EVENTS_MAX];
    uint64_t states;
    uint64_t interleavings;
    uint64_t answers[PSI_ADMIT_TOO_EARLY + 1]; /* how often the oracle gave each */
    uint64_t caught_early;                     /* disagreements of a read rule one step too lax, */
    uint64_t caught_late;                      /* one step too strict, */
    uint64_t caught_left;                      /* one that waits for those who left, */
    uint64_t deserted;                         /* rounds in which nobody had part */
    uint64_t caught_given;                     /* and of a full round that ignores `closing` */
};

/* ------------------------------------------------------------------------------ the oracle --- */

/* What the history says, in sets. */
struct truth {
    bool given[WORKERS][ASKED];
    bool counted[WORKERS][ASKED];
    bool closed[ASKED];
    uint64_t left_at[WORKERS];
    bool chosen;
    struct psi_ranks closing;
};

static uint64_t
open_round(const struct truth *truth)
{
    uint64_t round = 0;

    while (round < ASKED && truth->closed[round]) {
        round++;
    }
    return round;
}

static uint64_t
first_step(const struct setup *setup, uint32_t rank)
{
    return (int)rank == setup->joiner ? 1 : 0;
}

static bool
has_part(const struct setup *setup, const struct truth *truth, uint32_t rank, uint64_t step)
{
    return step >= first_step(setup, rank) && step < truth->left_at[rank] &&
           (setup->rule.backup == 0 || psi_ranks_has(&truth->closing, rank));
}

/* "Every rank that has part in the open round gave its gradient", and somebody has part. */
static bool
truly_full(const struct setup *setup, const struct truth *truth)
{
    const uint64_t round = open_round(truth);
    int members = 0;
    int gave = 0;

    if (setup->rule.staleness != 0 || (setup->rule.backup > 0 && !truth->chosen)) {
        return false;
    }
    for (uint32_t rank = 0; rank < setup->rule.workers; rank++) {
        members += has_part(setup, truth, rank, round);
        gave += has_part(setup, truth, rank, round) && truth->given[rank][round];
    }
    return members > 0 && members == gave;
}

/* "Nobody has part in the open round, and somebody who is there has in a later one." */
static bool
truly_deserted(const struct setup *setup, const struct truth *truth)
{
    const uint64_t round = open_round(truth);
    bool later = false;

    for (uint32_t rank = 0; rank < setup->rule.workers; rank++) {
        if (has_part(setup, truth, rank, round)) {
            return false;
        }
        for (uint64_t step = round; step < ASKED; step++) {
            later = later || has_part(setup, truth, rank, step);
        }
    }
    return later && setup->rule.staleness == 0 && setup->rule.backup == 0;
}

static bool
all_given_below(const struct setup *setup, const struct truth *truth, uint32_t rank, uint64_t step)
{
    for (uint64_t below = first_step(setup, rank); below < step; below++) {
        if (!truth->given[rank][below]) {
            return false;
        }
    }
    return true;
}

static enum psi_admission
true_admission(const struct setup *setup, const struct truth *truth, uint32_t rank, uint64_t step)
{
    if (setup->rule.staleness == PSD_STALENESS_UNBOUNDED) {
        return truth->given[rank][step] ? PSI_ADMIT_DONE : PSI_ADMIT_COUNT;
    }
    if (step < first_step(setup, rank)) {
        return PSI_ADMIT_DROPPED;
    }
    if (truth->counted[rank][step]) {
        return PSI_ADMIT_DONE;
    }
    if (truth->closed[step] || step >= truth->left_at[rank]) {
        return PSI_ADMIT_DROPPED;
    }
    if (setup->rule.staleness == 0 ? open_round(truth) < step
                                   : !all_given_below(setup, truth, rank, step)) {
        return PSI_ADMIT_TOO_EARLY;
    }
    return truth->given[rank][step] ? PSI_ADMIT_AGAIN : PSI_ADMIT_COUNT;
}

/* Is rank late for a read of `step`: does it still owe a gradient of a step below step - s? */
static bool
truly_late(const struct setup *setup, const struct truth *truth, uint32_t rank, uint64_t step)
{
    if (setup->rule.staleness == PSD_STALENESS_UNBOUNDED) {
        return false;
    }
    for (uint64_t below = first_step(setup, rank); below + setup->rule.staleness < step; below++) {
        if (below < truth->left_at[rank] && !truth->given[rank][below]) {
            return true;
        }
    }
    return false;
}

/* "A pull at step c is answered when every live worker has given all steps below c - s"; with
 * backup workers: when all rounds below c closed. */
static bool
truly_readable(const struct setup *setup, const struct truth *truth, uint64_t step)
{
    if (setup->rule.backup > 0) {
        return step <= open_round(truth);
    }
    for (uint32_t rank = 0; rank < setup->rule.workers; rank++) {
        if (truly_late(setup, truth, rank, step)) {
            return false;
        }
    }
    return true;
}

static void
close_truly(const struct setup *setup, struct truth *truth)
{
    const uint64_t round = open_round(truth);

    for (uint32_t rank = 0; rank < setup->rule.workers; rank++) {
        truth->counted[rank][round] =
            truth->given[rank][round] && has_part(setup, truth, rank, round);
    }
    truth->closed[round] = true;
    truth->chosen = false;
}

/* Adds one event to what is known. */
static void
witness(const struct setup *setup, struct truth *truth, const struct event *event)
{
    if (event->kind == EVENT_LEAVE) {
        truth->left_at[event->rank] = event->step;
    } else if (event->kind == EVENT_CHOSEN) {
        truth->closing = event->chosen;
        truth->chosen = true;
    } else if (event->kind == EVENT_PUSH &&
               true_admission(setup, truth, event->rank, event->step) == PSI_ADMIT_COUNT) {
        truth->given[event->rank][event->step] = true;
        truth->counted[event->rank][event->step] = setup->rule.staleness != 0;
    }
}

/* All events; `settled`: including the closing of rounds that are full after the last one. */
static void
recall(const struct search *search, const struct job *job, bool settled, struct truth *truth)
{
    memset(truth, 0, sizeof(*truth));
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        truth->left_at[rank] = PSI_STEP_NEVER;
    }
    for (int i = 0; i < job->events; i++) {
        witness(search->setup, truth, &search->history[i]);
        if ((settled || i + 1 < job->events) &&
            (truly_full(search->setup, truth) || truly_deserted(search->setup, truth))) {
            close_truly(search->setup, truth);
        }
    }
}

/* ---------------------------------------------------------------- the server, step by step --- */

static struct psi_clock
clock_of(struct job *job)
{
    return (struct psi_clock){
        .version = job->version, .committed = job->version, .next = job->next};
}

static enum psi_admission
admission(const struct search *search, struct job *job, uint32_t rank, uint64_t step)
{
    const struct psi_clock clock = clock_of(job);

    if (search->setup->rule.staleness == PSD_STALENESS_UNBOUNDED) {
        return psi_clock_admit_sequence(&job->marks[rank], 1, step + 1);
    }
    return psi_clock_admit(&search->setup->rule, &search->members, &clock, rank, step);
}

static void
remember(struct search *search, struct job *job, struct event event)
{
    assert_true(job->events < EVENTS_MAX);
    search->history[job->events++] = event;
}

/* What a server does with the clock when a round closes: a gradient without part in it was not
 * given. */
static void
close_round(const struct search *search, struct job *job)
{
    for (uint32_t rank = 0; rank < search->setup->rule.workers; rank++) {
        const bool left = search->members.left_at[rank] <= job->version;

        assert_true(job->next[rank] <= job->version + 1);
        if (job->next[rank] > job->version &&
            (left || (job->delivered && !psi_ranks_has(&job->closing, rank)))) {
            job->next[rank] = job->version;
        }
    }
    job->version++;
    job->chosen = false;
    job->delivered = false;
}

/* Closes what is full, and lets workers go on whose push has ended. */
static void
settle(struct search *search, struct job *job)
{
    const struct setup *setup = search->setup;
    const struct psi_clock clock = clock_of(job);
    const struct psi_ranks *closing = job->delivered ? &job->closing : NULL;
    struct truth truth;
    bool full;

    recall(search, job, false, &truth);
    full = psi_clock_round_full(&setup->rule, &search->members, &clock, closing);
    assert_int_equal(full, truly_full(setup, &truth));
    if (setup->rule.staleness == 0 && setup->rule.backup == 0) {
        const bool deserted = psi_clock_round_deserted(&setup->rule, &search->members, &clock);

        assert_int_equal(deserted, truly_deserted(setup, &truth));
        search->deserted += deserted;
        full = full || deserted;
    }
    if (job->delivered) {
        const bool mutant =
            psi_clock_round_full(&(struct psi_clock_rule){.workers = setup->rule.workers},
                                 &search->members, &clock, NULL);

        search->caught_given += mutant != full;
    }
    if (full) {
        close_round(search, job);
    }
    for (uint32_t rank = 0; rank < setup->rule.workers; rank++) {
        struct worker *worker = &job->workers[rank];

        if (worker->waiting && (setup->rule.staleness != 0 || worker->last < job->version)) {
            worker->waiting = false;
        }
        if (setup->start_at_once && !worker->waiting && !worker->started) {
            worker->started = job->version < setup->steps;
            worker->step = job->version;
        }
    }
    if (setup->rule.backup > 0 && !job->chosen) {
        job->chosen = psi_quorum_close(&job->quorum, &setup->rule, &search->members, &job->closing);
    }
}

static void
do_start(struct search *search, struct job *job, uint32_t rank)
{
    job->workers[rank].started = true;
    job->workers[rank].step = job->version;
    if (search->setup->announce_early) {
        psi_quorum_have(&job->quorum, rank, job->version);
    }
    remember(search, job, (struct event){.kind = EVENT_START, .rank = rank});
}

static void
do_push(struct search *search, struct job *job, uint32_t rank)
{
    const struct psi_clock_rule *rule = &search->setup->rule;
    struct worker *worker = &job->workers[rank];
    const uint64_t step = worker->started        ? worker->step
                          : rule->staleness == 0 ? job->version
                          : worker->pushed       ? worker->last + 1
                                                 : first_step(search->setup, rank);
    const enum psi_admission answer = admission(search, job, rank, step);

    assert_true(answer == PSI_ADMIT_COUNT || (rule->backup > 0 && answer == PSI_ADMIT_DROPPED));
    if (answer == PSI_ADMIT_COUNT) {
        job->next[rank] = step + 1;
        job->marks[rank] = (struct psi_mark){.incarnation = 1, .sequence = step + 1};
        job->version += rule->staleness != 0;
    }
    psi_quorum_have(&job->quorum, rank, step);
    worker->started = false;
    worker->waiting = true;
    worker->pushed = true;
    worker->last = step;
    remember(search, job, (struct event){.kind = EVENT_PUSH, .rank = rank, .step = step});
}

static void
do_leave(struct search *search, struct job *job, uint32_t rank)
{
    const bool rounds = search->setup->rule.staleness == 0;
    uint64_t left_at = rounds ? job->version : job->next[rank];

    if (rounds && job->next[rank] > job->version && !search->setup->drop_last) {
        left_at = job->version + 1;
    }
    search->members.left_at[rank] = left_at;
    job->workers[rank].left = true;
    remember(search, job, (struct event){.kind = EVENT_LEAVE, .rank = rank, .step = left_at});
}

static void
do_deliver(struct search *search, struct job *job)
{
    job->delivered = true;
    remember(search, job, (struct event){.kind = EVENT_CHOSEN, .chosen = job->closing});
}

/* A last push comes again: it must not count. The checks of the state compare the exact answer. */
static void
do_repeat(struct search *search, struct job *job, uint32_t rank)
{
    const struct worker *worker = &job->workers[rank];

    assert_int_not_equal(admission(search, job, rank, worker->last), PSI_ADMIT_COUNT);
    job->duplicates++;
    remember(search, job, (struct event){.kind = EVENT_PUSH, .rank = rank, .step = worker->last});
}

/* ---------------------------------------------------------------------- checks and search --- */

/* The read rule with one mistake in it, for the count of states in which it would show. */
static bool
mutant_read(const struct search *search, const struct job *job, uint64_t step, int shift,
            bool wait_for_left)
{
    const struct psi_clock_rule *rule = &search->setup->rule;

    for (uint32_t rank = 0; rank < rule->workers; rank++) {
        const int64_t left = wait_for_left || search->members.left_at[rank] == PSI_STEP_NEVER
                                 ? INT64_MAX
                                 : (int64_t)search->members.left_at[rank];
        const int64_t wanted = (int64_t)step - (int64_t)rule->staleness + shift;
        const int64_t first = (int64_t)first_step(search->setup, rank);
        const int64_t next = (int64_t)job->next[rank] > first ? (int64_t)job->next[rank] : first;

        if (next < (wanted < left ? wanted : left)) {
            return false;
        }
    }
    return true;
}

static void
check_reads(struct search *search, struct job *job, const struct truth *truth)
{
    const struct setup *setup = search->setup;
    const struct psi_clock clock = clock_of(job);

    for (uint64_t step = 0; step < ASKED; step++) {
        const bool may = truly_readable(setup, truth, step);

        assert_int_equal(psi_clock_may_read(&setup->rule, &search->members, &clock, step), may);
        if (setup->rule.backup == 0 && setup->rule.staleness != PSD_STALENESS_UNBOUNDED) {
            search->caught_early += mutant_read(search, job, step, -1, false) != may;
            search->caught_late += mutant_read(search, job, step, 1, false) != may;
            search->caught_left += mutant_read(search, job, step, 0, true) != may;
        }
        for (uint32_t from = 0; from <= setup->rule.workers; from++) {
            int32_t expected = NOBODY;

            for (uint32_t rank = setup->rule.workers; rank-- > from;) {
                const uint64_t round = open_round(truth);
                const bool missing = setup->rule.staleness == 0
                                         ? round < truth->left_at[rank] &&
                                               round >= first_step(setup, rank) &&
                                               !truth->given[rank][round]
                                         : truly_late(setup, truth, rank, step);

                expected = missing ? (int32_t)rank : expected;
            }
            assert_int_equal(psi_clock_missing(&setup->rule, &search->members, &clock, step, from),
                             expected);
        }
    }
}

static void
check_state(struct search *search, struct job *job)
{
    const struct setup *setup = search->setup;
    uint64_t applied = 0;
    struct truth truth;

    recall(search, job, true, &truth);
    for (uint32_t rank = 0; rank < setup->rule.workers; rank++) {
        const struct worker *worker = &job->workers[rank];
        uint64_t step = setup->rule.staleness == 0 && worker->pushed ? worker->last : 0;

        for (; step < ASKED; step++) {
            const enum psi_admission expected = true_admission(setup, &truth, rank, step);

            assert_int_equal(admission(search, job, rank, step), expected);
            search->answers[expected]++;
        }
        for (step = 0; step < ASKED; step++) {
            applied += truth.given[rank][step];
        }
    }
    assert_int_equal(job->version, setup->rule.staleness == 0 ? open_round(&truth) : applied);
    check_reads(search, job, &truth);
    search->states++;
}

/* Nothing can happen any more: everybody alive must have come to the end. The one excuse: all that
 * the coordinator chose left before they gave. */
static void
check_end(struct search *search, const struct job *job)
{
    const struct setup *setup = search->setup;
    bool excused = job->delivered;

    for (uint32_t rank = 0; rank < setup->rule.workers; rank++) {
        excused &= !psi_ranks_has(&job->closing, rank) || job->workers[rank].left;
    }
    for (uint32_t rank = 0; rank < setup->rule.workers && !excused; rank++) {
        const struct worker *worker = &job->workers[rank];

        assert_true(worker->left ||
                    (setup->rule.staleness == 0 ? job->version : worker->last + 1) == setup->steps);
    }
    search->interleavings++;
}

enum action { START, PUSH, LEAVE, REPEAT, DELIVER, ACTIONS };

static bool
can(const struct search *search, const struct job *job, enum action action, uint32_t rank)
{
    const struct setup *setup = search->setup;
    const struct worker *worker = &job->workers[rank];
    const bool idle = !worker->left && !worker->started && !worker->waiting;
    const bool more = setup->rule.staleness == 0
                          ? job->version < setup->steps && job->version >= first_step(setup, rank)
                          : !worker->pushed || worker->last + 1 < setup->steps;

    switch (action) {
    case START:
        return setup->rule.backup > 0 && idle && more;
    case PUSH:
        return setup->rule.backup > 0 ? worker->started && !worker->left : idle && more;
    case LEAVE:
        return (int)rank == setup->leaver && !worker->left;
    case REPEAT:
        return worker->pushed && job->duplicates < setup->duplicates;
    case DELIVER:
        return rank == 0 && job->chosen && !job->delivered;
    default:
        return false;
    }
}

static void
act(struct search *search, struct job *job, enum action action, uint32_t rank)
{
    switch (action) {
    case START:
        do_start(search, job, rank);
        break;
    case PUSH:
        do_push(search, job, rank);
        break;
    case LEAVE:
        do_leave(search, job, rank);
        break;
    case REPEAT:
        do_repeat(search, job, rank);
        break;
    default:
        do_deliver(search, job);
        break;
    }
    settle(search, job);
}

/* Every way to go on from here. */
static void
explore(struct search *search, const struct job *job)
{
    bool end = true;

    for (enum action action = START; action < ACTIONS; action++) {
        for (uint32_t rank = 0; rank < search->setup->rule.workers; rank++) {
            struct job then = *job;

            if (!can(search, job, action, rank)) {
                continue;
            }
            end = end && action == REPEAT;
            act(search, &then, action, rank);
            check_state(search, &then);
            explore(search, &then);
            if (action == LEAVE) {
                search->members.left_at[rank] = PSI_STEP_NEVER;
            }
        }
    }
    if (end) {
        check_end(search, job);
    }
}

static void
explore_setup(struct search *search, const struct setup *setup)
{
    struct job job = {0};

    search->setup = setup;
    search->members.joined_at = search->joined_at;
    search->members.left_at = search->left_at;
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        search->joined_at[rank] = first_step(setup, rank);
        search->left_at[rank] = PSI_STEP_NEVER;
    }
    settle(search, &job);
    check_state(search, &job);
    explore(search, &job);
}

/* All sizes and leavers of one kind of table. */
static void
explore_leavers(struct search *search, uint32_t staleness, uint32_t backup, bool joins)
{
    for (uint32_t workers = 2; workers <= WORKERS; workers++) {
        for (int leaver = NOBODY; leaver < (int)workers; leaver++) {
            for (unsigned options = 0; options < 4; options++) {
                const struct setup setup = {
                    .rule = {.workers = workers, .staleness = staleness, .backup = backup},
                    .steps = STEPS,
                    .leaver = leaver,
                    .joiner = joins ? (int)workers - 1 : NOBODY,
                    .drop_last = (options & 1) != 0,
                    .announce_early = (options & 2) != 0,
                    .start_at_once = backup > 0 && workers == WORKERS,
                    .duplicates =
                        backup == 0 && (staleness == 0 || workers == 2 || leaver == NOBODY) ? 1
                                                                                            : 0};

                if ((setup.drop_last && (leaver == NOBODY || staleness != 0)) ||
                    (setup.announce_early && (backup == 0 || setup.start_at_once))) {
                    continue;
                }
                explore_setup(search, &setup);
            }
        }
    }
}

/* All sizes and leavers of one kind of table, with one that joins and without. */
static void
explore_kind(struct search *search, uint32_t staleness, uint32_t backup)
{
    memset(search, 0, sizeof(*search));
    explore_leavers(search, staleness, backup, false);
    if (backup == 0 && staleness != PSD_STALENESS_UNBOUNDED) {
        explore_leavers(search, staleness, backup, true);
    }
    printf("staleness %d, backup %u: %llu interleavings, %llu states\n", (int)staleness, backup,
           (unsigned long long)search->interleavings, (unsigned long long)search->states);
    assert_true(search->interleavings >= 10000);
    assert_true(search->states >= 10000);
}

/* If this fails, rounds close early, late or never, or a gradient counts twice. */
static void
test_bulk_synchronous(void **state)
{
    static struct search search;

    (void)state;
    explore_kind(&search, 0, 0);
    for (int answer = PSI_ADMIT_COUNT; answer <= PSI_ADMIT_TOO_EARLY; answer++) {
        assert_true(search.answers[answer] > 0);
    }
    assert_true(search.caught_early > 0);
    assert_true(search.caught_late > 0);
    assert_true(search.caught_left > 0);
    assert_true(search.deserted > 0);
}

/* If this fails, a backup worker's gradient counts though its round closed, or it hangs the job. */
static void
test_backup_workers(void **state)
{
    static struct search search;

    (void)state;
    explore_kind(&search, 0, 1);
    for (int answer = PSI_ADMIT_COUNT; answer <= PSI_ADMIT_TOO_EARLY; answer++) {
        assert_true(search.answers[answer] > 0);
    }
    assert_true(search.caught_given > 0);
}

/* If this fails, workers drift further apart than the staleness,
 * or wait for each other too long. */
static void
test_stale_synchronous(void **state)
{
    static struct search search;

    (void)state;
    for (uint32_t staleness = 1; staleness <= 2; staleness++) {
        explore_kind(&search, staleness, 0);
        assert_int_equal(search.answers[PSI_ADMIT_AGAIN], 0);
        assert_true(search.answers[PSI_ADMIT_COUNT] > 0);
        assert_true(search.answers[PSI_ADMIT_DONE] > 0);
        assert_true(search.answers[PSI_ADMIT_DROPPED] > 0);
        assert_true(search.answers[PSI_ADMIT_TOO_EARLY] > 0);
        assert_true(search.caught_early > 0);
        assert_true(search.caught_late > 0);
        assert_true(search.caught_left > 0);
    }
}

/* If this fails, an asynchronous read waits for somebody, or a repeated push counts twice. */
static void
test_asynchronous(void **state)
{
    static struct search search;

    (void)state;
    explore_kind(&search, PSD_STALENESS_UNBOUNDED, 0);
}

/* If this fails, a replacement's first push is taken for one of its predecessor's, or the
 * predecessor's late push for a new one. */
static void
test_sequence_is_compared_as_a_pair(void **state)
{
    const struct psi_mark mark = {.incarnation = 2, .sequence = 10};
    const struct psi_mark fresh = {0};

    (void)state;
    assert_int_equal(psi_clock_admit_sequence(&mark, 2, 11), PSI_ADMIT_COUNT);
    assert_int_equal(psi_clock_admit_sequence(&mark, 2, 10), PSI_ADMIT_DONE);
    assert_int_equal(psi_clock_admit_sequence(&mark, 2, 9), PSI_ADMIT_DONE);
    assert_int_equal(psi_clock_admit_sequence(&mark, 3, 1), PSI_ADMIT_COUNT);
    assert_int_equal(psi_clock_admit_sequence(&mark, 1, 99), PSI_ADMIT_DONE);
    assert_int_equal(psi_clock_admit_sequence(&fresh, 1, 1), PSI_ADMIT_COUNT);
}

/* If this fails, the last rank of a full job is mistaken for another. */
static void
test_ranks_at_the_edges(void **state)
{
    static const uint32_t some[] = {0, 63, 64, PSI_RANKS_MAX - 1};
    struct psi_ranks set = {{0}};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        assert_false(psi_ranks_has(&set, some[i]));
        psi_ranks_add(&set, some[i]);
        psi_ranks_add(&set, some[i]);
        assert_true(psi_ranks_has(&set, some[i]));
        assert_int_equal(psi_ranks_count(&set), i + 1);
    }
    assert_false(psi_ranks_has(&set, 1));
    psi_ranks_remove(&set, 64);
    psi_ranks_remove(&set, 64);
    assert_false(psi_ranks_has(&set, 64));
    assert_true(psi_ranks_has(&set, 63));
    assert_int_equal(psi_ranks_count(&set), 3);
}

/* If this fails, a host adds what is not one node of the tree, or sends more than it must. */
static void
test_nodes_of_a_host(void **state)
{
    static const struct {
        uint32_t workers, first, count; /* the host's ranks */
        uint32_t nodes;
        struct {
            uint32_t first, level;
        } node[4];
    } cases[] = {
        {6, 0, 3, 2, {{0, 1}, {2, 0}}}, {6, 3, 3, 2, {{3, 0}, {4, 1}}},
        {8, 0, 4, 1, {{0, 2}}},         {8, 4, 4, 1, {{4, 2}}},
        {3, 0, 3, 1, {{0, 2}}},         {1, 0, 1, 1, {{0, 0}}},
        {9, 8, 1, 1, {{8, 0}}},         {12, 5, 7, 3, {{5, 0}, {6, 1}, {8, 2}}},
        {1024, 0, 1024, 1, {{0, 10}}},  {1024, 1, 1, 1, {{1, 0}}},
        {7, 4, 3, 1, {{4, 2}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_ranks set = {{0}};
        uint32_t rank = cases[i].first;

        for (uint32_t j = 0; j < cases[i].count; j++) {
            psi_ranks_add(&set, cases[i].first + j);
        }
        for (uint32_t j = 0; j < cases[i].nodes; j++) {
            const uint32_t level = psi_ranks_node_level(&set, rank, cases[i].workers);

            assert_int_equal(rank, cases[i].node[j].first);
            assert_int_equal(level, cases[i].node[j].level);
            rank = psi_node_end(rank, level, cases[i].workers);
        }
        assert_int_equal(rank, cases[i].first + cases[i].count);
    }
}

/* If this fails, a gradient counts twice: alone and as part of a sum. */
static void
test_a_sum_counts_as_a_whole(void **state)
{
    const struct psi_clock_rule rule = {.workers = 4};
    uint64_t joined_at[4] = {0};
    uint64_t left_at[4];
    struct psi_members members = {.joined_at = joined_at, .left_at = left_at};
    uint64_t next[4] = {5, 5, 5, 5};
    struct psi_clock clock = {.version = 5, .next = next};

    (void)state;
    for (uint32_t rank = 0; rank < 4; rank++) {
        members.left_at[rank] = PSI_STEP_NEVER;
    }
    assert_int_equal(psi_clock_admit_sum(&rule, &members, &clock, 0, 4, 5), PSI_ADMIT_COUNT);
    next[2] = 6;
    assert_int_equal(psi_clock_admit_sum(&rule, &members, &clock, 0, 4, 5), PSI_ADMIT_MIXED);
    assert_int_equal(psi_clock_admit_sum(&rule, &members, &clock, 0, 2, 5), PSI_ADMIT_COUNT);
    assert_int_equal(psi_clock_admit_sum(&rule, &members, &clock, 2, 3, 5), PSI_ADMIT_AGAIN);
    next[3] = 6;
    assert_int_equal(psi_clock_admit_sum(&rule, &members, &clock, 2, 4, 5), PSI_ADMIT_AGAIN);
    assert_int_equal(psi_clock_admit_sum(&rule, &members, &clock, 2, 4, 4), PSI_ADMIT_DONE);
    assert_int_equal(psi_clock_admit_sum(&rule, &members, &clock, 0, 2, 6), PSI_ADMIT_TOO_EARLY);
}

/* If this fails, a round closes for a step nobody collects, or with workers that are gone. */
static void
test_quorum_counts_the_live_of_its_step(void **state)
{
    const struct psi_clock_rule rule = {.workers = 4, .backup = 1};
    uint64_t joined_at[4] = {0};
    uint64_t left_at[4];
    struct psi_members members = {.joined_at = joined_at, .left_at = left_at};
    struct psi_quorum quorum = {.step = 5};
    struct psi_ranks closing = {{0}};

    (void)state;
    for (uint32_t rank = 0; rank < 4; rank++) {
        members.left_at[rank] = PSI_STEP_NEVER;
    }
    psi_quorum_have(&quorum, 0, 4);
    psi_quorum_have(&quorum, 1, 6);
    assert_int_equal(psi_ranks_count(&quorum.have), 0);
    psi_quorum_have(&quorum, 0, 5);
    psi_quorum_have(&quorum, 0, 5);
    psi_quorum_have(&quorum, 2, 5);
    assert_false(psi_quorum_close(&quorum, &rule, &members, &closing));
    assert_int_equal(psi_ranks_count(&closing), 0);
    psi_quorum_have(&quorum, 3, 5);
    members.left_at[3] = 5;
    assert_false(psi_quorum_close(&quorum, &rule, &members, &closing));
    members.left_at[1] = 5;
    assert_true(psi_quorum_close(&quorum, &rule, &members, &closing));
    assert_int_equal(closing.word[0], 0x5);
    assert_int_equal(quorum.step, 6);
    assert_int_equal(psi_ranks_count(&quorum.have), 0);
    members.left_at[0] = 5;
    members.left_at[2] = 5;
    assert_false(psi_quorum_close(&quorum, &rule, &members, &closing));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bulk_synchronous),
        cmocka_unit_test(test_backup_workers),
        cmocka_unit_test(test_stale_synchronous),
        cmocka_unit_test(test_asynchronous),
        cmocka_unit_test(test_sequence_is_compared_as_a_pair),
        cmocka_unit_test(test_ranks_at_the_edges),
        cmocka_unit_test(test_nodes_of_a_host),
        cmocka_unit_test(test_a_sum_counts_as_a_whole),
        cmocka_unit_test(test_quorum_counts_the_live_of_its_step),
    };

    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
