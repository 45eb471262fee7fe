/*
 * reach_test.c - workers that do not reach a server, and a master that reaches both.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "base/exit_code.h"
#include "master/master_bed.h"

/* A worker says something of the first life of a server. */
static void
hint(struct master_bed *bed, uint32_t rank, uint32_t server, psd_status status)
{
    const struct psi_frame frame = {.type = PSI_FRAME_HINT,
                                    .rank = (uint16_t)server,
                                    .incarnation = 1,
                                    .status = (int16_t)status};

    if (status == PSD_OK) {
        say(bed, bed->worker[rank], frame, NULL);
    } else {
        say_verdict(bed, bed->worker[rank], frame,
                    &(struct psi_verdict){.status = status, .text = "no answer"});
    }
}

/* If this fails, a server that half of the workers do not reach holds them up for ever, although
 * another could take its part; or a single worker's word deposes one. */
static void
test_a_server_that_half_of_the_workers_do_not_reach_is_deposed(void **state)
{
    struct master_bed *bed = start_lasting_job(4, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "t", PSD_USE_SUM);
    hint(bed, 0, 1, PSD_ERR_TIMEOUT);
    pass_ms(bed, 500, NULL);
    assert_true(
        logged(bed, "UNREACHED worker 0 does not reach server 1 (test://lane1): no answer"));
    assert_false(logged(bed, "MEMBER-LOST"));
    hint(bed, 2, 1, PSD_ERR_TIMEOUT);
    pass_ms(bed, 100, NULL);
    assert_true(logged(bed,
                       "MEMBER-LOST server 1 (test://lane1) lost: 2 of 4 workers do not reach it "
                       "(worker 0: no answer); the job waits"));
    assert_non_null(strstr(bed->told, "lost server 1 unreached: 2 of 4"));
    assert_refused(bed->lane[1], PSD_ERR_FENCED, "server 1 was declared dead: 2 of 4 workers");
    pass_ms(bed, 5000, NULL);
    assert_false(is_over(bed));
    assert_false(logged(bed, "worker 0 (test"));
    master_bed_stop(bed);
}

/* If this fails, a worker that does not reach a server waits for it until its operations give up, or
 * is given up before others could say the same. */
static void
test_a_worker_that_does_not_reach_what_others_reach_is_lost(void **state)
{
    struct master_bed *bed = start_lasting_job(3, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "t", PSD_USE_SUM);
    hint(bed, 2, 1, PSD_ERR_TIMEOUT);
    pass_ms(bed, 1900, NULL);
    assert_false(logged(bed, "MEMBER-LOST"));
    pass_ms(bed, 200, NULL);
    assert_over(bed, PSI_EXIT_WORKER_LOST,
                "lost: does not reach server 1 (test://lane1), which most others reach: no answer");
    assert_refused(bed->worker[2], PSD_ERR_FENCED,
                   "worker 2 was declared dead: does not reach server 1");
    assert_non_null(strstr(bed->told, "end 70 worker 2 unreached"));
    master_bed_stop(bed);
}

/* If this fails, a server is deposed that holds what nobody else has; or the job does not go on
 * without the worker, as it was told to. */
