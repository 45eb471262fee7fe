/*
 * pairs_test.c - a master whose servers have copies, against scripted members, in virtual time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/exit_code.h"
#include "master/master_bed.h"
#include "table/spec.h"

enum { STANDBY = 700 }; /* life of the lane that stands by in server 0; that of server 1 follows */

/* Two servers, each with a lane that stands by, and a table of values. */
struct job {
    struct master_bed *bed;
    struct peer *standby[2];
    uint64_t number[2]; /* of the copies of the servers */
};

static struct psi_pair
hear_pair(struct peer *peer, uint64_t *number_p)
{
    const struct world_heard *heard = hear(peer, PSI_FRAME_PAIR);
    struct psi_pair pair;

    assert_non_null(heard);
    *number_p = heard->frame.seq;
    assert_int_equal(psi_pair_decode(heard->body, heard->frame.payload_bytes, &pair, NULL), PSD_OK);
    return pair;
}

static struct job
begin(void)
{
    struct job job = {.bed = start_copied_job(1, 2)};

    open_everywhere(job.bed, "w", PSD_USE_UPDATE);
    for (uint32_t i = 0; i < 2; i++) {
        job.standby[i] = join(job.bed, PSI_ROLE_STANDBY, i, STANDBY + i);
        (void)hear_welcome(job.standby[i]);
    }
    pass_ms(job.bed, 300, NULL);
    for (uint32_t i = 0; i < 2; i++) { /* each in the other one */
        const struct psi_pair copy = hear_pair(job.bed->lane[i], &job.number[i]);
        uint64_t number;
        const struct psi_pair owner = hear_pair(job.standby[1 - i], &number);

        assert_int_equal(number, job.number[i]);
        assert_int_equal(copy.server, 1 - i);
        assert_int_equal(copy.life, STANDBY + 1 - i);
        assert_int_equal(owner.server, i);
        assert_int_equal(owner.life, 100 + i);
    }
    return job;
}

static void
call_eligible(struct job *job, uint32_t server)
{
    say(job->bed, job->bed->lane[server],
        (struct psi_frame){.type = PSI_FRAME_ELIGIBLE, .seq = job->number[server]}, NULL);
}

static void
kill_server(struct job *job, uint32_t server)
{
    hang_up(job->bed->lane[server], "killed");
    hang_up(job->standby[server], "killed");
    job->bed->lane[server] = NULL;
    pass_ms(job->bed, 600, NULL);
}

/* If this fails, the death of a server that has a whole copy loses what it had. */
static void
test_a_whole_copy_takes_the_place(void **state)
{
    struct job job = begin();
    struct psi_view_table tables[1];
    const struct world_heard *order;

    (void)state;
    call_eligible(&job, 0);
    call_eligible(&job, 1);
    kill_server(&job, 0);
    assert_false(is_over(job.bed));
    assert_true(logged(job.bed, "takes its places, and nothing is lost"));
    assert_non_null(strstr(job.bed->told, "awaited"));
    /* The copy of the other one died with it: that one goes on alone. */
    assert_int_equal(hear(job.bed->lane[1], PSI_FRAME_UNPAIR)->frame.seq, job.number[1]);
    order = hear(job.standby[1], PSI_FRAME_TAKE_PLACE);
    assert_non_null(order);
    assert_int_equal(order->frame.rank, 0);
    assert_int_equal(order->frame.seq, job.number[0]);
    /* Another life of the server comes first: it is not the one. */
    assert_refused(join(job.bed, PSI_ROLE_SERVER, 0, 900), PSD_ERR_STATE, "stand by");
    hang_up(job.standby[1], "comes again by another name");
    job.bed->lane[0] = join(job.bed, PSI_ROLE_SERVER, 0, STANDBY + 1);
    (void)hear_welcome(job.bed->lane[0]);
    assert_true(hear_table(job.bed->lane[0], PSI_FRAME_TABLE_OPEN, 0).again);
    say(job.bed, job.bed->lane[0], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0}, NULL);
    assert_int_equal(hear_view(job.bed->lane[1], tables).change, PSI_VIEW_SERVER_BACK);
    assert_non_null(strstr(job.bed->told, "copied"));
    assert_refused(join(job.bed, PSI_ROLE_SERVER, 0, 901), PSD_ERR_STATE, "stand by");
    master_bed_stop(job.bed);
}

