/*
 * sparse_calls.h - calls about rows, as tests write them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_EMBEDDED_SPARSE_CALLS_H
#define TESTS_EMBEDDED_SPARSE_CALLS_H

#include "bed.h"

/* SPARSE("e", 4, .staleness = 1) */
#define SPARSE(table_name, row_width, ...)                                                         \
    (&(struct psd_sparse_args){.struct_size = sizeof(struct psd_sparse_args),                      \
                               .name = table_name,                                                 \
                               .dtype = PSD_F32,                                                   \
                               .width = row_width,                                                 \
                               __VA_ARGS__})

#define ROWS_OF(at_step, ...)                                                                      \
    (&(struct psd_rows){.struct_size = sizeof(struct psd_rows), .step = at_step, __VA_ARGS__})

typedef psd_status (*start_fn)(psd_table *table, const struct psd_rows *rows, psd_op **op_p);

/* Starts, waits, releases; the error is in psd_last_error(). */
static inline psd_status
run_rows(start_fn start, psd_table *table, const struct psd_rows *rows)
{
    psd_op *op = NULL;
    psd_status status = start(table, rows, &op);

    if (status == PSD_OK) {
        status = psd_wait(op, PSD_FOREVER);
        psd_op_release(op);
    }
    return status;
}

#endif
