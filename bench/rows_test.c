/*
 * rows_test.c - the rows that psd_bench asks for, and the model that checks them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rows.h"
#include "sparse_ceiling.h"

enum { IDS = 5000, BATCH = 256 };

static struct rows
create(uint64_t flags, uint32_t rank, uint32_t workers)
{
    const struct team_order order = {
        .verb = TEAM_ROWS, .flags = flags, .ids = IDS, .width = SPARSE_WIDTH, .batch = BATCH};
    struct psd_error err = {0};
    struct rows rows;

    if (rows_init(&rows, &order, rank, workers, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    return rows;
}

/* If this fails, workers ask for the same rows as each other, for one row twice in a batch, or for
 * rows that are not there. */
static void
test_batches(void **state)
{
    struct rows first = create(TEAM_LOOKUP, 0, 2);
    struct rows second = create(TEAM_LOOKUP, 1, 2);

    (void)state;
    assert_memory_not_equal(first.ids, second.ids, BATCH * sizeof(uint64_t));
    for (uint64_t round = 0; round < 2 * ROWS_BATCHES; round++) {
        const uint64_t *ids = rows_ids(&first, round);

        assert_true(ids[BATCH - 1] < IDS);
        for (int i = 1; i < BATCH; i++) {
            assert_true(ids[i - 1] < ids[i]);
        }
    }
    assert_ptr_equal(rows_ids(&first, 1), rows_ids(&first, ROWS_BATCHES + 1));
    rows_fini(&first);
    rows_fini(&second);
}

/* If this fails, the batches that are called zipf ask for all rows alike. */
static void
test_zipf(void **state)
{
    struct rows rows = create(TEAM_LOOKUP | TEAM_ZIPF, 0, 1);
    uint32_t counts[IDS] = {0};
    uint32_t most = 0;
    uint32_t asked = 0;

    (void)state;
    for (uint64_t i = 0; i < (uint64_t)ROWS_BATCHES * BATCH; i++) {
        assert_true(rows.ids[i] < IDS);
        counts[rows.ids[i]]++;
    }
    for (int id = 0; id < IDS; id++) {
        most = counts[id] > most ? counts[id] : most;
        asked += counts[id] > 0;
    }
    assert_in_range(most, ROWS_BATCHES * BATCH / 20, ROWS_BATCHES * BATCH / 4);
    assert_in_range(asked, IDS / 20, IDS / 2);
    rows_fini(&rows);
}

/* If this fails, new ids come twice, or two workers create the same row. */
static void
test_new_ids(void **state)
{
    struct rows first = create(TEAM_PUSH | TEAM_NEW, 0, 2);
    struct rows second = create(TEAM_PUSH | TEAM_NEW, 1, 2);

    (void)state;
    assert_int_equal(rows_ids(&first, 0)[BATCH - 1] + 1, rows_ids(&second, 0)[0]);
    assert_int_equal(rows_ids(&second, 0)[BATCH - 1] + 1, rows_ids(&first, 1)[0]);
    rows_fini(&first);
    rows_fini(&second);
}

static void
read_samples(const struct plain_rows *plain, const struct rows *rows, float *values)
{
    plain_rows_gather(plain, rows->sample_ids, ROWS_SAMPLES, values);
}

/* If this fails, a run that computed something else is reported as a figure, or a good one is
 * called wrong. */
static void
test_the_model_sees_what_is_wrong(void **state)
{
    static float values[ROWS_SAMPLES * SPARSE_WIDTH];
    struct rows rows = create(TEAM_PUSH, 0, 1);
    struct plain_rows plain;
    struct psd_error err = {0};

    (void)state;
    assert_true(plain_rows_init(&plain, IDS));
    for (uint64_t id = 0; id < IDS; id++) {
        float numbers[SPARSE_WIDTH];

        for (uint32_t column = 0; column < SPARSE_WIDTH; column++) {
            numbers[column] = rows_number(id, column);
        }
        plain_rows_push(&plain, &id, 1, numbers, (float)ROWS_RATE, (float)ROWS_EPSILON);
    }
    rows_filled(&rows);
    for (uint64_t round = 0; round < ROWS_BATCHES + 5; round++) {
        read_samples(&plain, &rows, values);
        assert_int_equal(rows_check_samples(&rows, values, &err), PSD_OK);
        plain_rows_push(&plain, rows_ids(&rows, round), BATCH, rows_gradients(&rows, round),
                        (float)ROWS_RATE, (float)ROWS_EPSILON);
        read_samples(&plain, &rows, values);
        assert_int_equal(rows_check_samples(&rows, values, &err), PSD_ERR_CORRUPT);
        rows_pushed(&rows, round);
    }
    plain_rows_fini(&plain);
    rows_fini(&rows);
}

/* If this fails, a cache that gives the row of another id is not noticed. */
static void
test_stored_rows_are_compared(void **state)
{
    struct rows rows = create(TEAM_LOOKUP, 0, 1);
    struct psd_error err = {0};

    (void)state;
    memcpy(rows.values, rows_gradients(&rows, 3), BATCH * SPARSE_WIDTH * sizeof(float));
    assert_int_equal(rows_check_stored(&rows, 3, &err), PSD_OK);
    assert_int_equal(rows_check_stored(&rows, 4, &err), PSD_ERR_CORRUPT);
    rows_fini(&rows);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_zipf),
        cmocka_unit_test(test_new_ids),
        cmocka_unit_test(test_the_model_sees_what_is_wrong),
        cmocka_unit_test(test_stored_rows_are_compared),
    };

    return cmocka_run_group_tests_name("bench_rows", tests, NULL, NULL);
}
