/*
 * rows_layout.h - a file of rows of a sparse table: which tensors it has, and where each of them lies.
 * Pure.
 *
 * It is a safetensors file. A tensor without items is left out:
 *
 *     ids                 I64 [rows]
 *     steps, counts       U32 [rows]             at which step a row was last touched, how often
 *     values              F32 [rows, width]      whatever the table's type: servers compute in f32
 *     state.NAME          F32 [rows, width]      the rule's; [rows, 1] if it has one number per row
 *     cleared             U32 [cleared]          buckets: their rows in files before this one do not count
 *     admission.buckets   U32 [counted]          buckets whose ids are counted, ...
 *     admission.epochs    U32 [counted]          ... to which they were aged, ...
 *     admission.counters  U8  [counted, bytes]   ... and how often they came
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_ROWS_LAYOUT_H
#define PSI_CHECKPOINT_ROWS_LAYOUT_H

#include "table/spec.h"

enum psi_rows_column {
    PSI_ROWS_IDS,
    PSI_ROWS_STEPS,
    PSI_ROWS_COUNTS,
    PSI_ROWS_VALUES,
    PSI_ROWS_STATE,
    PSI_ROWS_STATE_LAST = PSI_ROWS_STATE + PSI_PARTS_MAX - PSI_PART_STATE - 1,
    PSI_ROWS_CLEARED,
    PSI_ROWS_COUNTED,
    PSI_ROWS_EPOCHS,
    PSI_ROWS_COUNTERS,
    PSI_ROWS_COLUMNS,
};

enum { PSI_ROWS_HEAD_MAX = 4096 };

/* What rows of a table are made of. */
struct psi_row_form {
    psd_dtype dtype; /* of the table */
    psd_rule rule;
    uint32_t width;
    uint32_t row_wise; /* 1: the rule has one number of state per row */
    uint32_t bucket_bits;
    uint32_t counter_bytes; /* of admission, for each bucket; 0: nothing is counted */
};

struct psi_row_form psi_row_form_of(const struct psi_spec *spec);

/* Numbers of state of a row, and how many arrays they are in. */
uint32_t psi_rows_state_numbers(const struct psi_row_form *form);
uint32_t psi_rows_state_arrays(const struct psi_row_form *form);

enum { PSI_ROWS_NAME_BYTES = 64 };

/* "values", "state.mean". */
void psi_rows_column_name(const struct psi_row_form *form, enum psi_rows_column column,
                          char name[PSI_ROWS_NAME_BYTES]);

/* How much a file has. */
struct psi_rows_count {
    uint32_t rows;
    uint32_t cleared;
    uint32_t counted;
};

/* Bytes of one item of a column, and how many items it has. */
size_t psi_rows_item_bytes(const struct psi_row_form *form, enum psi_rows_column column);
uint32_t psi_rows_items(const struct psi_row_form *form, const struct psi_rows_count *count,
                        enum psi_rows_column column);

/* Thread: immutable once made. */
struct psi_rows_layout {
    char head[PSI_ROWS_HEAD_MAX];
    size_t head_bytes;
    uint64_t begin[PSI_ROWS_COLUMNS]; /* in the file; of columns that have items */
    uint64_t bytes;                   /* of the file */
};

/* A function of its arguments alone: who reads a file makes its head anew and compares. */
psd_status psi_rows_lay_out(struct psi_rows_layout *layout, const char *table,
                            const struct psi_row_form *form, const struct psi_rows_count *count,
                            struct psd_error *err);

#endif
