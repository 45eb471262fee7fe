/*
 * resume_test.c - a lane whose job goes on from a checkpoint: what of it is believed, and what is missing when
 * the lane was promoted while its owner read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/rows_piece.h"
#include "server/lane_bed.h"
#include "server/source.h"
#include "server/state.h"
#include "store/sparse/kind.h"
#include "store/sparse/sparse.h"

enum { TABLE = 3, STEP = 10, TOUCHED = 40 };

/* One row, which was touched behind the step of the checkpoint, as rows of tables without rounds may be. */
static psd_status
read_rows(void *self, const struct psi_spec *spec, uint32_t first_bucket, uint32_t end_bucket,
          uint64_t *cursor_p, struct psi_rows_piece **piece_p, uint64_t *updates_p,
          struct psd_error *err)
{
    const struct psi_row_form form = psi_row_form_of(spec);
    const uint64_t id = 5;
    const float value = 2;
    const uint32_t step = TOUCHED;
    const uint32_t count = 7;
    const struct psi_rows_arrays rows = {.count = 1,
                                         .ids = &id,
                                         .values = &value,
                                         .state = &value,
                                         .steps = &step,
                                         .counts = &count};

    (void)self;
    (void)first_bucket;
    (void)end_bucket;
    (void)err;
    *updates_p = STEP;
    *piece_p = NULL;
    if ((*cursor_p)++ == 0) {
        *piece_p = psi_rows_piece_create(&form, &(struct psi_rows_count){.rows = 1});
        assert_non_null(*piece_p);
        assert_int_equal(psi_rows_piece_add(*piece_p, &rows, 0), 1);
    }
    return PSD_OK;
}

static psd_status
read_numbers(void *self, const struct psi_spec *spec, unsigned part, uint64_t first, size_t bytes,
             void *to, uint64_t *updates_p, struct psd_error *err)
{
    (void)self;
    (void)spec;
    (void)part;
    (void)first;
    (void)err;
    memset(to, 0, bytes);
    *updates_p = STEP;
    return PSD_OK;
}

static const struct lane_source source = {
    .step = STEP, .read = read_numbers, .read_rows = read_rows};

static struct lane_bed *
start(void)
{
    struct lane_bed *bed = lane_bed_start_surviving(1);

    bed->lane->config.source = &source;
    bed->first_step = STEP;
    return bed;
}

static void
open_rows(struct lane_bed *bed, uint32_t staleness)
{
    const struct psd_rule_args rule = {.struct_size = sizeof(rule), .rule = PSD_RULE_ADD};

    open_sparse(bed, TABLE,
                &(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),
                                          .name = "e",
                                          .dtype = PSD_F32,
                                          .width = 1,
                                          .rule = &rule,
                                          .staleness = staleness});
}

static uint64_t
last_touched(const struct lane_bed *bed)
{
    return sparse_last_step(sparse_table_rows(table_find(bed->lane, TABLE)->store));
}

/* If this fails, a row is loaded as touched in a step to come, and the next checkpoint takes it for changed. */
static void
test_rows_were_not_touched_in_steps_to_come(void **state)
{
    struct lane_bed *bed = start();

    (void)state;
    open_rows(bed, 0);
    assert_int_equal(last_touched(bed), STEP - 1);
    lane_bed_stop(bed);
    bed = start();
    open_rows(bed,
              PSD_STALENESS_UNBOUNDED); /* without rounds nothing says which steps are to come */
    assert_int_equal(last_touched(bed), TOUCHED);
    lane_bed_stop(bed);
}

static void
open_dense(struct lane_bed *bed)
{
    open_table(bed, TABLE,
               &(struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                        .name = "d",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {4}});
}

/* If this fails, a server that took the place of one which died while it read a checkpoint trains on with
 * initial values, or one that has read all ends the job. */
static void
test_table_that_was_not_read_is_refused(void **state)
{
    struct lane_bed *bed = start();
    struct psi_verdict verdict;

    (void)state;
    open_dense(bed);
    bed->lane->promoted = 1;
    open_table_again(bed, TABLE, &table_find(bed->lane, TABLE)->spec);
    assert_int_equal(hear(bed->master, PSI_FRAME_ACK)->frame.status, PSD_OK);
    table_find(bed->lane, TABLE)->chunks[0].updates =
        0; /* as in a copy whose owner did not get to it */
    open_table_again(bed, TABLE, &table_find(bed->lane, TABLE)->spec);
    verdict = hear_verdict(bed->master, PSI_FRAME_ACK);
    assert_int_equal(verdict.status, PSD_ERR_STATE);
    assert_non_null(strstr(verdict.text, "start the job again, with --resume"));
    bed->lane->promoted = 0;
    lane_bed_stop(bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_were_not_touched_in_steps_to_come),
        cmocka_unit_test(test_table_that_was_not_read_is_refused),
    };

    return cmocka_run_group_tests_name("lane_resume", tests, NULL, NULL);
}
