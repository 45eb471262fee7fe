/*
 * readers_test.c - a master and readers: what they are told, and that nothing of the job depends on them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "master/master_bed.h"
#include "wire/message.h"

static struct peer *
knock(struct master_bed *bed, const struct psi_hello *more)
{
    struct peer *reader = dial(bed);
    struct psi_hello hello = *more;

    hello.role = PSI_ROLE_READER;
    hello.rank = PSI_RANK_AUTO;
    say_hello(bed, reader, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    return reader;
}

static uint32_t
readers_shown(struct master_bed *bed, struct peer *worker)
{
    struct psd_node node[16];
    struct psi_nodes nodes = {.node = node};
    const struct world_heard *heard;

    say(bed, worker, (struct psi_frame){.type = PSI_FRAME_NODES, .request = 9}, NULL);
    heard = hear(worker, PSI_FRAME_NODES_INFO);
    assert_non_null(heard);
    assert_int_equal(psi_nodes_decode(heard->body, heard->frame.payload_bytes, &nodes, NULL),
                     PSD_OK);
    return nodes.readers;
}

/* If this fails, a reader does not learn where the servers are and which tables there are, now and later. */
static void
test_reader_hears_views_and_tables(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_CONTINUE);
    struct peer *reader;

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    reader = knock(bed, &(struct psi_hello){.life = 5});
    assert_true(hear_welcome(reader).job != 0);
    assert_non_null(hear(reader, PSI_FRAME_VIEW_COMMIT));
    assert_string_equal(hear_table(reader, PSI_FRAME_TABLE_INFO, 0).spec.name, "w");
    assert_int_equal(readers_shown(bed, bed->worker[0]), 1);
    bye(bed, 1); /* the next view */
    ack_view(bed, 0, 2, 1, NULL);
    ack_view(bed, 0, 2, 2, NULL);
    assert_non_null(hear(reader, PSI_FRAME_VIEW_COMMIT));
    hang_up(reader, "gone");
    world_settle(&bed->world);
    assert_int_equal(readers_shown(bed, bed->worker[0]), 0);
    master_bed_stop(bed);
}

/* If this fails, who has a reader's key makes a master leave, end the job, or do what members ask for. */
static void
test_reader_says_nothing_of_the_job(void **state)
{
    static const uint8_t types[] = {
        PSI_FRAME_END,          PSI_FRAME_BYE,         PSI_FRAME_TABLE_OPEN, PSI_FRAME_BARRIER,
        PSI_FRAME_METRICS,      PSI_FRAME_SUBSCRIBE,   PSI_FRAME_NODES,      PSI_FRAME_HINT,
        PSI_FRAME_VIEW_ACK,     PSI_FRAME_VIEW_COMMIT, PSI_FRAME_ELIGIBLE,   PSI_FRAME_PAIR_LOST,
        PSI_FRAME_WORKER_STATE, PSI_FRAME_PART,        PSI_FRAME_WRITTEN,    PSI_FRAME_LANE_STATE,
    };
    struct master_bed *bed = start_lives(1, 1, PSI_DEATH_FAIL);
    struct peer *reader = knock(bed, &(struct psi_hello){.life = 5, .term = 9});
    const struct psi_welcome welcome = hear_welcome(reader);

    (void)state;
    hang_up(reader, "gone");
    reader =
        knock(bed, &(struct psi_hello){.life = 5, .term = 9, .job = welcome.job, .view = 1 << 30});
    (void)hear_welcome(reader);
    assert_false(is_over(bed));
    for (size_t i = 0; i < sizeof(types); i++) {
        reader = knock(bed, &(struct psi_hello){.life = 6 + i});
        (void)hear_welcome(reader);
        say(bed, reader, (struct psi_frame){.type = types[i], .request = 1, .seq = 1}, NULL);
        assert_true(is_gone(reader));
        assert_false(is_over(bed));
    }
    assert_true(logged(bed, "BARRIER from a reader: not expected here"));
    master_bed_stop(bed);
}

/* If this fails, readers without end are let in, one that comes back is shut out by itself, or one of another
 * job is let in. */
static void
test_readers_are_bounded(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);
    struct peer *first = knock(bed, &(struct psi_hello){.life = 5});
    struct peer *again = knock(bed, &(struct psi_hello){.life = 5});

    (void)state;
    (void)hear_welcome(first);
    assert_true(is_gone(first));
    (void)hear_welcome(again);
    assert_refused(knock(bed, &(struct psi_hello){.life = 8, .job = 12345}), PSD_ERR_REFUSED,
                   "job");
    assert_int_equal(readers_shown(bed, bed->worker[0]), 1);
    master_bed_stop(bed);
}

/* If this fails, a reader waits for a job that is over. */
static void
test_reader_hears_the_end(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);
    struct peer *reader = knock(bed, &(struct psi_hello){.life = 5});

    (void)state;
    (void)hear_welcome(reader);
    give_up(bed, bed->worker[0], 1, "it failed");
    assert_non_null(hear(reader, PSI_FRAME_END));
    assert_refused(knock(bed, &(struct psi_hello){.life = 6}), PSD_ERR_REFUSED, "the job is over");
    master_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader_hears_views_and_tables),
        cmocka_unit_test(test_reader_says_nothing_of_the_job),
        cmocka_unit_test(test_readers_are_bounded),
        cmocka_unit_test(test_reader_hears_the_end),
    };

    return cmocka_run_group_tests_name("master_readers", tests, NULL, NULL);
}