static void
test_a_server_that_nobody_can_replace_is_not_deposed(void **state)
{
    struct master_bed *bed = start_lasting_job(3, 2, PSI_DEATH_CONTINUE);

    (void)state;
    open_everywhere(bed, "t", PSD_USE_UPDATE);
    hint(bed, 1, 0, PSD_ERR_TIMEOUT);
    hint(bed, 2, 0, PSD_ERR_TIMEOUT);
    hint(bed, 2, 0, PSD_ERR_TIMEOUT); /* said again */
    pass_ms(bed, 2100, NULL);
    assert_true(
        logged(bed, "lost: does not reach server 0 (test://lane0), which nobody can replace"));
    assert_false(logged(bed, "server 0 (test://lane0) lost"));
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, what is over is held against somebody: a cut that has ended, one of an earlier life of
 * the server, or one of which a worker said before it was cut off from the master. */
static void
test_what_is_over_does_not_count(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "t", PSD_USE_SUM);
    hint(bed, 1, 1, PSD_OK);
    say_verdict(bed, bed->worker[0],
                (struct psi_frame){
                    .type = PSI_FRAME_HINT, .rank = 1, .incarnation = 9, .status = PSD_ERR_TIMEOUT},
                &(struct psi_verdict){.status = PSD_ERR_TIMEOUT, .text = "another life"});
    pass_ms(bed, 100, NULL);
    assert_false(logged(bed, "UNREACHED"));
    say(bed, bed->worker[0], (struct psi_frame){.type = PSI_FRAME_HINT, .rank = 7}, NULL);
    assert_true(is_gone(bed->worker[0]));
    master_bed_stop(bed);

    bed = start_lasting_job(3, 2, PSI_DEATH_FAIL);
    open_everywhere(bed, "t", PSD_USE_SUM);
    hint(bed, 0, 1, PSD_ERR_TIMEOUT);
    pass_ms(bed, 1000, NULL);
    hint(bed, 0, 1, PSD_OK);
    hint(bed, 1, 1, PSD_ERR_TIMEOUT);
    pass_ms(bed, 1900, NULL);
    assert_false(logged(bed, "MEMBER-LOST"));
    master_bed_stop(bed);
}

/* If this fails, a worker is given up for a server that is itself silent, and is waited for. */
static void
test_a_silent_server_is_no_matter_of_reach(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "t", PSD_USE_UPDATE);
    pass_ms(bed, 2200, bed->lane[1]);
    hint(bed, 0, 1, PSD_ERR_TIMEOUT);
    hint(bed, 1, 1, PSD_ERR_TIMEOUT);
    pass_ms(bed, 5000, bed->lane[1]);
    assert_true(logged(bed, "MEMBER-SILENT server 1"));
    assert_false(logged(bed, "MEMBER-LOST"));
    hint(bed, 0, 1, PSD_OK);
    hint(bed, 1, 1, PSD_OK);
    pass_ms(bed, 5000, NULL);
    assert_false(is_over(bed));
    master_bed_stop(bed);
}

/* If this fails, the master waits as long for a machine that was started anew as for one that is only
 * silent; or takes a server for dead that is heard. */
static void
test_a_server_that_hung_up_is_looked_at_sooner(void **state)
{
    struct master_bed *bed = start_lasting_job(2, 2, PSI_DEATH_FAIL);

    (void)state;
    open_everywhere(bed, "t", PSD_USE_SUM);
    hint(bed, 0, 1, PSD_ERR_PEER_LOST);
    pass_ms(bed, 5000, NULL);
    assert_false(logged(bed, "MEMBER-LOST"));
    pass_ms(bed, 200, bed->lane[1]);
    hint(bed, 0, 1, PSD_ERR_PEER_LOST);
    pass_ms(bed, 700, bed->lane[1]);
    assert_false(logged(bed, "MEMBER-LOST"));
    pass_ms(bed, 100, bed->lane[1]);
    assert_true(logged(bed, "server 1 (test://lane1) lost: silent for 1000 ms"));
    master_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_server_that_half_of_the_workers_do_not_reach_is_deposed),
        cmocka_unit_test(test_a_worker_that_does_not_reach_what_others_reach_is_lost),
        cmocka_unit_test(test_a_server_that_nobody_can_replace_is_not_deposed),
        cmocka_unit_test(test_what_is_over_does_not_count),
        cmocka_unit_test(test_a_silent_server_is_no_matter_of_reach),
        cmocka_unit_test(test_a_server_that_hung_up_is_looked_at_sooner),
    };

    return cmocka_run_group_tests_name("master_reach", tests, NULL, NULL);
}