/* If this fails, a copy that was cut off for a while and has come back is given up in the moment in which it takes its
 * place, because the connection that it lost has been silent for so long. */
static void
test_a_copy_that_came_back_takes_the_place(void **state)
{
    struct job job = begin();
    struct peer *lost = job.standby[1];

    (void)state;
    call_eligible(&job, 0);
    job.standby[1] =
        join(job.bed, PSI_ROLE_STANDBY, 1, STANDBY + 1); /* nobody has closed the other one */
    (void)hear_welcome(job.standby[1]);
    for (unsigned i = 0; i < 25; i++) {
        pass_ms(job.bed, 100, NULL);
        say_ping(job.bed, job.standby[1], (struct psi_frame){.type = PSI_FRAME_PING},
                 &(struct psi_ping){0});
    }
    assert_null(hear(job.bed->lane[0], PSI_FRAME_UNPAIR));
    kill_server(&job, 0);
    assert_non_null(hear(job.standby[1], PSI_FRAME_TAKE_PLACE));
    assert_null(hear(lost, PSI_FRAME_TAKE_PLACE));
    hang_up(job.standby[1], "comes again by another name");
    pass_ms(job.bed, 100, NULL);
    assert_false(is_over(job.bed));
    job.bed->lane[0] = join(job.bed, PSI_ROLE_SERVER, 0, STANDBY + 1);
    (void)hear_welcome(job.bed->lane[0]);
    master_bed_stop(job.bed);
}

/* If this fails, a copy that dies while it takes its place is waited for without end. */
static void
test_a_copy_that_does_not_come_to_its_place(void **state)
{
    struct job job = begin();

    (void)state;
    call_eligible(&job, 0);
    kill_server(&job, 0);
    assert_non_null(hear(job.standby[1], PSI_FRAME_TAKE_PLACE));
    pass_ms(job.bed, 1500, NULL);
    assert_false(is_over(job.bed));
    pass_ms(job.bed, 1500, NULL);
    assert_over(job.bed, PSI_EXIT_SERVER_LOST, "is lost with it, and so is its copy");
    master_bed_stop(job.bed);
}

static uint64_t
process_of(uint32_t server, uint64_t life)
{
    return life << PSI_PROCESS_INDEX_BITS | server;
}

/* If this fails, a server is deposed although its process has taken the part of another one, of which there is
 * no copy: with the process that part is gone. */
