/*
 * rows_test.c - a lane and its share of a sparse table, frame by frame: what counts, what is answered,
 * and who loses its connection.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "server/lane_bed.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { TABLE = 1, ROOM = 4096, ROW_BYTES = sizeof(float) };

static struct lane_bed *
start(uint32_t workers, enum psi_death_policy policy, uint32_t staleness)
{
    struct lane_bed *bed = lane_bed_start(workers, policy);
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADD};

    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = 1,
                                          .reduce = PSD_REDUCE_SUM,
                                          .rule = &rule,
                                          .staleness = staleness});
    return bed;
}

/* What a worker says: one value for each of some ids, which are in order; and asks for. */
struct message {
    uint32_t pushed;
    uint64_t ids[4];
    float values[4];
    uint32_t asked;
    uint64_t asked_ids[4];
};

static size_t
write_message(uint8_t *payload, uint8_t type, const struct message *message)
{
    const struct psi_rows counts = {.pushed = message->pushed,
                                    .asked = message->asked,
                                    .gradients = psi_frame_has_gradient(type)};
    const struct psi_rows_room room = psi_rows_encode(payload, ROW_BYTES, &counts);

    for (uint32_t i = 0; i < message->pushed; i++) {
        psi_store_u64(room.ids + 8 * i, message->ids[i]);
    }
    memcpy(room.rows, message->values, message->pushed * ROW_BYTES);
    for (uint32_t i = 0; i < message->asked; i++) {
        psi_store_u64(room.asked_ids + 8 * i, message->asked_ids[i]);
    }
    return psi_rows_bytes(ROW_BYTES, message->pushed, message->asked);
}

static void
send_as(struct lane_bed *bed, struct peer *peer, struct psi_frame frame,
        const struct message *message)
{
    uint8_t payload[ROOM];
    const size_t bytes = write_message(payload, frame.type, message);

    frame.table = TABLE;
    frame.dtype = PSD_F32;
    say(bed, peer, frame, payload, bytes);
}

static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, const struct message *message)
{
    const uint8_t type = message->asked > 0 ? PSI_FRAME_SPARSE_PUSH_PULL : PSI_FRAME_SPARSE_PUSH;
    const struct psi_frame frame = {
        .type = type, .step = step, .seq = step + 1, .request = (uint32_t)step + 1};

    send_as(bed, bed->worker[rank], frame, message);
}

static void
ask(struct lane_bed *bed, uint32_t rank, uint64_t step, uint16_t flags, uint64_t id)
{
    const struct message message = {.asked = 1, .asked_ids = {id}};
    const struct psi_frame frame = {
        .type = PSI_FRAME_SPARSE_PULL, .step = step, .flags = flags, .request = 99};

    send_as(bed, bed->worker[rank], frame, &message);
}

/* The index-th row of the next answer; NAN: there is none. */
static float
value(struct lane_bed *bed, uint32_t rank, uint32_t index)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_SPARSE_VALUE);
    float row;

    if (heard == NULL) {
        return NAN;
    }
    assert_true(heard->frame.payload_bytes >= PSI_ROWS_HEAD_BYTES + (index + 1) * ROW_BYTES);
    memcpy(&row, heard->body + PSI_ROWS_HEAD_BYTES + index * ROW_BYTES, sizeof(row));
    return row;
}

/* Two ids as they travel. */
static void
in_order(uint64_t *a, uint64_t *b)
{
    if (psi_bucket_before(*b, *a)) {
        const uint64_t other = *a;

        *a = *b;
        *b = other;
    }
}

/* ---- what counts --------------------------------------------------------------------------- */

/* If this fails, a round closes without somebody, or adds up rows of different ids. */
static void
test_rows_meet_in_a_round(void **state)
{
    struct lane_bed *bed = start(3, PSI_DEATH_FAIL, 0);
    struct message both = {.pushed = 2, .ids = {11, 12}, .values = {1, 1}, .asked = 2};
    const struct message one = {.pushed = 1, .ids = {11}, .values = {4}};
    const struct message none = {.pushed = 0};

    (void)state;
    in_order(&both.ids[0], &both.ids[1]);
    memcpy(both.asked_ids, both.ids, sizeof(both.ids));
    push(bed, 1, 0, &both);
    push(bed, 0, 0, &one);
    assert_true(isnan(value(bed, 1, 0)));
    push(bed, 2, 0, &none);
    assert_non_null(hear(bed->worker[0], PSI_FRAME_ACK));
    assert_true(value(bed, 1, both.ids[0] == 11 ? 0 : 1) == 5);
    ask(bed, 0, 1, 0, 12);
    assert_true(value(bed, 0, 0) == 1);
    lane_bed_stop(bed);
}

