/*
 * lone_test.c - sums of a job with one worker: what is answered without a server, and what is not.
 *
 * That they have the bits which servers give them: tests/embedded/lone_test.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"

#define LONE                                                                                       \
    &(struct psi_welcome)                                                                          \
    {                                                                                              \
        .workers = 1                                                                               \
    }

static bool
has_gradient(const struct client_bed *bed, unsigned chunks)
{
    return memcmp(bed->values, bed->gradient, (size_t)chunks * BED_CHUNK_BYTES) == 0;
}

/* If this fails, the sum of one worker's gradient goes to a server and back, or is something else than that gradient, or
 * the worker's step does not count. */
static void
test_the_sum_is_the_gradient(void **state)
{
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_table *table = bed_open_sum(bed, 3);

    (void)state;
    for (uint64_t step = 0; step < 4; step++) {
        memset(bed->values, 0xff, (size_t)3 * BED_CHUNK_BYTES);
        bed->gradient[1] = (float)step;
        assert_int_equal(psi_table_step(table), step);
        bed_end_well(bed, bed_push_pull(bed, table, step));
        assert_true(has_gradient(bed, 3));
        assert_int_equal(bed->client->steps.step, step);
    }
    assert_int_equal(psi_table_step(table), 4);
    assert_int_equal(psi_client_pending(bed->client), 0);
    assert_null(bed_sent(bed, 0));
    client_bed_stop(bed);
}

/* If this fails, a sum that was pushed by itself, or pulled already, cannot be pulled any more; or a pull that is started
 * before its push ends without the sum, or never. */
static void
test_a_sum_can_be_pulled_before_and_after_its_push(void **state)
{
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_table *table = bed_open_sum(bed, 2);
    struct psd_op *early = bed_pull(bed, table, 1);

    (void)state;
    assert_false(psi_op_ended(early));
    bed_end_well(bed, bed_push(bed, table, 0));
    bed_end_well(bed, early);
    assert_true(has_gradient(bed, 2));
    memset(bed->values, 0, (size_t)2 * BED_CHUNK_BYTES);
    bed_end_well(bed, bed_pull(bed, table, 1));
    assert_true(has_gradient(bed, 2));
    bed_end_well(bed, bed_push_pull(bed, table, 1));
    memset(bed->values, 0, (size_t)2 * BED_CHUNK_BYTES);
    bed_end_well(bed, bed_pull(bed, table, 2));
    assert_true(has_gradient(bed, 2));
    assert_null(bed_sent(bed, 0));
    client_bed_stop(bed);
}

/* If this fails, a pull whose push never comes waits for ever, or does not say what for. */
static void
test_a_pull_without_a_push_says_so(void **state)
{
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_op *pull = bed_pull(bed, bed_open_sum(bed, 1), 1);
    struct psd_error err;

    (void)state;
    world_wait(&bed->world, BED_TIMEOUT_MS + 1);
    err = bed_end(bed, pull, NULL);
    assert_int_equal(err.status, PSD_ERR_TIMEOUT);
    assert_non_null(strstr(err.text, "comes with the push of step 0"));
    client_bed_stop(bed);
}

/* If this fails, parts of a table are at one step when they were pushed by themselves, or a step is taken twice. */
static void
test_parts_have_steps_of_their_own(void **state)
{
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_table *table = bed_open_sum(bed, 2);
    struct psi_transfer half = {.type = PSI_FRAME_PUSH, .count = PSD_CHUNK_ELEMENTS};
    struct psd_op *pull;
    struct psd_error err;
    struct psd_op *op;

    (void)state;
    bed_end_well(bed, bed_begin(bed, table, &half));
    pull = bed_pull(bed, table, 1);
    assert_false(psi_op_ended(pull));
    assert_int_equal(psi_client_transfer(bed->client, table, &half, &op, &err), PSD_ERR_STEP);
    half.first = PSD_CHUNK_ELEMENTS;
    bed_end_well(bed, bed_begin(bed, table, &half));
    bed_end_well(bed, pull);
    /* The bed gives the same gradient whatever the range. */
    assert_memory_equal(bed->values, bed->gradient, BED_CHUNK_BYTES);
    assert_memory_equal(bed->values + PSD_CHUNK_ELEMENTS, bed->gradient, BED_CHUNK_BYTES);
    client_bed_stop(bed);
}

/* If this fails, a gradient that counts as absent (PSD_NAN_SKIP) is there after all. */
static void
test_an_empty_push_is_zeros(void **state)
{
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_table *table = bed_open_sum(bed, 1);

    (void)state;
    bed_end_well(bed, bed_push_pull(bed, table, 0));
    bed_end_well(bed, bed_begin(bed, table,
                                &(struct psi_transfer){
                                    .type = PSI_FRAME_PUSH_PULL, .step = 1, .empty = true}));
    for (unsigned i = 0; i < PSD_CHUNK_ELEMENTS; i++) {
        assert_true(bed->values[i] == 0);
    }
    client_bed_stop(bed);
}

