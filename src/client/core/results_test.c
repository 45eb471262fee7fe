/*
 * results_test.c - what a worker has of results when their server is lost: kept, held, told to its
 * other life, and shown.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>
#include <sys/mman.h>

#include "client/core/client_bed.h"
#include "client/core/results.h"
#include "client/core/table_view.h"

enum { WIDE = 64 * BED_CHUNK_BYTES, NEAR = true, FAR = false, RUNS_MAX = 8 };

/* ---- the servers --------------------------------------------------------------------------- */

/* Memory of a server of this host, on loan. */
struct server_memory {
    struct psi_loan loan; /* first */
    unsigned given_back;
    float *values; /* one chunk */
};

static void
give_back(struct psi_loan *loan)
{
    ((struct server_memory *)loan)->given_back++;
}

static struct server_memory
server_memory(float value)
{
    struct server_memory memory = {.loan = {.give_back = give_back}};

    memory.values =
        mmap(NULL, BED_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory.values != MAP_FAILED);
    for (size_t i = 0; i < PSD_CHUNK_ELEMENTS; i++) {
        memory.values[i] = value;
    }
    return memory;
}

static void
server_memory_fini(struct server_memory *memory)
{
    munmap(memory->values, BED_CHUNK_BYTES);
}

/* The server dies, and its other life is there. */
static void
lose(struct client_bed *bed)
{
    bed_cut(bed, 0);
    bed_begin_life(bed, 0);
    bed_come_back(bed, 0);
}

/* The next ADOPT; it comes before anything else that is not HELLO. */
static uint32_t
hear_adopt(struct client_bed *bed, const struct psd_table *table, struct psi_adopt_run *runs)
{
    static struct psi_adopt_run room[PSI_ADOPT_RUNS_MAX];
    struct world_conn *conn = bed_lane(bed, 0);
    const struct world_heard *heard = conn->heard[conn->heard_read++];
    struct psi_adopt adopt = {.run = room};

    assert_int_equal(heard->frame.type, PSI_FRAME_ADOPT);
    assert_int_equal(heard->frame.table, table->id);
    assert_int_equal(heard->frame.view, bed->view);
    assert_int_equal(psi_adopt_decode(heard->body, heard->frame.payload_bytes, &adopt, NULL),
                     PSD_OK);
    assert_in_range(adopt.runs, 1, RUNS_MAX);
    memcpy(runs, room, adopt.runs * sizeof(*runs));
    return adopt.runs;
}

/* ADOPT says one thing of all chunks of the table. */
static void
expect_adopt(struct client_bed *bed, const struct psd_table *table, uint64_t base, enum psi_has has)
{
    struct psi_adopt_run runs[RUNS_MAX];

    assert_int_equal(hear_adopt(bed, table, runs), 1);
    assert_int_equal(runs[0].first, 0);
    assert_int_equal(runs[0].count, table->chunk_count);
    assert_int_equal(runs[0].base, base);
    assert_int_equal(runs[0].has, has);
}

/* The next GOT speaks of so many chunks. */
static void
expect_gots(struct client_bed *bed, const struct psd_table *table, uint32_t first, uint32_t count,
            uint64_t step)
{
    static struct psi_result room[PSI_RESULTS_MAX];
    const struct world_heard *heard = world_hear(bed_lane(bed, 0), PSI_FRAME_GOT);
    struct psi_results results = {.result = room};

    assert_non_null(heard);
    assert_int_equal(psi_results_decode(heard->body, heard->frame.payload_bytes, &results, NULL),
                     PSD_OK);
    assert_int_equal(results.count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(room[i].table, table->id);
        assert_int_equal(room[i].chunk, first + i);
        assert_int_equal(room[i].step, step);
    }
}

static void
expect_got(struct client_bed *bed, const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    expect_gots(bed, table, chunk, 1, step);
}

static void
say_result(struct client_bed *bed, uint8_t type, const struct psd_table *table, uint32_t chunk,
           uint64_t step)
{
    struct psi_result result = {table->id, chunk, step};
    const struct psi_results results = {.count = 1, .result = &result};
    const struct psi_frame frame = {.type = type};

    WORLD_SAY(&bed->world, bed_lane(bed, 0), &frame, results, &results);
}

static void
say_release(struct client_bed *bed, const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    say_result(bed, PSI_FRAME_RELEASE, table, chunk, step);
}

/* Somebody leaves who has the result: has this worker, too? */
static void
ask_for_got(struct client_bed *bed, const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    say_result(bed, PSI_FRAME_GOT, table, chunk, step);
}

