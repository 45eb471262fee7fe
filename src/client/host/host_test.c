/*
 * host_test.c - a worker that sends for its host, or pushes through one: a server is lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "client/core/client_bed.h"

enum { WIDE = 64 * BED_CHUNK_BYTES };

/* ---- a neighbour --------------------------------------------------------------------------- */

static struct psi_frame
of_neighbour(const struct client_bed *bed, uint16_t rank, uint8_t type)
{
    return (struct psi_frame){.type = type, .view = bed->view, .rank = rank, .incarnation = 1};
}

/* It connects, and is let in. */
static struct world_conn *
neighbour_joins(struct client_bed *bed, uint16_t rank)
{
    struct world_conn *conn = world_accept(&bed->world);
    const struct psi_frame frame = {.type = PSI_FRAME_HELLO};
    const struct psi_hello hello = {.role = PSI_ROLE_WORKER,
                                    .rank = rank,
                                    .incarnation = 1,
                                    .life = 5,
                                    .job = bed->welcome.job};

    assert_non_null(conn);
    WORLD_SAY(&bed->world, conn, &frame, hello, &hello);
    return conn;
}

/* It pushes the table through us from now on. */
static void
neighbour_routes(struct client_bed *bed, struct world_conn *conn, uint16_t rank,
                 const struct psd_table *table)
{
    struct psi_frame frame = of_neighbour(bed, rank, PSI_FRAME_ROUTE);
    struct psi_ranks lanes = {{0}};

    assert_non_null(world_hear(conn, PSI_FRAME_OFFER));
    frame.table = table->id;
    psi_ranks_add(&lanes, 0);
    WORLD_SAY(&bed->world, conn, &frame, ranks, &lanes);
}

static void
neighbour_pushes(struct client_bed *bed, struct world_conn *conn, uint16_t rank,
                 const struct psd_table *table, uint64_t step)
{
    struct psi_frame frame = of_neighbour(bed, rank, PSI_FRAME_PUSH_PULL);

    frame.dtype = PSD_F32;
    frame.table = table->id;
    frame.step = step;
    frame.seq = step + 1;
    frame.request = 1 + (uint32_t)step;
    world_say_bytes(&bed->world, conn, &frame, NULL, bed->gradient, BED_CHUNK_BYTES);
}

/* What the server gets: the sum of both. */
static const struct world_heard *
hear_sum(struct client_bed *bed)
{
    const struct world_heard *heard = world_hear(bed_lane(bed, 0), PSI_FRAME_PUSH_PULL);

    assert_non_null(heard);
    assert_int_equal(heard->frame.level, 1);
    assert_int_equal(heard->frame.flags, PSI_FLAG_KEEPS);
    return heard;
}

static void
lose(struct client_bed *bed)
{
    bed_cut(bed, 0);
    bed_begin_life(bed, 0);
    bed_come_back(bed, 0);
}

/* What the server's other life is told of the chunk. */
static struct psi_adopt_run
hear_adopt(struct client_bed *bed)
{
    static struct psi_adopt_run runs[PSI_ADOPT_RUNS_MAX];
    const struct world_heard *heard = world_hear(bed_lane(bed, 0), PSI_FRAME_ADOPT);
    struct psi_adopt adopt = {.run = runs};

    assert_non_null(heard);
    assert_int_equal(psi_adopt_decode(heard->body, heard->frame.payload_bytes, &adopt, NULL),
                     PSD_OK);
    assert_int_equal(adopt.runs, 1);
    return runs[0];
}

/* It asks for a result, and gets it. */
static void
hear_result(struct client_bed *bed, const struct psd_table *table, uint64_t step, float value)
{
    const struct world_heard *heard;

    bed_tell(bed, 0, PSI_FRAME_GIVE, table, 0, step);
    heard = world_hear(bed_lane(bed, 0), PSI_FRAME_PUSH);
    assert_non_null(heard);
    assert_int_equal(heard->frame.flags, PSI_FLAG_RESULT);
    assert_int_equal(heard->frame.step, step);
    assert_memory_equal(heard->body, &value, sizeof(value));
}

