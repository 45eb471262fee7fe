/*
 * snapshot_rows_test.c - a lane's rows in checkpoints: of one step while rounds go on, then what has
 * changed, and which files the master is told of.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/post.h"
#include "server/disk.h"
#include "server/lane_bed.h"
#include "server/state.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { TABLE = 3, IDS = 40, FILES_MAX = 64 };

static struct {
    unsigned files;
    struct psi_saved_file saved[FILES_MAX];
    struct psi_rows_piece *piece[FILES_MAX]; /* owned */
    uint64_t generation;
    bool finished;
    struct lane_disk_news news;
    struct psi_manifest_file sums[PSI_CHECKPOINT_DATA_FILES];
    uint64_t written[PSI_CHECKPOINT_DATA_FILES];
} given;

static void
forget(void)
{
    for (unsigned i = 0; i < given.files; i++) {
        psi_rows_piece_destroy(given.piece[i]);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_manifest_file_fini(&given.sums[kind]);
    }
    memset(&given, 0, sizeof(given));
}

static void
give_up(void *self)
{
    (void)self;
    given.generation = 0;
}

static void
begin(void *self, const struct psi_part_order *order, const struct lane_disk_load *load)
{
    (void)self;
    assert_int_equal(load->bytes, 0); /* no chunk is copied */
    forget();
    given.generation = order->generation;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        assert_true(psi_manifest_file_init(&given.sums[kind], order->bytes[kind]));
    }
}

static void
no_bytes(void *self, enum psi_checkpoint_kind kind, uint64_t at, const void *data, size_t bytes)
{
    (void)self;
    fail_msg("file %d: %zu bytes of %p at %llu", (int)kind, bytes, data, (unsigned long long)at);
}

static void
write_rows(void *self, const struct lane_disk_rows *rows)
{
    const struct psi_rows_count *count = &rows->piece->count;

    (void)self;
    assert_true(given.files < FILES_MAX);
    assert_int_equal(rows->number, given.files);
    assert_string_equal(rows->name, "e");
    given.piece[given.files] = rows->piece;
    given.saved[given.files++] = (struct psi_saved_file){.table = rows->table,
                                                         .generation = given.generation,
                                                         .number = rows->number,
                                                         .first_bucket = rows->first_bucket,
                                                         .end_bucket = rows->end_bucket,
                                                         .rows = count->rows,
                                                         .cleared = count->cleared,
                                                         .counted = count->counted,
                                                         .bytes = 1000 + 8 * count->rows,
                                                         .checksum = 7};
    given.news.written += psi_rows_piece_bytes(rows->piece);
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

static const struct lane_disk disk = {.begin = begin,
                                      .write = no_bytes,
                                      .write_rows = write_rows,
                                      .finish = finish,
                                      .drop = give_up,
                                      .look = look};

static struct lane_bed *
start(const struct psd_sparse_args *more)
{
    struct lane_bed *bed = lane_bed_start(1, PSI_DEATH_FAIL);
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADD};
    struct psd_sparse_args args = *more;

    bed->lane->config.disk = &disk;
    args.struct_size = sizeof(args);
    args.name = "e";
    args.dtype = PSD_F32;
    args.width = 1;
    args.reduce = PSD_REDUCE_SUM;
    args.rule = &rule;
    open_sparse(bed, TABLE, &args);
    return bed;
}

static void
stop(struct lane_bed *bed)
{
    forget();
    lane_bed_stop(bed);
}

static int
by_mixed_id(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;

    return psi_bucket_before(*left, *right) ? -1 : 1;
}

/* Adds `number` to the rows of ids first .. first + count - 1. */
static void
push(struct lane_bed *bed, uint64_t step, uint64_t first, uint32_t count, float number)
{
    uint8_t payload[1024];
    const struct psi_rows counts = {.pushed = count, .gradients = true};
    const struct psi_rows_room room = psi_rows_encode(payload, sizeof(float), &counts);
    const struct psi_frame frame = {.type = PSI_FRAME_SPARSE_PUSH,
                                    .dtype = PSD_F32,
                                    .table = TABLE,
                                    .step = step,
                                    .seq = step + 1,
                                    .request = (uint32_t)step + 1};
    uint64_t ids[IDS];

    for (uint32_t i = 0; i < count; i++) {
        ids[i] = first + i;
    }
    qsort(ids, count, sizeof(ids[0]), by_mixed_id);
    for (uint32_t i = 0; i < count; i++) {
        psi_store_u64(room.ids + 8 * i, ids[i]);
        memcpy(room.rows + i * sizeof(float), &number, sizeof(float));
    }
    say(bed, bed->worker[0], frame, payload, psi_rows_bytes(sizeof(float), count, 0));
}