/* If this fails, a push that is repeated after a cut counts twice, or brings no rows. */
static void
test_a_repeated_push_counts_once(void **state)
{
    static const uint32_t staleness[] = {0, 2, PSD_STALENESS_UNBOUNDED};
    const struct message message = {
        .pushed = 1, .ids = {7}, .values = {3}, .asked = 1, .asked_ids = {7}};

    (void)state;
    for (size_t i = 0; i < sizeof(staleness) / sizeof(staleness[0]); i++) {
        struct lane_bed *bed = start(1, PSI_DEATH_FAIL, staleness[i]);

        push(bed, 0, 0, &message);
        assert_true(value(bed, 0, 0) == 3);
        bed->worker[0] = meet(bed, 0, 1);
        push(bed, 0, 0, &message);
        assert_true(value(bed, 0, 0) == 3);
        push(bed, 0, 1, &message);
        assert_true(value(bed, 0, 0) == 6);
        lane_bed_stop(bed);
    }
}

/* If this fails, the rows that a request asks for are forgotten while it waits. */
static void
test_a_lookup_waits_for_its_step(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, 0);
    const struct message message = {.pushed = 1, .ids = {7}, .values = {3}};

    (void)state;
    ask(bed, 0, 1, 0, 7);
    push(bed, 1, 0, &message);
    assert_true(isnan(value(bed, 0, 0)));
    push(bed, 0, 0, &message);
    assert_true(value(bed, 0, 0) == 6);
    lane_bed_stop(bed);
}

/* If this fails, a replacement computes its step again from rows of the step behind it. */
static void
test_the_last_version_is_kept(void **state)
{
    struct lane_bed *bed = start(1, PSI_DEATH_WAIT, 0);
    const struct message seven = {.pushed = 1, .ids = {7}, .values = {3}};
    const struct message eight = {.pushed = 1, .ids = {8}, .values = {1}};

    (void)state;
    push(bed, 0, 0, &seven);
    push(bed, 0, 1, &seven);
    ask(bed, 0, 1, PSI_FLAG_EXACT, 7);
    assert_true(value(bed, 0, 0) == 3);
    ask(bed, 0, 2, PSI_FLAG_EXACT, 7);
    assert_true(value(bed, 0, 0) == 6);
    push(bed, 0, 2, &eight);
    ask(bed, 0, 2, PSI_FLAG_EXACT, 7);
    assert_true(value(bed, 0, 0) == 6); /* the last step left it as it was */
    ask(bed, 0, 2, PSI_FLAG_EXACT, 8);
    assert_true(value(bed, 0, 0) == 0); /* it was not there */
    lane_bed_stop(bed);
}

/* ---- in parts ------------------------------------------------------------------------------ */

/* A push of one value for each of four ids, as one frame for each id. */
struct in_parts {
    uint32_t rank;
    uint64_t step;
    uint64_t ids[4]; /* in order */
};

static struct in_parts
in_parts(uint32_t rank, uint64_t step)
{
    struct in_parts parts = {.rank = rank, .step = step, .ids = {21, 22, 23, 24}};

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 3; i++) {
            in_order(&parts.ids[i], &parts.ids[i + 1]);
        }
    }
    return parts;
}

static void
send_part(struct lane_bed *bed, const struct in_parts *parts, unsigned part)
{
    const struct message message = {
        .pushed = 1, .ids = {parts->ids[part]}, .values = {(float)(part + 1)}};
    const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_PUSH,
                                    .flags = part < 3 ? PSI_FLAG_MORE : 0,
                                    .step = parts->step,
                                    .seq = parts->step + 1,
                                    .request = (uint32_t)parts->step + 1};

    send_as(bed, bed->worker[parts->rank], frame, &message);
}

static void
assert_parts(struct lane_bed *bed, const struct in_parts *parts, float times)
{
    for (unsigned part = 0; part < 4; part++) {
        ask(bed, parts->rank, parts->step + 1, 0, parts->ids[part]);
        assert_true(value(bed, parts->rank, 0) == times * (float)(part + 1));
    }
}

