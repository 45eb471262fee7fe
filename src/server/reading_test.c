/*
 * reading_test.c - readers of a lane, frame by frame: what they are told, what they may not, and that nobody
 * waits for them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "server/lane_bed.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { TABLE = 1, DENSE = 2, ROOM = 1 << 19, ROW_BYTES = sizeof(float) };

static struct lane_bed *
start(uint32_t workers)
{
    struct lane_bed *bed = lane_bed_start(workers, PSI_DEATH_FAIL);
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADD};

    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = 1,
                                          .reduce = PSD_REDUCE_SUM,
                                          .rule = &rule});
    open_table(bed, DENSE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "d",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {2},
                                        .reduce = PSD_REDUCE_SUM,
                                        .rule = &rule});
    world_wait(&bed->world, 300);
    pong(bed);
    return bed;
}

/* Pushes `value` to one id. */
static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, uint64_t id, float value)
{
    const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_PUSH,
                                    .table = TABLE,
                                    .dtype = PSD_F32,
                                    .step = step,
                                    .seq = step + 1,
                                    .request = (uint32_t)step + 1};
    uint8_t payload[64];
    const struct psi_rows counts = {.pushed = 1, .gradients = 1};
    const struct psi_rows_room room = psi_rows_encode(payload, ROW_BYTES, &counts);

    psi_store_u64(room.ids, id);
    memcpy(room.rows, &value, sizeof(value));
    say(bed, bed->worker[rank], frame, payload, psi_rows_bytes(ROW_BYTES, 1, 0));
}

/* Asks for ids 0 .. count - 1. */
static void
ask(struct lane_bed *bed, struct peer *reader, uint32_t request, uint32_t count)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_SPARSE_PULL, .table = TABLE, .dtype = PSD_F32, .request = request};
    uint8_t *payload = malloc(ROOM);
    uint64_t *ids = calloc(count + 1, sizeof(*ids));
    struct psi_rows_room room;

    assert_non_null(payload);
    assert_non_null(ids);
    room = psi_rows_encode(payload, ROW_BYTES, &(struct psi_rows){.asked = count});
    for (uint32_t i = 0; i < count; i++) { /* in the order in which they travel */
        uint32_t at = i;

        for (; count <= 8 && at > 0 && psi_bucket_before(i, ids[at - 1]); at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        psi_store_u64(room.asked_ids + 8 * i, ids[i]);
    }
    say(bed, reader, frame, payload, psi_rows_bytes(ROW_BYTES, 0, count));
    free(ids);
    free(payload);
}

/* The sum of the rows of the next answer, which is of that step. */
static float
hear_rows(struct peer *reader, uint64_t step, uint32_t count)
{
    const struct world_heard *heard = hear(reader, PSI_FRAME_SPARSE_VALUE);
    float sum = 0;

    assert_non_null(heard);
    assert_int_equal(heard->frame.step, step);
    assert_int_equal(heard->frame.payload_bytes, PSI_ROWS_HEAD_BYTES + count * ROW_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        float row;

        memcpy(&row, heard->body + PSI_ROWS_HEAD_BYTES + i * ROW_BYTES, sizeof(row));
        sum += row;
    }
    return sum;
}

/* If this fails, a reader is told of a step that is not over, or of none, or of the wrong one. */
static void
test_reader_gets_rows_with_their_step(void **state)
{
    struct lane_bed *bed = start(2);
    struct peer *reader = meet_reader(bed, 7);

    (void)state;
    assert_non_null(hear(reader, PSI_FRAME_WELCOME));
    ask(bed, reader, 1, 3);
    assert_true(hear_rows(reader, 0, 3) == 0);
    push(bed, 0, 0, 1, 5);
    ask(bed, reader, 2, 3);
    assert_true(hear_rows(reader, 0, 3) == 0);
    push(bed, 1, 0, 2, 4);
    ask(bed, reader, 3, 3);
    assert_true(hear_rows(reader, 1, 3) == 9);
    lane_bed_stop(bed);
}

