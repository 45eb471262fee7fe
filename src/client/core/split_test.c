/*
 * split_test.c - sums that are pushed by themselves and pulled later, when their server dies between.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"
#include "client/core/results.h"

enum { WIDE = 64 * BED_CHUNK_BYTES, NEAR = true, FAR = false };

/* The server dies, and its other life, which has nothing, is there. */
static void
lose(struct client_bed *bed)
{
    bed_cut(bed, 0);
    bed_begin_life(bed, 0);
    bed_come_back(bed, 0);
}

static bool
has_values(const struct client_bed *bed, unsigned chunks, float value)
{
    return bed->values[0] == value && bed->values[chunks * PSD_CHUNK_ELEMENTS - 1] == value;
}

/* If this fails, a sum that was pushed, and not read yet, is lost with its server. */
static void
test_a_sum_that_nobody_has_read_outlives_its_server(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 2);
    struct psd_op *op = bed_push(bed, table, 0);

    (void)state;
    bed_value(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0), 5);
    bed_value(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 1), 5);
    bed_end_well(bed, op);
    lose(bed);
    (void)bed_sent_count(bed, 0);
    op = bed_pull(bed, table, 1);
    assert_int_equal(bed_sent_count(bed, 0), 0); /* nobody has to be asked */
    bed_end_well(bed, op);
    assert_true(has_values(bed, 2, 5));
    client_bed_stop(bed);
}

/* If this fails, a pull that is started before its push is answered goes to a server that may die,
 * or shows what is not all there. */
static void
test_a_pull_waits_for_the_push_before_it(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 2);
    struct psd_op *push = bed_push(bed, table, 0);
    struct psd_op *pull = bed_pull(bed, table, 1);

    (void)state;
    bed_value(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0), 5);
    lose(bed); /* the other chunk is given again */
    assert_false(psi_op_ended(pull));
    bed_value(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 1), 5);
    assert_null(bed_sent(bed, 0)); /* no PULL */
    bed_end_well(bed, push);
    bed_end_well(bed, pull);
    assert_true(has_values(bed, 2, 5));
    client_bed_stop(bed);
}

/* If this fails, half of the next sum is shown as the last one, or the last one is lost while the
 * next is on its way. */
static void
test_the_last_sum_is_whole_while_the_next_comes(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = bed_push(bed, table, 0);

    (void)state;
    bed_value(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0), 5);
    bed_end_well(bed, op);
    op = bed_push(bed, table, 1);
    bed_half_value(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0), 6);
    bed_end_well(bed, bed_pull(bed, table, 1));
    assert_true(has_values(bed, 1, 5));
    assert_false(psi_op_ended(op));
    client_bed_stop(bed);
}

/* If this fails, a held sum is read later than it is there, or a push ends before all have it. */
static void
test_a_held_sum_can_be_pulled(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *push = bed_push(bed, table, 0);
    struct psd_op *pull = bed_pull(bed, table, 1);

    (void)state;
    bed_value_flagged(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH_PULL, 0), 5, PSI_FLAG_HOLD);
    bed_end_well(bed, pull);
    assert_true(has_values(bed, 1, 5));
    assert_false(psi_op_ended(push));
    client_bed_stop(bed);
}

/* If this fails, callers who use psd_push_pull, or whose servers may not die, pay for those who split;
 * or a sum that was read elsewhere is waited for. */
static void
test_only_who_splits_pays(void **state)
{
    struct client_bed *goes_on = client_bed_start_surviving(1, NEAR, WIDE);
    struct client_bed *ends = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open_sum(goes_on, 1);
    struct psd_table *other = bed_open_sum(ends, 1);
    struct psd_op *op = bed_push_pull(goes_on, table, 0);

    (void)state;
    bed_value(goes_on, 0, bed_expect(goes_on, 0, PSI_FRAME_PUSH_PULL, 0), 5);
    bed_end_well(goes_on, op);
    assert_null(table->split);
    (void)bed_pull(goes_on, table, 1);
    (void)bed_expect(goes_on, 0, PSI_FRAME_PULL, 0);
    (void)bed_push(ends, other, 0);
    (void)bed_expect(ends, 0, PSI_FRAME_PUSH, 0);
    assert_null(other->split);
    client_bed_stop(ends);
    client_bed_stop(goes_on);
}

/* If this fails, a pull whose push has failed waits for ever, or does not say what for. */
static void
test_a_pull_whose_push_has_failed_says_so(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *push = bed_push(bed, table, 0);
    struct psd_op *pull = bed_pull(bed, table, 1);
    psd_outcome outcome;
    struct psd_error err;

    (void)state;
    world_wait(&bed->world, BED_TIMEOUT_MS + 1);
    err = bed_end(bed, push, &outcome);
    assert_int_equal(err.status, PSD_ERR_TIMEOUT);
    assert_non_null(strstr(err.text, "push table"));
    err = bed_end(bed, pull, &outcome);
    assert_int_equal(err.status, PSD_ERR_TIMEOUT);
    assert_non_null(strstr(err.text, "comes with the push of step 0"));
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sum_that_nobody_has_read_outlives_its_server),
        cmocka_unit_test(test_a_pull_waits_for_the_push_before_it),
        cmocka_unit_test(test_the_last_sum_is_whole_while_the_next_comes),
        cmocka_unit_test(test_a_held_sum_can_be_pulled),
        cmocka_unit_test(test_only_who_splits_pays),
        cmocka_unit_test(test_a_pull_whose_push_has_failed_says_so),
    };

    return cmocka_run_group_tests_name("client_split", tests, NULL, NULL);
}