static void
test_a_process_with_a_part_that_nobody_has_is_not_deposed(void **state)
{
    struct job job = begin();
    struct psi_hello hello = {.role = PSI_ROLE_SERVER,
                              .rank = 0,
                              .lanes = 1,
                              .life = STANDBY + 1,
                              .host = process_of(1, 1),
                              .kernel_revision = PSI_KERNEL_REVISION,
                              .address = "test://copy"};
    struct psi_view_table tables[1];

    (void)state;
    call_eligible(&job, 0);
    call_eligible(&job, 1);
    kill_server(&job, 0);
    assert_non_null(hear(job.standby[1], PSI_FRAME_TAKE_PLACE));
    hang_up(job.standby[1], "comes again by another name");
    job.bed->lane[0] = dial(job.bed);
    say_hello(job.bed, job.bed->lane[0], (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    (void)hear_table(job.bed->lane[0], PSI_FRAME_TABLE_OPEN, 0);
    say(job.bed, job.bed->lane[0], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0}, NULL);
    pass_ms(job.bed, 100, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(hear_view(job.bed->lane[i], tables).id, 2);
        ack_view(job.bed, i, 2, 2, NULL);
    }
    /* The server is started again, and has room for one copy: that of its old place. */
    job.bed->lane[2] = join(job.bed, PSI_ROLE_STANDBY, 0, 910);
    pass_ms(job.bed, 3000, NULL);
    (void)hear_pair(job.bed->lane[0], &job.number[0]);
    assert_null(hear(job.bed->lane[1], PSI_FRAME_PAIR));
    call_eligible(&job, 0);
    assert_true(logged(job.bed, "server 0 (in the process of server 1) has a copy in server 0"));
    pass_ms(job.bed, 2500, job.bed->lane[0]);
    assert_true(logged(job.bed, "MEMBER-SILENT server 0"));
    assert_false(logged(job.bed, "server 0 (test://copy) lost"));
    assert_false(is_over(job.bed));
    master_bed_stop(job.bed);
}

/* If this fails, a job waits for a server whose end has been seen. */
static void
test_a_process_that_is_gone_is_not_waited_for(void **state)
{
    struct job job = begin();

    (void)state;
    call_eligible(&job, 0);
    call_eligible(&job, 1);
    master_heed(job.bed->master,
                &(struct psi_word){.kind = PSI_WORD_GONE, .rank = 0, .number = process_of(0, 1)});
    assert_true(logged(job.bed, "lost: its process has ended; its copy in server 1"));
    master_tick(job.bed->master);
    assert_int_equal(hear(job.standby[1], PSI_FRAME_TAKE_PLACE)->frame.rank, 0);
    /* Nor is the copy that was in it. */
    assert_int_equal(hear(job.bed->lane[1], PSI_FRAME_UNPAIR)->frame.seq, job.number[1]);
    master_bed_stop(job.bed);
}

/* If this fails, news of a dead life of a server end the next one, or that of another server. */
static void
test_a_life_that_is_gone_is_no_other(void **state)
{
    struct job job = begin();

    (void)state;
    call_eligible(&job, 0);
    call_eligible(&job, 1);
    master_heed(job.bed->master,
                &(struct psi_word){.kind = PSI_WORD_GONE, .rank = 0, .number = process_of(0, 2)});
    master_heed(job.bed->master,
                &(struct psi_word){.kind = PSI_WORD_GONE, .rank = 0, .number = process_of(1, 1)});
    pass_ms(job.bed, 300, NULL);
    assert_false(logged(job.bed, "its process has ended"));
    assert_null(hear(job.standby[1], PSI_FRAME_TAKE_PLACE));
    master_bed_stop(job.bed);
}

/* If this fails, the last line of a job that lost a server and its copy together reads as if there never had been a
 * copy. */
static void
test_the_end_names_the_server_that_died_with_its_copy(void **state)
{
    struct job job = begin();

    (void)state;
    call_eligible(&job, 0);
    call_eligible(&job, 1);
    kill_server(&job, 0);
    hang_up(job.bed->lane[1], "killed");
    hang_up(job.standby[1], "killed");
    job.bed->lane[1] = NULL;
    pass_ms(job.bed, 600, NULL);
    assert_over(job.bed, PSI_EXIT_SERVER_LOST,
                "and its copy was in server 0, which is lost as well");
    master_bed_stop(job.bed);
}

/* If this fails, a copy takes the place of its owner and lacks what workers were told. */
static void
test_a_copy_that_lacks_something_is_not_promoted(void **state)
{
    struct job job = begin();

    (void)state;
    call_eligible(&job, 1);
    kill_server(&job, 0);
    assert_null(hear(job.standby[1], PSI_FRAME_TAKE_PLACE));
    assert_over(job.bed, PSI_EXIT_SERVER_LOST, "it had no whole copy at that moment");
    master_bed_stop(job.bed);
}

/* If this fails, a server waits for ever for a copy that is gone, or a copy that was crossed out takes
 * its place. */
static void
test_a_server_goes_on_without_a_copy_that_is_gone(void **state)
{
    struct job job = begin();

    (void)state;
    call_eligible(&job, 0);
    hang_up(job.standby[1], "gone");
    pass_ms(job.bed, 100, NULL);
    assert_null(hear(job.bed->lane[0], PSI_FRAME_UNPAIR)); /* it may come back */
    pass_ms(job.bed, 300, NULL);
    assert_int_equal(hear(job.bed->lane[0], PSI_FRAME_UNPAIR)->frame.seq, job.number[0]);
    job.standby[1] = join(job.bed, PSI_ROLE_STANDBY, 1, STANDBY + 1);
    assert_non_null(hear(job.standby[1], PSI_FRAME_UNPAIR)); /* nor is it one any more */
    kill_server(&job, 0);
    assert_over(job.bed, PSI_EXIT_SERVER_LOST, "its part of table w is lost with it");
    master_bed_stop(job.bed);
}

/* If this fails, a server and its copy that do not reach each other stop the job. */
static void
test_a_server_that_does_not_reach_its_copy(void **state)
{
    struct job job = begin();

    (void)state;
    call_eligible(&job, 0);
    say_verdict(job.bed, job.bed->lane[0],
                (struct psi_frame){.type = PSI_FRAME_PAIR_LOST, .seq = job.number[0]},
                &(struct psi_verdict){.status = PSD_ERR_PEER_LOST, .text = "no room for table w"});
    pass_ms(job.bed, 100, NULL);
    assert_true(logged(job.bed, "no room for table w"));
    assert_int_equal(hear(job.bed->lane[0], PSI_FRAME_UNPAIR)->frame.seq, job.number[0]);
    assert_int_equal(hear(job.standby[1], PSI_FRAME_UNPAIR)->frame.seq, job.number[0]);
    pass_ms(job.bed, 600, NULL); /* another one is tried, or the same once more */
    {
        uint64_t number;

        (void)hear_pair(job.bed->lane[0], &number);
        assert_true(number > job.number[0]);
    }
    master_bed_stop(job.bed);
}

/* If this fails, a job waits for a copy that says itself that it is none. */
static void
test_a_copy_that_is_broken_is_not_waited_for(void **state)
{
    struct job job = begin();

    (void)state;
    call_eligible(&job, 0);
    kill_server(&job, 0);
    assert_non_null(hear(job.standby[1], PSI_FRAME_TAKE_PLACE));
    say_verdict(job.bed, job.standby[1],
                (struct psi_frame){.type = PSI_FRAME_PAIR_LOST, .seq = job.number[0]},
                &(struct psi_verdict){.status = PSD_ERR_PEER_LOST, .text = "no room"});
    assert_over(job.bed, PSI_EXIT_SERVER_LOST, "and so is its copy");
    master_bed_stop(job.bed);
}

/* If this fails, a server that nobody can hold a copy of goes on without one, and nobody knows. */
static void
test_people_hear_that_there_is_no_place_for_a_copy(void **state)
{
    struct master_bed *bed = start_copied_job(1, 2);
    struct peer *standby;

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    pass_ms(bed, 4000, NULL);
    assert_false(logged(bed, "has no copy"));
    pass_ms(bed, 2000, NULL);
    assert_true(logged(bed, "server 0 has no copy, and its death would be the end: no other server "
                            "has a lane to spare"));
    standby = join(bed, PSI_ROLE_STANDBY, 1, STANDBY);
    (void)hear_welcome(standby);
    pass_ms(bed, 300, NULL);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_PAIR));
    master_bed_stop(bed);
}