/* If this fails, values of tables that are not sparse cannot be read, or with another step. */
static void
test_reader_gets_a_chunk(void **state)
{
    struct lane_bed *bed = start(1);
    struct peer *reader = meet_reader(bed, 7);
    const float gradient[2] = {3, 4};
    const struct world_heard *heard;

    (void)state;
    say(bed, bed->worker[0],
        (struct psi_frame){
            .type = PSI_FRAME_PUSH, .table = DENSE, .dtype = PSD_F32, .seq = 1, .request = 1},
        gradient, sizeof(gradient));
    say(bed, reader, (struct psi_frame){.type = PSI_FRAME_PULL, .table = DENSE, .request = 4}, NULL,
        0);
    heard = hear(reader, PSI_FRAME_VALUE);
    assert_non_null(heard);
    assert_int_equal(heard->frame.step, 1);
    assert_int_equal(heard->frame.request, 4);
    assert_memory_equal(heard->body, gradient, sizeof(gradient));
    lane_bed_stop(bed);
}

/* If this fails, a round waits for a reader, or counts it. */
static void
test_round_does_not_wait_for_a_reader(void **state)
{
    struct lane_bed *bed = start(1);

    (void)state;
    (void)meet_reader(bed, 7);
    push(bed, 0, 0, 1, 5);
    assert_non_null(hear(bed->worker[0], PSI_FRAME_ACK));
    lane_bed_stop(bed);
}

/* Says it as a reader: the connection ends, by name, and nothing has changed. */
static void
refuse(struct psi_frame frame, const void *payload, size_t bytes, const char *text)
{
    struct lane_bed *bed = start(1);
    struct peer *reader = meet_reader(bed, 7);
    struct peer *other;

    say(bed, reader, frame, payload, bytes);
    assert_true(is_gone(reader));
    assert_non_null(strstr(bed->warnings, text));
    other = meet_reader(bed, 8);
    ask(bed, other, 1, 3);
    assert_true(hear_rows(other, 0, 3) == 0);
    lane_bed_stop(bed);
}

/* If this fails, who has a reader's key can train the model, or trouble the job. */
static void
test_reader_may_only_look(void **state)
{
    static const uint8_t types[] = {
        PSI_FRAME_PUSH,        PSI_FRAME_PUSH_PULL,
        PSI_FRAME_SPARSE_PUSH, PSI_FRAME_SPARSE_PUSH_PULL,
        PSI_FRAME_INIT,        PSI_FRAME_STATE_PUSH,
        PSI_FRAME_STATE_PULL,  PSI_FRAME_ADOPT,
        PSI_FRAME_GOT,         PSI_FRAME_STEP_ADD,
        PSI_FRAME_SHARE_PULL,  PSI_FRAME_SHARE_DATA,
        PSI_FRAME_BYE,         PSI_FRAME_WHY,
        PSI_FRAME_REPLICATE,   PSI_FRAME_SNAPSHOT,
        PSI_FRAME_TAKE_PLACE,  PSI_FRAME_VIEW_COMMIT,
        PSI_FRAME_ACK,         PSI_FRAME_BARRIER,
        PSI_FRAME_HELLO,
    };
    const uint8_t payload[64] = {1, 0, 0, 0, 0, 0, 0, 0, 1};

    (void)state;
    for (size_t i = 0; i < sizeof(types); i++) {
        const struct psi_frame frame = {
            .type = types[i], .table = TABLE, .dtype = PSD_F32, .seq = 1, .request = 1};

        refuse(frame, payload, sizeof(payload), "from a reader");
        refuse((struct psi_frame){.type = types[i], .table = TABLE, .seq = 1, .request = 1}, NULL,
               0, "from a reader");
    }
}

/* If this fails, a reader takes memory without bound, or keeps a lane for longer than it may. */
static void
test_reader_asks_within_its_bounds(void **state)
{
    struct psi_frame frame = {
        .type = PSI_FRAME_SPARSE_PULL, .table = TABLE, .dtype = PSD_F32, .request = 1};
    struct lane_bed *bed = start(1);
    struct peer *reader = meet_reader(bed, 7);
    uint8_t *payload = calloc(1, ROOM);

    (void)state;
    assert_non_null(payload);
    lane_bed_stop(bed);
    (void)reader;
    refuse(frame, payload, psi_rows_bytes(ROW_BYTES, 0, PSI_READ_ROWS_MAX) + 8, "from a reader");
    psi_store_u32(payload + 4, 2); /* one id twice */
    refuse(frame, payload, psi_rows_bytes(ROW_BYTES, 0, 2), "comes twice");
    psi_store_u32(payload + 4, 3);
    refuse(frame, payload, psi_rows_bytes(ROW_BYTES, 0, 2), "bytes for");
    frame.flags = PSI_FLAG_EXACT;
    psi_store_u32(payload + 4, 1);
    refuse(frame, payload, psi_rows_bytes(ROW_BYTES, 0, 1), "flags");
    free(payload);
}

