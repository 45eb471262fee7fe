/*
 * lane_pair_parts_test.c - a lane and its copy on one host, frame by frame: what a round has made of a chunk is
 * lent to the copy, part by part, and counts when all of it is there.
 *
 * The test carries what one says to the other, and decides how much of it arrives.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "server/pair_bed.h"
#include "server/state.h"

enum {
    TABLE = 1,
    ELEMENTS = 20000, /* enough for a segment, and for a loan */
    BYTES = ELEMENTS * sizeof(float),
    NUMBER = PAIR_NUMBER,
    FRAMES = 3, /* of a round: values, momentum, and what has changed */
};

static void
open_momentum(struct lane_bed *bed)
{
    open_table(bed, TABLE,
               &(struct psd_table_args){
                   .struct_size = sizeof(struct psd_table_args),
                   .name = "w",
                   .dtype = PSD_F32,
                   .dims = 1,
                   .shape = {ELEMENTS},
                   .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                                   .rule = PSD_RULE_MOMENTUM,
                                                   .learning_rate = 0.3,
                                                   .momentum = 0.9}});
}

static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step)
{
    float *gradient = malloc(BYTES);

    assert_non_null(gradient);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        gradient[i] = (float)(rank + 1) / (float)(i + step + 1);
    }
    say(bed, bed->worker[rank],
        (struct psi_frame){.type = PSI_FRAME_PUSH,
                           .dtype = PSD_F32,
                           .seq = step + 1,
                           .step = step,
                           .table = TABLE,
                           .request = (uint32_t)step + 1},
        gradient, BYTES);
    free(gradient);
}

static void
push_both(struct lane_bed *bed, uint64_t step)
{
    push(bed, 0, step);
    push(bed, 1, step);
}

static bool
is_acked(struct lane_bed *bed)
{
    return hear(bed->worker[0], PSI_FRAME_ACK) != NULL;
}

static const struct chunk *
chunk_of(const struct lane_bed *bed)
{
    const struct table *table = table_find(bed->lane, TABLE);

    assert_non_null(table);
    return &table->chunks[0];
}

static bool
are_same(const struct two *two)
{
    const struct chunk *a = chunk_of(two->owner);
    const struct chunk *b = chunk_of(two->copy);
    bool same = a->clock.version == b->clock.version && a->updates == b->updates;

    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        const struct store_piece one = chunk_part(a, part);
        const struct store_piece other = chunk_part(b, part);

        same = same && one.bytes == other.bytes &&
               (one.bytes == 0 || memcmp(one.base, other.base, one.bytes) == 0);
    }
    return same;
}

/* What it says to the copy goes through shared memory. */
static void
be_near(struct two *two)
{
    two->to_copy->line->conn.lends = true;
}

static void
may_lend(struct lane_bed *bed)
{
    bed->lane->config.lends = true;
    bed->lane->config.lends_state = true;
}

/* Both know the table, and all is told. */
static struct two
pair_up_near(void)
{
    struct lane_bed *owner = lane_bed_start_surviving(2);
    struct two two;

    may_lend(owner);
    two = pair_up(owner);
    be_near(&two);
    settle(&two);
    open_momentum(two.owner);
    settle(&two);
    return two;
}

/* If this fails, a copy on this host is sent sums, or a worker is told of a round that dies with the server. */
static void
test_a_copy_on_this_host_is_lent_parts(void **state)
{
    struct two two = pair_up_near();

    (void)state;
    for (uint64_t step = 0; step < 3; step++) {
        push_both(two.owner, step);
        assert_int_equal(chunk_of(two.owner)->clock.version, step + 1);
        assert_int_equal(two.owner->lane->pair->slots.out, 0);
        assert_int_equal(to_copy(&two, 1000), FRAMES);
        assert_false(is_acked(two.owner));
        assert_true(are_same(&two));
        to_owner(&two);
        assert_true(is_acked(two.owner));
    }
    stop(&two);
}