/* If this fails, a push that comes in parts counts before the last one is here, or not all of them
 * count, or those that came before a cut count, too. */
static void
test_parts_count_with_the_last(void **state)
{
    static const uint32_t staleness[] = {0, 2, PSD_STALENESS_UNBOUNDED};

    (void)state;
    for (size_t i = 0; i < sizeof(staleness) / sizeof(staleness[0]); i++) {
        struct lane_bed *bed = start(1, PSI_DEATH_FAIL, staleness[i]);
        const struct in_parts parts = in_parts(0, 0);

        send_part(bed, &parts, 0);
        send_part(bed, &parts, 1);
        bed->worker[0] = meet(bed, 0, 1);
        for (unsigned part = 0; part < 3; part++) {
            send_part(bed, &parts, part);
            assert_null(hear(bed->worker[0], PSI_FRAME_ACK));
        }
        send_part(bed, &parts, 3);
        assert_non_null(hear(bed->worker[0], PSI_FRAME_ACK));
        assert_parts(bed, &parts, 1);
        lane_bed_stop(bed);
    }
}

/* If this fails, parts that came while their round was not open, and were let go, are missing in what
 * counts. */
static void
test_parts_that_came_too_early_are_asked_for_again(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, 0);
    const struct message none = {.pushed = 0};
    const struct in_parts parts = in_parts(0, 1);

    (void)state;
    push(bed, 0, 0, &none);
    send_part(bed, &parts, 0);
    push(bed, 1, 0, &none);
    for (unsigned part = 1; part < 4; part++) {
        send_part(bed, &parts, part);
    }
    assert_non_null(hear(bed->worker[0], PSI_FRAME_RESEND));
    push(bed, 1, 1, &none);
    for (unsigned part = 0; part < 4; part++) {
        send_part(bed, &parts, part);
    }
    assert_parts(bed, &parts, 1);
    lane_bed_stop(bed);
}

/* If this fails, ids that are in order in each part, and not from part to part, reach the store; or
 * parts of one push are taken for those of another. */
static void
test_parts_that_do_not_fit(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, 0);
    const struct in_parts parts = in_parts(0, 0);
    const struct in_parts other = in_parts(1, 0);
    const struct psi_frame whole = {.type = PSI_FRAME_SPARSE_PUSH, .seq = 2, .request = 9};
    const struct message seven = {.pushed = 1, .ids = {7}, .values = {3}};
    const struct message none = {.pushed = 0};

    (void)state;
    send_part(bed, &parts, 1);
    send_part(bed, &parts, 0);
    assert_true(is_gone(bed->worker[0]));
    assert_non_null(strstr(bed->warnings, "not sorted between parts"));
    send_part(bed, &other, 2);
    send_as(bed, bed->worker[1], whole, &seven);
    bed->worker[0] = meet(bed, 0, 1);
    push(bed, 0, 0, &none);
    ask(bed, 0, 1, 0, 7);
    assert_true(value(bed, 0, 0) == 3);
    ask(bed, 0, 1, 0, other.ids[2]);
    assert_true(value(bed, 0, 0) == 0);
    lane_bed_stop(bed);
}

/* ---- sums ---------------------------------------------------------------------------------- */

static struct lane_bed *
start_sum(uint32_t workers, psd_reduce reduce)
{
    struct lane_bed *bed = lane_bed_start(workers, PSI_DEATH_FAIL);

    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = 1,
                                          .use = PSD_USE_SUM,
                                          .reduce = reduce});
    return bed;
}

static void
push_sum(struct lane_bed *bed, uint32_t rank, uint64_t step, const struct message *message)
{
    const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_PUSH_PULL,
                                    .step = step,
                                    .seq = step + 1,
                                    .request = (uint32_t)step + 1};

    send_as(bed, bed->worker[rank], frame, message);
}

/* The next answer has these rows. */
static void
assert_sum(struct lane_bed *bed, uint32_t rank, const struct message *expected)
{
    const struct world_heard *heard = hear(bed->worker[rank], PSI_FRAME_SPARSE_VALUE);
    const struct psi_rows_form form = {
        .row_bytes = ROW_BYTES, .bucket_bits = PSI_BUCKET_BITS, .end_bucket = 1 << PSI_BUCKET_BITS};
    struct psi_rows rows;
    struct psd_error err;

    assert_non_null(heard);
    assert_int_equal(
        psi_rows_sum_decode(heard->body, heard->frame.payload_bytes, &form, &rows, &err), PSD_OK);
    assert_int_equal(rows.pushed, expected->pushed);
    assert_memory_equal(rows.ids, expected->ids, rows.pushed * sizeof(uint64_t));
    assert_memory_equal(rows.rows, expected->values, rows.pushed * ROW_BYTES);
}

