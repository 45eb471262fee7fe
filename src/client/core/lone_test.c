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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