/* What it shows of a chunk, all of it the same number. */
static void
expect_given(struct client_bed *bed, const struct psd_table *table, uint32_t chunk, uint64_t step,
             float value)
{
    const struct world_heard *heard;

    bed_tell(bed, 0, PSI_FRAME_GIVE, table, chunk, step);
    heard = world_hear(bed_lane(bed, 0), PSI_FRAME_PUSH);
    assert_non_null(heard);
    assert_int_equal(heard->frame.flags, PSI_FLAG_RESULT);
    assert_int_equal(heard->frame.table, table->id);
    assert_int_equal(heard->frame.chunk, chunk);
    assert_int_equal(heard->frame.step, step);
    assert_int_equal(heard->frame.dtype, PSD_F32);
    assert_int_equal(heard->frame.payload_bytes, BED_CHUNK_BYTES);
    for (size_t i = 0; i < PSD_CHUNK_ELEMENTS; i++) {
        float number;

        memcpy(&number, heard->body + i * sizeof(number), sizeof(number));
        assert_true(number == value);
    }
}

static const struct psi_frame *
expect_push_pull(struct client_bed *bed, uint32_t chunk)
{
    const struct psi_frame *frame = bed_sent(bed, 0);

    assert_non_null(frame);
    assert_int_equal(frame->type, PSI_FRAME_PUSH_PULL);
    assert_int_equal(frame->chunk, chunk);
    return frame;
}

/* The next pushes are of the first chunks. */
static void
expect_push_pulls(struct client_bed *bed, uint32_t count, const struct psi_frame **frames_p)
{
    for (uint32_t chunk = 0; chunk < count; chunk++) {
        frames_p[chunk] = expect_push_pull(bed, chunk);
    }
}

/* ---- who needs it -------------------------------------------------------------------------- */

/* If this fails, jobs and tables that end with their server pay for those that do not. */
static void
test_only_sums_of_jobs_that_go_on_have_results(void **state)
{
    struct client_bed *ends = client_bed_start(1, PSI_DEATH_FAIL, WIDE);
    struct client_bed *goes_on = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *update;

    (void)state;
    assert_null(bed_open_sum(ends, 1)->results);
    update = bed_open(goes_on, 1, 0, 0);
    assert_null(update->results);
    (void)bed_push_pull(goes_on, update, 0);
    assert_int_equal(expect_push_pull(goes_on, 0)->flags, 0);
    assert_non_null(bed_open_sum(goes_on, 1)->results);
    client_bed_stop(ends);
    client_bed_stop(goes_on);
}

/* If this fails, a server takes a worker that cannot show its results for one that can. */
static void
test_pushes_say_who_keeps(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    assert_int_equal(expect_push_pull(bed, 0)->flags, PSI_FLAG_KEEPS);
    bed->near = FAR; /* the other life is on another host */
    lose(bed);
    assert_int_equal(expect_push_pull(bed, 0)->flags, 0);
    assert_false(psi_op_ended(op));
    client_bed_stop(bed);
}

/* ---- telling another life ------------------------------------------------------------------ */

/* If this fails, another life of a server does not hear of a table before its gradients come, or
 * does not hear of one that is opened later. */
static void
test_tables_are_told_of(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *before = bed_open_sum(bed, 2);
    struct psd_table *after;

    (void)state;
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_ADOPT)); /* the first has what it has */
    lose(bed);
    expect_adopt(bed, before, 0, PSI_HAS_PASSED);
    after = bed_open_sum(bed, 1);
    expect_adopt(bed, after, 0, PSI_HAS_PASSED);
    bed_cut(bed, 0);
    bed_come_back(bed, 0); /* perhaps it did not hear */
    expect_adopt(bed, before, 0, PSI_HAS_PASSED);
    expect_adopt(bed, after, 0, PSI_HAS_PASSED);
    client_bed_stop(bed);
}

