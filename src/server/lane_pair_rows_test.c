/*
 * lane_pair_rows_test.c - a lane with a sparse table and its copy, frame by frame: what waits for the
 * copy, and that it has the same rows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "server/pair_bed.h"
#include "server/state.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum { TABLE = 1, ALL = 1000, PIECE_BYTES = 1 << 20 };

static void
open_rows(struct lane_bed *bed, uint32_t width, uint32_t staleness)
{
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADAGRAD};

    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = width,
                                          .rule = &rule,
                                          .init = PSD_INIT_UNIFORM,
                                          .init_value = 1,
                                          .staleness = staleness});
}

/* Copies have sums only where workers must not make them anew. */
static void
open_sum(struct lane_bed *bed, uint32_t width)
{
    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = width,
                                          .use = PSD_USE_SUM,
                                          .reduce = PSD_REDUCE_MEAN});
}

static int
compare(const void *a, const void *b)
{
    const uint64_t left = psi_bucket_mix(*(const uint64_t *)a);
    const uint64_t right = psi_bucket_mix(*(const uint64_t *)b);

    return (left > right) - (left < right);
}

/* Every row gets numbers that depend on rank, step and id. */
static void
push(struct lane_bed *bed, uint32_t rank, uint64_t step, uint64_t first, uint32_t count)
{
    const struct table *table = table_find(bed->lane, TABLE);
    const uint32_t width = table->spec.width;
    const struct psi_rows counts = {.pushed = count, .gradients = 1};
    const size_t bytes = psi_rows_bytes(width * sizeof(float), count, 0);
    uint8_t *payload = malloc(bytes);
    uint64_t *ids = malloc((count + 1) * sizeof(*ids));
    const bool is_sum = table->spec.use == PSD_USE_SUM;
    const struct psi_frame frame = {.type =
                                        is_sum ? PSI_FRAME_SPARSE_PUSH_PULL : PSI_FRAME_SPARSE_PUSH,
                                    .table = TABLE,
                                    .dtype = PSD_F32,
                                    .step = step,
                                    .seq = (uint32_t)step + 1,
                                    .request = (uint32_t)step + 1};
    struct psi_rows_room room;

    assert_true(payload != NULL && ids != NULL);
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = first + i;
    }
    qsort(ids, count, sizeof(*ids), compare);
    room = psi_rows_encode(payload, width * sizeof(float), &counts);
    for (uint32_t i = 0; i < count; i++) {
        psi_store_u64(room.ids + 8 * i, ids[i]);
        for (uint32_t j = 0; j < width; j++) {
            const float number = (float)(ids[i] % 17 + rank + 3 * step + j + 1) / 7;

            memcpy(room.rows + (i * width + j) * sizeof(number), &number, sizeof(number));
        }
    }
    say(bed, bed->worker[rank], frame, payload, bytes);
    free(payload);
    free(ids);
}

static bool
is_acked(struct lane_bed *bed, uint32_t rank)
{
    return hear(bed->worker[rank], PSI_FRAME_ACK) != NULL;
}

static struct chunk *
chunk_of(const struct lane_bed *bed)
{
    const struct table *table = table_find(bed->lane, TABLE);

    assert_non_null(table);
    return &table->chunks[0];
}

/* All rows that a lane has, as pieces. */
static size_t
dump(const struct lane_bed *bed, uint8_t **bytes_p)
{
    struct store *store = chunk_of(bed)->table->store;
    struct store_walk walk = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;

    while (!walk.is_done) {
        bytes = realloc(bytes, size + PIECE_BYTES);
        assert_non_null(bytes);
        size += store->ops->piece(store, &walk, bytes + size, PIECE_BYTES);
    }
    *bytes_p = bytes;
    return size;
}

static void
assert_same(const struct two *two)
{
    const struct chunk *a = chunk_of(two->owner);
    const struct chunk *b = chunk_of(two->copy);
    uint8_t *one;
    uint8_t *other;
    const size_t size = dump(two->owner, &one);

    assert_int_equal(a->clock.version, b->clock.version);
    assert_int_equal(a->updates, b->updates);
    assert_int_equal(size, dump(two->copy, &other));
    assert_memory_equal(one, other, size);
    assert_int_equal(two->copy->lane->memory_used,
                     b->table->store->bytes + table_bookkeeping_bytes(two->copy->lane, b->table));
    free(one);
    free(other);
}

static bool
is_called_eligible(struct lane_bed *bed)
{
    return hear(bed->master, PSI_FRAME_ELIGIBLE) != NULL;
}

/* Both push, other rows each, and some the same. */
static void
push_both(struct two *two, uint64_t step)
{
    push(two->owner, 0, step, step * 10, 50);
    push(two->owner, 1, step, step * 10 + 30, 50);
}

