/*
 * results_rows_test.c - what a worker has of a sum of rows when its server is lost: whole sums are kept
 * and shown part by part, half a one comes again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"
#include "client/core/results.h"
#include "client/core/sparse_rows.h"
#include "client/core/sparse_sums.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { WIDE = 1 << 20, IDS = 4, ROOM = 512, ROW_BYTES = sizeof(float) };

/* The index-th of some ids, in the order in which they travel. */
static uint64_t
id_at(uint32_t index)
{
    uint64_t ids[IDS];

    for (uint64_t i = 0; i < IDS; i++) {
        uint64_t to = i;

        for (; to > 0 && psi_bucket_before(70 + i, ids[to - 1]); to--) {
            ids[to] = ids[to - 1];
        }
        ids[to] = 70 + i;
    }
    return ids[index];
}

/* Pushes one row. */
static struct psd_op *
push(struct client_bed *bed, struct psd_table *table, uint64_t step)
{
    const uint64_t id = id_at(0);
    const float gradient = 1;
    const struct sparse_given given = {.push_count = 1, .push_ids = &id, .gradients = &gradient};
    struct psi_transfer args = {.type = PSI_FRAME_SPARSE_PUSH_PULL, .step = step};
    struct psd_op *op = NULL;

    assert_int_equal(psi_sparse_rows_create(&table->spec, (uint32_t)table->chunk_count, args.type,
                                            &given, &args.rows, NULL),
                     PSD_OK);
    assert_int_equal(psi_client_transfer(bed->client, table, &args, &op, NULL), PSD_OK);
    psi_client_send(bed->client);
    return op;
}

/* Some rows of a sum, all of them `value`. */
struct piece {
    uint32_t first;
    uint32_t count;
    float value;
    uint16_t flags;
};

static size_t
encode(const struct piece *part, uint8_t payload[ROOM])
{
    uint64_t ids[IDS];
    float rows[IDS];

    for (uint32_t i = 0; i < part->count; i++) {
        ids[i] = id_at(part->first + i);
        rows[i] = part->value;
    }
    psi_rows_sum_encode(payload, ROW_BYTES, ids, rows, part->count);
    return psi_rows_bytes(ROW_BYTES, part->count, 0);
}

static void
answer(struct client_bed *bed, const struct psi_frame *request, struct piece part)
{
    uint8_t payload[ROOM];
    const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_VALUE,
                                    .flags = part.flags,
                                    .dtype = PSD_F32,
                                    .payload_bytes = (uint32_t)encode(&part, payload),
                                    .request = request->request,
                                    .table = request->table,
                                    .chunk = request->chunk,
                                    .step = request->step + 1};

    world_say_bytes(&bed->world, bed_lane(bed, 0), &frame, NULL, payload, frame.payload_bytes);
}

static const struct psi_frame *
expect(struct client_bed *bed, uint8_t type, uint16_t flags)
{
    const struct psi_frame *frame = bed_sent(bed, 0);

    assert_non_null(frame);
    assert_int_equal(frame->type, type);
    assert_int_equal(frame->flags, flags);
    return frame;
}

/* The sum of a step, in two parts. */
static void
answer_in_parts(struct client_bed *bed, float value)
{
    const struct psi_frame request = *expect(bed, PSI_FRAME_SPARSE_PUSH_PULL, PSI_FLAG_KEEPS);

    answer(bed, &request, (struct piece){0, 2, value, PSI_FLAG_MORE});
    (void)expect(bed, PSI_FRAME_SPARSE_PULL, 0);
    answer(bed, &request, (struct piece){2, 1, value, 0});
}

/* The server dies, and its other life is there. */
static void
lose(struct client_bed *bed)
{
    bed_cut(bed, 0);
    bed_begin_life(bed, 0);
    bed_come_back(bed, 0);
}

static void
expect_adopt(struct client_bed *bed, uint64_t base, enum psi_has has)
{
    static struct psi_adopt_run room[PSI_ADOPT_RUNS_MAX];
    const struct world_heard *heard = world_hear(bed_lane(bed, 0), PSI_FRAME_ADOPT);
    struct psi_adopt adopt = {.run = room};

    assert_non_null(heard);
    assert_int_equal(psi_adopt_decode(heard->body, heard->frame.payload_bytes, &adopt, NULL),
                     PSD_OK);
    assert_int_equal(adopt.runs, 1);
    assert_int_equal(adopt.run[0].base, base);
    assert_int_equal(adopt.run[0].has, has);
}

static void
ask_for(struct client_bed *bed, const struct psd_table *table, uint64_t step, uint32_t part)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_GIVE, .table = table->id, .step = step, .request = part};

    world_say(&bed->world, bed_lane(bed, 0), &frame, NULL);
}

/* It shows that part of the sum of the step, with the bytes in which it came. */
static void
expect_shown(struct client_bed *bed, const struct psd_table *table, uint64_t step, uint32_t number,
             struct piece part)
{
    const struct world_heard *heard;
    uint8_t payload[ROOM];
    const size_t bytes = encode(&part, payload);

    ask_for(bed, table, step, number);
    heard = world_hear(bed_lane(bed, 0), PSI_FRAME_SPARSE_PUSH);
    assert_non_null(heard);
    assert_int_equal(heard->frame.flags, PSI_FLAG_RESULT | part.flags);
    assert_int_equal(heard->frame.request, number);
    assert_int_equal(heard->frame.step, step);
    assert_int_equal(heard->frame.dtype, PSD_F32);
    assert_int_equal(heard->frame.payload_bytes, bytes);
    assert_memory_equal(heard->body, payload, bytes);
}