/* If this fails, another life of a server takes up a table at the wrong step. */
static void
test_steps_are_told(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 3);
    struct psd_op *first = bed_push_pull(bed, table, 0);
    struct psi_adopt_run runs[RUNS_MAX];

    (void)state;
    (void)bed_push_pull(bed, table, 1); /* has to wait for the first */
    lose(bed);
    expect_adopt(bed, table, 0, PSI_HAS_PASSED);
    bed_value(bed, 0, expect_push_pull(bed, 0), 5);
    lose(bed);
    assert_int_equal(hear_adopt(bed, table, runs), 2);
    assert_int_equal(runs[0].first, 0);
    assert_int_equal(runs[0].count, 1);
    assert_int_equal(runs[0].base, 1); /* it is through with that one, and cannot show it */
    assert_int_equal(runs[0].has, PSI_HAS_NOTHING);
    assert_int_equal(runs[1].first, 1);
    assert_int_equal(runs[1].count, 2);
    assert_int_equal(runs[1].base, 0);
    assert_int_equal(runs[1].has, PSI_HAS_PASSED);
    bed_value(bed, 0, expect_push_pull(bed, 1), 5);
    bed_value(bed, 0, expect_push_pull(bed, 2), 5);
    bed_end_well(bed, first);
    lose(bed);
    expect_adopt(bed, table, 1, PSI_HAS_NOTHING);
    client_bed_stop(bed);
}

/* ---- keeping ------------------------------------------------------------------------------- */

/* If this fails, the memory that a server has lent is held for ever, or used after it was given
 * back. */
static void
test_a_kept_loan_is_given_back_once(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct server_memory memory[2] = {server_memory(5), server_memory(6)};
    struct psd_op *op;

    (void)state;
    for (uint64_t step = 0; step < 2; step++) {
        op = bed_push_pull(bed, table, step);
        assert_int_equal(memory[0].given_back, 0); /* until the next one is here */
        bed_lend(bed, 0, expect_push_pull(bed, 0), memory[step].values, &memory[step].loan, 0);
        bed_end_well(bed, op);
        assert_true(bed->values[0] == 5 + (float)step &&
                    bed->values[PSD_CHUNK_ELEMENTS - 1] == 5 + (float)step);
    }
    assert_int_equal(memory[0].given_back, 1);
    assert_int_equal(memory[1].given_back, 0);
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT)); /* nobody holds it */
    client_bed_stop(bed);
    assert_int_equal(memory[0].given_back, 1);
    assert_int_equal(memory[1].given_back, 1);
    server_memory_fini(&memory[0]);
    server_memory_fini(&memory[1]);
}

/* If this fails, of values that are brought home together one is taken for another, or a loan of theirs
 * is lost. */
static void
test_values_come_together(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 2);
    struct server_memory memory[2] = {server_memory(5), server_memory(6)};
    const void *const values[2] = {memory[0].values, memory[1].values};
    struct psi_loan *const loans[2] = {&memory[0].loan, &memory[1].loan};
    struct psd_op *op = bed_push_pull(bed, table, 0);
    const struct psi_frame *requests[2];

    (void)state;
    requests[0] = expect_push_pull(bed, 0);
    requests[1] = expect_push_pull(bed, 1);
    bed_lend_both(bed, 0, requests, values, loans);
    bed_end_well(bed, op);
    assert_true(bed->values[0] == 5 && bed->values[PSD_CHUNK_ELEMENTS] == 6);
    assert_int_equal(memory[0].given_back + memory[1].given_back, 0);
    client_bed_stop(bed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(memory[i].given_back, 1);
        server_memory_fini(&memory[i]);
    }
}

/* If this fails, a cut while several values are brought home loses what servers have lent, or a value that
 * comes on the next connection is refused. */
static void
test_a_cut_while_values_come_together(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 2);
    struct server_memory memory[2] = {server_memory(5), server_memory(6)};
    const void *const values[2] = {memory[0].values, memory[1].values};
    struct psi_loan *const loans[2] = {&memory[0].loan, &memory[1].loan};
    struct psd_op *op = bed_push_pull(bed, table, 0);
    const struct psi_frame *requests[2];

    (void)state;
    requests[0] = expect_push_pull(bed, 0);
    requests[1] = expect_push_pull(bed, 1);
    bed_lend_half(bed, 0, requests[0], values[0], loans[0], false);
    bed_lend_half(bed, 0, requests[1], values[1], loans[1], true);
    assert_int_equal(memory[0].given_back, 1);
    assert_int_equal(memory[1].given_back, 1);
    assert_false(psi_op_ended(op));
    bed_come_back(bed, 0);
    requests[0] = expect_push_pull(bed, 0);
    requests[1] = expect_push_pull(bed, 1);
    bed_lend_both(bed, 0, requests, values, loans);
    bed_end_well(bed, op);
    client_bed_stop(bed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(memory[i].given_back, 2);
        server_memory_fini(&memory[i]);
    }
}

/* If this fails, a server that answers one request twice at once has two copies written into one place,
 * or its memory let go while it is read. */