/* If this fails, a sum lacks rows, has those of another step, or is not divided by all; or a push that
 * is repeated after a cut changes it. */
static void
test_a_sum_answers_a_push(void **state)
{
    struct lane_bed *bed = start_sum(2, PSD_REDUCE_MEAN);
    struct message both = {.pushed = 2, .ids = {11, 12}, .values = {1, 3}};
    const struct message none = {.pushed = 0};
    const struct message one = {.pushed = 1, .ids = {11}, .values = {2}};
    struct message mean = {.pushed = 2, .values = {0.5f, 1.5f}};
    const struct message half = {.pushed = 1, .ids = {11}, .values = {1}};

    (void)state;
    in_order(&both.ids[0], &both.ids[1]);
    memcpy(mean.ids, both.ids, sizeof(mean.ids));
    push_sum(bed, 0, 0, &both);
    assert_null(hear(bed->worker[0], PSI_FRAME_SPARSE_VALUE));
    push_sum(bed, 1, 0, &none);
    assert_sum(bed, 0, &mean);
    assert_sum(bed, 1, &mean);
    push_sum(bed, 0, 1, &one);
    bed->worker[1] = meet(bed, 1, 1);
    push_sum(bed, 1, 0, &none);
    assert_sum(bed, 1, &mean);
    push_sum(bed, 1, 1, &none);
    assert_sum(bed, 1, &half);
    assert_sum(bed, 0, &half);
    push_sum(bed, 0, 2, &none);
    push_sum(bed, 1, 2, &none);
    assert_sum(bed, 0, &none);
    lane_bed_stop(bed);
}

/* If this fails, a worker that has the first part of a sum gets another rest than it lacks. */
static void
test_the_rest_of_a_sum(void **state)
{
    struct lane_bed *bed = start_sum(1, PSD_REDUCE_SUM);
    const struct in_parts parts = in_parts(0, 0);
    struct message all = {.pushed = 4, .values = {1, 2, 3, 4}};
    struct message rest = {.pushed = 2, .values = {3, 4}};
    const struct message none = {.pushed = 0};

    (void)state;
    memcpy(all.ids, parts.ids, sizeof(all.ids));
    memcpy(rest.ids, parts.ids + 2, 2 * sizeof(rest.ids[0]));
    push_sum(bed, 0, 0, &all);
    assert_sum(bed, 0, &all);
    ask(bed, 0, 1, 0, parts.ids[1]);
    assert_sum(bed, 0, &rest);
    ask(bed, 0, 1, 0, parts.ids[3]);
    assert_sum(bed, 0, &none);
    lane_bed_stop(bed);
}

/* If this fails, numbers that became infinite in a sum of rows are answered. */
static void
test_a_sum_of_rows_that_is_not_finite(void **state)
{
    struct lane_bed *bed = start_sum(2, PSD_REDUCE_SUM);
    const struct message large = {.pushed = 1, .ids = {123}, .values = {3e38f}};
    const char *text = "";
    int exit_code = 0;

    (void)state;
    push_sum(bed, 0, 0, &large);
    push_sum(bed, 1, 0, &large);
    assert_true(lane_finished(bed->lane, &exit_code, &text));
    assert_int_equal(exit_code, PSI_EXIT_NOT_FINITE);
    assert_non_null(strstr(text, "of id 123"));
    lane_bed_stop(bed);
}

/* If this fails, a sum is asked for rows that it does not keep. */
static void
test_frames_that_a_sum_does_not_take(void **state)
{
    struct lane_bed *bed = start_sum(3, PSD_REDUCE_SUM);
    struct message two = {.asked = 2, .asked_ids = {11, 12}};
    const struct message one = {.pushed = 1, .ids = {7}, .values = {3}};
    const struct psi_frame pull = {.type = PSI_FRAME_SPARSE_PULL, .request = 1};

    (void)state;
    in_order(&two.asked_ids[0], &two.asked_ids[1]);
    push_sum(bed, 0, 0, &two);
    assert_true(is_gone(bed->worker[0]));
    send_as(bed, bed->worker[1], pull, &two);
    assert_true(is_gone(bed->worker[1]));
    assert_non_null(strstr(bed->warnings, "2 rows asked for, more than 1"));
    push(bed, 2, 0, &one);
    assert_true(is_gone(bed->worker[2]));
    assert_non_null(strstr(bed->warnings, "whose sum answers a SPARSE_PUSH_PULL"));
    lane_bed_stop(bed);
}

