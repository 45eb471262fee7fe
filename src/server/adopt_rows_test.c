/*
 * adopt_rows_test.c - the second life of a server with a sum of rows: the round that was open is made
 * anew, and the sum of one that was closed is shown, part by part.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "server/lane_bed.h"
#include "server/state.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { TABLE = 1, IDS = 6, ROOM = 1024, ROW_BYTES = sizeof(float), STEP = 5 };

static struct lane_bed *
start_again(uint32_t workers)
{
    struct lane_bed *bed = lane_bed_start_again(workers);

    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "clicks",
                                          .dtype = PSD_F32,
                                          .width = 1,
                                          .use = PSD_USE_SUM,
                                          .reduce = PSD_REDUCE_SUM});
    server_back(bed);
    return bed;
}

/* The index-th of some ids, in the order in which they travel. */
static uint64_t
id_at(uint32_t index)
{
    uint64_t ids[IDS];

    for (uint64_t i = 0; i < IDS; i++) {
        uint64_t to = i;

        for (; to > 0 && psi_bucket_before(100 + i, ids[to - 1]); to--) {
            ids[to] = ids[to - 1];
        }
        ids[to] = 100 + i;
    }
    return ids[index];
}

/* Rows of the ids from the first-th on, all of them `value`. */
struct rows {
    uint32_t first;
    uint32_t count;
    float value;
};

static void
send_rows(struct lane_bed *bed, uint32_t rank, struct psi_frame frame, const struct rows *rows)
{
    const struct psi_rows counts = {.pushed = rows->count, .gradients = 1};
    uint8_t payload[ROOM];
    const struct psi_rows_room room = psi_rows_encode(payload, ROW_BYTES, &counts);

    for (uint32_t i = 0; i < rows->count; i++) {
        psi_store_u64(room.ids + i * sizeof(uint64_t), id_at(rows->first + i));
        memcpy(room.rows + i * ROW_BYTES, &rows->value, sizeof(rows->value));
    }
    frame.table = TABLE;
    frame.dtype = PSD_F32;
    say(bed, bed->worker[rank], frame, payload, psi_rows_bytes(ROW_BYTES, rows->count, 0));
}

static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, struct rows rows)
{
    const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_PUSH_PULL,
                                    .flags = PSI_FLAG_KEEPS,
                                    .step = step,
                                    .seq = step + 1,
                                    .request = (uint32_t)step + 1};

    send_rows(bed, rank, frame, &rows);
}

static void
show(struct lane_bed *bed, uint32_t rank, uint32_t part, uint16_t flags, struct rows rows)
{
    const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_PUSH,
                                    .flags = PSI_FLAG_RESULT | flags,
                                    .step = STEP,
                                    .request = part};

    send_rows(bed, rank, frame, &rows);
}

static void
adopt(struct lane_bed *bed, uint32_t rank, uint64_t base)
{
    struct psi_adopt_run run = {.count = 1, .base = base, .has = PSI_HAS_KEPT};
    const struct psi_adopt adopt = {.runs = 1, .run = &run};
    uint8_t bytes[64];
    struct psi_pack pack;

    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_adopt_encode(&pack, &adopt);
    say(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_ADOPT, .table = TABLE}, bytes,
        pack.used);
}

static void
expect_give(struct lane_bed *bed, uint32_t rank, uint32_t part)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_GIVE);

    assert_non_null(heard);
    assert_int_equal(heard->frame.step, STEP);
    assert_int_equal(heard->frame.request, part);
}

static bool
is_asked_again(struct lane_bed *bed, uint32_t rank, uint64_t step)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_RESEND);

    return heard != NULL && heard->frame.step == step;
}

/* The next answer has these rows and no others, and these flags. */
static void
expect_rows(struct lane_bed *bed, uint32_t rank, struct rows rows, uint16_t flags)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_SPARSE_VALUE);
    const uint8_t *at;

    assert_non_null(heard);
    assert_int_equal(heard->frame.flags, flags);
    assert_int_equal(heard->frame.payload_bytes, psi_rows_bytes(ROW_BYTES, rows.count, 0));
    at = heard->body + PSI_ROWS_HEAD_BYTES;
    for (uint32_t i = 0; i < rows.count; i++) {
        float value;

        memcpy(&value, at + rows.count * sizeof(uint64_t) + i * ROW_BYTES, sizeof(value));
        assert_int_equal(psi_load_u64(at + i * sizeof(uint64_t)), id_at(rows.first + i));
        assert_true(value == rows.value);
    }
}