static void
test_one_value_does_not_come_twice_at_once(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct server_memory memory = server_memory(5);
    struct psi_conn *conn = &bed_lane(bed, 0)->conn;
    struct psi_sink sink = {.lent = memory.values, .loan = &memory.loan, .stays = true};
    const struct psi_frame *request;
    struct psi_frame value = {.type = PSI_FRAME_VALUE, .payload_bytes = BED_CHUNK_BYTES};
    uint8_t head[PSI_FRAME_BYTES];
    struct psi_frame_size size;
    struct psd_error err;

    (void)state;
    (void)bed_push_pull(bed, table, 0);
    request = expect_push_pull(bed, 0);
    value.request = request->request;
    value.table = request->table;
    bed_lend_half(bed, 0, request, memory.values, &memory.loan, false);
    psi_frame_encode(&value, head);
    assert_int_equal(conn->events->on_prefix(conn->owner, conn, head, &size, &err), PSD_OK);
    assert_int_equal(conn->events->on_head(conn->owner, conn, head, sizeof(head), &sink, &err),
                     PSD_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "it is coming already"));
    bed_cut(bed, 0);
    assert_int_equal(memory.given_back, 1);
    client_bed_stop(bed);
    server_memory_fini(&memory);
}

/* If this fails, memory that a server has lent is held for ever when its connection ends at the wrong
 * moment. */
static void
test_a_loan_that_is_not_heard_of_is_given_back(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct server_memory memory = server_memory(5);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    bed_lend_half(bed, 0, expect_push_pull(bed, 0), memory.values, &memory.loan, true);
    assert_int_equal(memory.given_back, 1);
    assert_false(psi_op_ended(op));
    bed_begin_life(bed, 0);
    bed_come_back(bed, 0);
    expect_adopt(bed, table, 0, PSI_HAS_PASSED);
    client_bed_stop(bed);
    assert_int_equal(memory.given_back, 1);
    server_memory_fini(&memory);
}

/* If this fails, a result is lost with its server although this worker was lent its memory. */
static void
test_a_kept_loan_is_shown(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct server_memory memory = server_memory(5);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    bed_lend(bed, 0, expect_push_pull(bed, 0), memory.values, &memory.loan, 0);
    bed_end_well(bed, op);
    memset(bed->values, 0, BED_CHUNK_BYTES); /* the caller goes on */
    op = bed_push_pull(bed, table, 1);
    for (unsigned life = 0; life < 2; life++) {
        lose(bed);
        expect_adopt(bed, table, 1, PSI_HAS_KEPT);
        expect_given(bed, table, 0, 0, 5);
        assert_int_equal(memory.given_back, 0);
    }
    assert_false(psi_op_ended(op));
    client_bed_stop(bed);
    server_memory_fini(&memory);
}

/* If this fails, a result that came as a copy is gone when its caller writes over it. */
static void
test_a_small_value_is_copied_aside(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 2);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    bed_value(bed, 0, expect_push_pull(bed, 0), 5);
    bed_value(bed, 0, expect_push_pull(bed, 1), 6);
    bed_end_well(bed, op);
    memset(bed->values, 0, 2 * BED_CHUNK_BYTES);
    lose(bed);
    expect_adopt(bed, table, 1, PSI_HAS_KEPT);
    expect_given(bed, table, 0, 0, 5);
    expect_given(bed, table, 1, 0, 6);
    client_bed_stop(bed);
}

/* If this fails, a server that asks for what is not here waits for it for ever. */
static void
test_what_is_not_here_is_not_shown(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    bed_value(bed, 0, expect_push_pull(bed, 0), 5);
    bed_end_well(bed, op);
    bed_tell(bed, 0, PSI_FRAME_GIVE, table, 0, 1);
    assert_null(bed_lane(bed, 0));
    client_bed_stop(bed);
}

/* If this fails, others wait for ever for a worker that need not wait itself; or for one whose word
 * was lost on its way. */
static void
test_who_keeps_says_got_for_those_who_hold(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    bed_value_flagged(bed, 0, expect_push_pull(bed, 0), 5, PSI_FLAG_HOLD);
    bed_end_well(bed, op); /* at once */
    expect_got(bed, table, 0, 0);
    bed_cut(bed, 0);
    bed_come_back(bed, 0);
    expect_got(bed, table, 0, 0);
    say_release(bed, table, 0, 0);
    bed_cut(bed, 0);
    bed_come_back(bed, 0);
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT)); /* everybody has it */
    client_bed_stop(bed);
}

/* ---- holding ------------------------------------------------------------------------------- */