/* If this fails, a worker is told of a round that dies with the server, or the copy of it has other rows. */
static void
test_a_round_is_told_when_the_copy_has_it(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    settle(&two);
    open_rows(two.owner, 3, 0);
    settle(&two);
    for (uint32_t step = 0; step < 4; step++) {
        push_both(&two, step);
        assert_int_equal(chunk_of(two.owner)->clock.version, step + 1);
        assert_false(is_acked(two.owner, 0));
        assert_true(to_copy(&two, ALL) > 0);
        assert_false(is_acked(two.owner, 0));
        assert_same(&two);
        to_owner(&two);
        assert_true(is_acked(two.owner, 0));
        assert_true(is_acked(two.owner, 1));
    }
    stop(&two);
}

static bool
is_told_the_sum(struct lane_bed *bed, uint32_t rank)
{
    return hear(bed->worker[rank], PSI_FRAME_SPARSE_VALUE) != NULL;
}

static struct two
pair_up_waiting(struct lane_bed *owner)
{
    struct two two = pair_up(owner);

    two.copy->lane->job.policy = PSI_DEATH_WAIT;
    return two;
}

/* If this fails, a worker is told of a sum of rows that dies with the server, or the copy has another sum. */
static void
test_a_sum_is_told_when_the_copy_has_it(void **state)
{
    struct lane_bed *owner = lane_bed_start_surviving(2);
    struct two two;

    (void)state;
    owner->lane->job.policy = PSI_DEATH_WAIT;
    two = pair_up_waiting(owner);
    settle(&two);
    open_sum(owner, 3);
    settle(&two);
    for (uint32_t step = 0; step < 4; step++) {
        push_both(&two, step);
        assert_true(to_copy(&two, ALL) > 0);
        assert_false(is_told_the_sum(owner, 0));
        assert_same(&two);
        to_owner(&two);
        assert_true(is_told_the_sum(owner, 0) && is_told_the_sum(owner, 1));
    }
    stop(&two);
}

/* If this fails, a copy that joins a running job has half of the last sum, or believes anything that is no part of one. */
static void
test_a_copy_of_a_large_sum(void **state)
{
    enum { WIDTH = 2000 };
    struct lane_bed *owner = lane_bed_start_surviving(2);
    struct two two;
    uint64_t piece[WIDTH];
    struct psd_error err;
    struct store *store;

    (void)state;
    owner->lane->job.policy = PSI_DEATH_WAIT;
    open_sum(owner, WIDTH);
    push(owner, 0, 0, 0, 300); /* 4 MB, in pieces of 1 MiB */
    push(owner, 1, 0, 200, 300);
    two = pair_up_waiting(owner);
    settle(&two);
    assert_int_equal(chunk_of(owner)->copy.mode, COPY_PAIRED);
    assert_same(&two);
    push_both(&two, 1);
    settle(&two);
    assert_same(&two);
    store = chunk_of(two.copy)->table->store;
    memset(piece, 0, sizeof(piece));
    assert_int_equal(store->ops->take(store, piece, 8, &err), PSD_ERR_PROTOCOL);
    piece[0] = 2; /* rows, and there are none */
    assert_int_equal(store->ops->take(store, piece, sizeof(piece), &err), PSD_ERR_PROTOCOL);
    stop(&two);
}

/* If this fails, a step in which nobody has a row, or has a gradient at all, is another one in the copy. */
static void
test_steps_without_rows(void **state)
{
    static const uint32_t staleness[] = {0, 2, PSD_STALENESS_UNBOUNDED};

    (void)state;
    for (size_t i = 0; i < sizeof(staleness) / sizeof(staleness[0]); i++) {
        struct two two = pair_up(lane_bed_start_surviving(2));

        settle(&two);
        open_rows(two.owner, 3, staleness[i]);
        for (uint32_t step = 0; step < 3; step++) {
            push(two.owner, 0, step, 0, step % 2 == 0 ? 0 : 5);
            push(two.owner, 1, step, 0, 0);
            settle(&two);
            assert_same(&two);
        }
        stop(&two);
    }
}

/* If this fails, a stale or asynchronous push is told before the copy has it, counts twice after the server's
 * death, or is lost when more than a few are on their way. */