/* Worker 0 has gone on with the sum of the step; the last of all still lacks it. */
static void
tell_who_has_it(struct lane_bed *bed)
{
    const uint32_t last = bed->workers - 1;

    for (uint32_t rank = 0; rank < last; rank++) {
        adopt(bed, rank, STEP + 1);
    }
    adopt(bed, last, STEP);
    push(bed, last, STEP, (struct rows){.count = 1, .value = 2});
}

/* ---- the round was open -------------------------------------------------------------------- */

/* If this fails, rows that are pushed again to a server's other life are lost, or count twice. */
static void
test_an_open_round_of_rows_is_given_again(void **state)
{
    struct lane_bed *bed = start_again(2);

    (void)state;
    push(bed, 0, STEP, (struct rows){.count = 2, .value = 1}); /* before it has told where it is */
    adopt(bed, 0, STEP);
    adopt(bed, 1, STEP);
    assert_true(is_asked_again(bed, 0, STEP));
    push(bed, 0, STEP, (struct rows){.count = 2, .value = 1});
    push(bed, 1, STEP, (struct rows){.count = 2, .value = 4});
    expect_rows(bed, 0, (struct rows){.count = 2, .value = 5}, 0);
    push(bed, 1, STEP, (struct rows){.count = 2, .value = 4}); /* after a cut */
    expect_rows(bed, 1, (struct rows){.count = 2, .value = 5}, 0);
    expect_rows(bed, 1, (struct rows){.count = 2, .value = 5}, 0);
    assert_null(hear(bed->worker[0], PSI_FRAME_GIVE));
    lane_bed_stop(bed);
}

/* ---- the round was closed ------------------------------------------------------------------ */

/* If this fails, who lacks a sum of rows when its server dies waits for ever, gets another one, or the next step
 * begins with rows of this one. */
static void
test_a_kept_sum_of_rows_is_shown(void **state)
{
    struct lane_bed *bed = start_again(2);

    (void)state;
    tell_who_has_it(bed);
    expect_give(bed, 0, 0);
    show(bed, 0, 0, 0, (struct rows){.count = 3, .value = 42});
    assert_true(is_asked_again(bed, 1, STEP));
    push(bed, 1, STEP, (struct rows){.count = 1, .value = 2});
    expect_rows(bed, 1, (struct rows){.count = 3, .value = 42}, PSI_FLAG_HOLD);
    for (uint32_t rank = 0; rank < 2; rank++) {
        push(bed, rank, STEP + 1, (struct rows){.first = 2, .count = 2, .value = 3});
    }
    expect_rows(bed, 0, (struct rows){.first = 2, .count = 2, .value = 6}, 0);
    expect_rows(bed, 1, (struct rows){.first = 2, .count = 2, .value = 6}, 0);
    lane_bed_stop(bed);
}

/* If this fails, a sum of no rows is taken for one that nobody can show. */
static void
test_an_empty_sum_is_shown(void **state)
{
    struct lane_bed *bed = start_again(2);

    (void)state;
    tell_who_has_it(bed);
    show(bed, 0, 0, 0, (struct rows){.count = 0});
    push(bed, 1, STEP, (struct rows){.count = 0});
    expect_rows(bed, 1, (struct rows){.count = 0}, PSI_FLAG_HOLD);
    lane_bed_stop(bed);
}

/* If this fails, of a sum that does not fit one frame only a part is there after a server's death, or it opens the
 * round before the last part is here. */
static void
test_a_sum_is_shown_in_parts(void **state)
{
    struct lane_bed *bed = start_again(2);

    (void)state;
    tell_who_has_it(bed);
    expect_give(bed, 0, 0);
    show(bed, 0, 0, PSI_FLAG_MORE, (struct rows){.count = 2, .value = 42});
    assert_false(is_asked_again(bed, 1, STEP));
    expect_give(bed, 0, 1);
    show(bed, 0, 0, PSI_FLAG_MORE, (struct rows){.count = 2, .value = 42}); /* that one is here */
    show(bed, 0, 1, PSI_FLAG_MORE, (struct rows){.first = 2, .count = 3, .value = 42});
    expect_give(bed, 0, 2);
    show(bed, 0, 2, 0, (struct rows){.first = 5, .count = 1, .value = 42});
    push(bed, 1, STEP, (struct rows){.count = 1, .value = 2});
    expect_rows(bed, 1, (struct rows){.count = IDS, .value = 42}, PSI_FLAG_HOLD);
    lane_bed_stop(bed);
}

