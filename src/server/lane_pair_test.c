/*
 * lane_pair_test.c - a lane and its copy, two of them, frame by frame: what waits for the copy, what
 * the copy has, and who may take whose place.
 *
 * The test carries what one says to the other, and decides how much of it arrives.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "server/pair_bed.h"
#include "server/state.h"

enum { TABLE = 1, ELEMENTS = 4, BYTES = ELEMENTS * sizeof(float), NUMBER = PAIR_NUMBER };

static void
open_kind(struct lane_bed *bed, uint32_t staleness, psd_init init)
{
    open_table(bed, TABLE,
               &(struct psd_table_args){
                   .struct_size = sizeof(struct psd_table_args),
                   .name = "w",
                   .dtype = PSD_F32,
                   .dims = 1,
                   .shape = {ELEMENTS},
                   .reduce = PSD_REDUCE_MEAN,
                   .init = init,
                   .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                                   .rule = PSD_RULE_MOMENTUM,
                                                   .learning_rate = 0.3,
                                                   .momentum = 0.9},
                   .staleness = staleness});
}

static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, uint32_t request, float value)
{
    const float gradient[ELEMENTS] = {value, value / 3, value / 7, value / 11};

    say(bed, bed->worker[rank],
        (struct psi_frame){.type = PSI_FRAME_PUSH,
                           .dtype = PSD_F32,
                           .seq = request,
                           .step = step,
                           .table = TABLE,
                           .request = request},
        gradient, BYTES);
}

static bool
is_acked(struct lane_bed *bed, uint32_t rank)
{
    return hear(bed->worker[rank], PSI_FRAME_ACK) != NULL;
}

static const struct chunk *
chunk_of(const struct lane_bed *bed)
{
    const struct table *table = table_find(bed->lane, TABLE);

    assert_non_null(table);
    return &table->chunks[0];
}

static void
assert_same(const struct two *two)
{
    const struct chunk *a = chunk_of(two->owner);
    const struct chunk *b = chunk_of(two->copy);

    assert_int_equal(a->clock.version, b->clock.version);
    assert_int_equal(a->updates, b->updates);
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        assert_int_equal(chunk_part(a, part).bytes, chunk_part(b, part).bytes);
        if (chunk_part(a, part).bytes > 0) {
            assert_memory_equal(chunk_part(a, part).base, chunk_part(b, part).base,
                                chunk_part(a, part).bytes);
        }
    }
}

static void
assert_same_marks(const struct two *two)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct psi_mark *a = &chunk_of(two->owner)->marks[rank];
        const struct psi_mark *b = &chunk_of(two->copy)->marks[rank];

        assert_int_equal(a->incarnation, b->incarnation);
        assert_int_equal(a->sequence, b->sequence);
    }
}

static struct psi_hello
hear_hello(struct peer *peer)
{
    const struct world_heard *heard = hear(peer, PSI_FRAME_HELLO);
    struct psi_hello hello;

    assert_non_null(heard);
    assert_int_equal(psi_hello_decode(heard->body, heard->frame.payload_bytes, &hello, NULL),
                     PSD_OK);
    return hello;
}

/* The master refuses to let it in. */
static void
refuse(struct lane_bed *bed, psd_status status)
{
    const struct psi_verdict verdict = {.status = status, .text = "its place is taken"};
    uint8_t bytes[256];
    struct psi_pack pack;

    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_verdict_encode(&pack, &verdict);
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_REFUSE}, bytes, pack.used);
    world_settle(&bed->world);
}

static bool
is_called_eligible(struct lane_bed *bed)
{
    return hear(bed->master, PSI_FRAME_ELIGIBLE) != NULL;
}

static void
unpair(struct lane_bed *bed)
{
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_UNPAIR, .seq = NUMBER}, NULL, 0);
    world_settle(&bed->world);
}

/* If this fails, a worker is told of a round that dies with the server, or the copy of it is another
 * model. */
static void
test_a_round_is_told_when_the_copy_has_it(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    settle(&two);
    assert_true(is_called_eligible(two.owner));
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    for (uint32_t step = 0; step < 3; step++) {
        push(two.owner, 0, step, step + 1, 1 + (float)step);
        push(two.owner, 1, step, step + 1, 2);
        assert_int_equal(chunk_of(two.owner)->clock.version, step + 1);
        assert_false(is_acked(two.owner, 0));
        assert_true(to_copy(&two, 1000) > 0);
        assert_false(is_acked(two.owner, 0));
        assert_same(&two);
        to_owner(&two);
        assert_true(is_acked(two.owner, 0));
        assert_true(is_acked(two.owner, 1));
    }
    stop(&two);
}

/* Says it, and the lane's turn is not over. */
static void
push_in_one_turn(const struct two *two, uint32_t rank, uint64_t step)
{
    static const float gradient[ELEMENTS] = {1, 2, 3, 4};
    const struct peer *worker = two->owner->worker[rank];
    const struct psi_frame frame = {.type = PSI_FRAME_PUSH,
                                    .dtype = PSD_F32,
                                    .view = two->owner->view,
                                    .rank = (uint16_t)worker->rank,
                                    .incarnation = worker->incarnation,
                                    .seq = (uint32_t)step + 1,
                                    .step = step,
                                    .table = TABLE,
                                    .request = (uint32_t)step + 1,
                                    .payload_bytes = BYTES};
    uint8_t head[PSI_FRAME_BYTES];

    psi_frame_encode(&frame, head);
    world_feed(worker->line, head, sizeof(head));
    world_feed(worker->line, (const uint8_t *)gradient, BYTES);
}

/* If this fails, a copy on cores that are few takes its owner's core for every change, or hears of none: workers
 * wait for ever. */
