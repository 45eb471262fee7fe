/*
 * snapshot_test.c - a lane's part of a checkpoint, while rounds go on. The test stands in for the
 * master and for the disk.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/disk.h"
#include "server/lane_bed.h"
#include "server/state.h"

enum {
    TABLE = 1,
    CHUNKS = 2,
    NUMBER = 7,
    BEGIN = 64,
    PIECES_MAX = 16,
    AHEAD_WAITS_MS = 3000,
    AHEAD_KEPT_MS = 60000
};

static const uint64_t elements = PSD_CHUNK_ELEMENTS + 4;

/* What the lane has given the disk. */
static struct {
    uint64_t token;
    unsigned pieces;
    uint64_t at[PIECES_MAX];
    float first[PIECES_MAX]; /* number of each piece */
    size_t bytes[PIECES_MAX];
    bool finished;
    unsigned drops;
    unsigned prepared; /* times */
    bool has_no_room;
    uint64_t expected_bytes;
    struct lane_disk_news news;
    struct psi_manifest_file sums[PSI_CHECKPOINT_DATA_FILES];
    uint64_t written[PSI_CHECKPOINT_DATA_FILES];
} given;

static void
give_up(void *self)
{
    (void)self;
    given.drops++;
    given.token = 0;
}

static void
begin(void *self, const struct psi_part_order *order, const struct lane_disk_load *load)
{
    (void)self;
    (void)load;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        free(given.sums[kind].blocks);
    }
    memset(&given, 0, sizeof(given));
    given.token = order->token;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        assert_true(psi_manifest_file_init(&given.sums[kind], order->bytes[kind]));
    }
}

static void
take(void *self, enum psi_checkpoint_kind kind, uint64_t at, const void *data, size_t bytes)
{
    (void)self;
    assert_int_equal(kind, PSI_CHECKPOINT_PARAMS); /* the rule has no state */
    assert_true(given.pieces < PIECES_MAX);
    given.at[given.pieces] = at;
    given.bytes[given.pieces] = bytes;
    memcpy(&given.first[given.pieces++], data, sizeof(float));
}

static void
finish(void *self)
{
    (void)self;
    given.finished = true;
}

static void
look(void *self, struct lane_disk_news *news_p)
{
    (void)self;
    *news_p = given.news;
}

static void
prepare(void *self, const struct lane_disk_load *load)
{
    (void)self;
    given.token = 0; /* what was begun is given up */
    given.expected_bytes = load->bytes;
    given.prepared++;
    given.news.is_prepared = !given.has_no_room;
}

static const struct lane_disk disk = {.prepare = prepare,
                                      .begin = begin,
                                      .write = take,
                                      .finish = finish,
                                      .drop = give_up,
                                      .look = look};

static struct lane_bed *
start(uint64_t room)
{
    struct lane_bed *bed = lane_bed_start(1, PSI_DEATH_FAIL);

    free(given.sums[0].blocks);
    free(given.sums[1].blocks);
    memset(&given, 0, sizeof(given));
    bed->lane->config.disk = &disk;
    bed->lane->config.snapshot_bytes = room;
    open_table(bed, TABLE,
               &(struct psd_table_args){
                   .struct_size = sizeof(struct psd_table_args),
                   .name = "w",
                   .dtype = PSD_F32,
                   .dims = 1,
                   .shape = {elements},
                   .reduce = PSD_REDUCE_SUM,
                   .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                                   .rule = PSD_RULE_ADD}});
    return bed;
}

static void
order(struct lane_bed *bed, uint64_t number, uint64_t step, uint32_t tables)
{
    struct psi_order_table table = {.id = TABLE, .begin = {BEGIN}};
    const struct psi_order message = {
        .token = 99, .bytes = {BEGIN + elements * 4, BEGIN}, .tables = tables, .table = &table};
    uint8_t body[256];
    struct psi_pack pack;

    psi_pack_init(&pack, body, sizeof(body));
    psi_order_encode(&pack, &message);
    say(bed, bed->master,
        (struct psi_frame){.type = PSI_FRAME_CHECKPOINT, .seq = number, .step = step}, body,
        pack.used);
}