/* If this fails, rows that one worker had shown before it was cut off count beside those that another shows. */
static void
test_another_shows_all_of_it(void **state)
{
    struct lane_bed *bed = start_again(3);

    (void)state;
    tell_who_has_it(bed);
    expect_give(bed, 0, 0);
    show(bed, 0, 0, PSI_FLAG_MORE, (struct rows){.count = 2, .value = 42});
    expect_give(bed, 0, 1);
    world_hang_up(bed->worker[0]->line, "cut");
    world_settle(&bed->world);
    expect_give(bed, 1, 0);
    show(bed, 1, 0, PSI_FLAG_MORE, (struct rows){.count = 1, .value = 42}); /* it had others */
    expect_give(bed, 1, 1);
    show(bed, 1, 1, 0, (struct rows){.first = 1, .count = 3, .value = 42});
    push(bed, 2, STEP, (struct rows){.count = 1, .value = 2});
    expect_rows(bed, 2, (struct rows){.count = 4, .value = 42}, PSI_FLAG_HOLD);
    lane_bed_stop(bed);
}

/* If this fails, a sum that is shown while workers change opens a round that the master thinks is closed. */
static void
test_nothing_opens_while_the_lane_is_frozen(void **state)
{
    struct lane_bed *bed = start_again(3);

    (void)state;
    tell_who_has_it(bed);
    expect_give(bed, 0, 0);
    propose_only(bed, 1, true);
    show(bed, 0, 0, 0, (struct rows){.count = 3, .value = 42});
    assert_false(is_asked_again(bed, 2, STEP));
    lane_bed_stop(bed);
}

/* If this fails, a worker shows rows in a wrong order, or to a table of another kind, and they are believed. */
static void
test_what_is_no_result(void **state)
{
    struct lane_bed *bed = start_again(2);
    const float number = 1;

    (void)state;
    tell_who_has_it(bed);
    expect_give(bed, 0, 0);
    show(bed, 0, 0, PSI_FLAG_MORE, (struct rows){.first = 1, .count = 2, .value = 42});
    expect_give(bed, 0, 1);
    show(bed, 0, 1, 0, (struct rows){.first = 2, .count = 1, .value = 42});
    assert_true(is_gone(bed->worker[0]));
    assert_non_null(strstr(bed->warnings, "comes behind id"));
    say(bed, bed->worker[1],
        (struct psi_frame){.type = PSI_FRAME_PUSH,
                           .flags = PSI_FLAG_RESULT,
                           .table = TABLE,
                           .dtype = PSD_F32,
                           .step = STEP},
        &number, sizeof(number));
    assert_true(is_gone(bed->worker[1]));
    assert_non_null(strstr(bed->warnings, "which is sparse"));
    lane_bed_stop(bed);

    bed = lane_bed_start_surviving(1); /* its first life asks nobody */
    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "clicks",
                                          .dtype = PSD_F32,
                                          .width = 1,
                                          .use = PSD_USE_SUM});
    show(bed, 0, 0, 0, (struct rows){.count = 1, .value = 42});
    assert_true(is_gone(bed->worker[0]));
    assert_non_null(strstr(bed->warnings, "nobody asked for it"));
    lane_bed_stop(bed);
}

/* ---- those who leave ----------------------------------------------------------------------- */

/* If this fails, a worker whose sum comes in parts does not hear that others wait until it has all of it. */
static void
test_every_part_says_that_others_wait(void **state)
{
    struct lane_bed *bed = start_again(2);
    const struct psi_rows counts = {.asked = 1};
    uint8_t payload[ROOM];

    (void)state;
    bed->lane->config.rows_part_bytes = 1; /* one row each */
    tell_who_has_it(bed);
    show(bed, 0, 0, 0, (struct rows){.count = 2, .value = 42});
    push(bed, 1, STEP, (struct rows){.count = 1, .value = 2});
    expect_rows(bed, 1, (struct rows){.count = 1, .value = 42}, PSI_FLAG_HOLD | PSI_FLAG_MORE);
    psi_store_u64(psi_rows_encode(payload, ROW_BYTES, &counts).asked_ids, id_at(0));
    say(bed, bed->worker[1],
        (struct psi_frame){.type = PSI_FRAME_SPARSE_PULL,
                           .table = TABLE,
                           .dtype = PSD_F32,
                           .step = STEP + 1,
                           .request = STEP + 1},
        payload, psi_rows_bytes(ROW_BYTES, 0, 1));
    expect_rows(bed, 1, (struct rows){.first = 1, .count = 1, .value = 42}, PSI_FLAG_HOLD);
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_open_round_of_rows_is_given_again),
        cmocka_unit_test(test_a_kept_sum_of_rows_is_shown),
        cmocka_unit_test(test_an_empty_sum_is_shown),
        cmocka_unit_test(test_a_sum_is_shown_in_parts),
        cmocka_unit_test(test_another_shows_all_of_it),
        cmocka_unit_test(test_nothing_opens_while_the_lane_is_frozen),
        cmocka_unit_test(test_what_is_no_result),
        cmocka_unit_test(test_every_part_says_that_others_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
