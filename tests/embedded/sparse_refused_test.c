/*
 * sparse_refused_test.c - calls, tables, jobs and gradients that sparse tables do not take, and what
 * the message says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <string.h>

#include "sparse_calls.h"

static void
refuse_calls(struct worker *worker)
{
    static const uint64_t ids[] = {3, 3, 9};
    float values[8] = {0};
    psd_table *table;
    psd_table *dense;
    const void *view;
    uint64_t step;
    psd_op *op;

    CHECK_OK(worker, psd_sparse_open(worker->context, SPARSE("e", 2), &table));
    CHECK_OK(worker, psd_table_open(worker->context, TABLE("d", PSD_F32, 2), &dense));
    CHECK_STATUS(worker, pull(table, 0, values), PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "table e is sparse");
    CHECK_STATUS(worker, push(table, 0, values), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_view(table, &view), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_save(worker->context, "/nowhere", 0), PSD_ERR_STATE);
    CHECK_SAYS(worker, psd_last_error()->text, "its servers alone save it (psd_run --checkpoint)");
    CHECK_STATUS(worker, psd_load(worker->context, "/nowhere", &step), PSD_ERR_STATE);
    CHECK_STATUS(
        worker,
        psd_sparse_lookup(dense, ROWS_OF(0, .lookup_count = 1, .lookup_ids = ids, .values = values),
                          &op),
        PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "table d is not sparse");
    CHECK_STATUS(worker, psd_sparse_lookup(table, ROWS_OF(0, .lookup_count = 1), &op),
                 PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "lookup_ids is NULL");
    CHECK_STATUS(worker,
                 psd_sparse_push(
                     table, ROWS_OF(4, .push_count = 3, .push_ids = ids, .gradients = values), &op),
                 PSD_ERR_STEP);
    values[4] = NAN; /* of id 9 */
    CHECK_STATUS(worker,
                 psd_sparse_push(
                     table, ROWS_OF(0, .push_count = 3, .push_ids = ids, .gradients = values), &op),
                 PSD_ERR_NOT_FINITE);
    CHECK_SAYS(worker, psd_last_error()->text, "gradient of id 9 is not finite");
    values[4] = 0;
    values[0] = 3e38f; /* finite, but not together with the other row of id 3 */
    values[2] = 3e38f;
    CHECK_STATUS(worker,
                 psd_sparse_push(
                     table, ROWS_OF(0, .push_count = 3, .push_ids = ids, .gradients = values), &op),
                 PSD_ERR_NOT_FINITE);
    CHECK_SAYS(worker, psd_last_error()->text, "gradient of id 3");
}

/* If this fails, a call that cannot do what it is asked for does something else in silence. */
static void
test_calls_that_are_refused(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1});

    (void)state;
    bed_run(bed, refuse_calls, NULL);
    bed_finish(bed);
}

static void
refuse_tables(struct worker *worker)
{
    psd_table *table;

    CHECK_STATUS(worker, psd_sparse_open(worker->context, SPARSE("e", 0), &table), PSD_ERR_INVALID);
    CHECK_STATUS(worker, psd_sparse_open(worker->context, SPARSE("e", 4097), &table),
                 PSD_ERR_INVALID);
    CHECK_SAYS(worker, psd_last_error()->text, "width");
    CHECK_STATUS(worker,
                 psd_sparse_open(worker->context, SPARSE("e", 4, .init = PSD_INIT_RANK0), &table),
                 PSD_ERR_INVALID);
    CHECK_OK(worker, psd_sparse_open(worker->context, SPARSE("e", 4), &table));
    CHECK_STATUS(worker, psd_sparse_open(worker->context, SPARSE("e", 5), &table),
                 PSD_ERR_MISMATCH);
    CHECK_SAYS(worker, psd_last_error()->text, "width differs");
    CHECK_STATUS(worker, psd_table_open(worker->context, TABLE("e", PSD_F32, 4), &table),
                 PSD_ERR_MISMATCH);
    CHECK_SAYS(worker, psd_last_error()->text, "sparse differs");
}

/* If this fails, a table that makes no sense, or that others opened differently, is opened. */
static void
test_tables_that_are_refused(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 1, .servers = 2});

    (void)state;
    bed_run(bed, refuse_tables, NULL);
    bed_finish(bed);
}

static void
skip_what_is_not_finite(struct worker *worker)
{
    static const uint64_t ids[] = {3, 4};
    float gradients[] = {2, 2};
    float values[2];
    psd_table *table;

    CHECK_OK(worker, psd_sparse_open(worker->context,
                                     SPARSE("e", 1, .rule = RULE(.rule = PSD_RULE_ADD),
                                            .nan_policy = PSD_NAN_SKIP),
                                     &table));
    gradients[1] = worker->rank == 0 ? INFINITY : 2;
    CHECK_OK(worker, run_rows(psd_sparse_push_lookup, table,
                              ROWS_OF(0, .push_count = 2, .push_ids = ids, .gradients = gradients,
                                      .lookup_count = 2, .lookup_ids = ids, .values = values)));
    CHECK(worker, values[0] == 2 && values[1] == 2); /* of rank 1 alone: not divided by two */
}

/* If this fails, a gradient that is to be skipped counts in part, or in the mean. */
static void
test_skipped_gradients(void **state)
{
    struct bed *bed = bed_start(&(struct bed_config){.workers = 2, .servers = 2});

    (void)state;
    bed_run(bed, skip_what_is_not_finite, NULL);
    bed_finish(bed);
}

int
main(void)
{
    const struct CMUnitTest tests_of_refusals[] = {
        cmocka_unit_test(test_calls_that_are_refused),
        cmocka_unit_test(test_tables_that_are_refused),
        cmocka_unit_test(test_skipped_gradients),
    };

    bed_begin();
    return cmocka_run_group_tests(tests_of_refusals, NULL, NULL);
}
