/*
 * master_test.c - the master against scripted members, in virtual time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/master_bed.h"

#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "master/state.h"
#include "table/spec.h"

/* ---------------------------------------------------------------------------- the start --- */

/* If this fails, a job starts too early, or only when its processes come in one order. */
static void
test_start_in_any_order(void **state)
{
    struct master_bed *bed = master_bed_start(2, 2, PSI_DEATH_FAIL);
    struct psi_view_table tables[1];
    struct psi_view view;

    (void)state;
    bed->worker[1] = join(bed, PSI_ROLE_WORKER, 1, 1);
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 2);
    bed->worker[0] = join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 3);
    assert_int_equal(hear_welcome(bed->worker[0]).rank, 0);
    assert_null(hear(bed->lane[1], PSI_FRAME_VIEW_COMMIT));
    bed->lane[0] = join(bed, PSI_ROLE_SERVER, 0, 4);

    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.id, 1);
    assert_int_equal(view.change, PSI_VIEW_FIRST);
    assert_int_equal(view.places, 2);
    assert_string_equal(view.place[1].address, "test://lane1");
    assert_true(view.worker[1].member);
    ack_view(bed, 0, 1, 1, NULL);
    assert_null(hear(bed->worker[0], PSI_FRAME_VIEW_COMMIT)); /* lane 1 does not know it yet */
    ack_view(bed, 1, 1, 1, NULL);
    assert_int_equal(hear_view(bed->worker[0], tables).id, 1);
    assert_int_equal(hear_view(bed->worker[1], tables).id, 1);
    assert_true(logged(bed, "JOB-START 2 workers, 2 servers with 2 lanes"));
    master_bed_stop(bed);
}

/* If this fails, nobody learns who did not come. */
static void
test_start_names_the_missing(void **state)
{
    struct master_bed *bed = master_bed_start(3, 2, PSI_DEATH_FAIL);

    (void)state;
    bed->lane[0] = join(bed, PSI_ROLE_SERVER, 0, 1);
    bed->worker[1] = join(bed, PSI_ROLE_WORKER, 1, 2);
    pass_ms(bed, 10000, NULL);
    assert_true(logged(bed, "JOB-WAITING waiting for server 1, worker 0, worker 2"));
    pass_ms(bed, 50000, NULL);
    assert_string_equal(hear_verdict(bed->worker[1], PSI_FRAME_END).text,
                        "waiting for server 1, worker 0, worker 2: not here after 60000 ms");
    assert_over(bed, PSI_EXIT_START_TIMEOUT, "waiting for server 1, worker 0, worker 2");
    master_bed_stop(bed);
}

/* If this fails, scripts that prepare their data for longer than servers may take are ended, or a
 * server that does not come is waited for without end. */
static void
test_start_waits_for_late_workers_alone(void **state)
{
    struct master_bed *bed = master_bed_start_patient(2, 1);

    (void)state;
    bed->lane[0] = join(bed, PSI_ROLE_SERVER, 0, 1);
    pass_ms(bed, 600000, NULL);
    assert_true(logged(bed, "JOB-WAITING waiting for worker 0, worker 1"));
    bed->worker[0] = join(bed, PSI_ROLE_WORKER, 0, 2);
    bed->worker[1] = join(bed, PSI_ROLE_WORKER, 1, 3);
    ack_view(bed, 0, 1, 1, NULL);
    assert_true(logged(bed, "JOB-START 2 workers, 1 server"));
    master_bed_stop(bed);

    bed = master_bed_start_patient(1, 1);
    bed->worker[0] = join(bed, PSI_ROLE_WORKER, 0, 1);
    pass_ms(bed, 60000, NULL);
    assert_over(bed, PSI_EXIT_START_TIMEOUT, "waiting for server 0");
    master_bed_stop(bed);
}

/* If this fails, a worker that dies before the start blocks its rank for ever. */
static void
test_death_before_the_start_frees_the_place(void **state)
{
    struct master_bed *bed = master_bed_start(1, 1, PSI_DEATH_FAIL);
    struct peer *first = join(bed, PSI_ROLE_WORKER, 0, 1);
    struct peer *second;

    (void)state;
    hang_up(first, "closed");
    second = join(bed, PSI_ROLE_WORKER, 0, 2); /* too early to tell: it waits */
    assert_int_equal(second->line->heard_count, 0);
    bed->world.now_ns += 500 * MS_NS;
    master_tick(bed->master);
    assert_int_equal(hear_welcome(second).incarnation, 1);
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, two processes work under one rank. */
static void
test_duplicate_rank_is_refused(void **state)
{
    struct master_bed *bed = master_bed_start(2, 1, PSI_DEATH_FAIL);
    struct peer *holder = join(bed, PSI_ROLE_WORKER, 1, 1);
    struct peer *lane = join(bed, PSI_ROLE_SERVER, 0, 2);

    (void)state;
    assert_refused(join(bed, PSI_ROLE_WORKER, 1, 3), PSD_ERR_REFUSED,
                   "worker rank 1 is taken by test://0");
    assert_refused(join(bed, PSI_ROLE_SERVER, 0, 4), PSD_ERR_REFUSED,
                   "server 0 lane 0 is taken by test://lane0");
    assert_true(logged(bed, "MEMBER-REFUSED test://2: worker rank 1 is taken"));
    assert_false(is_gone(holder));
    assert_false(is_gone(lane));
    master_bed_stop(bed);
}

/* If this fails, a wrong rank or count is found out late or not at all. */
static void
test_out_of_range_is_refused(void **state)
{
    struct master_bed *bed = master_bed_start(2, 1, PSI_DEATH_FAIL);

    (void)state;
    assert_refused(join(bed, PSI_ROLE_WORKER, 5, 1), PSD_ERR_REFUSED,
                   "worker rank 5: the job has 2 workers, ranks 0..1");
    assert_refused(join(bed, PSI_ROLE_SERVER, 3, 1), PSD_ERR_REFUSED,
                   "server 3: the job has 1 server, 0..0");
    (void)join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 2);
    (void)join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 3);
    assert_refused(
        join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 4), PSD_ERR_REFUSED,
        "all 2 worker ranks are taken, and none is used twice: a job that others may join "
        "is started with a larger --max_workers");
    master_bed_stop(bed);
}

/* If this fails, a cut connection costs a worker its place, or it misses the view. */
static void
test_reconnect_keeps_the_place(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    struct peer *back;

    (void)state;
    hang_up(bed->worker[1], "closed");
    pass_ms(bed, 400, NULL);
    back = join(bed, PSI_ROLE_WORKER, 1, 201);
    assert_int_equal(hear_welcome(back).incarnation, 1);
    assert_non_null(hear(back, PSI_FRAME_VIEW_COMMIT));
    bed->worker[1] = back;
    pass_ms(bed, 3000, NULL);
    assert_false(is_over(bed));
    assert_false(logged(bed, "MEMBER-LOST"));
    master_bed_stop(bed);
}

/* ----------------------------------------------------------------------------- strangers --- */

/* If this fails, anybody who reaches the port can end or stop the job. */
static void
test_garbage_before_hello_costs_the_connection(void **state)
{
    struct master_bed *bed = master_bed_start(1, 1, PSI_DEATH_FAIL);
    uint8_t garbage[PSI_FRAME_BYTES];
    struct peer *peer = dial(bed);
    struct peer *silent = dial(bed);

    (void)state;
    memset(garbage, 'G', sizeof(garbage));
    deliver(bed, peer, garbage);
    assert_true(is_gone(peer));
    assert_true(logged(bed, "STRANGER test://0"));

    peer = dial(bed);
    say(bed, peer, (struct psi_frame){.type = PSI_FRAME_BARRIER}, NULL);
    assert_true(is_gone(peer));
    assert_true(logged(bed, "BARRIER before HELLO"));

    bed->world.now_ns += 5000 * MS_NS;
    master_tick(bed->master);
    assert_true(is_gone(silent));
    assert_false(is_over(bed));
    bed->worker[0] = join(bed, PSI_ROLE_WORKER, 0, 1);
    (void)hear_welcome(bed->worker[0]);
    master_bed_stop(bed);
}