static void
test_pushes_without_rounds(void **state)
{
    static const uint32_t staleness[] = {20, PSD_STALENESS_UNBOUNDED};

    (void)state;
    for (size_t i = 0; i < sizeof(staleness) / sizeof(staleness[0]); i++) {
        struct two two = pair_up(lane_bed_start_surviving(2));

        settle(&two);
        open_rows(two.owner, 3, staleness[i]);
        settle(&two);
        for (uint32_t step = 0; step < 10; step++) {
            push(two.owner, 0, step, step * 10, 50);
            push(two.owner, 1, step, step * 10 + 30, 50);
        }
        assert_false(is_acked(two.owner, 0));
        assert_true(to_copy(&two, ALL) >= 20);
        assert_same(&two);
        for (uint32_t rank = 0; rank < 2; rank++) {
            const struct chunk *a = chunk_of(two.owner);
            const struct chunk *b = chunk_of(two.copy);

            if (a->marks != NULL) {
                assert_int_equal(a->marks[rank].sequence, 10);
                assert_int_equal(b->marks[rank].sequence, 10);
            } else {
                assert_int_equal(b->clock.next[rank], 10);
            }
        }
        to_owner(&two);
        for (uint32_t step = 0; step < 10; step++) {
            assert_true(is_acked(two.owner, 0));
        }
        stop(&two);
    }
}

/* If this fails, a copy that joins a running job has other rows than its owner, or rounds wait until it has
 * all of them. */
static void
test_a_copy_joins_while_rounds_close(void **state)
{
    enum { WIDTH = 2000, STEPS = 40 };
    struct lane_bed *owner = lane_bed_start_surviving(2);
    struct two two;
    unsigned steps_between = 0;
    uint64_t step = 0;

    (void)state;
    open_rows(owner, WIDTH, 0);
    push(owner, 0, step, 0, 400); /* 6 MB with their state, in pieces of 1 MiB */
    push(owner, 1, step++, 400, 400);
    two = pair_up(owner);
    assert_int_equal(chunk_of(owner)->copy.mode, COPY_ALONE);
    (void)to_owner(&two);
    world_settle(&owner->world);
    assert_int_equal(chunk_of(owner)->copy.mode, COPY_JOINING);
    assert_true(chunk_of(owner)->copy.walks);
    for (; step < STEPS; step++) {
        push(owner, 0, step, step * 10, 20);
        push(owner, 1, step, step * 20 + 5, 20);
        if (chunk_of(owner)->copy.mode == COPY_JOINING) {
            assert_true(is_acked(owner, 0)); /* waits for nobody */
            steps_between += chunk_of(owner)->copy.walks;
        }
        (void)to_copy(&two, 2);
        (void)to_owner(&two);
        world_settle(&owner->world);
    }
    assert_true(steps_between > 0);
    settle(&two);
    world_settle(&owner->world);
    settle(&two);
    assert_int_equal(chunk_of(owner)->copy.mode, COPY_PAIRED);
    assert_true(is_called_eligible(owner));
    assert_same(&two);
    push_both(&two, step);
    settle(&two);
    assert_same(&two);
    stop(&two);
}

/* If this fails, the list of a large step is cut off, or half of it counts in a copy that takes the place. */
static void
test_a_list_in_parts(void **state)
{
    enum { WIDTH = 4096, ROWS = 400 };
    struct two two = pair_up(lane_bed_start_surviving(2));
    unsigned parts = 0;

    (void)state;
    settle(&two);
    open_rows(two.owner, WIDTH, 0);
    settle(&two);
    push(two.owner, 0, 0, 0, ROWS);
    push(two.owner, 1, 0, ROWS / 2, ROWS);
    while (chunk_of(two.copy)->clock.version == 0) {
        assert_int_equal(chunk_of(two.copy)->updates, 0);
        world_settle(&two.owner->world);
        assert_int_equal(to_copy(&two, 1), 1);
        parts++;
    }
    assert_int_equal(parts, 3); /* 600 rows of 16 KiB, 255 in a part */
    assert_same(&two);
    stop(&two);
}

/* If this fails, workers that push and wait for nobody, and a copy that takes nothing, fill the server's
 * memory. */
static void
test_a_copy_that_takes_nothing_is_given_up(void **state)
{
    enum { WIDTH = 4096, ROWS = 400, PUSHES = 30 };
    struct two two = pair_up(lane_bed_start_surviving(2));
    const struct pair *pair;
    uint64_t step = 0;

    (void)state;
    settle(&two);
    open_rows(two.owner, WIDTH, PSD_STALENESS_UNBOUNDED);
    settle(&two);
    pair = two.owner->lane->pair;
    while (!pair->is_broken && step < PUSHES) {
        push(two.owner, 0, step++, 0, ROWS);
    }
    assert_true(step > 10); /* a healthy worker may have as many */
    assert_true(pair->is_broken);
    assert_non_null(strstr(pair->reason, "MiB behind"));
    stop(&two);
}

/* Says it to the copy as if the owner did. */
static void
say_change(struct two *two, const struct psi_change *change, size_t bytes, const uint64_t *ids)
{
    uint8_t payload[PSI_CHANGE_BYTES + 64] = {0};
    struct psi_pack pack;

    psi_pack_init(&pack, payload, PSI_CHANGE_BYTES);
    psi_change_encode(&pack, change);
    memcpy(payload + PSI_CHANGE_BYTES, ids, 2 * sizeof(*ids));
    world_say_bytes(&two->copy->world, two->from_owner->line,
                    &(struct psi_frame){.type = PSI_FRAME_REPLICATE,
                                        .table = TABLE,
                                        .seq = two->copy->lane->mirror->applied + 1},
                    NULL, payload, bytes);
}

