/*
 * lane_commit_test.c - a lane whose changes are not safe at once: what it keeps to itself until
 * they are. The test stands in for the backup.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "server/lane_bed.h"
#include "server/state.h"

enum { TABLE = 1, ELEMENTS = 4, BYTES = ELEMENTS * sizeof(float) };

/* What the lane handed over last. */
static struct {
    unsigned rounds;
    uint64_t step;
    uint64_t ranks;
    uint32_t gradients;
    float sum; /* of the first elements, read from the gradients themselves */
    struct chunk *chunk;
} held;

static void
hold(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    (void)lane;
    held.rounds++;
    held.step = round->step;
    held.ranks = psi_spec_synchronous(&chunk->table->spec)
                     ? psi_clock_given(&chunk->table->rule, &chunk->clock, round->step).word[0]
                     : 1u << round->rank;
    held.gradients = round->gradients;
    held.sum = 0;
    held.chunk = chunk;
    for (uint32_t i = 0; i < round->leaf_count; i++) {
        held.sum += *(const float *)round->leaves[i].data;
    }
    if (psi_spec_synchronous(&chunk->table->spec)) {
        unsigned slots = 0;

        for (const struct slot *slot = chunk->round.slots; slot != NULL; slot = slot->next) {
            slots++;
        }
        assert_true(slots >= round->leaf_count); /* still the lane's: not given back */
    }
}

/* The change is safe after all. */
static void
make_safe(struct lane_bed *bed, uint64_t version)
{
    held.chunk->clock.committed = version;
    round_go_on(bed->lane, held.chunk);
}

static struct lane_bed *
start(uint32_t workers, enum psi_death_policy policy, uint32_t staleness, uint32_t backup)
{
    struct lane_bed *bed = lane_bed_start(workers, policy);

    memset(&held, 0, sizeof(held));
    bed->lane->replicate = hold;
    open_table(bed, TABLE,
               &(struct psd_table_args){
                   .struct_size = sizeof(struct psd_table_args),
                   .name = "w",
                   .dtype = PSD_F32,
                   .dims = 1,
                   .shape = {ELEMENTS},
                   .reduce = PSD_REDUCE_SUM,
                   .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                                   .rule = PSD_RULE_ADD},
                   .staleness = staleness,
                   .backup_workers = backup});
    return bed;
}

static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, uint32_t request, float value)
{
    const float gradient[ELEMENTS] = {value, value, value, value};

    say(bed, bed->worker[rank],
        (struct psi_frame){.type = PSI_FRAME_PUSH,
                           .dtype = PSD_F32,
                           .seq = request,
                           .step = step,
                           .table = TABLE,
                           .request = request},
        gradient, BYTES);
}

static void
pull(struct lane_bed *bed, uint32_t rank, uint64_t step, uint16_t flags)
{
    say(bed, bed->worker[rank],
        (struct psi_frame){
            .type = PSI_FRAME_PULL, .flags = flags, .table = TABLE, .step = step, .request = 99},
        NULL, 0);
}

static void
assert_silent(struct peer *peer)
{
    assert_int_equal(peer->line->heard_read, peer->line->heard_count);
}

static void
assert_acked(struct peer *peer, uint32_t request, psd_status status)
{
    const struct world_heard *heard = hear(peer, PSI_FRAME_ACK);

    assert_non_null(heard);
    assert_int_equal(heard->frame.request, request);
    assert_int_equal(heard->frame.status, status);
}

static void
assert_shown(struct peer *peer, float value, uint64_t version)
{
    const struct world_heard *heard = hear(peer, PSI_FRAME_VALUE);
    float first;

    assert_non_null(heard);
    memcpy(&first, heard->body, sizeof(first));
    assert_true(first == value);
    assert_int_equal(heard->frame.step, version);
}

/* If this fails, a worker is told of a round that dies with the server. */
static void
test_nobody_is_told_of_a_round_that_is_not_safe(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, 0, 0);

    (void)state;
    push(bed, 0, 0, 1, 1);
    assert_int_equal(held.rounds, 0);
    push(bed, 1, 0, 1, 2);
    assert_int_equal(held.rounds, 1);
    push(bed, 0, 0, 2, 1); /* repeated: it counts already */
    pull(bed, 1, 1, 0);    /* the result of the round */
    pull(bed, 0, 0, 0);    /* the value before it has been overwritten */
    assert_silent(bed->worker[0]);
    assert_silent(bed->worker[1]);
    make_safe(bed, 1);
    assert_acked(bed->worker[0], 1, PSD_OK);
    assert_acked(bed->worker[0], 2, PSD_OK);
    assert_shown(bed->worker[0], 3, 1);
    assert_acked(bed->worker[1], 1, PSD_OK);
    assert_shown(bed->worker[1], 3, 1);
    assert_int_equal(held.rounds, 1);
    lane_bed_stop(bed);
}

