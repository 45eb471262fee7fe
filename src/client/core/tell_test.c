/*
 * tell_test.c - what a worker tells of itself, and what becomes of it when it cannot.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/core/client_bed.h"

enum { EVERY_MS = 500 };

/* Somebody watches, or (0) nobody does any more. */
static void
subscribe(struct client_bed *bed, uint32_t every_ms)
{
    const struct psi_subscribe message = {.every_ms = every_ms, .metrics = true};

    WORLD_SAY(&bed->world, bed_master(bed), &(struct psi_frame){.type = PSI_FRAME_SUBSCRIBE},
              subscribe, &message);
}

/* The next METRICS that it has sent; NULL: none. Valid until the next call. */
static const struct psi_telling *
told(struct client_bed *bed)
{
    static struct psi_telling telling;
    const struct world_heard *heard = world_hear(bed_master(bed), PSI_FRAME_METRICS);

    if (heard == NULL) {
        return NULL;
    }
    memset(&telling, 0, sizeof(telling));
    assert_int_equal(psi_telling_decode(heard->body, heard->frame.payload_bytes, &telling, NULL),
                     PSD_OK);
    return &telling;
}

static void
report(struct client_bed *bed, uint64_t step, const char *name, double value)
{
    assert_int_equal(psi_client_report(bed->client, step, name, value, NULL), PSD_OK);
}

/* If this fails, a number that was reported is lost because the connection was busy, or had just
 * been cut, when it was due. */
static void
test_what_could_not_be_sent_is_told_later(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    const struct psi_telling *telling;

    (void)state;
    subscribe(bed, EVERY_MS);
    assert_non_null(told(bed));
    report(bed, 1, "loss", 0.5);
    world_set_flow(bed_master(bed), WORLD_FLOW_FULL);
    psi_master_link_tell(&bed->client->master);
    assert_null(told(bed));
    world_set_flow(bed_master(bed), WORLD_FLOW_FAST);
    report(bed, 2, "loss", 0.25);
    world_wait(&bed->world, EVERY_MS);
    telling = told(bed);
    assert_non_null(telling);
    assert_int_equal(telling->points, 2);
    assert_int_equal(telling->point[0].step, 1);
    assert_int_equal(telling->point[1].step, 2);
    client_bed_stop(bed);
}

/* If this fails, the end of every curve is missing: what a worker reported last is not told when it
 * leaves with something in its queue, as it always does. */
static void
test_the_last_numbers_are_told_before_it_leaves(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    const struct psi_telling *telling;
    struct psd_op *op = NULL;

    (void)state;
    subscribe(bed, EVERY_MS);
    assert_non_null(told(bed));
    report(bed, 9, "loss", 0.125);
    world_set_flow(bed_master(bed), WORLD_FLOW_SLOW);
    assert_int_equal(psi_client_bye(bed->client, &op, NULL), PSD_OK);
    telling = told(bed);
    assert_non_null(telling);
    assert_int_equal(telling->points, 1);
    assert_int_equal(telling->point[0].step, 9);
    world_set_flow(bed_master(bed), WORLD_FLOW_FAST);
    client_bed_stop(bed);
}

static uint64_t
metric_of(const struct psi_telling *telling, enum psi_metric metric)
{
    for (uint32_t i = 0; i < telling->metrics; i++) {
        if (telling->metric[i].metric == metric) {
            return telling->metric[i].value;
        }
    }
    return 0;
}

/* If this fails, nobody learns when a job will end; or the number of its steps is taken for a curve,
 * or for the step it is at. */
static void
test_how_far_it_will_go_is_told(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    const struct psi_telling *telling;

    (void)state;
    subscribe(bed, EVERY_MS);
    assert_non_null(told(bed));
    report(bed, 7, "", 0);
    report(bed, 0, "steps_total", 5000);
    for (unsigned i = 0; i < 2; i++) { /* whoever comes later hears it, too */
        psi_master_link_tell(&bed->client->master);
        telling = told(bed);
        assert_non_null(telling);
        assert_int_equal(metric_of(telling, PSI_METRIC_STEPS_EXPECTED), 5000);
        assert_int_equal(telling->points, 0);
        assert_int_equal(telling->step, 7);
    }
    report(bed, 0, "steps_total", NAN); /* it does not know any more */
    psi_master_link_tell(&bed->client->master);
    telling = told(bed);
    assert_non_null(telling);
    assert_int_equal(metric_of(telling, PSI_METRIC_STEPS_EXPECTED), 0);
    client_bed_stop(bed);
}

/* If this fails, a program that reports under many names stops, has no curves of some, or nobody sees what was lost. */
static void
test_any_number_of_names(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    const struct psi_telling *telling;
    char name[16];

    (void)state;
    subscribe(bed, EVERY_MS);
    assert_non_null(told(bed));
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < PSI_POINTS_MAX; i++) {
            snprintf(name, sizeof(name), "name%u", turn * PSI_POINTS_MAX + i);
            report(bed, i, name, i);
        }
        psi_master_link_tell(&bed->client->master);
        telling = told(bed);
        assert_int_equal(telling->names, PSI_POINTS_MAX);
        assert_int_equal(telling->points, PSI_POINTS_MAX);
        assert_string_equal(telling->name[telling->point[PSI_POINTS_MAX - 1].name], name);
        assert_int_equal(psi_metric_get(bed->client->metrics, PSI_METRIC_POINTS_UNTOLD), 0);
    }
    for (unsigned i = 0; i < PSI_POINTS_MAX + 3; i++) { /* more at a time than there is room for */
        report(bed, i, i % 2 == 0 ? "even" : "odd", i);
    }
    psi_master_link_tell(&bed->client->master);
    telling = told(bed);
    assert_int_equal(telling->names, 2);
    assert_int_equal(telling->point[0].step, 3);
    assert_int_equal(psi_metric_get(bed->client->metrics, PSI_METRIC_POINTS_UNTOLD), 3);
    client_bed_stop(bed);
}