/* If this fails, a worker goes on with a result that another may never get. */
static void
test_a_held_result_waits_for_release(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, BED_CHUNK_BYTES);
    struct psd_table *table = bed_open_sum(bed, 2);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    bed_value_flagged(bed, 0, expect_push_pull(bed, 0), 5, PSI_FLAG_HOLD);
    bed_value_flagged(bed, 0, expect_push_pull(bed, 1), 6, PSI_FLAG_HOLD); /* its room was free */
    expect_gots(bed, table, 0, 2, 0);
    say_release(bed, table, 1, 0);
    say_release(bed, table, 1, 0); /* counts once */
    say_release(bed, table, 0, 1); /* of another step */
    assert_false(psi_op_ended(op));
    say_release(bed, table, 0, 0);
    bed_end_well(bed, op);
    assert_true(bed->values[0] == 5 && bed->values[PSD_CHUNK_ELEMENTS] == 6);
    lose(bed);
    expect_adopt(bed, table, 1, PSI_HAS_PASSED);
    client_bed_stop(bed);
}

/* If this fails, a result that only this worker has is lost when a second server dies, or a gradient
 * that is not there any more is sent again. */
static void
test_a_held_result_outlives_two_lives(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op;

    (void)state;
    bed->in_place = true;
    op = bed_push_pull(bed, table, 0);
    bed_value_flagged(bed, 0, expect_push_pull(bed, 0), 5, PSI_FLAG_HOLD);
    for (unsigned life = 0; life < 2; life++) {
        lose(bed);
        expect_adopt(bed, table, 0, PSI_HAS_HELD);
        expect_got(bed, table, 0, 0);
        expect_given(bed, table, 0, 0, 5);
        assert_null(bed_sent(bed, 0));
        assert_false(psi_op_ended(op));
    }
    say_release(bed, table, 0, 0);
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, each result costs a frame of its own. */
static void
test_got_is_said_once_for_all_that_comes_together(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 3);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        bed_feed_value(bed, 0, expect_push_pull(bed, chunk), 5, PSI_FLAG_HOLD);
    }
    world_settle(&bed->world);
    expect_gots(bed, table, 0, 3, 0);
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT));
    assert_false(psi_op_ended(op));
    client_bed_stop(bed);
}

/* If this fails, each result that comes by itself costs a frame and a RELEASE of its own, although
 * nobody learns anything from them before the last one. */
static void
test_got_waits_for_the_rest_of_its_operation(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 3);
    struct psd_op *op = bed_push_pull(bed, table, 0);
    const struct psi_frame *pushes[3];

    (void)state;
    expect_push_pulls(bed, 3, pushes);
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT));
        bed_value_flagged(bed, 0, pushes[chunk], 5, PSI_FLAG_HOLD);
    }
    expect_gots(bed, table, 0, 3, 0);
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT));
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        say_release(bed, table, chunk, 0);
    }
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, a worker that pushes chunk by chunk, and waits for each, waits for ever for one that
 * pushes them all at once: that one waits for the next chunk. */
static void
test_got_does_not_wait_for_long(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 4);
    struct psd_op *op = bed_push_pull(bed, table, 0);
    const struct psi_frame *pushes[4];

    (void)state;
    expect_push_pulls(bed, 4, pushes);
    bed_value_flagged(bed, 0, pushes[0], 5, PSI_FLAG_HOLD);
    world_wait(&bed->world, 3);
    bed_value_flagged(bed, 0, pushes[1], 5, PSI_FLAG_HOLD);
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT));
    world_wait(&bed->world, 3); /* from the first on */
    expect_gots(bed, table, 0, 2, 0);
    bed_value_flagged(bed, 0, pushes[2], 5, PSI_FLAG_HOLD);
    bed_cut(bed, 0); /* said again at once, whatever has been said */
    bed_come_back(bed, 0);
    expect_gots(bed, table, 0, 3, 0);
    world_wait(&bed->world, 10); /* and not once more */
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT));
    assert_false(psi_op_ended(op));
    client_bed_stop(bed);
}