/* If this fails, the sum of a step is gone when all who have it have read it, or a part of it; or a worker on another
 * host than its server cannot show it. */
static void
test_a_sum_that_was_read_is_shown(void **state)
{
    static const bool near[] = {true, false};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct client_bed *bed = client_bed_start_surviving(1, near[i], WIDE);
        struct psd_table *table = bed_open_sum_of_rows(bed);
        struct psd_op *op = push(bed, table, 0);

        answer_in_parts(bed, 8);
        bed_end_well(bed, op); /* the program has let go of it */
        lose(bed);
        expect_adopt(bed, 1, PSI_HAS_KEPT);
        expect_shown(bed, table, 0, 0, (struct piece){0, 2, 8, PSI_FLAG_MORE});
        expect_shown(bed, table, 0, 1, (struct piece){2, 1, 8, 0});
        ask_for(bed, table, 0, 2); /* there is no such part */
        assert_null(bed_lane(bed, 0));
        client_bed_stop(bed);
    }
}

/* If this fails, a worker shows the sum of another step than it is asked for, or keeps all sums that there ever were. */
static void
test_the_last_sum_is_kept_and_no_other(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, WIDE);
    struct psd_table *table = bed_open_sum_of_rows(bed);
    uint64_t bytes = 0;

    (void)state;
    for (uint64_t step = 0; step < 3; step++) {
        struct psd_op *op = push(bed, table, step);

        answer_in_parts(bed, (float)step);
        bed_end_well(bed, op);
        bytes = step == 0 ? bed->client->kept_bytes : bytes;
        assert_int_equal(bed->client->kept_bytes, bytes);
    }
    assert_int_equal(bytes, psi_rows_bytes(ROW_BYTES, 2, 0) + psi_rows_bytes(ROW_BYTES, 1, 0));
    lose(bed);
    expect_adopt(bed, 3, PSI_HAS_KEPT);
    expect_shown(bed, table, 2, 0, (struct piece){0, 2, 2, PSI_FLAG_MORE});
    expect_shown(bed, table, 2, 1, (struct piece){2, 1, 2, 0});
    ask_for(bed, table, 1, 0);
    assert_null(bed_lane(bed, 0));
    client_bed_stop(bed);
}

/* If this fails, a part of a sum that came before its server died counts beside the sum that comes from its other life. */
static void
test_half_a_sum_comes_again(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, WIDE);
    struct psd_table *table = bed_open_sum_of_rows(bed);
    struct psd_op *op = push(bed, table, 0);
    const struct sparse_sums *sums = psi_sparse_rows_sums(op->transfer.rows);
    uint64_t ids[IDS];
    float rows[IDS];

    (void)state;
    answer(bed, expect(bed, PSI_FRAME_SPARSE_PUSH_PULL, PSI_FLAG_KEEPS),
           (struct piece){0, 2, 8, PSI_FLAG_MORE});
    lose(bed);
    expect_adopt(bed, 0, PSI_HAS_PASSED);
    assert_false(psi_op_ended(op));
    answer(bed, expect(bed, PSI_FRAME_SPARSE_PUSH_PULL, PSI_FLAG_KEEPS),
           (struct piece){1, 3, 9, 0});
    assert_true(psi_op_ended(op));
    assert_int_equal(psi_sparse_sums_count(sums), 3);
    assert_true(psi_sparse_sums_read(sums, ids, rows));
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(rows[i] == 9);
        assert_true(ids[i] != id_at(0));
    }
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, a worker says that it has a sum of which a part is missing; or never says so, and who leaves waits. */
static void
test_got_is_said_with_the_last_part(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, false, WIDE);
    struct psd_table *table = bed_open_sum_of_rows(bed);
    struct psd_op *op = push(bed, table, 0);
    const struct psi_frame request = *expect(bed, PSI_FRAME_SPARSE_PUSH_PULL, PSI_FLAG_KEEPS);

    (void)state;
    answer(bed, &request, (struct piece){0, 2, 8, PSI_FLAG_MORE | PSI_FLAG_HOLD});
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT));
    answer(bed, &request, (struct piece){2, 1, 8, PSI_FLAG_HOLD});
    psi_client_send(bed->client);
    assert_non_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT));
    bed_end_well(bed, op); /* it keeps it, and need not wait for the others */
    client_bed_stop(bed);
}

/* If this fails, jobs that end with their server keep sums for nobody. */
static void
test_nothing_is_kept_in_vain(void **state)
{
    struct client_bed *bed = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct psd_table *table = bed_open_sum_of_rows(bed);
    struct psd_op *op = push(bed, table, 0);

    (void)state;
    answer(bed, expect(bed, PSI_FRAME_SPARSE_PUSH_PULL, 0), (struct piece){0, 3, 8, 0});
    bed_end_well(bed, op);
    assert_int_equal(bed->client->kept_bytes, 0);
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sum_that_was_read_is_shown),
        cmocka_unit_test(test_the_last_sum_is_kept_and_no_other),
        cmocka_unit_test(test_half_a_sum_comes_again),
        cmocka_unit_test(test_got_is_said_with_the_last_part),
        cmocka_unit_test(test_nothing_is_kept_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