/* If this fails, a backup cannot make the same change: it gets other numbers, or too late. */
static void
test_a_round_is_handed_over_whole(void **state)
{
    struct lane_bed *bed = start(3, PSI_DEATH_FAIL, 0, 1);

    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        push(bed, rank, 0, 1, (float)(1 << rank));
    }
    close_round(bed, TABLE, 0, 5);
    assert_int_equal(held.rounds, 1);
    assert_int_equal(held.step, 0);
    assert_int_equal(held.ranks, 5);
    assert_int_equal(held.gradients, 2);
    assert_true(held.sum == 5);
    assert_silent(bed->worker[1]);
    push(bed, 1, 0, 2, 2); /* left out: even that would tell how the round ended */
    assert_silent(bed->worker[1]);
    make_safe(bed, 1);
    assert_acked(bed->worker[1], 1, PSD_ERR_DROPPED);
    assert_acked(bed->worker[1], 2, PSD_ERR_DROPPED);
    lane_bed_stop(bed);
}

/* If this fails, two rounds are on their way at once, and the first value is gone for good. */
static void
test_the_next_round_waits_for_the_last(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, 0, 1);

    (void)state;
    push(bed, 0, 0, 1, 1);
    close_round(bed, TABLE, 0, 1);
    assert_int_equal(held.rounds, 1);
    push(bed, 1, 1, 1, 2); /* another chunk has told it that round 0 closed there */
    close_round(bed, TABLE, 1, 2);
    assert_int_equal(held.rounds, 1);
    make_safe(bed, 1);
    assert_acked(bed->worker[0], 1, PSD_OK);
    assert_int_equal(held.rounds, 2);
    assert_int_equal(held.step, 1);
    assert_int_equal(held.ranks, 2);
    assert_silent(bed->worker[1]);
    make_safe(bed, 2);
    assert_acked(bed->worker[1], 1, PSD_OK);
    lane_bed_stop(bed);
}

/* If this fails, reads of the last safe version stop although the lane still has it. */
static void
test_a_version_that_is_kept_is_shown_meanwhile(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_WAIT, 0, 0);

    (void)state;
    push(bed, 0, 0, 1, 1);
    push(bed, 1, 0, 1, 2);
    pull(bed, 0, 0, 0);
    assert_shown(bed->worker[0], 0, 0);
    pull(bed, 0, 0, PSI_FLAG_EXACT);
    assert_shown(bed->worker[0], 0, 0);
    make_safe(bed, 1);
    assert_acked(bed->worker[0], 1, PSD_OK);
    pull(bed, 0, 0, PSI_FLAG_EXACT); /* the step that a replacement repeats */
    assert_shown(bed->worker[0], 0, 1);
    pull(bed, 0, 0, 0);
    assert_shown(bed->worker[0], 3, 1);
    lane_bed_stop(bed);
}

/* If this fails, an asynchronous push is told as done too early, or a pull is starved by others. */
static void
test_gradients_alone_wait_for_their_own_change(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, PSD_STALENESS_UNBOUNDED, 0);

    (void)state;
    push(bed, 0, 0, 1, 1);
    assert_int_equal(held.rounds, 1);
    assert_int_equal(held.ranks, 1);
    pull(bed, 1, 0, 0); /* waits for the one change there is ... */
    push(bed, 0, 1, 2, 4);
    assert_silent(bed->worker[0]);
    assert_silent(bed->worker[1]);
    make_safe(bed, 1);
    assert_acked(bed->worker[0], 1, PSD_OK);
    assert_silent(bed->worker[0]);
    assert_shown(bed->worker[1], 5, 1); /* ... and may show another */
    push(bed, 0, 0, 1, 1);              /* repeated: it does not count twice */
    assert_int_equal(held.rounds, 2);
    make_safe(bed, 2);
    assert_acked(bed->worker[0], 2, PSD_OK);
    assert_acked(bed->worker[0], 1, PSD_OK);
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_is_told_of_a_round_that_is_not_safe),
        cmocka_unit_test(test_a_round_is_handed_over_whole),
        cmocka_unit_test(test_the_next_round_waits_for_the_last),
        cmocka_unit_test(test_a_version_that_is_kept_is_shown_meanwhile),
        cmocka_unit_test(test_gradients_alone_wait_for_their_own_change),
    };

    return cmocka_run_group_tests_name("lane_commit", tests, NULL, NULL);
}