/* If this fails, a stranger can fill the log. */
static void
test_warnings_about_strangers_are_limited(void **state)
{
    struct master_bed *bed = master_bed_start(1, 1, PSI_DEATH_FAIL);
    unsigned lines = 0;

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        char reason[16];

        snprintf(reason, sizeof(reason), "gone %u", i);
        hang_up(dial(bed), reason);
        master_tick(bed->master);
    }
    for (const char *at = bed->log_text; (at = strstr(at, "STRANGER")) != NULL; at++) {
        lines++;
    }
    assert_int_equal(lines, 5);
    bed->world.now_ns += 1000 * MS_NS;
    hang_up(dial(bed), "gone");
    assert_true(logged(bed, "15 warnings before it not shown"));
    master_bed_stop(bed);
}

/* If this fails, another version of the protocol is answered with silence. */
static void
test_other_version_is_refused_by_name(void **state)
{
    struct master_bed *bed = master_bed_start(1, 1, PSI_DEATH_FAIL);
    struct peer *peer = dial(bed);
    uint8_t head[PSI_FRAME_BYTES];

    (void)state;
    psi_frame_encode(&(struct psi_frame){.type = PSI_FRAME_HELLO}, head);
    head[4] = PSI_PROTOCOL_VERSION + 1;
    deliver(bed, peer, head);
    assert_refused(peer, PSD_ERR_VERSION, "2");
    master_bed_stop(bed);
}

/* If this fails, a member that has a secret hears nothing at the door of a job without. */
static void
test_member_with_a_secret_is_refused_by_name(void **state)
{
    struct master_bed *bed = master_bed_start(1, 1, PSI_DEATH_FAIL);
    struct peer *peer = dial(bed);
    const uint8_t client_hello[PSI_FRAME_BYTES] = {22, 3, 1, 1, 200, 1, 0, 1, 196, 3, 3};

    (void)state;
    deliver(bed, peer, client_hello);
    assert_refused(peer, PSD_ERR_REFUSED, "this job runs --insecure");
    master_bed_stop(bed);
}

/* If this fails, servers with other arithmetic, or of another job, join. */
static void
test_other_kernels_or_job_are_refused(void **state)
{
    struct master_bed *bed = master_bed_start(1, 1, PSI_DEATH_FAIL);
    struct psi_hello hello = {.role = PSI_ROLE_SERVER,
                              .lanes = 1,
                              .life = 1,
                              .kernel_revision = PSI_KERNEL_REVISION + 1,
                              .address = "test://lane"};
    struct peer *peer = dial(bed);

    (void)state;
    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    assert_refused(peer, PSD_ERR_VERSION, "revision");
    hello.kernel_revision = PSI_KERNEL_REVISION;
    hello.job = 4711;
    peer = dial(bed);
    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    assert_refused(peer, PSD_ERR_REFUSED, "job");
    master_bed_stop(bed);
}

/* ------------------------------------------------------------------------------- tables --- */

/* If this fails, workers use a table that a server does not have yet. */
static void
test_table_open_waits_for_every_lane(void **state)
{
    struct master_bed *bed = start_job(2, 2, PSI_DEATH_FAIL);
    const struct psi_table_info want = table_named("w", 100000); /* two chunks */
    struct psi_table_info info;

    (void)state;
    open_table(bed, 0, &want, 5);
    open_table(bed, 1, &want, 6);
    say(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0}, NULL);
    say(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0}, NULL);
    assert_null(hear(bed->worker[0], PSI_FRAME_TABLE_INFO));
    say(bed, bed->lane[1], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0}, NULL);
    info = hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 5);
    assert_int_equal(info.creator, 0);
    assert_int_equal(info.loads.places, 2);
    assert_int_equal(info.loads.bytes[0], 0);
    (void)hear_table(bed->worker[1], PSI_FRAME_TABLE_INFO, 6);

    open_table(bed, 1, &want, 7); /* repeated: answered at once */
    (void)hear_table(bed->worker[1], PSI_FRAME_TABLE_INFO, 7);

    open_table(bed, 1, &(struct psi_table_info){.spec = table_named("v", 10).spec}, 8);
    for (unsigned i = 0; i < 2; i++) {
        (void)hear_table(bed->lane[i], PSI_FRAME_TABLE_OPEN, 0);
    }
    info = hear_table(bed->lane[0], PSI_FRAME_TABLE_OPEN, 0);
    assert_int_equal(info.id, 1);
    assert_int_equal(info.loads.bytes[0], 65536 * 4); /* the first table counts */
    assert_int_equal(info.loads.bytes[1], (100000 - 65536) * 4);
    master_bed_stop(bed);
}

/* If this fails, a thread that opens a table is forgotten when another of its worker does. */
static void
test_table_opened_by_several_threads(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    const struct psi_table_info want = table_named("w", 10);

    (void)state;
    for (uint32_t request = 5; request < 15; request++) {
        open_table(bed, 0, &want, request);
    }
    open_table(bed, 0, &want, 5); /* asked again after a cut: one answer is enough */
    open_table(bed, 1, &want, 20);
    ack_table(bed, 0);
    for (uint32_t request = 5; request < 15; request++) {
        (void)hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, request);
    }
    assert_null(hear(bed->worker[0], PSI_FRAME_TABLE_INFO));
    (void)hear_table(bed->worker[1], PSI_FRAME_TABLE_INFO, 20);
    master_bed_stop(bed);
}

/* If this fails, workers that disagree train garbage. */
static void
test_table_mismatch_names_both(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    const struct psi_table_info one = table_named("w", 10);
    const struct psi_table_info other = table_named("w", 20);
    struct psi_verdict verdict;

    (void)state;
    open_table(bed, 0, &one, 1);
    ack_table(bed, 0);
    open_table(bed, 1, &other, 2);
    verdict = hear_verdict(bed->worker[1], PSI_FRAME_ACK);
    assert_int_equal(verdict.status, PSD_ERR_MISMATCH);
    assert_non_null(strstr(verdict.text, "table w: worker 1 wants f32[20]"));
    assert_non_null(strstr(verdict.text, "worker 0 opened f32[10]"));
    assert_non_null(strstr(verdict.text, "shape differs"));
    master_bed_stop(bed);
}

/* If this fails, a table that one server cannot hold stays half open. */
static void
test_table_refused_by_a_lane_is_rolled_back(void **state)
{
    struct master_bed *bed = start_job(2, 2, PSI_DEATH_FAIL);
    const struct psi_table_info want = table_named("w", 100000);
    const struct psi_verdict no = {.status = PSD_ERR_TOO_BIG, .text = "no memory here"};
    struct psi_verdict verdict;
    struct psi_table_info info;

    (void)state;
    open_table(bed, 0, &want, 5);
    open_table(bed, 1, &want, 6);
    say(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0}, NULL);
    say_verdict(
        bed, bed->lane[1],
        (struct psi_frame){.type = PSI_FRAME_ACK, .table = 0, .status = (int16_t)PSD_ERR_TOO_BIG},
        &no);
    for (unsigned i = 0; i < 2; i++) {
        verdict = hear_verdict(bed->worker[i], PSI_FRAME_ACK);
        assert_int_equal(verdict.status, PSD_ERR_TOO_BIG);
        assert_string_equal(verdict.text, "server 1: no memory here");
        assert_int_equal(hear(bed->lane[i], PSI_FRAME_TABLE_DROP)->frame.table, 0);
    }
    open_table(bed, 0, &want, 9);
    info = hear_table(bed->lane[0], PSI_FRAME_TABLE_OPEN, 0);
    assert_int_equal(info.id, 1); /* never the same number twice */
    assert_int_equal(info.loads.bytes[0], 0);
    assert_int_equal(info.loads.bytes[1], 0);
    master_bed_stop(bed);
}

/* If this fails, a lane that was away never hears of a table, and workers wait for ever. */
static void
test_lane_reconnect_gets_what_it_missed(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);
    const struct psi_table_info want = table_named("w", 10);

    (void)state;
    hang_up(bed->lane[0], "closed");
    open_table(bed, 0, &want, 5);
    bed->lane[0] = join(bed, PSI_ROLE_SERVER, 0, 100);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_COMMIT));
    ack_table(bed, 0);
    (void)hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 5);
    master_bed_stop(bed);
}