static void
test_where_cores_are_few_changes_go_together(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    settle(&two);
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    push_in_one_turn(&two, 0, 0);
    push_in_one_turn(&two, 1, 0);
    assert_int_equal(to_copy(&two, 1000), 1); /* with a core for itself the copy works at once */
    settle(&two);
    lane_share_cores(two.owner->lane);
    push_in_one_turn(&two, 0, 1);
    push_in_one_turn(&two, 1, 1);
    assert_int_equal(chunk_of(two.owner)->clock.version, 2);
    assert_int_equal(to_copy(&two, 1000), 0); /* there may be more in this turn */
    world_settle(&two.owner->world);
    assert_int_equal(to_copy(&two, 1000), 1);
    assert_same(&two);
    stop(&two);
}

/* If this fails, what a server's copy answers it is missing from the queue that people see: that line is no worker's. */
static void
test_what_waits_for_another_server_is_counted(void **state)
{
    const struct psi_subscribe subscribe = {.every_ms = 500, .metrics = true};
    struct two two = pair_up(lane_bed_start_surviving(2));
    const struct psi_metrics *metrics = lane_metrics(two.copy->lane);

    (void)state;
    settle(&two);
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    world_set_flow(two.from_owner->line, WORLD_FLOW_SLOW);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    assert_true(to_copy(&two, 1000) > 0);
    WORLD_SAY(&two.copy->world, two.copy->master->line,
              &(struct psi_frame){.type = PSI_FRAME_SUBSCRIBE}, subscribe, &subscribe);
    assert_true(psi_metric_get(metrics, PSI_METRIC_SEND_QUEUE) > 0);
    world_set_flow(two.from_owner->line, WORLD_FLOW_FAST);
    world_wait(&two.copy->world, 500);
    assert_int_equal(psi_metric_get(metrics, PSI_METRIC_SEND_QUEUE), 0);
    stop(&two);
}

/* If this fails, a copy that begins while the job trains stops it, or is taken for whole before it
 * has what was told meanwhile. */
static void
test_a_copy_that_comes_later_joins_by_and_by(void **state)
{
    struct lane_bed *bed = lane_bed_start_surviving(2);
    struct two two;

    (void)state;
    open_kind(bed, 0, PSD_INIT_ZERO);
    push(bed, 0, 0, 1, 1);
    push(bed, 1, 0, 1, 2);
    assert_true(is_acked(bed, 0));
    push(bed, 0, 1, 2, 1); /* waits for the other: not part of the snapshot */
    two = pair_up(bed);
    to_owner(&two);
    world_settle(&bed->world); /* the snapshot is made */
    push(bed, 1, 1, 2, 5);
    assert_true(is_acked(bed, 0)); /* told alone: the copy does not have it yet */
    assert_true(is_acked(bed, 1));
    while (chunk_of(two.owner)->copy.mode != COPY_PAIRED) {
        assert_false(is_called_eligible(two.owner));
        assert_true(to_copy(&two, 1) == 1);
        to_owner(&two);
    }
    assert_int_equal(chunk_of(two.copy)->clock.version, 1);
    assert_int_equal(chunk_of(two.copy)->clock.next[0], 1); /* its gradient is not in there */
    assert_false(is_called_eligible(two.owner));            /* it lacks what was told alone */
    push(bed, 0, 2, 3, 4);
    push(bed, 1, 2, 3, 4);
    assert_false(is_acked(two.owner, 0)); /* PAIRED: it waits from now on */
    settle(&two);
    assert_true(is_acked(two.owner, 0));
    assert_true(is_called_eligible(two.owner));
    assert_same(&two);
    stop(&two);
}

/* If this fails, a lane goes on without its copy because a line broke, and the copy takes its place
 * without what was told meanwhile. */
static void
test_only_the_master_lets_a_lane_go_alone(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    world_hang_up(two.to_copy->line, "cut");
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    two.owner->lane->job.dead_ms = 1000;
    world_wait(&two.owner->world, 1500);
    assert_false(is_acked(two.owner, 0));
    world_wait(&two.owner->world, 1000); /* it tells the master, and waits */
    assert_non_null(hear(two.owner->master, PSI_FRAME_PAIR_LOST));
    assert_false(is_acked(two.owner, 0));
    unpair(two.owner);
    assert_true(is_acked(two.owner, 0));
    assert_true(is_acked(two.owner, 1));
    stop(&two);
}

/* If this fails, a copy that is out of reach still counts as one while nobody changes anything. */
static void
test_a_copy_that_is_not_reached_is_given_up_while_nothing_changes(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    two.owner->lane->job.dead_ms = 1000;
    world_wait(&two.owner->world, 5000);
    assert_null(hear(two.owner->master, PSI_FRAME_PAIR_LOST));
    world_cut_off(two.to_copy->line);
    world_wait(&two.owner->world, 900);
    assert_null(hear(two.owner->master, PSI_FRAME_PAIR_LOST));
    world_wait(&two.owner->world, 200);
    assert_non_null(hear(two.owner->master, PSI_FRAME_PAIR_LOST));
    unpair(two.owner);
    stop(&two);
}

/* If this fails, what was on its way when a line broke is lost, or counts twice in the copy. */
static void
test_after_a_cut_the_copy_gets_what_it_lacks(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    to_copy(&two, 1000); /* the copy has it, and the owner does not hear so */
    world_hang_up(two.from_owner->line, "cut");
    world_hang_up(two.to_copy->line, "cut");
    world_wait(&two.owner->world, 30);
    join_lines(&two);
    settle(&two);
    assert_true(is_acked(two.owner, 0));
    assert_same(&two);
    stop(&two);
}