static struct psi_written
hear_written(struct lane_bed *bed, uint64_t number, uint64_t *step_p)
{
    static struct psi_written_table tables[PSI_TABLES_MAX];
    const struct world_heard *heard = hear(bed->master, PSI_FRAME_WRITTEN);
    struct psi_written written = {.table = tables};

    assert_non_null(heard);
    assert_int_equal(heard->frame.seq, number);
    assert_int_equal(psi_written_decode(heard->body, heard->frame.payload_bytes, &written, NULL),
                     PSD_OK);
    *step_p = heard->frame.step;
    return written;
}

/* One for the first elements of a chunk is enough. */
static void
push(struct lane_bed *bed, uint32_t chunk, uint64_t step)
{
    const size_t count = chunk == 0 ? PSD_CHUNK_ELEMENTS : 4;
    float *gradient = calloc(count, sizeof(*gradient));

    assert_non_null(gradient);
    gradient[0] = 1;
    say(bed, bed->worker[0],
        (struct psi_frame){.type = PSI_FRAME_PUSH,
                           .dtype = PSD_F32,
                           .seq = 100 + step * CHUNKS + chunk,
                           .step = step,
                           .table = TABLE,
                           .chunk = chunk,
                           .request = 1},
        gradient, count * sizeof(*gradient));
    free(gradient);
}

static uint64_t
version(const struct lane_bed *bed, uint32_t chunk)
{
    return table_find(bed->lane, TABLE)->chunks[chunk].clock.version;
}

static void
disk_has_all(struct lane_bed *bed)
{
    for (unsigned i = 0; i < given.pieces; i++) {
        given.written[PSI_CHECKPOINT_PARAMS] += given.bytes[i];
    }
    given.news.written = given.written[PSI_CHECKPOINT_PARAMS];
    given.news.done = given.finished;
    given.news.sums = given.sums;
    given.news.bytes = given.written;
    lane_tick(bed->lane);
    lane_tick(bed->lane);
}

/* If this fails, a checkpoint mixes steps, or training stands still for it. */
static void
test_chunks_are_saved_as_they_are_at_the_step(void **state)
{
    struct lane_bed *bed = start(0);
    struct psi_written written;
    uint64_t step;

    (void)state;
    order(bed, NUMBER, 2, 1);
    assert_int_equal(given.token, 99);
    for (uint64_t i = 0; i < 4; i++) { /* chunk 0 goes far ahead */
        push(bed, 0, i);
    }
    assert_int_equal(version(bed, 0), 4);
    assert_int_equal(given.pieces, 1);
    assert_true(given.first[0] == 2);
    assert_int_equal(given.at[0], BEGIN);
    assert_false(given.finished);
    push(bed, 1, 0);
    assert_int_equal(given.pieces, 1);
    push(bed, 1, 1); /* there: nobody has to overtake it */
    lane_tick(bed->lane);
    lane_tick(bed->lane);
    assert_int_equal(given.pieces, 2);
    assert_true(given.first[1] == 2);
    assert_int_equal(given.at[1], BEGIN + PSD_CHUNK_ELEMENTS * 4);
    assert_true(given.finished);
    assert_null(hear(bed->master, PSI_FRAME_WRITTEN)); /* not before it is on the disk */
    disk_has_all(bed);
    written = hear_written(bed, NUMBER, &step);
    assert_int_equal(written.news, PSI_WRITTEN_ALL);
    assert_int_equal(written.bytes[0], elements * 4);
    assert_int_equal(written.tables, 1);
    assert_int_equal(written.table[0].updates, 2);
    order(bed, NUMBER, 2, 1); /* the answer was lost: it is given again, and nothing written anew */
    lane_tick(bed->lane);
    assert_int_equal(hear_written(bed, NUMBER, &step).news, PSI_WRITTEN_ALL);
    assert_int_equal(given.pieces, 2);
    lane_bed_stop(bed);
}

/* If this fails, the round behind the step waits while the kernel finds memory for all copies; or a checkpoint never
 * comes where there is none; or what was made ready is kept for ever. */