/* ------------------------------------------------------------------- barrier and quorum --- */

static void
arrive(struct master_bed *bed, uint32_t rank, uint64_t barrier, uint32_t request)
{
    say(bed, bed->worker[rank],
        (struct psi_frame){.type = PSI_FRAME_BARRIER, .seq = barrier, .request = request}, NULL);
}

/* If this fails, workers pass a barrier alone, or never. */
static void
test_barrier_waits_for_everybody_alive(void **state)
{
    struct master_bed *bed = start_job(3, 1, PSI_DEATH_CONTINUE);

    (void)state;
    arrive(bed, 0, 1, 10);
    arrive(bed, 1, 1, 11);
    assert_null(hear(bed->worker[0], PSI_FRAME_ACK));
    say(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_WHY, .seq = 1}, NULL);
    assert_string_equal(hear_verdict(bed->worker[0], PSI_FRAME_BECAUSE).text,
                        "waiting for worker 2");
    arrive(bed, 2, 1, 12);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(hear(bed->worker[i], PSI_FRAME_ACK)->frame.request, 10 + i);
    }
    arrive(bed, 0, 1, 13); /* the answer was lost */
    assert_int_equal(hear(bed->worker[0], PSI_FRAME_ACK)->frame.request, 13);

    arrive(bed, 0, 2, 14);
    arrive(bed, 1, 2, 15);
    give_up(bed, bed->worker[2], 0, "crashed");
    assert_int_equal(hear(bed->worker[0], PSI_FRAME_ACK)->frame.request, 14);
    assert_int_equal(hear(bed->worker[1], PSI_FRAME_ACK)->frame.request, 15);
    master_bed_stop(bed);
}

/* If this fails, a thread that waits in a barrier is forgotten when another comes to the next, or
 * one that asks again after a timeout is not answered. */
static void
test_barriers_of_several_threads(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_CONTINUE);

    (void)state;
    arrive(bed, 0, 1, 10);
    arrive(bed, 0, 2, 11);
    arrive(bed, 0, 3, 12);
    arrive(bed, 1, 1, 20);
    assert_int_equal(hear(bed->worker[0], PSI_FRAME_ACK)->frame.request, 10);
    assert_null(hear(bed->worker[0], PSI_FRAME_ACK));
    arrive(bed, 0, 2, 12); /* 11 timed out: its number is the next one's */
    arrive(bed, 1, 2, 21);
    assert_int_equal(hear(bed->worker[0], PSI_FRAME_ACK)->frame.request, 12);
    assert_null(hear(bed->worker[0], PSI_FRAME_ACK));
    arrive(bed, 0, 3, 13);
    arrive(bed, 1, 3, 22);
    assert_int_equal(hear(bed->worker[0], PSI_FRAME_ACK)->frame.request, 13);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(hear(bed->worker[1], PSI_FRAME_ACK)->frame.request, 20 + i);
    }
    master_bed_stop(bed);
}

static struct psi_ranks
hear_close(struct peer *lane, uint64_t step)
{
    const struct world_heard *record = hear(lane, PSI_FRAME_CLOSE);
    struct psi_ranks ranks = {{0}};

    assert_non_null(record);
    assert_int_equal(record->frame.step, step);
    assert_int_equal(psi_ranks_decode(record->body, record->frame.payload_bytes, &ranks, NULL),
                     PSD_OK);
    return ranks;
}

static void
have(struct master_bed *bed, uint32_t rank, uint64_t step)
{
    say(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_HAVE, .step = step}, NULL);
}

/* If this fails, a round with backup workers closes with another set on every chunk, or never. */
static void
test_quorum_closes_with_the_first(void **state)
{
    struct master_bed *bed = start_job(3, 2, PSI_DEATH_CONTINUE);
    struct psi_table_info want = table_named("w", 10);
    struct psi_ranks ranks;

    (void)state;
    want.spec.backup_workers = 1;
    open_table(bed, 0, &want, 1);
    ack_table(bed, 0);
    have(bed, 2, 0);
    assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE));
    have(bed, 0, 0);
    for (unsigned i = 0; i < 2; i++) {
        ranks = hear_close(bed->lane[i], 0);
        assert_int_equal(ranks.word[0], 5); /* ranks 0 and 2 */
    }
    have(bed, 1, 0); /* late */
    have(bed, 1, 1);
    assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE));

    hang_up(bed->lane[1], "closed"); /* and hears the decision again */
    bed->lane[1] = join(bed, PSI_ROLE_SERVER, 1, 101);
    ranks = hear_close(bed->lane[1], 0);
    assert_int_equal(ranks.word[0], 5);
    master_bed_stop(bed);
}

static void
have_table(struct master_bed *bed, uint32_t table, uint32_t rank, uint64_t step)
{
    say(bed, bed->worker[rank],
        (struct psi_frame){.type = PSI_FRAME_HAVE, .table = table, .step = step}, NULL);
}

static void
open_backup_table(struct master_bed *bed, const char *name, uint32_t id)
{
    struct psi_table_info want = table_named(name, 10);

    want.spec.backup_workers = 1;
    open_table(bed, 0, &want, 1);
    ack_table(bed, id);
}

/* If this fails, a worker is in a step with one table and out of it with another. */
static void
test_quorum_is_one_for_all_tables(void **state)
{
    struct master_bed *bed = start_job(3, 1, PSI_DEATH_CONTINUE);

    (void)state;
    open_backup_table(bed, "a", 0);
    open_backup_table(bed, "b", 1);
    have_table(bed, 0, 2, 0);
    have_table(bed, 1, 1, 0); /* of another table, but in the step */
    have_table(bed, 1, 0, 0);
    assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE));
    have_table(bed, 0, 1, 0);
    assert_int_equal(hear_close(bed->lane[0], 0).word[0], 6); /* ranks 1 and 2 */
    have_table(bed, 1, 2, 0);
    assert_int_equal(hear_close(bed->lane[0], 0).word[0], 6); /* and not rank 0, which was first */
    assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE));

    open_backup_table(bed, "late", 2);
    assert_int_equal(hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 1).step, 0);
    assert_int_equal(hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 1).step, 0);
    assert_int_equal(hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 1).step, 1);
    master_bed_stop(bed);
}

/* If this fails, a worker that stops between two tables stops everybody; or those who are quick
 * shut out the others. */
static void
test_quorum_goes_on_without_the_late(void **state)
{
    struct master_bed *bed = start_job(3, 1, PSI_DEATH_CONTINUE);

    (void)state;
    open_backup_table(bed, "a", 0);
    open_backup_table(bed, "b", 1);
    have_table(bed, 0, 0, 0);
    have_table(bed, 0, 2, 0);
    assert_int_equal(hear_close(bed->lane[0], 0).word[0], 5);
    have_table(bed, 1, 0, 0);
    pass_ms(bed, 5000, NULL);
    assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE)); /* rank 1 is not there, either */
    have_table(bed, 0, 1, 1);                         /* now it waits, too */
    assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE));
    pass_ms(bed, 5000, NULL);
    assert_int_equal(hear_close(bed->lane[0], 0).word[0], 1);
    have_table(bed, 1, 2, 0); /* too late */
    pass_ms(bed, 5000, NULL);
    assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE));
    master_bed_stop(bed);
}

/* If this fails, a round waits for gradients of the dead. */
static void
test_quorum_shrinks_when_workers_leave(void **state)
{
    struct master_bed *bed = start_job(3, 1, PSI_DEATH_CONTINUE);
    struct psi_table_info want = table_named("w", 10);
    const struct psi_given given = {.table = 0, .chunks = 1};

    (void)state;
    want.spec.backup_workers = 1;
    open_table(bed, 0, &want, 1);
    ack_table(bed, 0);
    have(bed, 0, 0);
    for (uint32_t i = 1; i < 3; i++) {
        give_up(bed, bed->worker[i], 0, "crashed");
        assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE));
        bed->lane[0]->line->heard_read = 0;
        ack_view(bed, 0, 1 + i, i, &given);
        if (i == 1) {
            assert_null(hear(bed->lane[0], PSI_FRAME_CLOSE));
        }
        ack_view(bed, 0, 1 + i, 1 + i, NULL);
    }
    bed->lane[0]->line->heard_read = 0;
    assert_int_equal(hear_close(bed->lane[0], 0).word[0], 1);
    master_bed_stop(bed);
}