/* If this fails, an asynchronous push that is said again to the copy counts twice. */
static void
test_the_copy_knows_repeated_pushes(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, PSD_STALENESS_UNBOUNDED, PSD_INIT_ZERO);
    settle(&two);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 0, 1, 2, 5);
    push(two.owner, 1, 0, 1, 3);
    assert_false(is_acked(two.owner, 0));
    settle(&two);
    assert_true(is_acked(two.owner, 0));
    assert_true(is_acked(two.owner, 0));
    assert_true(is_acked(two.owner, 1));
    assert_same(&two);
    assert_same_marks(&two);
    stop(&two);
}

/* If this fails, somebody sees initial values that die with the server. */
static void
test_initial_values_are_shown_when_the_copy_has_them(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    const float values[ELEMENTS] = {1, 2, 3, 4};

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_RANK0);
    settle(&two);
    say(two.owner, two.owner->worker[0],
        (struct psi_frame){.type = PSI_FRAME_INIT, .dtype = PSD_F32, .table = TABLE, .request = 3},
        values, BYTES);
    say(two.owner, two.owner->worker[1],
        (struct psi_frame){.type = PSI_FRAME_PULL, .table = TABLE, .request = 4}, NULL, 0);
    assert_false(is_acked(two.owner, 0));
    assert_null(hear(two.owner->worker[1], PSI_FRAME_VALUE));
    settle(&two);
    assert_true(is_acked(two.owner, 0));
    assert_non_null(hear(two.owner->worker[1], PSI_FRAME_VALUE));
    assert_same(&two);
    stop(&two);
}

/* If this fails, the global step goes back when a copy takes the place of lane 0. */
static void
test_the_global_step_waits_for_the_copy(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    settle(&two);
    say(two.owner, two.owner->worker[0],
        (struct psi_frame){.type = PSI_FRAME_STEP_ADD, .seq = 1, .step = 5, .request = 9}, NULL, 0);
    assert_false(is_acked(two.owner, 0));
    settle(&two);
    assert_true(is_acked(two.owner, 0));
    assert_int_equal(two.copy->lane->global.value, 5);
    unpair(two.copy); /* it is no copy any more, and remembers nothing */
    assert_int_equal(two.copy->lane->global.value, 0);
    assert_null(two.copy->lane->mirror);
    stop(&two);
}

/* If this fails, anybody may say that it is the owner of a copy. */
static void
test_a_copy_hears_its_owner_alone(void **state)
{
    struct lane_bed *bed = lane_bed_start_standby(2);
    const struct psi_pair place = {.lanes = 1, .life = 4711};
    struct psi_hello hello = {.role = PSI_ROLE_SERVER,
                              .lanes = 1,
                              .incarnation = 1,
                              .life = 4712,
                              .kernel_revision = PSI_KERNEL_REVISION,
                              .job = bed->lane->job.job,
                              .pair = NUMBER};

    (void)state;
    order(bed, &place);
    for (unsigned i = 0; i < 3; i++) {
        struct peer *peer = &bed->peer[bed->peers++];
        const struct psi_frame frame = {.type = PSI_FRAME_HELLO};

        peer->line = world_accept(&bed->world);
        WORLD_SAY(&bed->world, peer->line, &frame, hello, &hello);
        assert_int_equal(is_gone(peer), i < 2);
        hello.life = 4711;
        hello.pair = i == 0 ? NUMBER + (UINT64_C(1) << 32) : NUMBER; /* of another master's */
    }
    lane_bed_stop(bed);
}

/* If this fails, a copy for which there is no room costs the table, or is taken for one. */
static void
test_a_copy_without_room_says_so(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    const struct world_heard *lost;

    (void)state;
    settle(&two);
    two.copy->lane->config.memory_max = 1;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    world_settle(&two.owner->world);
    lost = hear(two.owner->master, PSI_FRAME_PAIR_LOST);
    assert_non_null(lost);
    unpair(two.owner);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    assert_true(is_acked(two.owner, 0));
    stop(&two);
}

/* If this fails, a copy that was given the place still hears its owner, which is not dead. */
static void
test_a_promoted_copy_hears_nobody(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    uint32_t server;
    uint32_t lane;

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    say(two.copy, two.copy->master,
        (struct psi_frame){.type = PSI_FRAME_TAKE_PLACE, .step = 1, .seq = NUMBER}, NULL, 0);
    assert_true(lane_took_place(two.copy->lane, &server, &lane));
    assert_true(is_gone(two.from_owner));
    assert_int_equal(chunk_of(two.copy)->clock.version, 0); /* nobody was told of the round */
    assert_false(is_acked(two.owner, 0));
    stop(&two);
}

/* ---- room for sums ------------------------------------------------------------------------- */

enum { SUMS = 5, ROOM = 2 };

static void
open_many(struct two *two)
{
    for (uint32_t id = 0; id < SUMS; id++) {
        open_table(two->owner, id,
                   &(struct psd_table_args){
                       .struct_size = sizeof(struct psd_table_args),
                       .name = (const char *const[]){"a", "b", "c", "d", "e"}[id],
                       .dtype = PSD_F32,
                       .dims = 1,
                       .shape = {ELEMENTS},
                       .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                                       .rule = PSD_RULE_ADD}});
    }
    settle(two);
}

/* Both workers, to all tables. */
static void
push_many(struct two *two, uint64_t step)
{
    for (uint32_t i = 0; i < 2 * SUMS; i++) {
        const float gradient[ELEMENTS] = {1, (float)i, (float)step, 3};

        say(two->owner, two->owner->worker[i % 2],
            (struct psi_frame){.type = PSI_FRAME_PUSH,
                               .dtype = PSD_F32,
                               .seq = (uint32_t)step * SUMS + i / 2 + 1,
                               .step = step,
                               .table = i / 2,
                               .request = (uint32_t)step * SUMS + i / 2 + 1},
            gradient, BYTES);
    }
}