/* If this fails, a copy that takes the place of a server that dies between two parts has values of one round and
 * momentum of another. */
static void
test_parts_count_when_all_are_here(void **state)
{
    struct two two = pair_up_near();
    float *before = malloc(BYTES);

    (void)state;
    assert_non_null(before);
    push_both(two.owner, 0);
    settle(&two);
    memcpy(before, chunk_part(chunk_of(two.copy), PSI_PART_VALUE).base, BYTES);
    push_both(two.owner, 1);
    assert_int_equal(to_copy(&two, FRAMES - 1), FRAMES - 1);
    say(two.copy, two.copy->master,
        (struct psi_frame){.type = PSI_FRAME_TAKE_PLACE, .step = 1, .seq = NUMBER}, NULL, 0);
    assert_int_equal(two.copy->lane->promoted, NUMBER);
    assert_int_equal(chunk_of(two.copy)->clock.version, 1);
    assert_memory_equal(chunk_part(chunk_of(two.copy), PSI_PART_VALUE).base, before, BYTES);
    free(before);
    stop(&two);
}

/* If this fails, a line that breaks between two parts makes a copy useless: those that it has said it has do not
 * come again. */
static void
test_parts_outlive_the_line(void **state)
{
    struct two two = pair_up_near();

    (void)state;
    push_both(two.owner, 0);
    assert_int_equal(to_copy(&two, 1), 1);
    to_owner(&two);
    world_hang_up(two.from_owner->line, "cut");
    world_hang_up(two.to_copy->line, "cut");
    world_wait(&two.owner->world, 30);
    join_lines(&two);
    assert_int_equal(to_owner(&two), 1);
    assert_int_equal(to_copy(&two, 1000), FRAMES - 1);
    assert_true(are_same(&two));
    to_owner(&two);
    assert_true(is_acked(two.owner));
    stop(&two);
}

/* If this fails, the copy reads a chunk while rounds go on that nobody told it of. */
static void
test_a_joining_chunk_is_not_lent(void **state)
{
    struct lane_bed *owner = lane_bed_start_surviving(2);
    struct two two;

    (void)state;
    may_lend(owner);
    open_momentum(owner);
    push_both(owner, 0);
    assert_true(is_acked(owner));
    two = pair_up(owner);
    be_near(&two);
    to_owner(&two);
    world_settle(&owner->world); /* the snapshot is made */
    assert_int_equal(chunk_of(owner)->copy.mode, COPY_JOINING);
    push_both(owner, 1);
    assert_true(is_acked(owner));
    assert_int_equal(owner->lane->pair->slots.out, 1);
    settle(&two);
    push_both(owner, 2);
    assert_int_equal(to_copy(&two, 1000), FRAMES);
    assert_true(are_same(&two));
    stop(&two);
}

/* If this fails, what a copy lacks of a table that is dropped is read where no memory is any more. */
static void
test_a_table_that_goes_leaves_what_it_lent(void **state)
{
    struct two two = pair_up_near();
    const struct world_heard *part;
    float *values = malloc(BYTES);

    (void)state;
    assert_non_null(values);
    push_both(two.owner, 0);
    memcpy(values, chunk_part(chunk_of(two.owner), PSI_PART_VALUE).base, BYTES);
    world_hang_up(two.from_owner->line, "cut");
    world_hang_up(two.to_copy->line, "cut");
    say(two.owner, two.owner->master,
        (struct psi_frame){.type = PSI_FRAME_TABLE_DROP, .table = TABLE}, NULL, 0);
    assert_null(table_find(two.owner->lane, TABLE));
    world_wait(&two.owner->world, 30);
    join_lines(&two);
    to_owner(&two);
    part = hear(two.to_copy, PSI_FRAME_REPLICATE_PART);
    assert_non_null(part);
    assert_int_equal(part->frame.payload_bytes, BYTES);
    assert_memory_equal(part->body, values, BYTES);
    two.to_copy->line->heard_read--;
    settle(&two);
    assert_null(table_find(two.copy->lane, TABLE));
    assert_null(two.owner->lane->pair->first);
    free(values);
    stop(&two);
}