/* If this fails, a call that is refused, or that has no name, changes what is shown of a worker; or
 * half a character of a name reaches those who read UTF-8. */
static void
test_what_is_shown_of_a_report(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    const struct psi_ping *ping = &bed->client->ping;
    struct psd_error err;

    (void)state;
    report(bed, 5, "accuracy", 0.75);
    assert_int_equal(psi_client_report(bed->client, UINT64_MAX, "accuracy", 1, &err),
                     PSD_ERR_INVALID);
    assert_int_equal(ping->step, 5);
    assert_true(ping->value == 0.75);
    report(bed, 6, "", 3);
    report(bed, 7, NULL, 4);
    assert_int_equal(ping->step, 7);
    assert_string_equal(ping->name, "accuracy");
    assert_true(ping->value == 0.75);
    report(bed, 8, "0123456789012345678901234567890", 1); /* as long as it may be */
    assert_string_equal(ping->name, "0123456789012345678901234567890");
    report(bed, 9, "012345678901234567890123456789\xc3\xa4", 1);
    assert_string_equal(ping->name, "012345678901234567890123456789");
    client_bed_stop(bed);
}

/* If this fails, a worker goes on looking at the clock, and keeps times, for nobody. */
static void
test_it_stops_when_nobody_watches(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);

    (void)state;
    subscribe(bed, EVERY_MS);
    assert_true(bed->client->steps.on);
    subscribe(bed, 0);
    assert_false(bed->client->steps.on);
    while (told(bed) != NULL) {
    }
    world_wait(&bed->world, 2 * EVERY_MS);
    assert_null(told(bed));
    client_bed_stop(bed);
}

/* If this fails, a timeline lacks what workers pushed and what their programs marked, or has it in other
 * steps or at other times. */
static void
test_pushes_and_marks_are_told(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, 4 * BED_CHUNK_BYTES);
    struct psd_table *table = bed_open_sum(bed, 1);
    const struct psi_telling *telling;
    uint64_t begun_ns;
    struct psd_op *op;

    (void)state;
    assert_int_equal(psi_client_mark(bed->client, 0, "forward", 1000, 2000, NULL), PSD_OK);
    subscribe(bed, EVERY_MS);
    assert_non_null(told(bed));
    begun_ns = psi_now_ns(bed->client->env);
    op = bed_push(bed, table, 0);
    world_wait(&bed->world, 20);
    bed_ack(bed, 0, bed_expect(bed, 0, PSI_FRAME_PUSH, 0));
    bed_end_well(bed, op);
    assert_int_equal(psi_client_mark(bed->client, 0, "backward", begun_ns, begun_ns + 7000, NULL),
                     PSD_OK);
    assert_int_equal(psi_client_mark(bed->client, 0, "backward", 7000, 6000, NULL),
                     PSD_ERR_INVALID);
    assert_int_equal(psi_client_mark(bed->client, 0, NULL, 6000, 7000, NULL), PSD_ERR_INVALID);
    world_wait(&bed->world, EVERY_MS);
    telling = told(bed);
    assert_non_null(telling);
    assert_int_equal(telling->spans, 2); /* what was before somebody watched is not told */
    assert_int_equal(telling->span[0].kind, PSI_SPAN_PUSH);
    assert_int_equal(telling->span[0].what, table->id);
    assert_int_equal(telling->span[0].begin_us, begun_ns / 1000);
    assert_int_equal(telling->span[0].us, 20000);
    assert_int_equal(telling->span[1].kind, PSI_SPAN_MARK);
    assert_int_equal(telling->span[1].us, 7);
    assert_string_equal(telling->mark[telling->span[1].what], "backward");
    world_wait(&bed->world, EVERY_MS);
    telling = told(bed);
    assert_non_null(telling);
    assert_int_equal(telling->spans, 0); /* once */
    client_bed_stop(bed);
}

/* If this fails, a program with ever new names for what it does takes memory, or the names of others. */
static void
test_a_mark_too_many_is_counted(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, BED_CHUNK_BYTES);
    const struct psi_telling *telling;
    char name[16];

    (void)state;
    subscribe(bed, EVERY_MS);
    assert_non_null(told(bed));
    for (unsigned i = 0; i < PSI_MARKS_MAX + 5; i++) {
        snprintf(name, sizeof(name), "layer %u", i);
        assert_int_equal(psi_client_mark(bed->client, 1, name, 1000, 2000, NULL), PSD_OK);
    }
    world_wait(&bed->world, EVERY_MS);
    telling = told(bed);
    assert_non_null(telling);
    assert_int_equal(telling->marks, PSI_MARKS_MAX);
    assert_int_equal(telling->spans, PSI_MARKS_MAX);
    assert_int_equal(psi_metric_get(bed->client->metrics, PSI_METRIC_SPANS_UNTOLD), 5);
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_could_not_be_sent_is_told_later),
        cmocka_unit_test(test_the_last_numbers_are_told_before_it_leaves),
        cmocka_unit_test(test_how_far_it_will_go_is_told),
        cmocka_unit_test(test_any_number_of_names),
        cmocka_unit_test(test_what_is_shown_of_a_report),
        cmocka_unit_test(test_it_stops_when_nobody_watches),
        cmocka_unit_test(test_pushes_and_marks_are_told),
        cmocka_unit_test(test_a_mark_too_many_is_counted),
    };

    return cmocka_run_group_tests_name("client_tell", tests, NULL, NULL);
}