/* Everybody has the result of the table's first chunk. */
static void
release(struct client_bed *bed, const struct psd_table *table, uint64_t step)
{
    const struct psi_frame frame = {.type = PSI_FRAME_RELEASE, .view = bed->view};
    struct psi_result result = {table->id, 0, step};
    const struct psi_results results = {.count = 1, .result = &result};

    WORLD_SAY(&bed->world, bed_lane(bed, 0), &frame, results, &results);
}

/* The value that the round made, as an answer to a push of it. */
static struct psi_frame
answer_to(const struct psi_frame *push)
{
    struct psi_frame answer = *push;

    answer.step++;
    return answer;
}

/* Workers 0 and 2 have given. They are no node of the tree, so that each leaves alone, and only the
 * first brings the value back. */
struct apart {
    struct client_bed *bed;
    struct psd_table *table;
    struct world_conn *neighbour;
    struct psd_op *op;
    struct psi_frame pull;
    struct psi_frame push;
};

static void
hear_both(struct apart *apart)
{
    const struct psi_frame *frame = bed_sent(apart->bed, 0);

    assert_non_null(frame);
    apart->pull = *frame;
    assert_int_equal(frame->type, PSI_FRAME_PUSH_PULL);
    frame = bed_sent(apart->bed, 0);
    assert_non_null(frame);
    apart->push = *frame;
    assert_int_equal(frame->type, PSI_FRAME_PUSH);
}

static struct apart
begin_apart(void)
{
    struct apart apart = {.bed = client_bed_start_sender(3, 1, WIDE)};

    apart.table = bed_open_sum(apart.bed, 1);
    apart.neighbour = neighbour_joins(apart.bed, 2);
    neighbour_routes(apart.bed, apart.neighbour, 2, apart.table);
    apart.op = bed_push_pull(apart.bed, apart.table, 0);
    neighbour_pushes(apart.bed, apart.neighbour, 2, apart.table, 0);
    hear_both(&apart);
    return apart;
}

static void
end_apart(struct apart *apart)
{
    bed_end_well(apart->bed, apart->op);
    assert_non_null(world_hear(apart->neighbour, PSI_FRAME_VALUE));
    client_bed_stop(apart->bed);
}

/* ---- tests --------------------------------------------------------------------------------- */

/* If this fails, no worker pushes through another of its host: each sends its own. */
static void
test_a_neighbour_is_told_of_the_job(void **state)
{
    struct client_bed *bed = client_bed_start_sender(2, 1, WIDE);
    struct world_conn *neighbour;
    const struct world_heard *heard;
    struct psi_welcome welcome;

    (void)state;
    (void)bed_open_sum(bed, 1);
    neighbour = neighbour_joins(bed, 1);
    heard = world_hear(neighbour, PSI_FRAME_WELCOME);
    assert_non_null(heard);
    assert_int_equal(psi_welcome_decode(heard->body, heard->frame.payload_bytes, &welcome, NULL),
                     PSD_OK);
    assert_int_equal(welcome.rank, 1);
    assert_int_equal(welcome.workers, bed->welcome.workers);
    assert_int_equal(welcome.job, bed->welcome.job);
    assert_non_null(world_hear(neighbour, PSI_FRAME_OFFER));
    client_bed_stop(bed);
}

