/*
 * order_test.c - which transfer of a worker waits for which, seen by its servers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"

enum { WINDOW = 64 * BED_CHUNK_BYTES, ALL_AT_ONCE = PSD_STALENESS_UNBOUNDED };

/* The next request at lane 0 is this one. */
static const struct psi_frame *
expect(struct client_bed *bed, uint8_t type, const struct psd_table *table, uint64_t step)
{
    const struct psi_frame *frame = bed_sent(bed, 0);

    assert_non_null(frame);
    assert_int_equal(frame->type, type);
    assert_int_equal(frame->table, table->id);
    assert_int_equal(frame->step, step);
    return frame;
}

static void
expect_nothing(struct client_bed *bed)
{
    assert_null(bed_sent(bed, 0));
}

/* ---- one table ----------------------------------------------------------------------------- */

/* If this fails, a chunk meets two gradients of one rank in one round. */
static void
test_a_push_waits_for_the_one_before(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 2, 0, 0);
    struct psd_op *first = bed_push(bed, a, 0);
    struct psd_op *second = bed_push(bed, a, 1);
    const struct psi_frame *half = expect(bed, PSI_FRAME_PUSH, a, 0);
    const struct psi_frame *whole = expect(bed, PSI_FRAME_PUSH, a, 0);

    (void)state;
    expect_nothing(bed);
    bed_ack(bed, 0, half);
    expect_nothing(bed);
    bed_ack(bed, 0, whole);
    bed_end_well(bed, first);
    bed_ack(bed, 0, expect(bed, PSI_FRAME_PUSH, a, 1));
    bed_ack(bed, 0, expect(bed, PSI_FRAME_PUSH, a, 1));
    bed_end_well(bed, second);
    client_bed_stop(bed);
}

/* If this fails, a worker that pushed cannot ask for the result before its push was answered. */
static void
test_a_pull_does_not_wait_for_a_push(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 0);

    (void)state;
    (void)bed_push(bed, a, 0);
    (void)bed_pull(bed, a, 1);
    (void)expect(bed, PSI_FRAME_PUSH, a, 0);
    (void)expect(bed, PSI_FRAME_PULL, a, 1);
    client_bed_stop(bed);
}

/* If this fails, what was asked for later on a table overtakes what waits on it. */
static void
test_nothing_overtakes_a_held_push(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 0);
    const struct psi_frame *first;

    (void)state;
    (void)bed_push(bed, a, 0);
    (void)bed_push(bed, a, 1);
    (void)bed_pull(bed, a, 2);
    first = expect(bed, PSI_FRAME_PUSH, a, 0);
    expect_nothing(bed);
    bed_ack(bed, 0, first);
    (void)expect(bed, PSI_FRAME_PUSH, a, 1);
    (void)expect(bed, PSI_FRAME_PULL, a, 2);
    client_bed_stop(bed);
}

/* If this fails, asynchronous training waits for an answer in every step. */
static void
test_asynchronous_pushes_do_not_wait(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_WAIT, WINDOW);
    struct psd_table *a = bed_open(bed, 1, ALL_AT_ONCE, 0);

    (void)state;
    for (uint64_t step = 0; step < 4; step++) {
        (void)bed_push(bed, a, step);
    }
    for (uint64_t step = 0; step < 4; step++) {
        (void)expect(bed, PSI_FRAME_PUSH, a, step);
    }
    client_bed_stop(bed);
}

/* If this fails, a push whose time is up holds up the table for ever. */
static void
test_a_push_that_is_given_up_holds_nobody(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 0);
    struct psd_op *first = bed_begin(
        bed, a, &(struct psi_transfer){.type = PSI_FRAME_PUSH, .step = 0, .timeout_ms = 100});

    (void)state;
    (void)bed_push(bed, a, 1);
    (void)expect(bed, PSI_FRAME_PUSH, a, 0);
    expect_nothing(bed);
    world_wait(&bed->world, 150);
    assert_int_equal(bed_end(bed, first, NULL).status, PSD_ERR_TIMEOUT);
    (void)expect(bed, PSI_FRAME_PUSH, a, 1);
    client_bed_stop(bed);
}

/* If this fails, a push that was given up before it left is sent all the same, or what comes behind
 * it is lost with it. */