/* -------------------------------------------------------------------------------- leaving --- */

/* One leave with two lanes that report this; returns how it was decided. */
static struct psi_view_table
leave_with(const struct psi_given *first, const struct psi_given *second, const char *line)
{
    struct master_bed *bed = start_job(2, 2, PSI_DEATH_CONTINUE);
    const struct psi_table_info want = table_named("w", 65536 * 8);
    const struct psi_given *given[2] = {first, second};
    struct psi_view_table tables[4];
    struct psi_view view;

    open_table(bed, 0, &want, 1);
    ack_table(bed, 0);
    give_up(bed, bed->worker[1], 0, "crashed");
    for (uint32_t i = 0; i < 2; i++) {
        assert_non_null(hear(bed->lane[i], PSI_FRAME_VIEW_PROPOSE));
        assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_COMMIT));
        ack_view(bed, i, 2, 1, given[i]);
        ack_view(bed, 0, 2, 1, given[0]); /* repeated: counts once, and not for the commit */
    }
    for (uint32_t i = 2; i-- > 0;) {
        view = hear_view(bed->lane[i], tables);
        assert_int_equal(view.id, 2);
        assert_int_equal(view.change, PSI_VIEW_WORKER_LEFT);
        assert_int_equal(view.who, 1);
        assert_false(view.worker[1].member);
        assert_int_equal(view.tables, 1);
        assert_null(hear(bed->worker[0], PSI_FRAME_VIEW_COMMIT));
        ack_view(bed, i, 2, 2, NULL);
    }
    assert_int_equal(hear_view(bed->worker[0], tables + 1).id, 2);
    if (!logged(bed, line)) {
        fail_msg("no line \"%s\" in\n%s", line, bed->log_text);
    }
    assert_false(is_over(bed));
    master_bed_stop(bed);
    return tables[0];
}

/* The same reports in both orders of arrival. */
static void
assert_leave(struct psi_given a, struct psi_given b, uint64_t left_at, bool drop, const char *line)
{
    const struct psi_given *order[3] = {&a, &b, &a};

    for (unsigned i = 0; i < 2; i++) {
        const struct psi_view_table entry = leave_with(order[i], order[i + 1], line);

        assert_int_equal(entry.left_at, left_at);
        assert_int_equal(entry.drop, drop);
    }
}

/* If this fails, a worker that gave nothing is waited for, or counts. */
static void
test_leave_with_nothing(void **state)
{
    const struct psi_given none = {.chunks = 4};

    (void)state;
    assert_leave(none, none, 0, false, "worker 1 left: no step complete");
}

/* If this fails, a complete last step is thrown away, closed already or not. */
static void
test_leave_with_the_whole_step(void **state)
{
    const struct psi_given closed = {.chunks = 4, .next_min = 7, .next_max = 7, .closed = 4};
    const struct psi_given open = {.chunks = 4, .next_min = 7, .next_max = 7};

    (void)state;
    assert_leave(closed, open, 7, false, "worker 1 left: tables complete through step 6");
}

/* What is logged when a worker leaves that gave so many steps of two tables. */
static void
assert_leave_of_two(uint64_t first, uint64_t second, const char *line)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_CONTINUE);
    struct psi_given given[2] = {{.table = 0, .chunks = 4, .next_min = first, .next_max = first},
                                 {.table = 1, .chunks = 1, .next_min = second, .next_max = second}};

    for (uint32_t id = 0; id < 2; id++) {
        const struct psi_table_info want = table_named(id == 0 ? "w" : "b", 65536 * 4);

        open_table(bed, 0, &want, 1 + id);
        ack_table(bed, id);
    }
    give_up(bed, bed->worker[1], 0, "crashed");
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    say_view_ack(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_VIEW_ACK, .view = 1},
                 &(struct psi_view_ack){.id = 2, .tables = 2, .given = given});
    assert_true(logged(bed, line));
    master_bed_stop(bed);
}

/* If this fails, the log counts a job by the table that is used least (a broadcast, say), or says of
 * a step that was only begun that it is complete. */
static void
test_leave_tells_of_tables_by_their_own_steps(void **state)
{
    (void)state;
    assert_leave_of_two(20, 2,
                        "worker 1 left: tables complete through step 19, those that are used less "
                        "often have 2 complete steps or more");
    assert_leave_of_two(20, 19, "worker 1 left: tables complete through step 18");
    assert_leave_of_two(0, 1, "worker 1 left: no step complete");
}

/* If this fails, half a step of a dead worker is trained on although nobody has seen it yet. */
static void
test_leave_with_part_of_the_step_takes_it_back(void **state)
{
    const struct psi_given behind = {.chunks = 4, .next_min = 6, .next_max = 7, .ahead = 1};
    const struct psi_given ahead = {.chunks = 4, .next_min = 7, .next_max = 7};
    const struct psi_given level = {.chunks = 4, .next_min = 6, .next_max = 6, .closed = 4};

    (void)state;
    assert_leave(behind, level, 6, true, "worker 1 left: tables complete through step 5");
    assert_leave(ahead, level, 6, true, "worker 1 left: tables complete through step 5");
}

/* If this fails, a step that already counted somewhere is torn, and nobody is told. */
static void
test_leave_with_part_closed_counts_where_it_closes(void **state)
{
    const struct psi_given behind = {
        .chunks = 4, .next_min = 6, .next_max = 7, .ahead = 2, .closed = 1};
    const struct psi_given ahead = {.chunks = 4, .next_min = 7, .next_max = 7, .closed = 1};
    const struct psi_given level = {.chunks = 4, .next_min = 6, .next_max = 6, .closed = 4};

    (void)state;
    assert_leave(behind, level, 6, false, "worker 1 counted in 2 of 8 chunks of step 6 of table w");
    assert_leave(ahead, level, 6, false, "worker 1 counted in 4 of 8 chunks of step 6 of table w");
    assert_leave(ahead, behind, 6, false, "worker 1 counted in 6 of 8 chunks of step 6 of table w");
}

/* If this fails, two leaves at once mix up their views. */
static void
test_leaves_are_queued(void **state)
{
    struct master_bed *bed = start_job(3, 1, PSI_DEATH_CONTINUE);
    struct psi_view_table tables[1];
    struct psi_view view;

    (void)state;
    give_up(bed, bed->worker[2], 0, "crashed");
    bye(bed, 1);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    assert_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    ack_view(bed, 0, 2, 1, NULL);
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.who, 2);
    ack_view(bed, 0, 2, 2, NULL);
    assert_non_null(hear(bed->lane[0], PSI_FRAME_VIEW_PROPOSE));
    ack_view(bed, 0, 3, 2, NULL);
    view = hear_view(bed->lane[0], tables);
    assert_int_equal(view.id, 3);
    assert_int_equal(view.who, 1);
    assert_false(view.worker[1].member || view.worker[2].member);
    assert_true(view.worker[0].member);
    master_bed_stop(bed);
}

/* ---------------------------------------------------------------------------- replacement --- */