static unsigned
closed(const struct two *two, uint64_t step)
{
    unsigned count = 0;

    for (uint32_t id = 0; id < SUMS; id++) {
        const struct table *table = table_find(two->owner->lane, id);

        count += table != NULL && table->chunks[0].clock.version > step;
    }
    return count;
}

static struct two
pair_up_with_little_room(void)
{
    struct lane_bed *owner = lane_bed_start_surviving(2);
    struct two two;

    owner->lane->config.copy_bytes = ROOM * 256; /* what a sum of four numbers takes, twice */
    two = pair_up(owner);
    open_many(&two);
    return two;
}

static void
assert_all_same(const struct two *two)
{
    for (uint32_t id = 0; id < SUMS; id++) {
        const struct chunk *a = &table_find(two->owner->lane, id)->chunks[0];
        const struct chunk *b = &table_find(two->copy->lane, id)->chunks[0];

        assert_int_equal(a->clock.version, b->clock.version);
        assert_memory_equal(chunk_part(a, PSI_PART_VALUE).base, chunk_part(b, PSI_PART_VALUE).base,
                            BYTES);
    }
}

/* If this fails, a slow copy makes its owner keep sums without bound, overwrites some that the copy
 * has not read, or stops the job for ever. */
static void
test_rounds_wait_for_room_for_their_sums(void **state)
{
    struct two two = pair_up_with_little_room();

    (void)state;
    for (uint64_t step = 0; step < 7; step++) {
        unsigned before = ROOM;

        push_many(&two, step);
        assert_int_equal(closed(&two, step), ROOM);
        while (before < SUMS) {
            unsigned now;

            assert_int_equal(to_copy(&two, 1), 1);
            to_owner(&two);
            now = closed(&two, step);
            assert_in_range(now, before, before + 1);
            before = now;
        }
        settle(&two);
        for (unsigned i = 0; i < SUMS; i++) {
            assert_true(is_acked(two.owner, 0));
            assert_true(is_acked(two.owner, 1));
        }
        assert_all_same(&two);
    }
    stop(&two);
}

/* If this fails, what was on its way to the copy when a line broke is other numbers by the time it is
 * sent again. */
static void
test_sums_stay_until_the_copy_has_them(void **state)
{
    struct two two = pair_up_with_little_room();

    (void)state;
    push_many(&two, 0);
    world_hang_up(two.from_owner->line, "cut");
    world_hang_up(two.to_copy->line, "cut");
    world_wait(&two.owner->world, 30);
    assert_int_equal(closed(&two, 0), ROOM);
    join_lines(&two);
    settle(&two);
    assert_int_equal(closed(&two, 0), SUMS);
    assert_all_same(&two);
    stop(&two);
}

/* If this fails, a round that waited for room never closes once its lane goes on alone, or a table
 * that is dropped meanwhile is still waited for. */
static void
test_nobody_waits_for_room_that_is_not_needed(void **state)
{
    struct two two = pair_up_with_little_room();
    const struct psi_frame drop = {.type = PSI_FRAME_TABLE_DROP, .table = ROOM};

    (void)state;
    push_many(&two, 0);
    say(two.owner, two.owner->master, drop, NULL, 0);
    assert_int_equal(closed(&two, 0), ROOM);
    unpair(two.owner);
    assert_int_equal(closed(&two, 0), SUMS - 1);
    stop(&two);
}

/* If this fails, a copy that connects again and again, and never has anything, holds up workers for
 * ever. */
static void
test_a_copy_that_only_comes_back_is_given_up(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    two.owner->lane->job.dead_ms = 1000;
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    for (unsigned i = 0; i < 4; i++) {
        if (i < 2) { /* then it was not reached for a second, all in all */
            assert_null(hear(two.owner->master, PSI_FRAME_PAIR_LOST));
        }
        world_hang_up(two.from_owner->line, "cut");
        world_hang_up(two.to_copy->line, "cut");
        world_wait(&two.owner->world, 500);
        join_lines(&two);
        to_owner(&two); /* what it has, which is nothing new */
    }
    assert_non_null(hear(two.owner->master, PSI_FRAME_PAIR_LOST));
    stop(&two);
}

/* If this fails, a worker hears that its push was taken, which added nothing, and the copy that takes
 * the place has not heard of it: it refuses the next. */
static void
test_a_push_that_adds_nothing_waits_for_the_copy(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 2, PSD_INIT_ZERO);
    settle(&two);
    say(two.owner, two.owner->worker[0],
        (struct psi_frame){
            .type = PSI_FRAME_PUSH, .flags = PSI_FLAG_EMPTY, .table = TABLE, .request = 1},
        NULL, 0);
    assert_false(is_acked(two.owner, 0));
    settle(&two);
    assert_true(is_acked(two.owner, 0));
    assert_int_equal(chunk_of(two.copy)->clock.next[0], 1);
    assert_same(&two);
    stop(&two);
}

/* If this fails, what waits for a slow copy grows with every push; or pushes that went as one whole
 * chunk are told before the copy has it. */
static void
test_many_changes_become_one(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    const uint64_t before = two.owner->lane->pair->last;

    (void)state;
    open_kind(two.owner, PSD_STALENESS_UNBOUNDED, PSD_INIT_ZERO);
    for (uint32_t i = 0; i < 20; i++) {
        push(two.owner, i % 2, i / 2, i / 2 + 1, 1 + (float)i);
    }
    assert_true(two.owner->lane->pair->last <= before + 1 + 3); /* the table, and three changes */
    assert_false(is_acked(two.owner, 0));
    settle(&two);
    for (uint32_t i = 0; i < 20; i++) {
        assert_true(is_acked(two.owner, i % 2));
    }
    assert_same(&two);
    assert_same_marks(&two);
    push(two.owner, 0, 10, 11, 7); /* one by one again */
    settle(&two);
    assert_true(is_acked(two.owner, 0));
    assert_same(&two);
    stop(&two);
}