static void
test_the_step_is_named_when_there_is_room(void **state)
{
    struct lane_bed *bed = start(0);
    uint64_t step;

    (void)state;
    given.has_no_room = true;
    order(bed, NUMBER, 0, 0);
    assert_int_equal(given.expected_bytes, elements * 4);
    assert_null(hear(bed->master, PSI_FRAME_WRITTEN));
    push(bed, 0, 0); /* meanwhile */
    given.news.is_prepared = true;
    lane_tick(bed->lane);
    assert_int_equal(hear_written(bed, NUMBER, &step).news, PSI_WRITTEN_REACHED);
    assert_int_equal(step, 1);
    world_wait(&bed->world, AHEAD_KEPT_MS);
    lane_tick(bed->lane);
    assert_int_equal(given.drops, 1); /* no order came */

    given.has_no_room = true;
    order(bed, NUMBER + 1, 0, 0);
    world_wait(&bed->world, AHEAD_WAITS_MS);
    lane_tick(bed->lane);
    assert_int_equal(hear_written(bed, NUMBER + 1, &step).news, PSI_WRITTEN_REACHED);
    order(bed, NUMBER + 2, 2, 1); /* begun in what there is */
    assert_int_equal(given.token, 99);
    world_wait(&bed->world, AHEAD_KEPT_MS);
    lane_tick(bed->lane);
    assert_int_equal(given.drops, 0);
    order(bed, NUMBER + 3, PSI_STEP_NEVER, 0); /* it has ended: nothing is made ready for another */
    assert_int_equal(given.drops, 1);
    assert_int_equal(given.prepared, 0);
    assert_null(hear(bed->master, PSI_FRAME_WRITTEN));
    lane_bed_stop(bed);
}

/* If this fails, a checkpoint is ordered for a step that is over, and never comes, or is of another. */
static void
test_a_step_that_is_over_is_refused(void **state)
{
    struct lane_bed *bed = start(0);
    uint64_t step;

    (void)state;
    push(bed, 0, 0);
    push(bed, 0, 1);
    order(bed, 5, 0, 0);
    assert_int_equal(hear_written(bed, 5, &step).news, PSI_WRITTEN_REACHED);
    assert_int_equal(step, 2);
    order(bed, 6, 1, 1);
    assert_int_equal(hear_written(bed, 6, &step).news, PSI_WRITTEN_LATE);
    assert_int_equal(step, 2);
    assert_int_equal(given.token, 0);
    order(bed, NUMBER, 2, 1);
    assert_int_equal(given.token, 99);
    order(bed, 8, 0, 0); /* given up */
    assert_int_equal(given.token, 0);
    push(bed, 0, 2);
    assert_int_equal(given.pieces, 1); /* what was at the step was handed over at once */
    lane_bed_stop(bed);
}

/* If this fails, copies for a slow disk take all memory, or rounds that waited for it never go on. */
static void
test_rounds_wait_for_the_disk_when_there_is_no_room(void **state)
{
    struct lane_bed *bed = start(1);

    (void)state;
    push(bed, 0, 0);
    order(bed, NUMBER, 1, 1);
    lane_tick(bed->lane);
    assert_int_equal(given.pieces, 1);
    push(bed, 1, 0);
    push(bed, 1, 1); /* a copy of it has no room while the first is on its way */
    assert_int_equal(version(bed, 1), 1);
    assert_int_equal(given.pieces, 1);
    push(bed, 0, 1); /* what is handed over goes on */
    assert_int_equal(version(bed, 0), 2);
    given.news.written = PSD_CHUNK_ELEMENTS * 4;
    lane_tick(bed->lane);
    assert_int_equal(version(bed, 1), 2);
    assert_int_equal(given.pieces, 2);
    assert_true(given.first[1] == 1);
    lane_bed_stop(bed);
}

static void
pass_ms(struct lane_bed *bed, uint64_t ms)
{
    bed->world.now_ns += ms * WORLD_MS_NS;
    lane_tick(bed->lane);
}

/* If this fails, a disk that hangs stops the training, or nobody hears why. */
static void
test_rounds_do_not_wait_for_a_disk_that_hangs(void **state)
{
    struct lane_bed *bed = start(1);
    struct psi_written written;
    uint64_t step;

    (void)state;
    push(bed, 0, 0);
    order(bed, NUMBER, 1, 1);
    lane_tick(bed->lane);
    push(bed, 1, 0);
    push(bed, 1, 1);
    assert_int_equal(version(bed, 1), 1);
    for (unsigned second = 0; second < 9; second++) {
        pass_ms(bed, 1000);
    }
    assert_int_equal(version(bed, 1), 1);
    pass_ms(bed, 1100);
    assert_int_equal(version(bed, 1), 2);
    written = hear_written(bed, NUMBER, &step);
    assert_int_equal(written.news, PSI_WRITTEN_FAILED);
    assert_non_null(strstr(written.text, "has taken nothing for 10 s, and rounds waited for it"));
    push(bed, 1, 2);
    assert_int_equal(version(bed, 1), 3);
    lane_bed_stop(bed);
}