/* Generation g has the token 100 + g. */
static void
order(struct lane_bed *bed, uint64_t generation, uint64_t after, uint64_t step)
{
    struct psi_order_table table = {.id = TABLE};
    const struct psi_order message = {.token = 100 + generation,
                                      .generation = generation,
                                      .after = after == 0 ? 0 : 100 + after,
                                      .bytes = {64, 64},
                                      .tables = 1,
                                      .table = &table};
    uint8_t body[256];
    struct psi_pack pack;

    psi_pack_init(&pack, body, sizeof(body));
    psi_order_encode(&pack, &message);
    say(bed, bed->master,
        (struct psi_frame){.type = PSI_FRAME_CHECKPOINT, .seq = generation, .step = step}, body,
        pack.used);
}

/* Everything is on the disk. Which files the master hears of. */
static struct psi_rows_saved
tell(struct lane_bed *bed)
{
    static struct psi_saved_file files[PSI_ROWS_SAVED_MAX];
    struct psi_rows_saved saved = {.file = files};
    const struct world_heard *heard;

    for (int i = 0; i < 10 && !given.finished; i++) {
        lane_tick(bed->lane);
    }
    assert_true(given.finished);
    given.news.done = true;
    given.news.sums = given.sums;
    given.news.bytes = given.written;
    given.news.rows = given.saved;
    given.news.rows_count = given.files;
    lane_tick(bed->lane);
    heard = hear(bed->master, PSI_FRAME_ROWS_SAVED);
    if (heard != NULL) {
        assert_int_equal(
            psi_rows_saved_decode(heard->body, heard->frame.payload_bytes, &saved, NULL), PSD_OK);
    }
    assert_non_null(hear(bed->master, PSI_FRAME_WRITTEN));
    return saved;
}

/* The number that was handed over for an id; -1: none. No id is there twice. */
static float
number_of(uint64_t id)
{
    float number = -1;

    for (unsigned file = 0; file < given.files; file++) {
        const struct psi_rows_piece *piece = given.piece[file];

        for (uint32_t i = 0; i < piece->count.rows; i++) {
            if (((uint64_t *)piece->column[PSI_ROWS_IDS])[i] == id) {
                assert_true(number == -1);
                number = ((float *)piece->column[PSI_ROWS_VALUES])[i];
            }
        }
    }
    return number;
}

static uint64_t
version(const struct lane_bed *bed)
{
    return table_find(bed->lane, TABLE)->chunks[0].clock.version;
}

/* If this fails, a checkpoint has rows of a later step, lacks some, or training waits for it. */
static void
test_rows_are_saved_as_they_are_at_the_step(void **state)
{
    struct lane_bed *bed = start(&(struct psd_sparse_args){0});
    struct psi_rows_saved saved;

    (void)state;
    order(bed, 1, 0, 2);
    push(bed, 0, 0, IDS, 1);
    push(bed, 1, 0, 10, 1);
    push(bed, 2, 5, 10, 1); /* nobody has had time for the disk yet */
    push(bed, 3, IDS, 5, 1);
    assert_int_equal(version(bed), 4);
    saved = tell(bed);
    assert_int_equal(saved.count, 1);
    assert_int_equal(saved.file[0].rows, IDS);
    for (uint64_t id = 0; id < IDS; id++) {
        assert_true(number_of(id) == (id < 10 ? 2 : 1));
    }
    assert_true(number_of(IDS) == -1); /* came later */
    stop(bed);
}

static void
sleep_on(void *core)
{
    (void)core;
}

/* If this fails, a lane that goes through the step of a checkpoint without a turn in between saves rows as
 * they were later. */
static void
test_rows_are_frozen_as_the_step_passes(void **state)
{
    static const struct world_core asleep = {.tick = sleep_on};
    struct lane_bed *bed = start(&(struct psd_sparse_args){0});
    const struct world_core *core = bed->world.core;

    (void)state;
    push(bed, 0, 0, IDS, 1);
    order(bed, 1, 0, 2);
    bed->world.core = &asleep; /* both frames are handled in one turn */
    push(bed, 1, 0, 10, 1);
    push(bed, 2, 5, 10, 1);
    bed->world.core = core;
    (void)tell(bed);
    for (uint64_t id = 0; id < IDS; id++) {
        assert_true(number_of(id) == (id < 10 ? 2 : 1));
    }
    stop(bed);
}

/* If this fails, the next checkpoint has all rows again, lacks changed ones, or the master hears of too few
 * files. */