/* If this fails, a reader that sends without reading its answers makes the lane keep them all. */
static void
test_reader_waits_for_its_answer(void **state)
{
    struct lane_bed *bed = start(1);
    struct peer *reader = meet_reader(bed, 7);

    (void)state;
    world_set_flow(reader->line, WORLD_FLOW_SLOW);
    for (uint32_t i = 0; i < 100 && !is_gone(reader); i++) {
        say(bed, reader,
            (struct psi_frame){.type = PSI_FRAME_PULL, .table = DENSE, .request = i + 1}, NULL, 0);
    }
    assert_false(is_gone(reader)); /* so little may wait */
    lane_bed_stop(bed);
}

/* If this fails, readers without end are let in, or one that comes back is shut out by itself. */
static void
test_readers_are_bounded(void **state)
{
    struct lane_bed *bed = start(1);
    struct peer *reader = meet_reader(bed, 7);
    struct peer *again = meet_reader(bed, 7);

    (void)state;
    assert_true(is_gone(reader));
    assert_non_null(hear(again, PSI_FRAME_WELCOME));
    lane_bed_stop(bed);
}

/* If this fails, a lane that the master has not confirmed tells values as if it were sure of its place, or
 * how old they may be is not told. */
static void
test_age_is_that_of_the_masters_word(void **state)
{
    struct lane_bed *bed = start(1);
    struct peer *reader = meet_reader(bed, 7);
    const struct world_heard *heard;
    uint64_t age_ns;

    (void)state;
    ask(bed, reader, 1, 1);
    heard = hear(reader, PSI_FRAME_SPARSE_VALUE);
    assert_non_null(heard);
    age_ns = heard->frame.seq;
    world_wait(&bed->world, 100);
    ask(bed, reader, 2, 1);
    heard = hear(reader, PSI_FRAME_SPARSE_VALUE);
    assert_non_null(heard);
    assert_true(heard->frame.seq >= age_ns + 100 * UINT64_C(1000000));
    lane_bed_stop(bed);
}

/* If this fails, a lane that was never confirmed answers. */
static void
test_nothing_is_told_before_the_master_answered(void **state)
{
    struct lane_bed *bed = lane_bed_start(1, PSI_DEATH_FAIL);
    struct peer *reader;

    (void)state;
    open_table(bed, DENSE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "d",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {2}});
    reader = meet_reader(bed, 7);
    say(bed, reader, (struct psi_frame){.type = PSI_FRAME_PULL, .table = DENSE, .request = 1}, NULL,
        0);
    assert_null(hear(reader, PSI_FRAME_VALUE));
    world_wait(&bed->world, 300);
    pong(bed);
    assert_non_null(hear(reader, PSI_FRAME_VALUE));
    lane_bed_stop(bed);
}

/* If this fails, a reader of a sum, or of a table that is not there, hears nothing, or is thrown out. */
static void
test_reader_is_told_what_there_is_not(void **state)
{
    struct lane_bed *bed = start(1);
    struct peer *reader = meet_reader(bed, 7);

    (void)state;
    say(bed, reader, (struct psi_frame){.type = PSI_FRAME_PULL, .table = 77, .request = 1}, NULL,
        0);
    assert_int_equal(hear_verdict(reader, PSI_FRAME_ACK).status, PSD_ERR_BUSY);
    open_table(bed, 3,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "s",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {2},
                                        .use = PSD_USE_SUM});
    say(bed, reader, (struct psi_frame){.type = PSI_FRAME_PULL, .table = 3, .request = 1}, NULL, 0);
    assert_int_equal(hear_verdict(reader, PSI_FRAME_ACK).status, PSD_ERR_STATE);
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader_gets_rows_with_their_step),
        cmocka_unit_test(test_reader_gets_a_chunk),
        cmocka_unit_test(test_round_does_not_wait_for_a_reader),
        cmocka_unit_test(test_reader_may_only_look),
        cmocka_unit_test(test_reader_asks_within_its_bounds),
        cmocka_unit_test(test_reader_waits_for_its_answer),
        cmocka_unit_test(test_readers_are_bounded),
        cmocka_unit_test(test_age_is_that_of_the_masters_word),
        cmocka_unit_test(test_nothing_is_told_before_the_master_answered),
        cmocka_unit_test(test_reader_is_told_what_there_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