/* If this fails, a replacement starts at the wrong step, or two lives share a rank. */
static void
test_replacement_resumes_and_fences(void **state)
{
    struct master_bed *bed = start_job(2, 2, PSI_DEATH_WAIT);
    const struct psi_table_info want = table_named("w", 65536 * 8);
    const struct psi_given a = {.chunks = 4, .next_min = 9, .next_max = 9};
    const struct psi_given b = {.chunks = 4, .next_min = 8, .next_max = 9, .ahead = 1};
    struct psi_view_table tables[1];
    struct psi_view view;
    struct peer *old;

    (void)state;
    open_table(bed, 0, &want, 1);
    ack_table(bed, 0);
    pass_ms(bed, 2000, bed->worker[1]);
    assert_true(logged(bed, "MEMBER-LOST worker 1 (test://3) lost: silent for 2000 ms"));
    assert_false(is_over(bed));
    old = bed->worker[1];

    bed->worker[1] = join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 999);
    assert_int_equal(hear_welcome(bed->worker[1]).incarnation, 2);
    say_ping(bed, old, (struct psi_frame){.type = PSI_FRAME_PING}, &(struct psi_ping){0});
    assert_refused(old, PSD_ERR_FENCED, "rank 1 was replaced");
    assert_refused(join(bed, PSI_ROLE_WORKER, 1, 201), PSD_ERR_FENCED, "rank 1 was replaced");

    ack_view(bed, 0, 2, 1, &a);
    ack_view(bed, 1, 2, 1, &b);
    assert_null(hear(bed->worker[1], PSI_FRAME_VIEW_COMMIT));
    for (uint32_t i = 0; i < 2; i++) {
        view = hear_view(bed->lane[i], tables);
        assert_int_equal(view.change, PSI_VIEW_WORKER_REPLACED);
        assert_int_equal(view.worker[1].incarnation, 2);
        ack_view(bed, i, 2, 2, NULL);
    }
    assert_int_equal(hear_view(bed->worker[1], tables).id, 2);
    assert_int_equal(hear_view(bed->worker[0], tables).id, 2);
    open_table(bed, 1, &want, 3);
    assert_int_equal(hear_table(bed->worker[1], PSI_FRAME_TABLE_INFO, 3).step, 8);
    open_table(bed, 0, &want, 4);
    assert_int_equal(hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 4).step, 0);
    master_bed_stop(bed);
}

/* If this fails, a replacement meets the others in barriers that they have passed, and all wait for ever. */
static void
test_replacement_goes_on_with_the_next_barrier(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_WAIT);

    (void)state;
    for (uint32_t barrier = 1; barrier <= 2; barrier++) {
        arrive(bed, 0, barrier, 10 + barrier);
        arrive(bed, 1, barrier, 20 + barrier);
    }
    arrive(bed, 0, 3, 13);
    give_up(bed, bed->worker[1], 0, "crashed");
    assert_int_equal(hear_welcome(join(bed, PSI_ROLE_WORKER, 1, 999)).barriers, 2);
    master_bed_stop(bed);
}

/* If this fails, a replacement is turned away because the master hears of it before it hears, in the same
 * turn, that its predecessor's connection has ended. */
static void
test_replacement_is_heard_before_the_death(void **state)
{
    static const uint32_t ranks[] = {1, PSI_RANK_AUTO};

    (void)state;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        struct master_bed *bed = start_job(2, 1, PSI_DEATH_WAIT);
        struct peer *next = join(bed, PSI_ROLE_WORKER, ranks[i], 999);

        assert_int_equal(next->line->heard_count, 0);
        hang_up(bed->worker[1], "its process has ended");
        master_tick(bed->master);
        pass_ms(bed, 1000, NULL);
        assert_int_equal(hear_welcome(next).incarnation, 2);
        master_bed_stop(bed);
    }
}

/* If this fails, one that wants the rank of a worker that lives is not told so. */
static void
test_rank_of_the_living_is_refused_in_time(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_WAIT);
    struct peer *other = join(bed, PSI_ROLE_WORKER, 1, 999);
    struct peer *any = join(bed, PSI_ROLE_WORKER, PSI_RANK_AUTO, 998);

    (void)state;
    pass_ms(bed, 400, NULL);
    assert_int_equal(other->line->heard_count + any->line->heard_count, 0);
    pass_ms(bed, 100, NULL);
    assert_refused(other, PSD_ERR_REFUSED, "worker rank 1 is taken by");
    assert_refused(
        any, PSD_ERR_REFUSED,
        "all 2 worker ranks are taken, and none is used twice: a job that others may join "
        "is started with a larger --max_workers");
    assert_false(is_gone(bed->worker[1]));
    master_bed_stop(bed);
}

/* If this fails, a job waits for ever for a replacement that nobody starts. */
static void
test_replacement_that_never_comes_ends_the_job(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_WAIT);

    (void)state;
    give_up(bed, bed->worker[1], 0, "crashed");
    pass_ms(bed, 29000, NULL);
    assert_false(is_over(bed));
    pass_ms(bed, 1000, NULL);
    assert_over(bed, PSI_EXIT_WORKER_LOST, "not replaced in 30000 ms");
    master_bed_stop(bed);
}

/* If this fails, a worker that only slept goes on as if it were still a member. */
static void
test_silent_worker_is_told_when_it_wakes(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_CONTINUE);

    (void)state;
    pass_ms(bed, 1900, bed->worker[1]);
    assert_false(logged(bed, "MEMBER-LOST"));
    pass_ms(bed, 100, bed->worker[1]);
    assert_false(is_gone(bed->worker[1]));
    say(bed, bed->worker[1], (struct psi_frame){.type = PSI_FRAME_BARRIER, .seq = 1}, NULL);
    assert_refused(bed->worker[1], PSD_ERR_FENCED,
                   "worker 1 was declared dead: silent for 2000 ms");
    assert_refused(join(bed, PSI_ROLE_WORKER, 1, 201), PSD_ERR_FENCED, "declared dead");
    master_bed_stop(bed);
}

/* If this fails, a master that was stopped for a while wakes up and declares everybody dead. */
static void
test_late_master_blames_nobody(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);

    (void)state;
    bed->world.now_ns += 10000 * MS_NS;
    master_tick(bed->master);
    assert_false(logged(bed, "MEMBER-LOST"));
    /* All were quiet for a second when it fell asleep: they have the other one still. */
    assert_int_equal(master_next_ns(bed->master), bed->world.now_ns + 1000 * MS_NS);
    bed->world.now_ns += 1000 * MS_NS;
    master_tick(bed->master);
    assert_over(bed, PSI_EXIT_SERVER_LOST, "silent for 2000 ms");
    master_bed_stop(bed);
}

/* If this fails, a master that was stopped wakes up, reads what one member said, and declares the others dead. */
static void
test_late_master_reads_one_before_the_others(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);

    (void)state;
    bed->world.now_ns += 10000 * MS_NS;
    (void)join(bed, PSI_ROLE_WORKER, 1,
               301); /* a stranger: it is told at once that the place is taken */
    master_wake_at(bed->master, 0);
    master_tick(bed->master);
    assert_false(logged(bed, "MEMBER-LOST"));
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, a master on busy cores, which is often late, never gives up a worker that was stopped. */
static void
test_master_that_is_often_late_sees_a_death(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_CONTINUE);

    (void)state;
    for (int late = 0; late < 8 && !logged(bed, "MEMBER-LOST"); late++) {
        pass_ms(bed, 500, bed->worker[1]);
        bed->world.now_ns += 1000 * MS_NS;
        master_tick(bed->master);
    }
    assert_true(logged(bed, "worker 1 (test://2) lost: silent for 2000 ms"));
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* ------------------------------------------------------------------------------- tidings --- */

/* What was told since the last look. */
static void
expect_told(struct master_bed *bed, const char *lines)
{
    assert_string_equal(bed->told, lines);
    bed->told[0] = '\0';
}

/* If this fails, psd_run does not learn who stopped talking first, and blames who ended first. */
static void
test_tells_of_silence(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);

    (void)state;
    expect_told(bed, "joined server 0 life 10000\njoined worker 0\njoined worker 1\n"
                     "place server 0 by 0 none in -\n");
    pass_ms(bed, 1000, bed->worker[1]);
    expect_told(bed, "quiet worker 1\n");
    pass_ms(bed, 250, NULL);
    expect_told(bed, "heard worker 1\n");
    pass_ms(bed, 2000, bed->worker[1]);
    expect_told(bed, "quiet worker 1\nlost worker 1 silent: silent for 2000 ms\n"
                     "end 70 worker 1 silent: worker 1 (test://2) lost: silent for 2000 ms\n");
    assert_over(bed, PSI_EXIT_WORKER_LOST, "silent for 2000 ms");
    master_bed_stop(bed);
}

