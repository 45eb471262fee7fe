/*
 * part_test.c - a worker's part of a checkpoint: when it is wanted, and what the master hears of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"

/* The master wants one. */
static void
want(struct client_bed *bed, uint64_t number, uint64_t step, uint64_t every)
{
    const struct psi_part order = {
        .news = PSI_PART_WANTED, .token = 7, .every = every, .text = "/shared/run7"};

    WORLD_SAY(&bed->world, bed_master(bed),
              &((struct psi_frame){.type = PSI_FRAME_PART, .seq = number, .step = step}), part,
              &order);
}

/* The next PART that the worker has sent. */
static struct psi_part
said(struct client_bed *bed, struct psi_frame *frame_p)
{
    const struct world_heard *heard = world_hear(bed_master(bed), PSI_FRAME_PART);
    struct psi_part part;

    assert_non_null(heard);
    *frame_p = heard->frame;
    assert_int_equal(psi_part_decode(heard->body, heard->frame.payload_bytes, &part, NULL), PSD_OK);
    return part;
}

static struct client_bed *
start(void)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    struct psi_frame frame;

    assert_int_equal(psi_client_part_due(bed->client, 3), PSD_CHECKPOINT_NONE);
    assert_int_equal(said(bed, &frame).news, PSI_PART_OFFERED);
    assert_int_equal(psi_client_part_due(bed->client, 3), PSD_CHECKPOINT_NONE);
    assert_null(world_hear(bed_master(bed), PSI_FRAME_PART)); /* once is enough */
    return bed;
}

/* If this fails, ranks cannot agree on a step before it comes, or one that was settled moves on. */
static void
test_the_step_is_settled_once(void **state)
{
    struct client_bed *bed = start();

    (void)state;
    want(bed, 1, 0, 0);
    assert_int_equal(psi_client_part_due(bed->client, 5), 6);
    assert_int_equal(psi_client_part_due(bed->client, 6), 6);
    want(bed, 2, 0, 100);
    assert_int_equal(psi_client_part_due(bed->client, 99), 100);
    want(bed, 3, 0, 100);
    assert_int_equal(psi_client_part_due(bed->client, 100), 200);
    want(bed, 4, 0, PSI_PART_EPOCH);
    assert_int_equal(psi_client_part_due(bed->client, 101), PSD_CHECKPOINT_EPOCH);
    want(bed, 5, 140, 0);
    assert_int_equal(psi_client_part_due(bed->client, 101), 140);
    client_bed_stop(bed);
}

/* If this fails, a part of another step is committed with the tables of this one. */
static void
test_a_part_of_another_step_is_not_taken(void **state)
{
    struct client_bed *bed = start();
    const struct psi_part written = {.news = PSI_PART_WRITTEN, .bytes = 9, .checksum = 8};
    struct psi_frame frame;
    struct psi_part part;
    struct psd_error err;
    uint64_t number;

    (void)state;
    assert_int_equal(psi_client_part_take(bed->client, 3, &part, &number, &err), PSD_ERR_STATE);
    want(bed, 1, 140, 0);
    assert_int_equal(psi_client_part_take(bed->client, 139, &part, &number, &err), PSD_ERR_STATE);
    assert_int_equal(psi_client_part_take(bed->client, 140, &part, &number, &err), PSD_OK);
    assert_string_equal(part.text, "/shared/run7");
    assert_int_equal(part.token, 7);
    assert_int_equal(psi_client_part_take(bed->client, 140, &part, &number, &err), PSD_ERR_STATE);
    assert_int_equal(psi_client_part_due(bed->client, 140), PSD_CHECKPOINT_NONE);
    assert_true(psi_client_part_tell(bed->client, number, 140, &written));
    part = said(bed, &frame);
    assert_int_equal(part.news, PSI_PART_WRITTEN);
    assert_int_equal(part.checksum, 8);
    assert_int_equal(frame.step, 140);
    assert_int_equal(frame.seq, 1);
    assert_false(psi_client_part_tell(bed->client, number, 140, &written)); /* said once */
    client_bed_stop(bed);
}

/* If this fails, the master waits for a step for ever that this worker is past. */
static void
test_who_is_past_the_step_says_so(void **state)
{
    struct client_bed *bed = start();
    struct psi_frame frame;

    (void)state;
    want(bed, 1, 140, 0);
    assert_int_equal(psi_client_part_due(bed->client, 141), PSD_CHECKPOINT_NONE);
    assert_int_equal(said(bed, &frame).news, PSI_PART_LATE);
    assert_int_equal(frame.step, 141);
    client_bed_stop(bed);
}

/* If this fails, what is written for an order that was given up counts for the next one. */
static void
test_what_was_given_up_is_not_told(void **state)
{
    static const struct psi_part none = {.news = PSI_PART_DROPPED};
    struct client_bed *bed = start();
    const struct psi_part written = {.news = PSI_PART_WRITTEN};
    struct psi_part part;
    uint64_t number;

    (void)state;
    want(bed, 1, 0, PSI_PART_EPOCH);
    assert_int_equal(psi_client_part_take(bed->client, 17, &part, &number, NULL), PSD_OK);
    WORLD_SAY(&bed->world, bed_master(bed), &((struct psi_frame){.type = PSI_FRAME_PART, .seq = 1}),
              part, &none);
    assert_false(psi_client_part_tell(bed->client, number, 17, &written));
    want(bed, 2, 0, PSI_PART_EPOCH);
    assert_false(psi_client_part_tell(bed->client, number, 17, &written));
    assert_null(world_hear(bed_master(bed), PSI_FRAME_PART));
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_step_is_settled_once),
        cmocka_unit_test(test_a_part_of_another_step_is_not_taken),
        cmocka_unit_test(test_who_is_past_the_step_says_so),
        cmocka_unit_test(test_what_was_given_up_is_not_told),
    };

    return cmocka_run_group_tests_name("client_part", tests, NULL, NULL);
}