/* If this fails, a worker waits for ever for a RELEASE that was lost with its connection. */
static void
test_got_is_said_again_after_a_cut(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = bed_push_pull(bed, table, 0);

    (void)state;
    bed_value_flagged(bed, 0, expect_push_pull(bed, 0), 5, PSI_FLAG_HOLD);
    expect_got(bed, table, 0, 0);
    bed_cut(bed, 0);
    bed_come_back(bed, 0);
    expect_got(bed, table, 0, 0);
    assert_null(bed_sent(bed, 0)); /* the gradient has been answered */
    say_release(bed, table, 0, 0);
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, the memory of a caller that has given up is shown as a result, or the caller does not
 * learn what it waited for. */
static void
test_a_caller_that_gives_up_holds_nothing(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = bed_push_pull(bed, table, 0);
    struct psd_error error;

    (void)state;
    bed_value_flagged(bed, 0, expect_push_pull(bed, 0), 5, PSI_FLAG_HOLD);
    world_wait(&bed->world, BED_TIMEOUT_MS + 1);
    error = bed_end(bed, op, NULL);
    assert_int_equal(error.status, PSD_ERR_TIMEOUT);
    assert_non_null(strstr(error.text, "1 chunks have their results, but not yet at every worker"));
    say_release(bed, table, 0, 0); /* too late: nobody waits */
    lose(bed);
    expect_adopt(bed, table, 0, PSI_HAS_NOTHING); /* it may be pushed again */
    client_bed_stop(bed);
}

/* If this fails, a connection that ends in the midst of a value leaves neither gradient nor result. */
static void
test_half_a_value_leaves_the_gradient_whole(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 2);
    const struct world_heard *again;
    struct psd_op *op;

    (void)state;
    bed->in_place = true;
    op = bed_push_pull(bed, table, 0);
    bed_half_value(bed, 0, expect_push_pull(bed, 0), 5);
    bed_begin_life(bed, 0);
    bed_come_back(bed, 0);
    expect_adopt(bed, table, 0, PSI_HAS_PASSED);
    again = world_hear(bed_lane(bed, 0), PSI_FRAME_PUSH_PULL);
    assert_non_null(again);
    assert_int_equal(again->frame.payload_bytes, BED_CHUNK_BYTES);
    for (size_t i = 0; i < PSD_CHUNK_ELEMENTS; i++) {
        assert_true(bed->gradient[i] == (float)i);
    }
    assert_memory_equal(again->body, bed->gradient, BED_CHUNK_BYTES);
    bed_value(bed, 0, &again->frame, 7);
    assert_true(bed->gradient[0] == 7 && bed->gradient[PSD_CHUNK_ELEMENTS - 1] == 7);
    bed_value(bed, 0, expect_push_pull(bed, 1), 8);
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* ---- views --------------------------------------------------------------------------------- */

/* If this fails, a view of a lost server's memory cannot be read, or does not follow its other
 * life. */
static void
test_a_view_follows_the_other_life(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct server_memory memory[2] = {server_memory(5), server_memory(6)};
    const float *view = (const float *)(const void *)psi_table_view(table)->base;
    struct psi_transfer args = {
        .type = PSI_FRAME_PUSH_PULL, .to = psi_table_view(table)->base, .to_view = true};
    struct psd_op *op = bed_begin(bed, table, &args);

    (void)state;
    bed_lend(bed, 0, expect_push_pull(bed, 0), memory[0].values, &memory[0].loan, 0);
    bed_end_well(bed, op);
    assert_true(view[0] == 5);
    args.step = 1;
    op = bed_begin(bed, table, &args);
    lose(bed);
    expect_adopt(bed, table, 1, PSI_HAS_KEPT);
    expect_given(bed, table, 0, 0, 5);
    assert_true(view[0] == 5 && view[PSD_CHUNK_ELEMENTS - 1] == 5);
    bed_lane(bed, 0)->heard_read = 0;
    bed_lend(bed, 0, expect_push_pull(bed, 0), memory[1].values, &memory[1].loan, 0);
    bed_end_well(bed, op);
    assert_true(view[0] == 6);
    memory[1].values[0] = 9;
    assert_true(view[0] == 9); /* the very memory */
    assert_int_equal(memory[0].given_back, 1);
    client_bed_stop(bed);
    server_memory_fini(&memory[0]);
    server_memory_fini(&memory[1]);
}

static struct psd_op *
push_and_view(struct client_bed *bed, struct psd_table *table, uint64_t step)
{
    return bed_begin(bed, table,
                     &(struct psi_transfer){.type = PSI_FRAME_PUSH_PULL,
                                            .step = step,
                                            .to = psi_table_view(table)->base,
                                            .to_view = true});
}

/* If this fails, callers who only read their results wait for other workers all the same; or a result
 * that they go on with can be shown by nobody. */
static void
test_a_result_in_the_view_is_kept(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    const float *view = (const float *)(const void *)psi_table_view(table)->base;
    struct psd_op *op = push_and_view(bed, table, 0);
    const struct psi_frame *frame = expect_push_pull(bed, 0);

    (void)state;
    assert_true((frame->flags & PSI_FLAG_KEEPS) != 0);
    bed_value_flagged(bed, 0, frame, 5, PSI_FLAG_HOLD); /* others hold it */
    bed_end_well(bed, op);
    expect_got(bed, table, 0, 0);
    assert_int_equal(bed->client->kept_bytes, 0); /* there is no other copy */
    lose(bed);
    expect_adopt(bed, table, 1, PSI_HAS_KEPT);
    expect_given(bed, table, 0, 0, 5);
    assert_true(view[0] == 5);
    op = bed_push_pull(bed, table, 1); /* not into the view: that one waits */
    frame = expect_push_pull(bed, 0);
    assert_int_equal(frame->flags & PSI_FLAG_KEEPS, 0);
    lose(bed);
    expect_adopt(bed, table, 1, PSI_HAS_KEPT); /* still there */
    expect_given(bed, table, 0, 0, 5);
    bed_lane(bed, 0)->heard_read = 0;
    bed_value_flagged(bed, 0, expect_push_pull(bed, 0), 6, PSI_FLAG_HOLD);
    assert_false(psi_op_ended(op));
    say_release(bed, table, 0, 1);
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* If this fails, half of one result and half of the next are shown as a result. */
static void
test_a_view_that_is_written_over_is_not_shown(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = push_and_view(bed, table, 0);

    (void)state;
    bed_value(bed, 0, expect_push_pull(bed, 0), 5);
    bed_end_well(bed, op);
    op = push_and_view(bed, table, 1);
    bed_half_value(bed, 0, expect_push_pull(bed, 0), 6); /* so everybody has the first */
    bed_begin_life(bed, 0);
    bed_come_back(bed, 0);
    expect_adopt(bed, table, 1, PSI_HAS_PASSED);
    bed_value(bed, 0, expect_push_pull(bed, 0), 7); /* the gradient is sent again */
    bed_end_well(bed, op);
    bed_tell(bed, 0, PSI_FRAME_GIVE, table, 0, 0);
    assert_null(bed_lane(bed, 0)); /* it has not that one any more */
    client_bed_stop(bed);
}

/* If this fails, a result is shown that its caller has written over, with a gradient. */
static void
test_a_view_that_is_pushed_from_is_held(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, FAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = bed_begin(
        bed, table,
        &(struct psi_transfer){.type = PSI_FRAME_PUSH_PULL, .to = bed->gradient, .to_view = true});
    const struct psi_frame *frame = expect_push_pull(bed, 0);

    (void)state;
    assert_int_equal(frame->flags & PSI_FLAG_KEEPS, 0);
    assert_non_null(psi_table_view(table));
    bed_value_flagged(bed, 0, frame, 5, PSI_FLAG_HOLD);
    assert_false(psi_op_ended(op));
    say_release(bed, table, 0, 0);
    bed_end_well(bed, op);
    client_bed_stop(bed);
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* If this fails, a worker that leaves waits for ever for one that has its results already, or goes
 * before that one has them. */
static void
test_got_is_said_when_it_is_asked_for(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psd_op *op = bed_push_pull(bed, table, 0);
    const struct psi_frame *frame = expect_push_pull(bed, 0);

    (void)state;
    ask_for_got(bed, table, 0, 0);
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT)); /* it has not */
    bed_value(bed, 0, frame, 5);
    bed_end_well(bed, op);
    expect_got(bed, table, 0, 0); /* as soon as it has */
    ask_for_got(bed, table, 0, 0);
    expect_got(bed, table, 0, 0);
    (void)bed_push_pull(bed, table, 1);
    ask_for_got(bed, table, 0, 1);
    lose(bed); /* the other life asks for itself */
    bed_value(bed, 0, expect_push_pull(bed, 0), 6);
    assert_null(world_hear(bed_lane(bed, 0), PSI_FRAME_GOT));
    client_bed_stop(bed);
}

/* If this fails, a server can make a worker speak of what it does not have there. */
static void
test_got_of_elsewhere_is_not_asked_for(void **state)
{
    struct client_bed *bed = client_bed_start_surviving(1, NEAR, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);

    (void)state;
    ask_for_got(bed, table, 1, 0);
    assert_null(bed_lane(bed, 0));
    client_bed_stop(bed);
}

/* A worker that keeps the result of its one step. */
static struct client_bed *
start_keeper(void)
{
    struct client_bed *bed = client_bed_start_surviving(2, NEAR, WIDE);
    struct psd_op *op = bed_push_pull(bed, bed_open_sum(bed, 1), 0);

    bed_value(bed, 0, expect_push_pull(bed, 0), 5);
    bed_end_well(bed, op);
    return bed;
}

/* If this fails, a worker leaves before everybody has what only it can show. */
static void
test_servers_are_asked_before_leaving(void **state)
{
    struct client_bed *bed = start_keeper();
    struct psd_op *bye = NULL;
    const struct world_heard *heard;

    (void)state;
    assert_int_equal(psi_client_bye(bed->client, &bye, NULL), PSD_OK);
    world_settle(&bed->world);
    assert_non_null(world_hear(bed_lane(bed, 0), PSI_FRAME_BYE));
    assert_null(world_hear(bed_lane(bed, 1), PSI_FRAME_BYE)); /* nothing of it is kept */
    bed_cut(bed, 0);
    bed_come_back(bed, 0);
    assert_non_null(world_hear(bed_lane(bed, 0), PSI_FRAME_BYE));
    lose(bed);
    assert_non_null(world_hear(bed_lane(bed, 0), PSI_FRAME_ADOPT));
    assert_non_null(world_hear(bed_lane(bed, 0), PSI_FRAME_BYE));
    assert_null(world_hear(bed_master(bed), PSI_FRAME_BYE));
    world_say(&bed->world, bed_lane(bed, 0), &(struct psi_frame){.type = PSI_FRAME_BYE}, NULL);
    heard = world_hear(bed_master(bed), PSI_FRAME_BYE);
    assert_non_null(heard);
    world_say(&bed->world, bed_master(bed),
              &(struct psi_frame){.type = PSI_FRAME_ACK, .request = heard->frame.request}, NULL);
    bed_end_well(bed, bye);
    client_bed_stop(bed);
}

/* If this fails, nobody can tell why a worker does not come to its end. */
static void
test_leaving_names_what_it_waits_for(void **state)
{
    struct client_bed *bed = start_keeper();
    struct psd_op *bye = NULL;
    struct psd_error error;

    (void)state;
    assert_int_equal(psi_client_bye(bed->client, &bye, NULL), PSD_OK);
    world_wait(&bed->world, BED_TIMEOUT_MS + 1);
    error = bed_end(bed, bye, NULL);
    assert_int_equal(error.status, PSD_ERR_TIMEOUT);
    assert_non_null(strstr(error.text, "server 0"));
    assert_non_null(strstr(error.text, "its last sums are not yet at every worker"));
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_sums_of_jobs_that_go_on_have_results),
        cmocka_unit_test(test_pushes_say_who_keeps),
        cmocka_unit_test(test_tables_are_told_of),
        cmocka_unit_test(test_steps_are_told),
        cmocka_unit_test(test_a_kept_loan_is_given_back_once),
        cmocka_unit_test(test_values_come_together),
        cmocka_unit_test(test_a_cut_while_values_come_together),
        cmocka_unit_test(test_one_value_does_not_come_twice_at_once),
        cmocka_unit_test(test_a_loan_that_is_not_heard_of_is_given_back),
        cmocka_unit_test(test_a_kept_loan_is_shown),
        cmocka_unit_test(test_a_small_value_is_copied_aside),
        cmocka_unit_test(test_what_is_not_here_is_not_shown),
        cmocka_unit_test(test_who_keeps_says_got_for_those_who_hold),
        cmocka_unit_test(test_a_held_result_waits_for_release),
        cmocka_unit_test(test_a_held_result_outlives_two_lives),
        cmocka_unit_test(test_got_is_said_once_for_all_that_comes_together),
        cmocka_unit_test(test_got_waits_for_the_rest_of_its_operation),
        cmocka_unit_test(test_got_does_not_wait_for_long),
        cmocka_unit_test(test_got_is_said_again_after_a_cut),
        cmocka_unit_test(test_a_caller_that_gives_up_holds_nothing),
        cmocka_unit_test(test_half_a_value_leaves_the_gradient_whole),
        cmocka_unit_test(test_a_view_follows_the_other_life),
        cmocka_unit_test(test_a_result_in_the_view_is_kept),
        cmocka_unit_test(test_a_view_that_is_written_over_is_not_shown),
        cmocka_unit_test(test_a_view_that_is_pushed_from_is_held),
        cmocka_unit_test(test_got_is_said_when_it_is_asked_for),
        cmocka_unit_test(test_got_of_elsewhere_is_not_asked_for),
        cmocka_unit_test(test_servers_are_asked_before_leaving),
        cmocka_unit_test(test_leaving_names_what_it_waits_for),
    };

    return cmocka_run_group_tests_name("client_results", tests, NULL, NULL);
}