/* If this fails, a process that was killed cannot be told from its victims. */
static void
test_tells_of_ends(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);

    (void)state;
    bed->told[0] = '\0';
    hang_up(bed->worker[0], "reset");
    expect_told(bed, "cut worker 0\n");
    bed->worker[0] = join(bed, PSI_ROLE_WORKER, 0, 200);
    expect_told(bed, "back worker 0\n");
    hang_up(bed->lane[0], "reset");
    expect_told(bed, "cut server 0\n");
    pass_ms(bed, 500, NULL);
    expect_told(bed, "lost server 0 closed: connection closed and not back in 500 ms\n"
                     "end 71 server 0 life 10000 closed: server 0 (test://lane0) lost: "
                     "connection closed and not back in 500 ms\n");
    hang_up(bed->worker[1], "it heard of the end");
    expect_told(bed, "");
    assert_over(bed, PSI_EXIT_SERVER_LOST, "connection closed");
    master_bed_stop(bed);
}

/* If this fails, an end that is nobody's fault is blamed on somebody;
 * or a good one is told as bad. */
static void
test_tells_of_nobodys_fault(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);

    (void)state;
    bed->told[0] = '\0';
    master_stop(bed->master, PSI_EXIT_SIGTERM, "stopped by SIGTERM");
    expect_told(bed, "end 143 master 0 well: stopped by SIGTERM\n");
    master_bed_stop(bed);
    bed = start_job(1, 1, PSI_DEATH_FAIL);
    bed->told[0] = '\0';
    bye(bed, 0);
    expect_told(bed, "done worker 0 at step 0\n");
    master_bed_stop(bed);
}

/* -------------------------------------------------------------------------------- endings --- */

/* If this fails, a finished job does not end, or ends before its last worker. */
static void
test_bye_of_all_ends_the_job(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    const char *text;
    int code = -1;

    (void)state;
    bye(bed, 0);
    assert_true(logged(bed, "worker 0 done (1 of 2)"));
    hang_up(bed->worker[0], "closed");
    pass_ms(bed, 3000, NULL);
    assert_false(logged(bed, "MEMBER-LOST"));
    assert_null(hear(bed->lane[0], PSI_FRAME_END));
    bye(bed, 1);
    bed->lane[0]->line->heard_read = 0;
    assert_int_equal(hear_verdict(bed->lane[0], PSI_FRAME_END).status, PSD_OK);
    assert_false(is_over(bed));
    assert_refused(join(bed, PSI_ROLE_WORKER, 0, 5), PSD_ERR_REFUSED, "the job is over");
    say(bed, bed->lane[0], (struct psi_frame){.type = PSI_FRAME_BYE}, NULL);
    hang_up(bed->lane[0], "closed"); /* the lane has left: no need to wait the second */
    master_tick(bed->master);
    assert_true(master_finished(bed->master, &code, &text));
    assert_int_equal(code, PSI_EXIT_OK);
    assert_string_equal(text, "all workers are done");
    master_bed_stop(bed);
}

/* If this fails, a lane that is cut off while the job ends well takes it for a lost master. */
static void
test_lane_cut_at_the_end_hears_of_it(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);
    struct peer *back;

    (void)state;
    hang_up(bed->lane[0], "reset");
    bye(bed, 0);
    master_tick(bed->master);
    assert_false(is_over(bed));
    back = join(bed, PSI_ROLE_SERVER, 0, bed->lane[0]->life);
    assert_non_null(hear(back, PSI_FRAME_WELCOME));
    assert_int_equal(hear_verdict(back, PSI_FRAME_END).exit_code, PSI_EXIT_OK);
    master_tick(bed->master);
    assert_false(is_over(bed));
    say(bed, back, (struct psi_frame){.type = PSI_FRAME_BYE}, NULL);
    hang_up(back, "closed");
    master_tick(bed->master);
    assert_true(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, a job goes on without one of its servers. */
static void
test_lane_lost_ends_the_job(void **state)
{
    struct master_bed *bed = start_job(1, 2, PSI_DEATH_CONTINUE);
    struct psi_verdict verdict;

    (void)state;
    hang_up(bed->lane[1], "closed");
    pass_ms(bed, 500, NULL);
    verdict = hear_verdict(bed->worker[0], PSI_FRAME_END);
    assert_int_equal(verdict.status, PSD_ERR_PEER_LOST);
    assert_int_equal(verdict.exit_code, PSI_EXIT_SERVER_LOST);
    assert_string_equal(verdict.text, "server 1 (test://lane1) lost: connection closed and not "
                                      "back in 500 ms");
    assert_non_null(hear(bed->lane[0], PSI_FRAME_END));
    assert_over(bed, PSI_EXIT_SERVER_LOST, verdict.text);
    master_bed_stop(bed);
}

/* If this fails, a hung server hangs the job. */
static void
test_silent_lane_ends_the_job(void **state)
{
    struct master_bed *bed = start_job(1, 2, PSI_DEATH_FAIL);

    (void)state;
    pass_ms(bed, 2000, bed->lane[0]);
    assert_over(bed, PSI_EXIT_SERVER_LOST, "server 0 (test://lane0) lost: silent for 2000 ms");
    master_bed_stop(bed);
}

/* If this fails, a server's reason to stop is lost. */
static void
test_lane_verdict_becomes_the_jobs(void **state)
{
    struct master_bed *bed = start_job(1, 2, PSI_DEATH_FAIL);
    struct psi_verdict verdict;

    (void)state;
    give_up(bed, bed->lane[1], PSI_EXIT_NOT_FINITE, "table w: a sum is not finite");
    verdict = hear_verdict(bed->worker[0], PSI_FRAME_END);
    assert_int_equal(verdict.status, PSD_ERR_NOT_FINITE);
    assert_string_equal(verdict.text, "server 1: table w: a sum is not finite");
    assert_over(bed, PSI_EXIT_NOT_FINITE, "server 1: table w");
    master_bed_stop(bed);
}

/* If this fails, the policy "fail" does not, or nobody learns why. */
static void
test_worker_verdict_ends_the_job_by_policy(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);

    (void)state;
    give_up(bed, bed->worker[1], 0, "ValueError in train.py");
    assert_true(is_gone(bed->worker[1]));
    assert_string_equal(hear_verdict(bed->worker[0], PSI_FRAME_END).text,
                        "worker 1 (test://2) lost: ValueError in train.py");
    assert_over(bed, PSI_EXIT_WORKER_LOST, "ValueError in train.py");
    master_bed_stop(bed);
}

/* If this fails, a job without workers goes on, or a partly successful one counts as failed. */
static void
test_last_worker_lost_under_continue(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_CONTINUE);

    (void)state;
    give_up(bed, bed->worker[0], 0, "first");
    assert_false(is_over(bed));
    give_up(bed, bed->worker[1], 0, "second");
    assert_over(bed, PSI_EXIT_WORKER_LOST, "no worker is left: worker 1 (test://2) lost: second");
    master_bed_stop(bed);

    bed = start_job(2, 1, PSI_DEATH_CONTINUE);
    bye(bed, 0);
    give_up(bed, bed->worker[1], 0, "second");
    assert_over(bed, PSI_EXIT_OK, "all workers are done");
    master_bed_stop(bed);
}

/* If this fails, Ctrl-C leaves processes behind. */
static void
test_stop_tells_everybody(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);

    (void)state;
    master_stop(bed->master, PSI_EXIT_SIGTERM, "terminated by SIGTERM");
    assert_non_null(hear(bed->worker[0], PSI_FRAME_END));
    assert_int_equal(hear_verdict(bed->lane[0], PSI_FRAME_END).exit_code, PSI_EXIT_SIGTERM);
    master_stop(bed->master, PSI_EXIT_SIGINT, "again");
    assert_over(bed, PSI_EXIT_SIGTERM, "terminated by SIGTERM");
    master_bed_stop(bed);
}

/* ---------------------------------------------------------------------------------- nodes --- */