static void
check_sent(const struct psi_welcome *job, bool is_sum, uint32_t staleness)
{
    struct client_bed *bed = client_bed_start_lone(job);
    struct psd_table *table = is_sum ? bed_open_sum(bed, 1) : bed_open(bed, 1, staleness, 0);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    assert_false(psi_op_ended(op));
    (void)bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0);
    client_bed_stop(bed);
}

/* If this fails, a worker keeps a sum to itself that others have to add to, now or when they have joined; or one of which
 * its replacement has to hear; or values that servers own. */
static void
test_whatever_others_have_a_part_in_goes_to_servers(void **state)
{
    (void)state;
    check_sent(&(struct psi_welcome){.workers = 2}, true, 0);
    check_sent(&(struct psi_welcome){.workers = 1, .elastic = true}, true, 0);
    check_sent(&(struct psi_welcome){.workers = 1, .policy = PSI_DEATH_WAIT}, true, 0);
    check_sent(LONE, false, 0);
    check_sent(LONE, false, PSD_STALENESS_UNBOUNDED);
}

/* If this fails, the death of a server that has nothing to do holds up the only worker, or its other life is not told how
 * far that is. */
static void
test_a_server_may_die(void **state)
{
    struct client_bed *bed =
        client_bed_start_lone(&(struct psi_welcome){.workers = 1, .survives = true});
    struct psd_table *table = bed_open_sum(bed, 1);
    const struct world_heard *adopt;

    (void)state;
    bed_end_well(bed, bed_push_pull(bed, table, 0));
    bed_cut(bed, 0);
    bed_end_well(bed, bed_push_pull(bed, table, 1));
    bed_begin_life(bed, 0);
    bed_come_back(bed, 0);
    adopt = world_hear(bed_lane(bed, 0), PSI_FRAME_ADOPT);
    assert_non_null(adopt);
    bed_end_well(bed, bed_push_pull(bed, table, 2));
    assert_true(has_gradient(bed, 1));
    client_bed_stop(bed);
}

/* ---- large ones ------------------------------------------------------------------------------ */

enum { LARGE_CHUNKS = BED_LONE_CHUNKS_MAX, TURNS_MAX = LARGE_CHUNKS };

/* A heartbeat's time, and what the core does in it. */
static void
beat(struct client_bed *bed)
{
    bed->world.now_ns += bed->welcome.heartbeat_ms * WORLD_MS_NS;
    world_settle(&bed->world);
}

static void
turn_until_ended(struct client_bed *bed, const struct psd_op *op)
{
    for (unsigned i = 0; i < TURNS_MAX && !psi_op_ended(op); i++) {
        world_settle(&bed->world);
    }
    assert_true(psi_op_ended(op));
}

static bool
is_zero(const struct client_bed *bed)
{
    size_t i = 0;

    while (i < (size_t)LARGE_CHUNKS * PSD_CHUNK_ELEMENTS && bed->values[i] == 0) {
        i++;
    }
    return i == (size_t)LARGE_CHUNKS * PSD_CHUNK_ELEMENTS;
}

static struct psd_op *
push_zeros(struct client_bed *bed, struct psd_table *table, uint64_t step)
{
    return bed_begin(bed, table,
                     &(struct psi_transfer){.type = PSI_FRAME_PUSH, .step = step, .empty = true});
}

/* If this fails, a worker that keeps a large sum to itself is silent meanwhile, so that it counts as dead; or the call that
 * starts it returns when it is copied; or what else its threads do waits until then. */
static void
test_a_large_sum_holds_up_nobody(void **state)
{
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_table *large = bed_open_sum(bed, LARGE_CHUNKS);
    struct psd_table *small = bed_open_sum(bed, 1);
    struct psd_op *op = bed_begin(
        bed, large, &(struct psi_transfer){.type = PSI_FRAME_PUSH_PULL, .timeout_ms = PSD_FOREVER});
    uint64_t turns = 0;

    (void)state;
    assert_int_equal(psi_table_step(large), 1);
    while (!psi_op_ended(op)) {
        assert_true(turns < TURNS_MAX);
        assert_int_equal(psi_client_next_ns(bed->client), 0);
        bed_end_well(bed, bed_push(bed, small, turns++));
        while (world_hear(bed_master(bed), PSI_FRAME_PING) != NULL) {
        }
        beat(bed);
        assert_non_null(world_hear(bed_master(bed), PSI_FRAME_PING));
    }
    assert_true(turns > 1);
    bed_end_well(bed, op);
    assert_true(has_gradient(bed, LARGE_CHUNKS));
    assert_true(psi_client_next_ns(bed->client) > 0);
    client_bed_stop(bed);
}