static void
test_a_held_push_that_is_given_up_never_leaves(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 0);
    const struct psi_frame *first;
    struct psd_op *held;
    psd_outcome outcome;

    (void)state;
    (void)bed_push(bed, a, 0);
    held = bed_begin(bed, a,
                     &(struct psi_transfer){.type = PSI_FRAME_PUSH, .step = 1, .timeout_ms = 100});
    (void)bed_pull(bed, a, 2);
    first = expect(bed, PSI_FRAME_PUSH, a, 0);
    expect_nothing(bed);
    world_wait(&bed->world, 150);
    assert_int_equal(bed_end(bed, held, &outcome).status, PSD_ERR_TIMEOUT);
    assert_int_equal(outcome, PSD_OUTCOME_NOT_APPLIED);
    (void)expect(bed, PSI_FRAME_PULL, a, 2);
    (void)bed_push(bed, a, 1); /* in its place */
    expect_nothing(bed);
    bed_ack(bed, 0, first);
    (void)expect(bed, PSI_FRAME_PUSH, a, 1);
    expect_nothing(bed);
    client_bed_stop(bed);
}

/* If this fails, a step is pushed twice, or one is left out, without a word. */
static void
test_steps_are_pushed_in_order(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 0);
    struct psi_transfer push = {.type = PSI_FRAME_PUSH, .step = 1, .from = bed->gradient};
    struct psd_error err;
    struct psd_op *op;

    (void)state;
    assert_int_equal(psi_client_transfer(bed->client, a, &push, &op, &err), PSD_ERR_STEP);
    (void)bed_push(bed, a, 0);
    push.step = 0;
    assert_int_equal(psi_client_transfer(bed->client, a, &push, &op, &err), PSD_ERR_STEP);
    assert_non_null(strstr(err.text, "step 1 is next"));
    assert_int_equal(psi_client_pending(bed->client), 1);
    client_bed_stop(bed);
}

/* ---- several tables ------------------------------------------------------------------------ */

/* If this fails, one slow table holds up all others. */
static void
test_tables_go_on_without_each_other(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 0);
    struct psd_table *b = bed_open(bed, 1, 0, 0);

    (void)state;
    (void)bed_push(bed, a, 0);
    (void)bed_push(bed, b, 0);
    (void)bed_push(bed, b, 1);
    (void)expect(bed, PSI_FRAME_PUSH, a, 0);
    bed_ack(bed, 0, expect(bed, PSI_FRAME_PUSH, b, 0));
    (void)expect(bed, PSI_FRAME_PUSH, b, 1);
    client_bed_stop(bed);
}

/* Where the job waits for replacements: b is a step ahead of a. Returns the request of a. */
static const struct psi_frame *
go_ahead(struct client_bed *bed, struct psd_table *a, struct psd_table *b)
{
    const struct psi_frame *behind;

    (void)bed_push(bed, a, 0);
    (void)bed_push(bed, b, 0);
    behind = expect(bed, PSI_FRAME_PUSH, a, 0);
    bed_ack(bed, 0, expect(bed, PSI_FRAME_PUSH, b, 0));
    (void)bed_push(bed, b, 1);
    expect_nothing(bed);
    return behind;
}

/* If this fails, a replacement finds tables more than one step apart, and cannot repeat the step. */
static void
test_tables_stay_together_where_the_job_waits(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_WAIT, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 0);
    struct psd_table *b = bed_open(bed, 1, 0, 0);

    (void)state;
    bed_ack(bed, 0, go_ahead(bed, a, b));
    (void)expect(bed, PSI_FRAME_PUSH, b, 1);
    client_bed_stop(bed);
}

/* If this fails, two workers that push their tables in different orders wait for each other. */
static void
test_a_push_that_a_server_asks_for_goes_ahead(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_WAIT, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 0);
    struct psd_table *b = bed_open(bed, 1, 0, 0);

    (void)state;
    (void)go_ahead(bed, a, b);
    bed_tell(bed, 0, PSI_FRAME_WANT, b, 0, 2); /* of another step: it changes nothing */
    expect_nothing(bed);
    bed_tell(bed, 0, PSI_FRAME_WANT, b, 0, 1);
    (void)expect(bed, PSI_FRAME_PUSH, b, 1);
    client_bed_stop(bed);
}

/* If this fails, who is in a round with backup workers is chosen before all it gave to the round
 * before was answered. */