/* If this fails, psd_run shows a wrong table. */
static void
test_nodes_shows_the_job(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    struct psi_ping ping = {.step = 10, .value = 0.5, .name = "loss"};
    struct peer *observer = dial(bed);
    const struct psi_hello hello = {.role = PSI_ROLE_OBSERVER, .rank = PSI_RANK_AUTO, .life = 9};
    static struct psd_node node[PSI_RANKS_MAX + PSI_SERVERS_MAX + 1];
    struct psi_nodes nodes = {.node = node};
    const struct world_heard *record;

    (void)state;
    say_ping(bed, bed->worker[1], (struct psi_frame){.type = PSI_FRAME_PING}, &ping);
    bed->world.now_ns += 250 * MS_NS;
    ping.step = 20;
    say_ping(bed, bed->worker[1], (struct psi_frame){.type = PSI_FRAME_PING, .request = 3}, &ping);
    assert_non_null(hear(bed->worker[1], PSI_FRAME_PONG));
    assert_int_equal(hear(bed->worker[1], PSI_FRAME_PONG)->frame.request, 3);

    say_hello(bed, observer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    (void)hear_welcome(observer);
    say(bed, observer, (struct psi_frame){.type = PSI_FRAME_NODES, .request = 4}, NULL);
    record = hear(observer, PSI_FRAME_NODES_INFO);
    assert_non_null(record);
    assert_int_equal(record->frame.request, 4);
    assert_int_equal(psi_nodes_decode(record->body, record->frame.payload_bytes, &nodes, NULL),
                     PSD_OK);
    assert_int_equal(nodes.count, 4);
    assert_int_equal(node[0].role, PSD_ROLE_MASTER);
    assert_int_equal(node[1].role, PSD_ROLE_SERVER);
    assert_int_equal(node[1].state, PSD_NODE_RUNNING);
    assert_string_equal(node[1].address, "test://lane0");
    assert_int_equal(node[3].rank, 1);
    assert_int_equal(node[3].step, 20);
    assert_true(node[3].steps_per_s == 10.0); /* a quarter of 40 */
    assert_string_equal(node[3].value_name, "loss");

    say(bed, observer, (struct psi_frame){.type = PSI_FRAME_BARRIER, .seq = 1}, NULL);
    assert_true(is_gone(observer));
    master_bed_stop(bed);
}

static struct peer *
observe(struct master_bed *bed)
{
    const struct psi_hello hello = {.role = PSI_ROLE_OBSERVER, .rank = PSI_RANK_AUTO, .life = 9};
    struct peer *observer = dial(bed);

    say_hello(bed, observer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    assert_int_equal(hear_welcome(observer).heartbeat_ms, 250); /* so often it says PING */
    return observer;
}

static void
subscribe(struct master_bed *bed, struct peer *observer, uint32_t request, uint32_t every_ms)
{
    const struct psi_subscribe message = {.every_ms = every_ms};

    say_subscribe(bed, observer,
                  (struct psi_frame){.type = PSI_FRAME_SUBSCRIBE, .request = request}, &message);
    master_tick(bed->master);
}

/* How many tables of nodes came since the last look, all with that request. */
static unsigned
tables_heard(struct peer *observer, uint32_t request)
{
    const struct world_heard *record;
    unsigned count = 0;

    while ((record = hear(observer, PSI_FRAME_NODES_INFO)) != NULL) {
        assert_int_equal(record->frame.request, request);
        count++;
    }
    return count;
}

/* If this fails, whoever watches a job has to ask again and again, or is flooded. */
static void
test_subscriber_is_told_again_and_again(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    struct peer *observer = observe(bed);

    (void)state;
    subscribe(bed, observer, 5, 300);
    assert_int_equal(tables_heard(observer, 5), 1); /* at once ... */
    pass_ms(bed, 200, NULL);
    assert_int_equal(tables_heard(observer, 5), 0);
    assert_true(master_next_ns(bed->master) <= bed->world.now_ns + 100 * MS_NS);
    pass_ms(bed, 100, NULL);
    assert_int_equal(tables_heard(observer, 5), 1); /* ... and every 300 ms */
    pass_ms(bed, 600, NULL);
    assert_int_equal(tables_heard(observer, 5), 2);

    subscribe(bed, observer, 6, 100); /* takes the place of the first */
    assert_int_equal(tables_heard(observer, 6), 1);
    pass_ms(bed, 200, NULL);
    assert_int_equal(tables_heard(observer, 6), 2);
    subscribe(bed, observer, 6, 0); /* enough */
    pass_ms(bed, 500, NULL);
    assert_int_equal(tables_heard(observer, 6), 0);
    assert_false(is_gone(observer));
    master_bed_stop(bed);
}

/* If this fails, an observer that asks for too much keeps the master busy. */
static void
test_subscriber_cannot_hurry_the_master(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);
    struct peer *observer = observe(bed);

    (void)state;
    subscribe(bed, observer, 5, 1);
    for (unsigned i = 0; i < 100; i++) {
        bed->world.now_ns += MS_NS;
        master_tick(bed->master);
    }
    assert_int_equal(tables_heard(observer, 5), 3); /* at 0, 50 and 100 ms */
    master_bed_stop(bed);
}

static void
watch(struct master_bed *bed, struct peer *observer, uint32_t every_ms)
{
    const struct psi_subscribe message = {.every_ms = every_ms, .metrics = true};

    say_subscribe(bed, observer, (struct psi_frame){.type = PSI_FRAME_SUBSCRIBE, .request = 8},
                  &message);
    master_tick(bed->master);
}

/* How often a member is to tell, as it heard last; -1: it heard nothing. */
static int64_t
wanted_ms(struct peer *member)
{
    const struct world_heard *record;
    struct psi_subscribe wanted;
    int64_t every_ms = -1;

    while ((record = hear(member, PSI_FRAME_SUBSCRIBE)) != NULL) {
        assert_int_equal(
            psi_subscribe_decode(record->body, record->frame.payload_bytes, &wanted, NULL), PSD_OK);
        every_ms = wanted.every_ms;
    }
    return every_ms;
}

/* If this fails, members send metrics that nobody reads, or none to somebody who waits for them. */
static void
test_members_tell_while_somebody_watches(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    struct peer *observer = observe(bed);
    struct peer *other;

    (void)state;
    subscribe(bed, observer, 5, 300); /* wants to see nodes alone */
    assert_int_equal(wanted_ms(bed->worker[0]), -1);
    watch(bed, observer, 2000);
    assert_int_equal(wanted_ms(bed->worker[0]), 2000);
    assert_int_equal(wanted_ms(bed->lane[0]), 2000);
    other = observe(bed);
    watch(bed, other, 1); /* no more often than every half second */
    assert_int_equal(wanted_ms(bed->worker[1]), 500);
    hang_up(other, "enough");
    master_tick(bed->master);
    assert_int_equal(wanted_ms(bed->worker[1]), 2000);
    hang_up(observer, "enough");
    master_tick(bed->master);
    assert_int_equal(wanted_ms(bed->worker[1]), 0);
    master_bed_stop(bed);
}

/* If this fails, a member of an earlier version, which does not know SUBSCRIBE, hangs up again and
 * again because somebody watches. */
static void
test_members_that_cannot_tell_are_not_asked(void **state)
{
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    const struct psi_hello old = {.role = PSI_ROLE_WORKER,
                                  .life = bed->worker[0]->life,
                                  .kernel_revision = PSI_KERNEL_REVISION,
                                  .incarnation = 1};
    struct peer *back = dial(bed);

    (void)state;
    watch(bed, observe(bed), 2000);
    assert_int_equal(wanted_ms(bed->worker[0]), 2000);
    hang_up(bed->worker[0], "closed");
    say_hello(bed, back, (struct psi_frame){.type = PSI_FRAME_HELLO}, &old);
    (void)hear_welcome(back);
    watch(bed, observe(bed), 500);
    assert_int_equal(wanted_ms(bed->worker[1]), 500);
    assert_int_equal(wanted_ms(back), -1);
    assert_false(is_gone(back));
    master_bed_stop(bed);
}

/* If this fails, what a worker counts is told as somebody else's, or a member that tells nonsense
 * is believed. */
static void
test_metrics_are_passed_on(void **state)
{
    static struct psi_telling telling = {
        .metrics = 2, .metric = {{.metric = 3, .value = 7}, {.metric = 5, .value = 1}}};
    struct master_bed *bed = start_job(2, 1, PSI_DEATH_FAIL);
    const struct psi_frame lies = {.type = PSI_FRAME_METRICS, .rank = 0, .table = PSI_ROLE_MASTER};
    struct peer *observer = observe(bed);
    const struct world_heard *record;

    (void)state;
    watch(bed, observer, 500);
    record = hear(observer, PSI_FRAME_METRICS); /* the master's own */
    assert_non_null(record);
    assert_int_equal(record->frame.table, PSI_ROLE_MASTER);
    say_telling(bed, bed->worker[1], lies, &telling);
    record = hear(observer, PSI_FRAME_METRICS);
    assert_non_null(record);
    assert_int_equal(record->frame.request, 8);
    assert_int_equal(record->frame.rank, 1);
    assert_int_equal(record->frame.table, PSI_ROLE_WORKER);
    memset(&telling, 0, sizeof(telling));
    assert_int_equal(psi_telling_decode(record->body, record->frame.payload_bytes, &telling, NULL),
                     PSD_OK);
    assert_int_equal(telling.metric[1].value, 1);

    telling.metric[1].metric = telling.metric[0].metric; /* twice the same */
    say_telling(bed, bed->worker[1], lies, &telling);
    assert_null(hear(observer, PSI_FRAME_METRICS));
    assert_true(is_gone(bed->worker[1]));
    master_bed_stop(bed);
}

/* If this fails, tables pile up for an observer that does not read, or it falls behind for ever. */
static void
test_subscriber_that_does_not_read_gets_fewer(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);
    struct peer *observer = observe(bed);

    (void)state;
    subscribe(bed, observer, 5, 100);
    assert_int_equal(tables_heard(observer, 5), 1);
    world_set_flow(observer->line, WORLD_FLOW_SLOW);
    pass_ms(bed, 1000, NULL);
    assert_int_equal(tables_heard(observer, 5),
                     1); /* it stays in the queue, and no other follows */
    world_set_flow(observer->line, WORLD_FLOW_FAST);
    pass_ms(bed, 100, NULL);
    assert_int_equal(tables_heard(observer, 5), 1);
    master_bed_stop(bed);
}