/* ---- who loses its connection -------------------------------------------------------------- */

static void
assert_cut(uint8_t type, const struct message *message, const char *says)
{
    struct lane_bed *bed = start(1, PSI_DEATH_FAIL, 0);
    const struct psi_frame frame = {.type = type, .seq = 1, .request = 1};

    send_as(bed, bed->worker[0], frame, message);
    assert_true(is_gone(bed->worker[0]));
    if (strstr(bed->warnings, says) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", says, bed->warnings);
    }
    lane_bed_stop(bed);
}

/* If this fails, a store that relies on the order of ids is given others, or nobody says who did. */
static void
test_ids_that_are_not_in_order(void **state)
{
    struct message wrong = {.pushed = 2, .ids = {11, 12}, .asked = 2};
    const struct message twice = {.pushed = 2, .ids = {9, 9}};

    (void)state;
    in_order(&wrong.ids[1], &wrong.ids[0]);
    memcpy(wrong.asked_ids, wrong.ids, sizeof(wrong.ids));
    wrong.asked = 0;
    assert_cut(PSI_FRAME_SPARSE_PUSH, &wrong, "SPARSE_PUSH of table e");
    assert_cut(PSI_FRAME_SPARSE_PUSH, &wrong, "not sorted");
    assert_cut(PSI_FRAME_SPARSE_PUSH, &twice, "id 9 comes twice");
    wrong.asked = 2;
    wrong.pushed = 0;
    assert_cut(PSI_FRAME_SPARSE_PULL, &wrong, "not sorted");
    wrong.asked = 1;
    assert_cut(PSI_FRAME_SPARSE_PUSH, &wrong, "asked for");
}

/* If this fails, whoever says so stops the server: a row has 32 bits for a step. */
static void
test_a_step_that_no_row_can_remember(void **state)
{
    struct lane_bed *bed = start(1, PSI_DEATH_FAIL, PSD_STALENESS_UNBOUNDED);
    const struct message message = {.pushed = 1, .ids = {7}, .values = {3}};

    (void)state;
    push(bed, 0, PSI_ROWS_STEP_MAX, &message);
    assert_non_null(hear(bed->worker[0], PSI_FRAME_ACK));
    push(bed, 0, PSI_ROWS_STEP_MAX + UINT64_C(1), &message);
    assert_true(is_gone(bed->worker[0]));
    assert_non_null(strstr(bed->warnings, "at most"));
    lane_bed_stop(bed);
}

/* The id whose mixed id this is. */
static uint64_t
unmix(uint64_t key)
{
    key = (key ^ key >> 31 ^ key >> 62) * UINT64_C(0x319642b2d24d8ec3);
    key = (key ^ key >> 27 ^ key >> 54) * UINT64_C(0x96de1b173f119089);
    return key ^ key >> 30 ^ key >> 60;
}

/* If this fails, a worker whose lookups wait for a slower one loses its connection instead of being
 * told, or its ids fill the server. */
static void
test_more_ids_than_may_wait(void **state)
{
    enum { IDS = 1 << 20, REQUESTS = 64 / 8 };
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, 0);
    const struct psi_rows counts = {.asked = IDS};
    const size_t bytes = psi_rows_bytes(ROW_BYTES, 0, IDS);
    uint8_t *payload = malloc(bytes);
    struct psi_rows_room room;

    (void)state;
    assert_non_null(payload);
    room = psi_rows_encode(payload, ROW_BYTES, &counts);
    for (uint64_t i = 0; i < IDS; i++) {
        psi_store_u64(room.asked_ids + 8 * i, unmix((i + 1) << 32));
    }
    for (uint32_t i = 0; i <= REQUESTS; i++) {
        const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_PULL,
                                        .table = TABLE,
                                        .dtype = PSD_F32,
                                        .step = 1,
                                        .request = i + 1};

        say(bed, bed->worker[0], frame, payload, bytes);
        assert_false(is_gone(bed->worker[0]));
        if (i < REQUESTS) {
            assert_null(hear(bed->worker[0], PSI_FRAME_ACK));
        }
    }
    {
        const struct world_heard *heard = hear(bed->worker[0], PSI_FRAME_ACK);

        assert_non_null(heard);
        assert_int_equal(heard->frame.status, PSD_ERR_BUSY);
        assert_int_equal(heard->frame.request, REQUESTS + 1);
    }
    free(payload);
    lane_bed_stop(bed);
}