/* If this fails, what a host has added is lost with the server, or its result is. */
static void
test_a_sum_outlives_its_server(void **state)
{
    struct client_bed *bed = client_bed_start_sender(2, 1, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct world_conn *neighbour = neighbour_joins(bed, 1);
    const struct world_heard *sum;
    struct psi_adopt_run told;
    struct psi_frame answer;
    struct psd_op *op;

    (void)state;
    neighbour_routes(bed, neighbour, 1, table);
    op = bed_push_pull(bed, table, 0);
    neighbour_pushes(bed, neighbour, 1, table, 0);
    (void)hear_sum(bed);
    lose(bed);
    sum = hear_sum(bed);
    for (size_t i = 0; i < PSD_CHUNK_ELEMENTS; i++) {
        float number;

        memcpy(&number, sum->body + i * sizeof(number), sizeof(number));
        assert_true(number == 2 * (float)i);
    }
    answer = answer_to(&sum->frame);
    bed_value(bed, 0, &answer, 7);
    bed_end_well(bed, op);
    assert_non_null(world_hear(neighbour, PSI_FRAME_VALUE));
    memset(bed->values, 0, BED_CHUNK_BYTES);
    lose(bed);
    told = hear_adopt(bed);
    assert_int_equal(told.base, 1); /* its own: a neighbour tells for itself */
    assert_int_equal(told.has, PSI_HAS_KEPT);
    hear_result(bed, table, 0, 7);
    client_bed_stop(bed);
}

/* If this fails, a result that has come to a host, but not to its workers, is waited for by all. */
static void
test_a_result_not_handed_out_is_shown(void **state)
{
    struct apart apart = begin_apart();
    struct psi_adopt_run told;
    struct psi_frame answer = answer_to(&apart.pull);

    (void)state;
    bed_value(apart.bed, 0, &answer, 7);
    assert_false(psi_op_ended(apart.op)); /* the other one has not been answered */
    lose(apart.bed);
    told = hear_adopt(apart.bed);
    assert_int_equal(told.base, 0);
    assert_int_equal(told.has, PSI_HAS_HELD);
    answer = *bed_sent(apart.bed, 0);
    assert_int_equal(answer.type, PSI_FRAME_PUSH); /* and not what brought the value */
    assert_null(bed_sent(apart.bed, 0));
    hear_result(apart.bed, apart.table, 0, 7);
    bed_ack(apart.bed, 0, &answer);
    end_apart(&apart);
}

/* Worker 0 has given its own gradient before workers 1 and 2 pushed through it: three frames, of which the
 * first two bring values. */
static struct apart
begin_before_the_others(void)
{
    struct apart apart = {.bed = client_bed_start_sender(3, 1, WIDE)};
    struct world_conn *other;

    apart.table = bed_open_sum(apart.bed, 1);
    apart.op = bed_push_pull(apart.bed, apart.table, 0);
    apart.pull = *bed_sent(apart.bed, 0);
    assert_int_equal(apart.pull.type, PSI_FRAME_PUSH_PULL);
    assert_int_equal(apart.pull.flags & PSI_FLAG_KEEPS, 0);
    apart.neighbour = neighbour_joins(apart.bed, 1);
    other = neighbour_joins(apart.bed, 2);
    neighbour_routes(apart.bed, apart.neighbour, 1, apart.table);
    neighbour_routes(apart.bed, other, 2, apart.table);
    neighbour_pushes(apart.bed, apart.neighbour, 1, apart.table, 0);
    neighbour_pushes(apart.bed, other, 2, apart.table, 0);
    return apart;
}

/* If this fails, a result that came to a worker for its neighbours is lost with the server, because the worker
 * itself is through with the step. */
static void
test_a_result_not_handed_out_is_kept(void **state)
{
    struct apart apart = begin_before_the_others();
    struct psi_frame answer = answer_to(&apart.pull);
    struct psi_adopt_run told;

    (void)state;
    bed_value_flagged(apart.bed, 0, &answer, 7, PSI_FLAG_HOLD);
    hear_both(&apart);
    answer = answer_to(&apart.pull);
    bed_value_flagged(apart.bed, 0, &answer, 7, PSI_FLAG_HOLD);
    release(apart.bed, apart.table, 0);
    bed_end_well(apart.bed, apart.op);
    assert_null(world_hear(apart.neighbour, PSI_FRAME_VALUE));
    lose(apart.bed);
    told = hear_adopt(apart.bed);
    assert_int_equal(told.base, 1);
    assert_int_equal(told.has, PSI_HAS_KEPT);
    assert_int_equal(bed_sent(apart.bed, 0)->type, PSI_FRAME_PUSH); /* what was not answered */
    hear_result(apart.bed, apart.table, 0, 7);
    client_bed_stop(apart.bed);
}

/* If this fails, a worker says that it has a result before that has come for its neighbours: it goes on, and if
 * the server dies then, nobody can show it. */
static void
test_got_waits_for_what_comes_for_the_host(void **state)
{
    struct apart apart = begin_before_the_others();
    struct psi_frame answer = answer_to(&apart.pull);

    (void)state;
    hear_both(&apart);
    bed_value_flagged(apart.bed, 0, &answer, 7, PSI_FLAG_HOLD);
    assert_null(world_hear(bed_lane(apart.bed, 0), PSI_FRAME_GOT));
    answer = answer_to(&apart.pull);
    bed_value_flagged(apart.bed, 0, &answer, 7, PSI_FLAG_HOLD);
    assert_non_null(world_hear(bed_lane(apart.bed, 0), PSI_FRAME_GOT));
    client_bed_stop(apart.bed);
}

/* If this fails, a round that is made anew waits for a gradient that an earlier life of the server has
 * answered. */
static void
test_what_was_answered_of_a_step_leaves_again(void **state)
{
    struct apart apart = begin_apart();
    struct psi_frame answer;

    (void)state;
    bed_ack(apart.bed, 0, &apart.push);
    lose(apart.bed);
    assert_int_equal(hear_adopt(apart.bed).has, PSI_HAS_PASSED);
    hear_both(&apart);
    bed_ack(apart.bed, 0, &apart.push);
    answer = answer_to(&apart.pull);
    bed_value(apart.bed, 0, &answer, 7);
    end_apart(&apart);
}

/* If this fails, a server's other life waits for word of a result that came to this worker from its
 * neighbour, and others wait with it. */
static void
test_a_result_from_a_neighbour_is_told_of(void **state)
{
    struct client_bed *bed = client_bed_start_neighbour(1, WIDE);
    struct psd_table *table = bed_open_sum(bed, 1);
    struct psi_frame frame = {.type = PSI_FRAME_OFFER, .view = bed->view, .table = table->id};
    const struct world_heard *push;
    struct psi_ranks lanes = {{0}};
    struct psi_adopt_run told;
    struct psd_op *op;

    (void)state;
    psi_ranks_add(&lanes, 0);
    WORLD_SAY(&bed->world, bed_sender(bed), &frame, ranks, &lanes);
    op = bed_push_pull(bed, table, 0);
    push = world_hear(bed_sender(bed), PSI_FRAME_PUSH_PULL);
    assert_non_null(push);
    lose(bed);
    told = hear_adopt(bed);
    assert_int_equal(told.base, 0);
    assert_int_equal(told.has, PSI_HAS_PASSED);
    frame = answer_to(&push->frame);
    frame.type = PSI_FRAME_VALUE;
    frame.flags = 0;
    world_say_bytes(&bed->world, bed_sender(bed), &frame, NULL, bed->values, BED_CHUNK_BYTES);
    bed_end_well(bed, op);
    told = hear_adopt(bed);
    assert_int_equal(told.base, 1);
    assert_int_equal(told.has, PSI_HAS_KEPT);
    client_bed_stop(bed);
}

/* If this fails, each worker of a host takes the cores of all of them for itself. */
static void
test_workers_of_this_host_are_counted(void **state)
{
    struct client_bed *bed = client_bed_start_sender(3, 1, BED_CHUNK_BYTES);

    (void)state;
    assert_int_equal(psi_client_workers_here(bed->client), 3);
    bed->client->config.workers_here = 5; /* who started them knows of more */
    assert_int_equal(psi_client_workers_here(bed->client), 5);
    client_bed_stop(bed);

    bed = client_bed_start(1, PSI_DEATH_FAIL,
                           BED_CHUNK_BYTES); /* which nobody can be told apart in */
    assert_int_equal(psi_client_workers_here(bed->client), 1);
    client_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_of_this_host_are_counted),
        cmocka_unit_test(test_a_neighbour_is_told_of_the_job),
        cmocka_unit_test(test_a_sum_outlives_its_server),
        cmocka_unit_test(test_a_result_not_handed_out_is_shown),
        cmocka_unit_test(test_a_result_not_handed_out_is_kept),
        cmocka_unit_test(test_got_waits_for_what_comes_for_the_host),
        cmocka_unit_test(test_what_was_answered_of_a_step_leaves_again),
        cmocka_unit_test(test_a_result_from_a_neighbour_is_told_of),
    };

    return cmocka_run_group_tests_name("client_host", tests, NULL, NULL);
}