/* If this fails, people do not learn what would have saved their job. */
static void
test_without_copies_the_setting_is_named(void **state)
{
    struct master_bed *bed = start_lasting_job(1, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "w", PSD_USE_UPDATE);
    hang_up(bed->lane[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    assert_over(bed, PSI_EXIT_SERVER_LOST, "replicas=1");
    master_bed_stop(bed);
}

/* Two servers of a job without tables so far, each with a lane that stands by. */
static struct master_bed *
begin_empty(struct peer *standby[2])
{
    struct master_bed *bed = start_copied_job(1, 2);

    for (uint32_t i = 0; i < 2; i++) {
        standby[i] = join(bed, PSI_ROLE_STANDBY, i, STANDBY + i);
        (void)hear_welcome(standby[i]);
    }
    return bed;
}

/* If this fails, a job that only sums pays for copies, and after a death its load is spread worse. */
static void
test_sums_have_no_copies(void **state)
{
    const struct psd_table_args args = {.struct_size = sizeof(args),
                                        .name = "sum",
                                        .dtype = PSD_F32,
                                        .use = PSD_USE_SUM,
                                        .dims = 1,
                                        .shape = {65536 * 8}};
    struct psi_table_info want = {0};
    struct peer *standby[2];
    struct master_bed *bed = begin_empty(standby);

    (void)state;
    assert_int_equal(psi_spec_init(&want.spec, &args, bed->workers, NULL), PSD_OK);
    open_table(bed, 0, &want, 1);
    ack_table(bed, 0);
    pass_ms(bed, 1000, NULL);
    assert_null(hear(bed->lane[0], PSI_FRAME_PAIR));
    assert_non_null(strstr(bed->told, "place server 1 by 1 needless in -"));
    hang_up(bed->lane[1], "killed");
    hang_up(standby[1], "killed");
    bed->lane[1] = NULL;
    pass_ms(bed, 600, NULL);
    assert_null(hear(standby[0], PSI_FRAME_TAKE_PLACE));
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 900); /* it has its place again */
    (void)hear_welcome(bed->lane[1]);
    master_bed_stop(bed);
}

/* If this fails, the global step of a job that only sums is lost with its server. */
static void
test_a_global_step_has_a_copy(void **state)
{
    struct peer *standby[2];
    struct master_bed *bed = begin_empty(standby);
    uint64_t number;

    (void)state;
    pass_ms(bed, 300, NULL);
    assert_null(hear(bed->lane[0], PSI_FRAME_PAIR));
    say_ping(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_PING},
             &(struct psi_ping){.step = 7});
    master_tick(bed->master);
    (void)hear_pair(bed->lane[0], &number);
    assert_non_null(strstr(bed->told, "place server 0 by 0 forming in 1"));
    master_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_copy_takes_the_place),
        cmocka_unit_test(test_a_process_with_a_part_that_nobody_has_is_not_deposed),
        cmocka_unit_test(test_a_process_that_is_gone_is_not_waited_for),
        cmocka_unit_test(test_a_life_that_is_gone_is_no_other),
        cmocka_unit_test(test_a_copy_that_came_back_takes_the_place),
        cmocka_unit_test(test_a_copy_that_does_not_come_to_its_place),
        cmocka_unit_test(test_a_copy_that_lacks_something_is_not_promoted),
        cmocka_unit_test(test_the_end_names_the_server_that_died_with_its_copy),
        cmocka_unit_test(test_a_server_goes_on_without_a_copy_that_is_gone),
        cmocka_unit_test(test_a_server_that_does_not_reach_its_copy),
        cmocka_unit_test(test_a_copy_that_is_broken_is_not_waited_for),
        cmocka_unit_test(test_people_hear_that_there_is_no_place_for_a_copy),
        cmocka_unit_test(test_without_copies_the_setting_is_named),
        cmocka_unit_test(test_sums_have_no_copies),
        cmocka_unit_test(test_a_global_step_has_a_copy),
    };

    return cmocka_run_group_tests_name("master_pairs", tests, NULL, NULL);
}