/* The ids from 0 on, as they travel. */
static void
put_in_order(uint64_t *ids, uint32_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t to = i;

        for (; to > 0 && psi_bucket_before(i, ids[to - 1]); to--) {
            ids[to] = ids[to - 1];
        }
        ids[to] = i;
    }
}

/* If this fails, two workers that push more rows than their shares of the pool hold wait for each other for ever. */
static void
test_more_rows_than_the_pool_holds(void **state)
{
    enum { WIDTH = 4096, IDS = 600 }; /* 9.4 MiB each, where the pool of both has 18 MiB */
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADD};
    struct lane_bed *bed = lane_bed_start(2, PSI_DEATH_FAIL);
    const struct psi_rows counts = {.pushed = IDS, .gradients = true};
    const size_t bytes = psi_rows_bytes(WIDTH * sizeof(float), IDS, 0);
    uint8_t *payload = calloc(1, bytes);
    struct psi_rows_room room;
    uint64_t ids[IDS];

    (void)state;
    assert_non_null(payload);
    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = WIDTH,
                                          .rule = &rule});
    put_in_order(ids, IDS);
    room = psi_rows_encode(payload, WIDTH * sizeof(float), &counts);
    for (uint32_t i = 0; i < IDS; i++) {
        psi_store_u64(room.ids + 8 * i, ids[i]);
    }
    for (uint64_t step = 0; step < 3; step++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_PUSH,
                                            .table = TABLE,
                                            .dtype = PSD_F32,
                                            .step = step,
                                            .seq = step + 1,
                                            .request = (uint32_t)step + 1};

            say(bed, bed->worker[rank], frame, payload, bytes);
            assert_false(is_gone(bed->worker[rank]));
        }
    }
    ask(bed, 0, 3, 0, ids[0]);
    assert_true(value(bed, 0, 0) == 0);
    free(payload);
    lane_bed_stop(bed);
}

/* If this fails, a short frame makes a server take memory for an answer that nobody can be sent. */
static void
test_more_rows_than_an_answer_holds(void **state)
{
    enum { WIDTH = 4096, IDS = 1025 };
    struct lane_bed *bed = lane_bed_start(1, PSI_DEATH_FAIL);
    const struct psi_rows counts = {.asked = IDS};
    const struct psi_frame frame = {
        .type = PSI_FRAME_SPARSE_PULL, .table = TABLE, .dtype = PSD_F32, .request = 1};
    static uint8_t payload[PSI_ROWS_HEAD_BYTES + IDS * sizeof(uint64_t)];
    const struct psi_rows_room room = psi_rows_encode(payload, WIDTH * sizeof(float), &counts);
    uint64_t ids[IDS];

    (void)state;
    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = WIDTH});
    put_in_order(ids, IDS);
    for (uint32_t i = 0; i < IDS; i++) {
        psi_store_u64(room.asked_ids + 8 * i, ids[i]);
    }
    say(bed, bed->worker[0], frame, payload, sizeof(payload));
    assert_true(is_gone(bed->worker[0]));
    assert_non_null(strstr(bed->warnings, "more than a frame holds"));
    lane_bed_stop(bed);
}

/* If this fails, a frame for one kind of table is taken by the other. */
static void
test_frames_of_the_other_kind(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, 0);
    const float number = 1;
    const struct psi_frame push_frame = {
        .type = PSI_FRAME_PUSH, .table = TABLE, .dtype = PSD_F32, .seq = 1, .request = 1};
    const struct psi_frame pull_frame = {.type = PSI_FRAME_PULL, .table = TABLE, .request = 1};

    (void)state;
    say(bed, bed->worker[0], push_frame, &number, sizeof(number));
    assert_true(is_gone(bed->worker[0]));
    say(bed, bed->worker[1], pull_frame, NULL, 0);
    assert_true(is_gone(bed->worker[1]));
    assert_non_null(strstr(bed->warnings, "which is sparse"));
    lane_bed_stop(bed);
}