/* If this fails, a decision that somebody acted on is forgotten when the lane that knew it dies
 * together with the master; or its copy, which had heard of it, does not tell the next one. */
static void
test_nothing_is_done_by_a_view_that_the_copy_lacks(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    const struct psi_view_table left = {.id = TABLE, .left_at = 0};

    (void)state;
    settle(&two);
    open_table(two.owner, TABLE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "g",
                                        .dtype = PSD_F32,
                                        .use = PSD_USE_SUM,
                                        .dims = 1,
                                        .shape = {ELEMENTS}});
    settle(&two);
    push(two.owner, 0, 0, 1, 1);
    propose(two.owner, 1, true);
    commit(two.owner, &left, 1, true);
    assert_int_equal(chunk_of(two.owner)->clock.version, 0); /* though nobody is missing now */
    assert_false(is_acked(two.owner, 0));
    settle(&two);
    assert_int_equal(chunk_of(two.owner)->clock.version, 1);
    assert_true(is_acked(two.owner, 0));

    (void)meet_master(two.copy, 2);
    assert_non_null(hear(two.copy->master, PSI_FRAME_VIEW_COMMIT));
    assert_non_null(hear(two.copy->master, PSI_FRAME_ELIGIBLE));
    stop(&two);
}

/* If this fails, a copy whose place another one has keeps what it had, and is another's copy with
 * that. */
static void
test_a_promoted_copy_that_is_refused_forgets(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    uint32_t server;
    uint32_t lane;

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    say(two.copy, two.copy->master,
        (struct psi_frame){.type = PSI_FRAME_TAKE_PLACE, .step = 1, .seq = NUMBER}, NULL, 0);
    assert_true(lane_took_place(two.copy->lane, &server, &lane));
    world_wait(&two.copy->world, 20);
    world_settle(&two.copy->world);
    two.copy->master = peer_at(two.copy, "test://master");
    assert_int_equal(hear_hello(two.copy->master).pair, NUMBER);
    refuse(two.copy, PSD_ERR_STATE);
    assert_true(two.copy->lane->config.is_standby);
    assert_null(two.copy->lane->tables);
    assert_int_equal(two.copy->lane->promoted, 0);
    stop(&two);
}

/* ---- places that move ---------------------------------------------------------------------- */

static void
order_to_give(struct two *two)
{
    say(two->owner, two->owner->master,
        (struct psi_frame){.type = PSI_FRAME_GIVE_PLACE, .seq = NUMBER}, NULL, 0);
    settle(two);
}

/* If this fails, a lane that is told to hand its place over keeps it, or its copy takes it without all that it had, or tells
 * workers what the copy will never know. */
static void
test_a_place_is_handed_over(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    uint32_t server;
    uint32_t lane;

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    settle(&two);
    order_to_give(&two);
    assert_true(lane_took_place(two.copy->lane, &server, &lane));
    assert_false(two.copy->lane->config.is_standby);
    assert_int_equal(two.copy->lane->promoted, NUMBER);
    assert_int_equal(chunk_of(two.copy)->clock.version, 1);
    assert_true(is_acked(two.owner, 0));
    push(two.owner, 0, 1, 2, 3); /* the lane does not know that it has lost it */
    push(two.owner, 1, 1, 2, 4);
    world_settle(&two.owner->world);
    assert_false(is_acked(two.owner, 0)); /* and tells nobody */
    assert_int_equal(chunk_of(two.owner)->clock.committed, 1);
    refuse(two.owner, PSD_ERR_STATE);
    assert_true(two.owner->lane->config.is_standby);
    assert_null(two.owner->lane->tables);
    assert_null(two.owner->lane->pair);
    assert_int_equal(two.owner->lane->view.id, 0);
    assert_int_equal(two.owner->lane->memory_used, 0);
    stop(&two);
}

/* A pair whose owner has handed its place over, is asked to end, and has had a moment for that. */
static struct two
give_and_leave(void)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    order_to_give(&two);
    lane_leave(two.owner->lane, PSI_EXIT_SIGTERM, "ended by SIGTERM");
    world_wait(&two.owner->world, 20);
    return two;
}

/* If this fails, a server that has nothing any more is said to have failed: it is ended before its last lane has heard that its place
 * is another's. */
static void
test_who_gave_its_place_and_is_to_end_hears_so_first(void **state)
{
    struct two two = give_and_leave();
    const char *text;
    int exit_code;

    (void)state;
    assert_false(lane_finished(two.owner->lane, &exit_code, &text));
    refuse(two.owner, PSD_ERR_STATE);
    assert_true(lane_finished(two.owner->lane, &exit_code, &text));
    assert_true(lane_left_with_nothing(two.owner->lane));
    stop(&two);
}

/* If this fails, a job that is to end waits for ever for a server that was about to hand its place over. */
static void
test_who_gave_its_place_and_hears_nothing_ends(void **state)
{
    struct two two = give_and_leave();
    const char *text;
    int exit_code;

    (void)state;
    assert_false(lane_finished(two.owner->lane, &exit_code, &text));
    world_wait(&two.owner->world, 2000);
    assert_true(lane_finished(two.owner->lane, &exit_code, &text));
    assert_int_equal(exit_code, PSI_EXIT_SIGTERM);
    assert_string_equal(text, "ended by SIGTERM");
    assert_false(lane_left_with_nothing(two.owner->lane));
    stop(&two);
}