static void
test_then_what_has_changed_is_saved(void **state)
{
    struct lane_bed *bed = start(&(struct psd_sparse_args){0});
    struct psi_rows_saved saved;

    (void)state;
    push(bed, 0, 0, IDS, 1);
    order(bed, 1, 0, 1);
    assert_int_equal(tell(bed).count, 1);
    order(bed, 2, 1, 2);
    push(bed, 1, 3, 2, 1);
    push(bed, 2, 4, 2, 1);
    saved = tell(bed);
    assert_int_equal(saved.count, 2);
    assert_int_equal(saved.file[0].generation, 1);
    assert_int_equal(saved.file[1].generation, 2);
    assert_int_equal(saved.file[1].rows, 2);
    assert_true(number_of(3) == 2 && number_of(4) == 2 && number_of(5) == -1);
    order(bed, 3, 2, 4); /* what has changed is more than a third, as this disk counts bytes */
    push(bed, 3, 30, 1, 1);
    saved = tell(bed);
    assert_int_equal(saved.count, 1);
    assert_int_equal(saved.file[0].rows, IDS);
    assert_true(number_of(30) == 2 && number_of(5) == 2 && number_of(6) == 1);
    stop(bed);
}

/* If this fails, a generation refers to files of one that was never committed. */
static void
test_all_is_saved_after_one_that_was_given_up(void **state)
{
    struct lane_bed *bed = start(&(struct psd_sparse_args){0});
    struct psi_rows_saved saved;

    (void)state;
    push(bed, 0, 0, IDS, 1);
    order(bed, 1, 0, 1);
    assert_int_equal(tell(bed).count, 1);
    order(bed, 2, 1, 1); /* nothing has changed */
    assert_int_equal(tell(bed).count, 1);
    assert_int_equal(given.files, 0);
    push(bed, 1, 0, 1, 1);
    order(bed, 3, 1, 2); /* the second was not committed */
    saved = tell(bed);
    assert_int_equal(saved.count, 2);
    assert_int_equal(saved.file[0].generation, 1);
    assert_int_equal(saved.file[1].rows, 1);
    order(bed, 4, 0, 2); /* nothing may be referred to */
    saved = tell(bed);
    assert_int_equal(saved.count, 1);
    assert_int_equal(saved.file[0].generation, 4);
    assert_int_equal(saved.file[0].rows, IDS);
    stop(bed);
}

/* If this fails, rows that have gone come back with the next checkpoint, or ids are counted anew. */
static void
test_rows_that_went_and_counts_are_saved(void **state)
{
    struct lane_bed *bed =
        start(&(struct psd_sparse_args){.idle_steps = 2, .sweep_every = 1, .admit_after = 2});
    struct psi_rows_saved saved;

    (void)state;
    push(bed, 0, 0, IDS, 1);
    order(bed, 1, 0, 1); /* counted, and not there yet */
    saved = tell(bed);
    assert_int_equal(saved.count, 1);
    assert_int_equal(saved.file[0].rows, 0);
    assert_in_range(saved.file[0].counted, IDS / 2, IDS);
    for (uint64_t step = 1; step < 5; step++) {
        push(bed, step, 0, step == 1 ? IDS : 1, 1);
    }
    order(bed, 2, 1, 5); /* the first had no rows: all */
    saved = tell(bed);
    assert_int_equal(given.saved[given.files - 1].rows, 1);
    assert_true(number_of(0) == 4 && number_of(1) == -1);
    for (uint64_t step = 5; step < 9; step++) {
        push(bed, step, 1, 1, 1);
    }
    order(bed, 3, 2, 9);
    (void)tell(bed);
    assert_int_equal(given.saved[0].cleared, 1); /* the bucket of 0 */
    assert_true(number_of(0) == -1 && number_of(1) > 0);
    stop(bed);
}

/* If this fails, a table without rounds is never saved, or a row is there twice. */
static void
test_a_table_without_rounds_is_saved_row_by_row(void **state)
{
    struct lane_bed *bed = start(&(struct psd_sparse_args){.staleness = PSD_STALENESS_UNBOUNDED});

    (void)state;
    push(bed, 0, 0, IDS, 1);
    order(bed, 1, 0, 2);
    for (int i = 0; i < 3; i++) {
        lane_tick(bed->lane);
    }
    assert_false(given.finished); /* no worker has come to the step */
    push(bed, 1, 0, IDS, 1);
    push(bed, 2, 0, IDS, 1);
    assert_int_equal(tell(bed).count, 1);
    for (uint64_t id = 0; id < IDS; id++) {
        assert_true(number_of(id) >= 2); /* as it was when its turn came */
    }
    stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_saved_as_they_are_at_the_step),
        cmocka_unit_test(test_rows_are_frozen_as_the_step_passes),
        cmocka_unit_test(test_then_what_has_changed_is_saved),
        cmocka_unit_test(test_all_is_saved_after_one_that_was_given_up),
        cmocka_unit_test(test_rows_that_went_and_counts_are_saved),
        cmocka_unit_test(test_a_table_without_rounds_is_saved_row_by_row),
    };

    return cmocka_run_group_tests_name("lane_snapshot_rows", tests, NULL, NULL);
}