/* If this fails, a copy relies on ids that are in no order, or on rows that it has no bytes of. */
static void
test_a_list_that_is_none(void **state)
{
    static const struct {
        struct psi_change change;
        size_t bytes;
        uint64_t ids[2];
        const char *says;
    } wrong[] = {
        {{.rows = 2}, PSI_CHANGE_BYTES + 24, {5, 5}, "an id twice"},
        {{.rows = 3}, PSI_CHANGE_BYTES + 24, {5, 6}, "216 bytes with 3 rows"},
        {{.rows = UINT32_MAX}, PSI_CHANGE_BYTES + 24, {5, 6}, "with 4294967295 rows"},
        {{.rows = 0}, PSI_CHANGE_BYTES - 8, {5, 6}, "bytes with 0 rows"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct two two = pair_up(lane_bed_start_surviving(2));

        settle(&two);
        open_rows(two.owner, 1, 0);
        settle(&two);
        say_change(&two, &wrong[i].change, wrong[i].bytes, wrong[i].ids);
        assert_true(two.copy->lane->mirror->is_broken);
        if (strstr(two.copy->warnings, wrong[i].says) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", wrong[i].says, two.copy->warnings);
        }
        stop(&two);
    }
}

/* If this fails, rows that came from outside are told before the copy has them, or it never gets them. */
static void
test_what_was_loaded_goes_in_pieces(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));
    struct chunk *chunk;

    (void)state;
    settle(&two);
    open_rows(two.owner, 3, 0);
    push_both(&two, 0);
    settle(&two);
    chunk = chunk_of(two.owner);
    pair_loaded(two.owner->lane, chunk);
    push_both(&two, 1); /* is told of, as far as the copy has the buckets: none */
    assert_true(chunk->copy.load != 0);
    world_settle(&two.owner->world);
    while (hear(two.owner->worker[0], PSI_FRAME_ACK) != NULL) {
    }
    (void)to_copy(&two, ALL);
    assert_true(chunk->copy.load != 0);
    assert_false(is_acked(two.owner, 0));
    settle(&two);
    assert_int_equal(chunk->copy.load, 0);
    assert_int_equal(two.owner->lane->pair->alone, 0);
    assert_same(&two);
    stop(&two);
}

/* If this fails, a checkpoint of a table without rounds is named by an earlier step after a server's death. */
static void
test_copy_knows_how_far_pushes_are(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    settle(&two);
    open_rows(two.owner, 3, PSD_STALENESS_UNBOUNDED);
    settle(&two);
    push(two.owner, 0, 7, 0, 5);
    settle(&two);
    assert_int_equal(two.owner->lane->furthest, 8);
    assert_int_equal(two.copy->lane->furthest, 8);
    push(two.owner, 1, 3, 0, 5); /* another worker is not as far */
    settle(&two);
    assert_int_equal(two.copy->lane->furthest, 8);
    stop(&two);
}

/* If this fails, a copy is given up because of one push of each worker, which is larger than what may be on
 * its way otherwise. */
static void
test_copy_stands_one_large_push_of_each_worker(void **state)
{
    struct two two = pair_up(lane_bed_start_surviving(2));

    (void)state;
    settle(&two);
    open_rows(two.owner, 3, PSD_STALENESS_UNBOUNDED);
    settle(&two);
    two.owner->lane->pair->slots.bytes = 1;
    two.owner->lane->pool.bytes_max = 1 << 17;
    push(two.owner, 0, 0, 0, 2000);
    push(two.owner, 1, 0, 1000, 2000);
    assert_non_null(two.owner->lane->pair);
    assert_false(two.owner->lane->pair->is_broken);
    assert_true(two.owner->lane->pair->bytes > 1 << 18);
    stop(&two);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_round_is_told_when_the_copy_has_it),
        cmocka_unit_test(test_a_sum_is_told_when_the_copy_has_it),
        cmocka_unit_test(test_a_copy_of_a_large_sum),
        cmocka_unit_test(test_steps_without_rows),
        cmocka_unit_test(test_pushes_without_rounds),
        cmocka_unit_test(test_copy_knows_how_far_pushes_are),
        cmocka_unit_test(test_copy_stands_one_large_push_of_each_worker),
        cmocka_unit_test(test_a_copy_joins_while_rounds_close),
        cmocka_unit_test(test_a_list_in_parts),
        cmocka_unit_test(test_a_copy_that_takes_nothing_is_given_up),
        cmocka_unit_test(test_a_list_that_is_none),
        cmocka_unit_test(test_what_was_loaded_goes_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