/* If this fails, a server that comes and is to leave again at once has failed: not all of its lanes had met the master. */
static void
test_who_was_never_let_in_has_nothing(void **state)
{
    struct lane_bed *bed = lane_bed_start_surviving(2);
    const char *text;
    int exit_code;

    (void)state;
    refuse(bed, PSD_ERR_STATE);
    assert_true(lane_was_not_needed(bed->lane));
    lane_begin_anew(bed->lane); /* as if it had just been started */
    lane_find_master(bed->lane);
    assert_false(lane_has_nothing(bed->lane));
    assert_false(lane_was_not_needed(bed->lane));
    lane_leave(bed->lane, PSI_EXIT_SIGTERM, "ended by SIGTERM");
    lane_tick(bed->lane);
    assert_true(lane_finished(bed->lane, &exit_code, &text));
    assert_true(lane_left_with_nothing(bed->lane));
    lane_bed_stop(bed);
}

/* If this fails, a lane with a place is asked to end, and goes on, or says that it had nothing. */
static void
test_who_has_a_place_and_is_to_end_does_so_at_once(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    const char *text;
    int exit_code;

    (void)state;
    settle(&two);
    lane_leave(two.owner->lane, PSI_EXIT_SIGTERM, "ended by SIGTERM");
    lane_leave(two.owner->lane, PSI_EXIT_INTERNAL, "all others have ended"); /* which is no news */
    world_settle(&two.owner->world);
    assert_true(lane_finished(two.owner->lane, &exit_code, &text));
    assert_int_equal(exit_code, PSI_EXIT_SIGTERM);
    assert_false(lane_left_with_nothing(two.owner->lane));
    assert_int_equal(hear_verdict(two.owner->master, PSI_FRAME_END).exit_code, PSI_EXIT_SIGTERM);
    stop(&two);
}

/* If this fails, a gradient of a worker that has left dies with a place that moves, and a sum lacks it. */
static void
test_what_nobody_gives_again_is_waited_for(void **state)
{
    const struct psi_view_table left = {.id = TABLE, .left_at = 2};
    struct two two = pair_up(lane_bed_start_surviving(2));
    uint32_t server;
    uint32_t lane;

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    settle(&two);
    push(two.owner, 1, 1, 2, 3); /* of step 1; worker 0 has not given that */
    settle(&two);
    propose(two.owner, 1, true);
    commit(two.owner, &left, 1, true);
    settle(&two);
    order_to_give(&two);
    assert_false(lane_took_place(two.copy->lane, &server, &lane));
    push(two.owner, 0, 1, 2, 4); /* the round closes */
    settle(&two);
    settle(&two);
    assert_true(lane_took_place(two.copy->lane, &server, &lane));
    assert_int_equal(chunk_of(two.copy)->clock.version, 2);
    stop(&two);
}

/* If this fails, a copy takes a place because somebody said so before it had all. */
static void
test_a_copy_that_may_lack_something_takes_no_place(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    two.copy->lane->mirror->is_eligible = false;
    order_to_give(&two);
    assert_true(two.copy->lane->config.is_standby);
    assert_true(two.copy->lane->mirror->is_broken);
    stop(&two);
}

/* The copy is given the place, and lets the master know; the view that it hears first has no worker 1. */
static void
take_place_without_worker_1(struct two *two)
{
    uint32_t server;
    uint32_t lane;

    say(two->copy, two->copy->master,
        (struct psi_frame){.type = PSI_FRAME_TAKE_PLACE, .step = 1, .seq = NUMBER}, NULL, 0);
    assert_true(lane_took_place(two->copy->lane, &server, &lane));
    two->copy->view = two->owner->view - 1;
    (void)meet_master(two->copy, 0);
    commit(two->copy, NULL, 1, true);
}

/* If this fails, a worker left and was said to be complete, its gradient of an open round died with the
 * server, and no log says so. */
static void
test_a_promoted_copy_says_who_is_missing(void **state)
{
    const struct psi_view_table left = {.id = TABLE, .left_at = 2};
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    settle(&two);
    push(two.owner, 1, 1, 2, 3); /* of step 1; worker 0 has not given that */
    settle(&two);
    propose(two.owner, 1, true);
    commit(two.owner, &left, 1, true);
    settle(&two);
    take_place_without_worker_1(&two);
    assert_int_equal(chunk_of(two.copy)->clock.version, 1);
    assert_non_null(strstr(two.copy->notes,
                           "GIVEN-LOST worker 1 has left, and does not count in 1 of 1 chunks of "
                           "step 1 of table w here"));
    assert_null(strstr(two.copy->notes, "worker 0 has left"));
    stop(&two);
}

/* If this fails, the log tells of losses where there are none: the round with the gradient had closed. */
static void
test_a_promoted_copy_misses_nobody_in_what_has_closed(void **state)
{
    const struct psi_view_table left = {.id = TABLE, .left_at = 1};
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    settle(&two);
    propose(two.owner, 1, true);
    commit(two.owner, &left, 1, true);
    settle(&two);
    push(two.owner, 0, 1, 2, 3); /* the first round without it */
    settle(&two);
    take_place_without_worker_1(&two);
    assert_int_equal(chunk_of(two.copy)->clock.version, 2);
    assert_null(strstr(two.copy->notes, "GIVEN-LOST"));
    stop(&two);
}

/* If this fails, the log of a job that may grow tells that workers have left which never came. */
static void
test_a_promoted_copy_misses_nobody_who_never_came(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    two.copy->member[1] = (struct psi_view_worker){0};
    take_place_without_worker_1(&two);
    assert_int_equal(chunk_of(two.copy)->clock.version, 0);
    assert_null(strstr(two.copy->notes, "GIVEN-LOST"));
    stop(&two);
}