/* If this fails, rounds that wait for the disk when their checkpoint is given up wait for ever: training hangs. */
static void
test_rounds_go_on_when_their_checkpoint_is_given_up(void **state)
{
    (void)state;
    /* 0: it is dropped; 1: another one is ordered at once */
    for (uint32_t tables = 0; tables <= 1; tables++) {
        struct lane_bed *bed = start(1);

        push(bed, 0, 0);
        order(bed, NUMBER, 1, 1);
        lane_tick(bed->lane);
        push(bed, 1, 0);
        push(bed, 1, 1);
        lane_tick(bed->lane);
        assert_int_equal(version(bed, 1), 1); /* there is no room for a copy of it */
        order(bed, NUMBER + 1, 5, tables);
        assert_int_equal(version(bed, 1), 2);
        lane_bed_stop(bed);
    }
}

/* If this fails, a disk that is full is not heard of, or stops the training. */
static void
test_a_disk_that_fails_is_told_of(void **state)
{
    struct lane_bed *bed = start(0);
    struct psi_written written;
    uint64_t step;

    (void)state;
    order(bed, NUMBER, 1, 1);
    push(bed, 0, 0);
    given.news.failed = true;
    snprintf(given.news.text, sizeof(given.news.text), "write w: No space left on device");
    lane_tick(bed->lane);
    written = hear_written(bed, NUMBER, &step);
    assert_int_equal(written.news, PSI_WRITTEN_FAILED);
    assert_non_null(strstr(written.text, "server 0: write w: No space left"));
    for (uint64_t i = 1; i < 4; i++) {
        push(bed, 0, i);
    }
    assert_int_equal(version(bed, 0), 4);
    lane_bed_stop(bed);
}

/* If this fails, a disk that failed while the master was out of reach is never heard of, and the master waits for that
 * checkpoint for ever. */
static void
test_a_failure_is_told_again_when_asked_again(void **state)
{
    struct lane_bed *bed = start(0);
    struct psi_written written;
    uint64_t step;

    (void)state;
    order(bed, NUMBER, 1, 1);
    given.news.failed = true;
    snprintf(given.news.text, sizeof(given.news.text), "write w: No space left on device");
    lane_tick(bed->lane);
    (void)hear_written(bed, NUMBER, &step);
    assert_null(hear(bed->master, PSI_FRAME_WRITTEN)); /* once is enough */
    order(bed, NUMBER, 1, 1);                          /* it was lost with the connection */
    lane_tick(bed->lane);
    written = hear_written(bed, NUMBER, &step);
    assert_int_equal(written.news, PSI_WRITTEN_FAILED);
    assert_non_null(strstr(written.text, "server 0: write w: No space left"));
    lane_bed_stop(bed);
}

/* If this fails, a server that was not told where checkpoints go is waited for. */
static void
test_a_lane_without_a_disk_says_so(void **state)
{
    struct lane_bed *bed = start(0);
    struct psi_written written;
    uint64_t step;

    (void)state;
    bed->lane->config.disk = NULL;
    order(bed, NUMBER, 1, 1);
    written = hear_written(bed, NUMBER, &step);
    assert_int_equal(written.news, PSI_WRITTEN_FAILED);
    assert_non_null(strstr(written.text, "--checkpoint"));
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_are_saved_as_they_are_at_the_step),
        cmocka_unit_test(test_the_step_is_named_when_there_is_room),
        cmocka_unit_test(test_a_step_that_is_over_is_refused),
        cmocka_unit_test(test_rounds_wait_for_the_disk_when_there_is_no_room),
        cmocka_unit_test(test_rounds_do_not_wait_for_a_disk_that_hangs),
        cmocka_unit_test(test_rounds_go_on_when_their_checkpoint_is_given_up),
        cmocka_unit_test(test_a_disk_that_fails_is_told_of),
        cmocka_unit_test(test_a_failure_is_told_again_when_asked_again),
        cmocka_unit_test(test_a_lane_without_a_disk_says_so),
    };
    const int failed = cmocka_run_group_tests_name("lane_snapshot", tests, NULL, NULL);

    free(given.sums[0].blocks);
    free(given.sums[1].blocks);
    return failed;
}