/* If this fails, a pull brings another step's sum, or a part of it, because the sum is copied piece by piece; or a part of
 * a table that is small is copied before a large one that was started first. */
static void
test_pieces_keep_the_order(void **state)
{
    const struct psi_transfer small = {
        .type = PSI_FRAME_PUSH, .step = 2, .count = PSD_CHUNK_ELEMENTS};
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_table *table = bed_open_sum(bed, LARGE_CHUNKS);
    struct psd_op *zeros_wanted = bed_pull(bed, table, 2);
    struct psd_op *push = bed_push(bed, table, 0);
    struct psd_op *pull = bed_pull(bed, table, 1);
    struct psd_op *zeros = push_zeros(bed, table, 1);
    struct psd_op *last = bed_begin(bed, table, &small);

    (void)state;
    assert_false(psi_op_ended(last));
    turn_until_ended(bed, push);
    assert_false(psi_op_ended(pull));
    turn_until_ended(bed, pull);
    assert_false(psi_op_ended(zeros));
    assert_true(has_gradient(bed, LARGE_CHUNKS));
    turn_until_ended(bed, zeros);
    assert_false(psi_op_ended(zeros_wanted));
    turn_until_ended(bed, zeros_wanted);
    assert_true(is_zero(bed));
    turn_until_ended(bed, last);
    bed_end_well(bed, push);
    bed_end_well(bed, pull);
    bed_end_well(bed, zeros);
    bed_end_well(bed, zeros_wanted);
    bed_end_well(bed, last);
    client_bed_stop(bed);
}

/* If this fails, a large push whose time is up goes on to read what is the caller's again, or seems done; or a pull that
 * follows it gets half of the sum; or the step cannot be pushed once more. */
static void
test_a_large_push_may_be_cut_short(void **state)
{
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_table *table = bed_open_sum(bed, LARGE_CHUNKS);
    struct psd_op *push =
        bed_begin(bed, table, &(struct psi_transfer){.type = PSI_FRAME_PUSH, .timeout_ms = 1});
    struct psd_op *pull = bed_pull(bed, table, 1);
    psd_outcome outcome;
    struct psd_error err;

    (void)state;
    world_settle(&bed->world);
    beat(bed);
    err = bed_end(bed, push, &outcome);
    assert_int_equal(err.status, PSD_ERR_TIMEOUT);
    assert_int_equal(outcome, PSD_OUTCOME_UNKNOWN);
    assert_int_equal(psi_table_step(table), 0);
    world_settle(&bed->world);
    world_settle(&bed->world);
    assert_false(psi_op_ended(pull));
    assert_non_null(strstr(pull->because, "comes with the push of step 0"));
    push = push_zeros(bed, table, 0);
    turn_until_ended(bed, pull);
    assert_true(is_zero(bed));
    bed_end_well(bed, push);
    bed_end_well(bed, pull);
    client_bed_stop(bed);
}

/* If this fails, a worker that gives up, or whose job is over, while a large sum is copied reads memory that is the
 * caller's again, or crashes. */
static void
test_the_job_may_end_meanwhile(void **state)
{
    struct client_bed *bed = client_bed_start_lone(LONE);
    struct psd_table *table = bed_open_sum(bed, LARGE_CHUNKS);
    struct psd_op *push = bed_push(bed, table, 0);
    struct psd_op *pull = bed_pull(bed, table, 1);

    (void)state;
    world_settle(&bed->world);
    psi_client_over(bed->client, PSD_ERR_JOB_FAILED, "the job is over");
    assert_int_equal(bed_end(bed, push, NULL).status, PSD_ERR_JOB_FAILED);
    assert_int_equal(bed_end(bed, pull, NULL).status, PSD_ERR_JOB_FAILED);
    assert_true(psi_client_next_ns(bed->client) > 0);
    world_settle(&bed->world);
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_sum_is_the_gradient),
        cmocka_unit_test(test_a_sum_can_be_pulled_before_and_after_its_push),
        cmocka_unit_test(test_a_pull_without_a_push_says_so),
        cmocka_unit_test(test_parts_have_steps_of_their_own),
        cmocka_unit_test(test_an_empty_push_is_zeros),
        cmocka_unit_test(test_whatever_others_have_a_part_in_goes_to_servers),
        cmocka_unit_test(test_a_server_may_die),
        cmocka_unit_test(test_a_large_sum_holds_up_nobody),
        cmocka_unit_test(test_pieces_keep_the_order),
        cmocka_unit_test(test_a_large_push_may_be_cut_short),
        cmocka_unit_test(test_the_job_may_end_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