static void
test_tables_with_backup_workers_stay_together(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 1, 0, 1);
    struct psd_table *b = bed_open(bed, 1, 0, 1);
    struct psd_table *other = bed_open(bed, 1, 0, 0);
    const struct psi_frame *behind = go_ahead(bed, a, b);

    (void)state;
    bed_tell(bed, 0, PSI_FRAME_WANT, b, 0, 1); /* asking is not enough here */
    expect_nothing(bed);
    (void)bed_push(bed, other, 0); /* it has no backup workers */
    (void)expect(bed, PSI_FRAME_PUSH, other, 0);
    bed_ack(bed, 0, behind);
    (void)expect(bed, PSI_FRAME_PUSH, b, 1);
    client_bed_stop(bed);
}

/* If this fails, the master waits for a worker that has given all, or counts one that has not. */
static void
test_the_master_hears_when_a_step_is_complete(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *a = bed_open(bed, 2, 0, 1);
    const struct world_heard *have;

    (void)state;
    (void)bed_begin(
        bed, a,
        &(struct psi_transfer){.type = PSI_FRAME_PUSH, .step = 0, .count = PSD_CHUNK_ELEMENTS});
    assert_null(world_hear(bed_master(bed), PSI_FRAME_HAVE));
    (void)bed_begin(
        bed, a,
        &(struct psi_transfer){.type = PSI_FRAME_PUSH, .step = 0, .first = PSD_CHUNK_ELEMENTS});
    have = world_hear(bed_master(bed), PSI_FRAME_HAVE);
    assert_non_null(have);
    assert_int_equal(have->frame.table, a->id);
    assert_int_equal(have->frame.step, 0);
    assert_null(world_hear(bed_master(bed), PSI_FRAME_HAVE));
    client_bed_stop(bed);
}

/* ---- urgency ------------------------------------------------------------------------------- */

/* If this fails, an urgent tensor waits behind an older one of its own table that is not. */
static void
test_an_urgent_transfer_pulls_the_older_ones_along(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WINDOW);
    struct psd_table *big = bed_open(bed, BED_CHUNKS_MAX, ALL_AT_ONCE, 0);
    struct psd_table *a = bed_open(bed, 1, ALL_AT_ONCE, 0);
    struct psd_table *b = bed_open(bed, 1, ALL_AT_ONCE, 0);
    struct psi_transfer pull = {.type = PSI_FRAME_PULL, .priority = 1};

    (void)state;
    world_set_flow(bed_lane(bed, 0), WORLD_FLOW_SLOW); /* what follows stays in the queue */
    (void)bed_begin(bed, big, &(struct psi_transfer){.type = PSI_FRAME_PUSH, .priority = 9});
    (void)bed_begin(bed, a, &pull);
    pull.priority = 5;
    (void)bed_begin(bed, b, &pull);
    pull.priority = 9;
    pull.step = 1;
    (void)bed_begin(bed, a, &pull);
    world_set_flow(bed_lane(bed, 0), WORLD_FLOW_FAST);
    world_settle(&bed->world);
    for (unsigned i = 0; i < BED_CHUNKS_MAX; i++) {
        (void)expect(bed, PSI_FRAME_PUSH, big, 0);
    }
    (void)expect(bed, PSI_FRAME_PULL, a, 0);
    (void)expect(bed, PSI_FRAME_PULL, a, 1);
    (void)expect(bed, PSI_FRAME_PULL, b, 0);
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_push_waits_for_the_one_before),
        cmocka_unit_test(test_a_pull_does_not_wait_for_a_push),
        cmocka_unit_test(test_nothing_overtakes_a_held_push),
        cmocka_unit_test(test_asynchronous_pushes_do_not_wait),
        cmocka_unit_test(test_a_push_that_is_given_up_holds_nobody),
        cmocka_unit_test(test_a_held_push_that_is_given_up_never_leaves),
        cmocka_unit_test(test_steps_are_pushed_in_order),
        cmocka_unit_test(test_tables_go_on_without_each_other),
        cmocka_unit_test(test_tables_stay_together_where_the_job_waits),
        cmocka_unit_test(test_a_push_that_a_server_asks_for_goes_ahead),
        cmocka_unit_test(test_tables_with_backup_workers_stay_together),
        cmocka_unit_test(test_the_master_hears_when_a_step_is_complete),
        cmocka_unit_test(test_an_urgent_transfer_pulls_the_older_ones_along),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
