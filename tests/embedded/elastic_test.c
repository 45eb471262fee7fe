/*
 * elastic_test.c - workers come and go while the others train: who counts in which step, as
 * psd_members() tells it, is what the sums are made of.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "bed.h"

enum {
    WORKERS = 3,
    RANKS = 4,
    LEAVER = 1,
    STEPS = 600,
    JOIN_AFTER = 40,
    WAIT_AT = 150,
    LEAVE_AT = 300
};

/* Who asked for a step, and what they were told; one row for each step and rank. */
struct told {
    _Atomic uint32_t asked;
    uint32_t ranks; /* bits */
    uint32_t count;
    uint32_t index;
    uint64_t version;
    uint64_t since;
};

/* Thread: each worker writes its own column; `step` is rank 0's. */
struct watch {
    struct told told[STEPS][RANKS];
    float sums[STEPS];
    uint64_t first_step; /* of who joined */
};

static bool
ask(struct worker *worker, uint64_t step, struct told *told)
{
    struct psd_members members = {.struct_size = sizeof(members)};
    uint32_t ranks[RANKS] = {0};

    if (psd_members(worker->context, step, &members, ranks, RANKS) != PSD_OK) {
        worker_fail(worker, __FILE__, __LINE__, "%s", psd_last_error()->text);
        return false;
    }
    told->count = members.count;
    told->index = members.index;
    told->version = members.version;
    told->since = members.since;
    for (uint32_t i = 0; i < members.count && i < RANKS; i++) {
        told->ranks |= 1u << ranks[i];
        if (ranks[i] == psd_rank(worker->context) && i != members.index) {
            worker_fail(worker, __FILE__, __LINE__, "index %u, found at %u", members.index, i);
            return false;
        }
    }
    told->asked = 1;
    return true;
}

/* The gradient of rank r is 16^r: the digits of a step's sum say who counted in it. */
static void
train(struct worker *worker)
{
    struct watch *watch = worker->user;
    const uint32_t rank = psd_rank(worker->context);
    const float gradient = (float)(1u << (4 * rank));
    float value = 0;
    float before;
    psd_table *table;
    uint64_t step;

    CHECK_OK(worker, psd_table_open(worker->context,
                                    TABLE("w", PSD_F32, 1, .reduce = PSD_REDUCE_SUM,
                                          .rule = RULE(.rule = PSD_RULE_ADD)),
                                    &table));
    step = psd_table_step(table);
    if (rank == WORKERS) {
        watch->first_step = step;
        bed_next_turn(worker->bed);
    }
    CHECK_OK(worker, pull(table, step, &value));
    for (; step < STEPS; step++) {
        before = value;
        if (!ask(worker, step, &watch->told[step][rank])) {
            return;
        }
        if (rank == LEAVER && step == LEAVE_AT) {
            CHECK_OK(worker, psd_leave(worker->context));
            CHECK_OK(worker, psd_leave(worker->context)); /* once more is nothing */
            CHECK_STATUS(worker, push(table, step, &gradient), PSD_ERR_CLOSED);
            CHECK_SAYS(worker, psd_last_error()->text, "worker 1 has left the job");
            return; /* and the bed closes it */
        }
        CHECK_OK(worker, push_pull(table, step, &gradient, &value));
        if (rank == 0) {
            watch->sums[step] = value - before;
        }
        if (step == JOIN_AFTER && rank == 0) {
            bed_next_turn(worker->bed);
        }
        if (step == WAIT_AT && rank == 0) {
            bed_wait_turn(worker->bed, 2); /* else all may be over before it has come */
        }
    }
}

static uint32_t
ranks_of_sum(float sum)
{
    uint32_t ranks = 0;

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        ranks |= (((uint32_t)sum >> (4 * rank)) & 15u) != 0 ? 1u << rank : 0;
    }
    return ranks;
}