/* If this fails, the log says of a worker that joined, and left, that something of it was lost in steps before its first. */
static void
test_a_promoted_copy_misses_nobody_before_its_first_step(void **state)
{
    struct lane_bed *bed = lane_bed_start_surviving(2);
    struct two two;

    (void)state;
    open_kind(bed, 0, PSD_INIT_ZERO);
    say(bed, bed->master,
        (struct psi_frame){.type = PSI_FRAME_TABLE_RESUME, .table = TABLE, .rank = 1, .step = 13},
        NULL, 0);
    two = pair_up(bed); /* which tells it */
    settle(&two);
    take_place_without_worker_1(&two);
    assert_int_equal(chunk_of(two.copy)->clock.version, 0);
    assert_null(strstr(two.copy->notes, "GIVEN-LOST"));
    stop(&two);
}

/* ---- jobs that wait for replacements ------------------------------------------------------- */

/* The job says so before any table is opened. */
static struct lane_bed *
start_waiting(void)
{
    struct lane_bed *bed = lane_bed_start_surviving(2);

    bed->lane->job.policy = PSI_DEATH_WAIT;
    return bed;
}

static struct two
pair_up_waiting(struct lane_bed *owner)
{
    struct two two = pair_up(owner);

    two.copy->lane->job.policy = PSI_DEATH_WAIT;
    return two;
}

static void
assert_same_last_value(const struct two *two)
{
    const struct store_piece a = chunk_last_value(chunk_of(two->owner));
    const struct store_piece b = chunk_last_value(chunk_of(two->copy));

    assert_int_equal(a.bytes, BYTES);
    assert_int_equal(b.bytes, BYTES);
    assert_memory_equal(a.base, b.base, BYTES);
}

/* If this fails, a replacement that repeats a step finds no values for it where a server died. */
static void
test_a_copy_has_the_version_before(void **state)
{
    struct lane_bed *bed = start_waiting();
    struct two two;

    (void)state;
    open_kind(bed, 0, PSD_INIT_ZERO);
    for (uint32_t step = 0; step < 3; step++) { /* an odd number: the buffers have changed places */
        push(bed, 0, step, step + 1, 1 + (float)step);
        push(bed, 1, step, step + 1, 2);
    }
    two = pair_up_waiting(bed);
    settle(&two);
    assert_same(&two); /* by a snapshot ... */
    assert_same_last_value(&two);
    push(bed, 0, 3, 4, 5);
    push(bed, 1, 3, 4, 6);
    settle(&two);
    assert_same(&two); /* ... and by a change */
    assert_same_last_value(&two);
    stop(&two);
}

/* The first step that the rank may still have to give, by what the lane tells; UINT64_MAX: it does not
 * tell yet. */
static uint64_t
reported_step(struct lane_bed *bed)
{
    const struct world_heard *heard = hear(bed->master, PSI_FRAME_VIEW_ACK);
    struct psi_given given[2];
    struct psi_view_ack ack = {.given = given};

    if (heard == NULL) {
        return UINT64_MAX;
    }
    assert_int_equal(psi_view_ack_decode(heard->body, heard->frame.payload_bytes, &ack, NULL),
                     PSD_OK);
    assert_int_equal(ack.tables, 1);
    return given[0].next_min;
}

/* If this fails, a replacement does not give again what its predecessor gave to a round that is open: that
 * dies with the server, and the job waits for ever. */
static void
test_what_is_in_an_open_round_is_given_again(void **state)
{
    struct two two = pair_up_waiting(start_waiting());

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    push(two.owner, 1, 0, 1, 2);
    propose_only(two.owner, 1, false);
    assert_int_equal(reported_step(two.owner), 0);
    stop(&two);
}

/* If this fails, the round closes with what the predecessor gave, and the others go on, before the
 * replacement has fetched the weights of that step: it asks for them for ever. */
static void
test_a_round_waits_for_what_is_given_again(void **state)
{
    struct two two = pair_up_waiting(start_waiting());

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    push(two.owner, 1, 0, 1, 2);
    propose(two.owner, 1, false);
    commit(two.owner, &(struct psi_view_table){.id = TABLE, .left_at = 0}, 1, false);
    settle(&two);
    push(two.owner, 0, 0, 1, 1);
    settle(&two);
    assert_int_equal(chunk_of(two.owner)->clock.version, 0);
    two.owner->worker[1] = meet(two.owner, 1, (uint16_t)two.owner->member[1].incarnation);
    push(two.owner, 1, 0, 1, 2);
    settle(&two);
    assert_int_equal(chunk_of(two.owner)->clock.version, 1);
    assert_true(is_acked(two.owner, 0));
    assert_same(&two);
    stop(&two);
}

/* If this fails, a replacement does not give again what its predecessor gave to a round that has closed, and
 * that the copy does not have. */
static void
test_what_was_given_is_told_when_the_copy_has_it(void **state)
{
    for (unsigned stale = 0; stale < 2; stale++) {
        struct two two = pair_up_waiting(start_waiting());

        (void)state;
        open_kind(two.owner, stale, PSD_INIT_ZERO);
        settle(&two);
        push(two.owner, 0, 0, 1, 1);
        push(two.owner, 1, 0, 1, 2);
        propose_only(two.owner, 1, false);
        assert_true(reported_step(two.owner) == UINT64_MAX);
        assert_true(lane_next_ns(two.owner->lane) > two.owner->world.now_ns); /* nor does it spin */
        settle(&two);
        assert_int_equal(reported_step(two.owner), 1);
        stop(&two);
    }
}