/* If this fails, a lane looks for what its copy cannot say soon, on the core that the copy needs; or small rounds
 * take longer, because both sleep between them. */
static void
test_large_rounds_are_worth_sleeping(void **state)
{
    const uint64_t room[] = {8 * BYTES, 128 * BYTES};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct lane_bed *owner = lane_bed_start_surviving(2);
        struct two two;

        may_lend(owner);
        owner->lane->config.copy_bytes = room[i];
        two = pair_up(owner);
        two.copy->lane->config.copy_bytes = room[i];
        be_near(&two);
        settle(&two);
        open_momentum(owner);
        settle(&two);
        for (uint64_t step = 0; step < 2; step++) {
            push_both(owner, step);
            assert_int_equal(lane_waits_long(owner->lane), i == 0);
            settle(&two);
            assert_int_equal(lane_waits_long(owner->lane), i == 0);
            assert_int_equal(lane_waits_long(two.copy->lane), i == 0);
        }
        stop(&two);
    }
}

/* Says it in the owner's place: is the copy still one? */
static bool
takes(struct two *two, struct psi_frame frame, const void *payload, size_t bytes)
{
    frame.table = TABLE;
    frame.seq = two->copy->lane->mirror->applied + 1;
    world_say_bytes(&two->copy->world, two->from_owner->line, &frame, NULL, payload, bytes);
    return !two->copy->lane->mirror->is_broken;
}

/* If this fails, an owner that talks nonsense writes over the copy's memory, or makes it another model. */
static void
test_parts_that_do_not_fit_are_refused(void **state)
{
    const struct psi_change change = {.version = 1, .updates = 1, .in_parts = true};
    const struct psi_frame wrong[] = {
        {.type = PSI_FRAME_REPLICATE_PART, .step = PSI_PART_MASTER},
        {.type = PSI_FRAME_REPLICATE_PART, .step = PSI_PARTS_MAX},
        {.type = PSI_FRAME_REPLICATE_PART, .chunk = 1},
        {.type = PSI_FRAME_REPLICATE_PART, .step = UINT64_MAX},
    };
    uint8_t *zeros = calloc(1, 2 * BYTES);
    uint8_t body[PSI_CHANGE_BYTES] = {0};
    struct psi_pack pack;

    (void)state;
    psi_pack_init(&pack, body, sizeof(body));
    psi_change_encode(&pack, &change);
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong) + 4; i++) {
        struct two two = pair_up_near();
        const struct psi_frame values = {.type = PSI_FRAME_REPLICATE_PART, .step = PSI_PART_VALUE};
        const struct psi_frame told = {.type = PSI_FRAME_REPLICATE};

        if (i == 0) { /* not all of them */
            assert_true(takes(&two, values, zeros, BYTES));
            assert_false(takes(&two, told, body, sizeof(body)));
        } else if (i == 1) { /* none */
            assert_false(takes(&two, told, body, sizeof(body)));
        } else if (i == 2) { /* too much */
            assert_false(takes(&two, values, zeros, 2 * BYTES));
        } else if (i == 3) { /* twice */
            assert_true(takes(&two, values, zeros, BYTES));
            assert_false(takes(&two, values, zeros, BYTES));
        } else {
            assert_false(takes(&two, wrong[i - 4], zeros, BYTES));
        }
        assert_int_equal(chunk_of(two.copy)->clock.version, 0);
        stop(&two);
    }
    free(zeros);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_on_this_host_is_lent_parts),
        cmocka_unit_test(test_parts_count_when_all_are_here),
        cmocka_unit_test(test_parts_outlive_the_line),
        cmocka_unit_test(test_a_joining_chunk_is_not_lent),
        cmocka_unit_test(test_a_table_that_goes_leaves_what_it_lent),
        cmocka_unit_test(test_large_rounds_are_worth_sleeping),
        cmocka_unit_test(test_parts_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