/* If this fails, psd_run behind a slow link takes a master for one that hangs: what members tell
 * keeps the queue from ever being empty when a table of nodes is due. */
static void
test_slow_subscriber_hears_of_nodes_between_metrics(void **state)
{
    static const struct psi_telling telling = {.metrics = 1, .metric = {{.metric = 3, .value = 7}}};
    const struct psi_frame frame = {.type = PSI_FRAME_METRICS, .table = PSI_ROLE_WORKER};
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);
    struct peer *observer = observe(bed);

    (void)state;
    watch(bed, observer, 500);
    assert_int_equal(tables_heard(observer, 8), 1);
    world_set_flow(observer->line, WORLD_FLOW_SLOW);
    for (unsigned i = 0; i < 10; i++) { /* the last METRICS are always still there */
        say_telling(bed, bed->worker[0], frame, &telling);
        pass_ms(bed, 500, NULL);
        assert_int_equal(tables_heard(observer, 8), 1);
        say_telling(bed, bed->worker[0], frame, &telling);
        pass_ms(bed, 500, NULL);
        assert_int_equal(tables_heard(observer, 8), 0); /* it has not taken the table yet */
        world_drain(observer->line, 1);
    }
    master_bed_stop(bed);
}

/* If this fails, a subscriber that has vanished is told for ever, or one that lives is let go. */
static void
test_subscriber_stays_while_it_speaks(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);
    struct peer *observer = observe(bed);
    const struct psi_ping ping = {0};

    (void)state;
    subscribe(bed, observer, 5, 50000);
    pass_ms(bed, 50000, NULL);
    say_ping(bed, observer, (struct psi_frame){.type = PSI_FRAME_PING}, &ping);
    assert_non_null(hear(observer, PSI_FRAME_PONG));
    pass_ms(bed, 59000, NULL);
    assert_false(is_gone(observer));
    pass_ms(bed, 1100, NULL);
    assert_true(is_gone(observer));
    master_bed_stop(bed);
}

/* If this fails, members load the control connection with what is meant for observers. */
static void
test_member_cannot_subscribe(void **state)
{
    struct master_bed *bed = start_job(1, 1, PSI_DEATH_FAIL);

    (void)state;
    subscribe(bed, bed->worker[0], 5, 100);
    assert_true(is_gone(bed->worker[0]));
    master_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_in_any_order),
        cmocka_unit_test(test_start_names_the_missing),
        cmocka_unit_test(test_start_waits_for_late_workers_alone),
        cmocka_unit_test(test_death_before_the_start_frees_the_place),
        cmocka_unit_test(test_duplicate_rank_is_refused),
        cmocka_unit_test(test_out_of_range_is_refused),
        cmocka_unit_test(test_reconnect_keeps_the_place),
        cmocka_unit_test(test_garbage_before_hello_costs_the_connection),
        cmocka_unit_test(test_warnings_about_strangers_are_limited),
        cmocka_unit_test(test_other_version_is_refused_by_name),
        cmocka_unit_test(test_member_with_a_secret_is_refused_by_name),
        cmocka_unit_test(test_other_kernels_or_job_are_refused),
        cmocka_unit_test(test_table_open_waits_for_every_lane),
        cmocka_unit_test(test_table_opened_by_several_threads),
        cmocka_unit_test(test_table_mismatch_names_both),
        cmocka_unit_test(test_table_refused_by_a_lane_is_rolled_back),
        cmocka_unit_test(test_lane_reconnect_gets_what_it_missed),
        cmocka_unit_test(test_barrier_waits_for_everybody_alive),
        cmocka_unit_test(test_barriers_of_several_threads),
        cmocka_unit_test(test_quorum_closes_with_the_first),
        cmocka_unit_test(test_quorum_is_one_for_all_tables),
        cmocka_unit_test(test_quorum_goes_on_without_the_late),
        cmocka_unit_test(test_quorum_shrinks_when_workers_leave),
        cmocka_unit_test(test_leave_with_nothing),
        cmocka_unit_test(test_leave_with_the_whole_step),
        cmocka_unit_test(test_leave_tells_of_tables_by_their_own_steps),
        cmocka_unit_test(test_leave_with_part_of_the_step_takes_it_back),
        cmocka_unit_test(test_leave_with_part_closed_counts_where_it_closes),
        cmocka_unit_test(test_leaves_are_queued),
        cmocka_unit_test(test_replacement_resumes_and_fences),
        cmocka_unit_test(test_replacement_goes_on_with_the_next_barrier),
        cmocka_unit_test(test_replacement_is_heard_before_the_death),
        cmocka_unit_test(test_rank_of_the_living_is_refused_in_time),
        cmocka_unit_test(test_replacement_that_never_comes_ends_the_job),
        cmocka_unit_test(test_silent_worker_is_told_when_it_wakes),
        cmocka_unit_test(test_late_master_blames_nobody),
        cmocka_unit_test(test_late_master_reads_one_before_the_others),
        cmocka_unit_test(test_master_that_is_often_late_sees_a_death),
        cmocka_unit_test(test_tells_of_silence),
        cmocka_unit_test(test_tells_of_ends),
        cmocka_unit_test(test_tells_of_nobodys_fault),
        cmocka_unit_test(test_bye_of_all_ends_the_job),
        cmocka_unit_test(test_lane_cut_at_the_end_hears_of_it),
        cmocka_unit_test(test_lane_lost_ends_the_job),
        cmocka_unit_test(test_silent_lane_ends_the_job),
        cmocka_unit_test(test_lane_verdict_becomes_the_jobs),
        cmocka_unit_test(test_worker_verdict_ends_the_job_by_policy),
        cmocka_unit_test(test_last_worker_lost_under_continue),
        cmocka_unit_test(test_stop_tells_everybody),
        cmocka_unit_test(test_nodes_shows_the_job),
        cmocka_unit_test(test_subscriber_is_told_again_and_again),
        cmocka_unit_test(test_subscriber_cannot_hurry_the_master),
        cmocka_unit_test(test_members_tell_while_somebody_watches),
        cmocka_unit_test(test_members_that_cannot_tell_are_not_asked),
        cmocka_unit_test(test_metrics_are_passed_on),
        cmocka_unit_test(test_subscriber_that_does_not_read_gets_fewer),
        cmocka_unit_test(test_slow_subscriber_hears_of_nodes_between_metrics),
        cmocka_unit_test(test_subscriber_stays_while_it_speaks),
        cmocka_unit_test(test_member_cannot_subscribe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