/* If this fails, a lane that waits for its copy to have what it tells of waits for one that is gone. */
static void
test_a_lane_without_its_copy_tells_at_once(void **state)
{
    struct two two = pair_up_waiting(start_waiting());

    (void)state;
    open_kind(two.owner, 0, PSD_INIT_ZERO);
    settle(&two);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    propose_only(two.owner, 1, false);
    assert_true(reported_step(two.owner) == UINT64_MAX);
    unpair(two.owner);
    assert_int_equal(reported_step(two.owner), 1);
    stop(&two);
}

/* If this fails, only those who die know where a replacement goes on: another life of the master lets it
 * begin anew. */
static void
test_a_copy_knows_where_replacements_go_on(void **state)
{
    const struct psi_view_table resume = {.id = TABLE, .left_at = 1};
    uint32_t rank = 0;
    uint64_t step = 0;

    (void)state;
    for (unsigned later = 0; later < 2; later++) { /* the copy is made after that, or before */
        struct lane_bed *bed = start_waiting();
        struct two two = {0};

        open_kind(bed, 0, PSD_INIT_ZERO);
        push(bed, 0, 0, 1, 1);
        push(bed, 1, 0, 1, 2);
        if (later == 0) {
            two = pair_up_waiting(bed);
            settle(&two);
        }
        propose(bed, 1, false);
        commit(bed, &resume, 1, false);
        if (later == 1) {
            commit(bed, NULL, 0, false); /* not the last view */
            two = pair_up_waiting(bed);
        }
        settle(&two);
        assert_true(journal_resume_at(two.copy->lane, TABLE, 0, &rank, &step));
        assert_int_equal(rank, 1);
        assert_int_equal(step, 1);
        stop(&two);
    }
}

/* If this fails, a sum that a replacement asks for again is gone with the server. */
static void
test_sums_are_copied_where_steps_are_repeated(void **state)
{
    struct two two = pair_up_waiting(start_waiting());

    (void)state;
    settle(&two);
    open_table(two.owner, TABLE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "w",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {ELEMENTS},
                                        .use = PSD_USE_SUM});
    settle(&two);
    push(two.owner, 0, 0, 1, 1);
    push(two.owner, 1, 0, 1, 2);
    assert_false(is_acked(two.owner, 0));
    settle(&two);
    assert_true(is_acked(two.owner, 0));
    assert_same(&two);
    stop(&two);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_round_is_told_when_the_copy_has_it),
        cmocka_unit_test(test_where_cores_are_few_changes_go_together),
        cmocka_unit_test(test_what_waits_for_another_server_is_counted),
        cmocka_unit_test(test_a_copy_that_comes_later_joins_by_and_by),
        cmocka_unit_test(test_only_the_master_lets_a_lane_go_alone),
        cmocka_unit_test(test_a_copy_that_is_not_reached_is_given_up_while_nothing_changes),
        cmocka_unit_test(test_after_a_cut_the_copy_gets_what_it_lacks),
        cmocka_unit_test(test_the_copy_knows_repeated_pushes),
        cmocka_unit_test(test_initial_values_are_shown_when_the_copy_has_them),
        cmocka_unit_test(test_the_global_step_waits_for_the_copy),
        cmocka_unit_test(test_a_copy_hears_its_owner_alone),
        cmocka_unit_test(test_a_copy_without_room_says_so),
        cmocka_unit_test(test_a_promoted_copy_hears_nobody),
        cmocka_unit_test(test_rounds_wait_for_room_for_their_sums),
        cmocka_unit_test(test_sums_stay_until_the_copy_has_them),
        cmocka_unit_test(test_nobody_waits_for_room_that_is_not_needed),
        cmocka_unit_test(test_a_copy_that_only_comes_back_is_given_up),
        cmocka_unit_test(test_a_push_that_adds_nothing_waits_for_the_copy),
        cmocka_unit_test(test_many_changes_become_one),
        cmocka_unit_test(test_nothing_is_done_by_a_view_that_the_copy_lacks),
        cmocka_unit_test(test_a_promoted_copy_that_is_refused_forgets),
        cmocka_unit_test(test_a_place_is_handed_over),
        cmocka_unit_test(test_who_gave_its_place_and_is_to_end_hears_so_first),
        cmocka_unit_test(test_who_gave_its_place_and_hears_nothing_ends),
        cmocka_unit_test(test_who_was_never_let_in_has_nothing),
        cmocka_unit_test(test_who_has_a_place_and_is_to_end_does_so_at_once),
        cmocka_unit_test(test_what_nobody_gives_again_is_waited_for),
        cmocka_unit_test(test_a_copy_that_may_lack_something_takes_no_place),
        cmocka_unit_test(test_a_promoted_copy_says_who_is_missing),
        cmocka_unit_test(test_a_promoted_copy_misses_nobody_in_what_has_closed),
        cmocka_unit_test(test_a_promoted_copy_misses_nobody_who_never_came),
        cmocka_unit_test(test_a_promoted_copy_misses_nobody_before_its_first_step),
        cmocka_unit_test(test_a_copy_has_the_version_before),
        cmocka_unit_test(test_what_is_in_an_open_round_is_given_again),
        cmocka_unit_test(test_a_round_waits_for_what_is_given_again),
        cmocka_unit_test(test_what_was_given_is_told_when_the_copy_has_it),
        cmocka_unit_test(test_a_lane_without_its_copy_tells_at_once),
        cmocka_unit_test(test_a_copy_knows_where_replacements_go_on),
        cmocka_unit_test(test_sums_are_copied_where_steps_are_repeated),
    };

    return cmocka_run_group_tests_name("lane_pair", tests, NULL, NULL);
}