/* If this fails, numbers that became infinite on the way to a sum are trained with. */
static void
test_a_sum_that_is_not_finite(void **state)
{
    struct lane_bed *bed = start(2, PSI_DEATH_FAIL, 0);
    const struct message large = {.pushed = 1, .ids = {123}, .values = {3e38f}};
    const char *text = "";
    int exit_code = 0;

    (void)state;
    push(bed, 0, 0, &large);
    push(bed, 1, 0, &large);
    assert_true(lane_finished(bed->lane, &exit_code, &text));
    assert_int_equal(exit_code, PSI_EXIT_NOT_FINITE);
    assert_non_null(strstr(text, "of id 123"));
    lane_bed_stop(bed);
}

/* ---- rows that come and go ----------------------------------------------------------------- */

static struct lane_bed *
start_with(uint32_t admit_after, uint32_t idle_steps)
{
    struct lane_bed *bed = lane_bed_start(1, PSI_DEATH_FAIL);
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADD};

    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = 1,
                                          .rule = &rule,
                                          .admit_after = admit_after,
                                          .idle_steps = idle_steps,
                                          .sweep_every = idle_steps > 0});
    return bed;
}

static float
look(struct lane_bed *bed, uint64_t step, uint64_t id)
{
    ask(bed, 0, step, 0, id);
    return value(bed, 0, 0);
}

/* If this fails, rows go when time has passed, and not steps: two runs keep other rows. */
static void
test_rows_go_by_steps(void **state)
{
    struct lane_bed *bed = start_with(0, 2);
    const struct message seven = {.pushed = 1, .ids = {7}, .values = {3}};
    const struct message eight = {.pushed = 1, .ids = {8}, .values = {1}};

    (void)state;
    push(bed, 0, 0, &seven);
    for (uint64_t step = 1; step < 3; step++) {
        bed->world.now_ns += UINT64_C(3600000000000);
        push(bed, 0, step, &eight);
        assert_true(look(bed, step + 1, 7) == 3); /* an hour, but no more than two steps */
    }
    push(bed, 0, 3, &eight);
    assert_true(look(bed, 4, 7) == 0);
    assert_true(look(bed, 4, 8) == 3);
    lane_bed_stop(bed);
}

/* If this fails, a row comes when its id was seen often, and not in many steps: then it matters how
 * many workers bring it, and who looks at it. */
static void
test_rows_come_by_steps(void **state)
{
    struct lane_bed *bed = start_with(3, 0);
    const struct message seven = {.pushed = 1, .ids = {7}, .values = {3}};

    (void)state;
    for (uint64_t step = 0; step < 3; step++) {
        assert_true(look(bed, step, 7) == 0);
        assert_true(look(bed, step, 7) == 0); /* a look is no push */
        push(bed, 0, step, &seven);
    }
    assert_true(look(bed, 3, 7) == 3); /* with the third */
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_meet_in_a_round),
        cmocka_unit_test(test_a_repeated_push_counts_once),
        cmocka_unit_test(test_a_lookup_waits_for_its_step),
        cmocka_unit_test(test_the_last_version_is_kept),
        cmocka_unit_test(test_parts_count_with_the_last),
        cmocka_unit_test(test_parts_that_came_too_early_are_asked_for_again),
        cmocka_unit_test(test_parts_that_do_not_fit),
        cmocka_unit_test(test_a_sum_answers_a_push),
        cmocka_unit_test(test_the_rest_of_a_sum),
        cmocka_unit_test(test_a_sum_of_rows_that_is_not_finite),
        cmocka_unit_test(test_frames_that_a_sum_does_not_take),
        cmocka_unit_test(test_ids_that_are_not_in_order),
        cmocka_unit_test(test_frames_of_the_other_kind),
        cmocka_unit_test(test_a_sum_that_is_not_finite),
        cmocka_unit_test(test_a_step_that_no_row_can_remember),
        cmocka_unit_test(test_more_rows_than_the_pool_holds),
        cmocka_unit_test(test_more_rows_than_an_answer_holds),
        cmocka_unit_test(test_more_ids_than_may_wait),
        cmocka_unit_test(test_rows_go_by_steps),
        cmocka_unit_test(test_rows_come_by_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