/* All who asked for a step were told the same, and it follows the step before. */
static void
check_step(const struct watch *watch, uint64_t step)
{
    const struct told *first = NULL;

    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct told *told = &watch->told[step][rank];

        if (told->asked == 0) {
            continue;
        }
        first = first == NULL ? told : first;
        if (told->ranks != first->ranks || told->count != first->count ||
            told->version != first->version || told->since != first->since) {
            fail_msg("step %u: rank %u was told %x (version %u), another %x (version %u)",
                     (unsigned)step, rank, told->ranks, (unsigned)told->version, first->ranks,
                     (unsigned)first->version);
        }
    }
    assert_non_null(first);
    if (step > 0) {
        assert_int_equal(first->version == watch->told[step - 1][0].version,
                         first->ranks == watch->told[step - 1][0].ranks);
    }
}

/* If this fails, workers deal the data of one step out for different sets of workers; or the set is not
 * the one whose gradients make the sum; or a planned leave is taken for a death. */
static void
test_all_see_who_counts(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){
        .workers = WORKERS, .max_workers = RANKS, .servers = 2, .policy = PSI_DEATH_FAIL});
    struct watch *watch = calloc(1, sizeof(*watch));
    struct worker joiner = {0};

    (void)state;
    bed_start_workers(bed, train, watch);
    bed_wait_turn(bed, 1);
    if (!bed_run_one(bed, WORKERS, train, watch, &joiner)) {
        bed_stop(bed);
        fail_msg("%s", joiner.failure);
    }
    bed_join_workers(bed);
    bed_finish(bed);
    assert_true(watch->first_step > JOIN_AFTER);
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint32_t told = watch->told[step][0].ranks;
        const uint32_t counted = ranks_of_sum(watch->sums[step]);

        check_step(watch, step);
        if (step != LEAVE_AT) { /* the step that was not given: the set had the leaver */
            assert_int_equal(told, counted);
        } else {
            assert_int_equal(told, counted | 1u << LEAVER);
        }
    }
    if (watch->first_step < STEPS) {
        assert_int_equal(watch->told[watch->first_step - 1][0].count, WORKERS);
        assert_int_equal(watch->told[watch->first_step][0].since, watch->first_step);
    }
    assert_int_equal(watch->told[LEAVE_AT + 1][0].since, LEAVE_AT + 1);
    assert_int_equal(watch->told[STEPS - 1][0].version, 2);
    assert_int_equal(watch->told[STEPS - 1][0].ranks, 1u | 1u << 2 | 1u << 3);
    free(watch);
}

static void
misuse(struct worker *worker)
{
    struct psd_members members = {.struct_size = sizeof(members)};
    struct psd_members wrong = {.struct_size = 3};
    uint32_t rank = 7;

    CHECK_STATUS(worker, psd_members(worker->context, 0, NULL, NULL, 0), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_members(worker->context, 0, &members, NULL, 1), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_members(worker->context, 0, &wrong, NULL, 0), PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "psd_members");
    CHECK_STATUS(worker, psd_members(NULL, 0, &members, NULL, 0), PSD_ERR_INVALID);
    CHECK_OK(worker, psd_members(worker->context, PSD_STEP_NOW, &members, &rank, 1));
    CHECK(worker, members.count == 2 && members.index == worker->rank && rank == 0);
    CHECK(worker, members.version == 0 && members.since == 0);
    CHECK_OK(worker, psd_barrier(worker->context, 15000));
    CHECK_OK(worker, psd_leave(worker->context));
    CHECK_STATUS(worker, psd_members(worker->context, 0, &members, NULL, 0), PSD_ERR_CLOSED);
    CHECK_STATUS(worker, psd_barrier(worker->context, 1), PSD_ERR_CLOSED);
    CHECK_STATUS(worker, psd_leave(NULL), PSD_ERR_INVALID);
}

/* If this fails, wrong arguments are taken, or a job whose workers have all left does not end well. */
static void
test_arguments_and_leaving_by_all(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2});

    (void)state;
    bed_run(bed, misuse, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_see_who_counts),
        cmocka_unit_test(test_arguments_and_leaving_by_all),
    };

    bed_begin();
    return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
