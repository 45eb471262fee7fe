/*
 * rows_layout.c - a file of rows of a sparse table: which tensors it has, and where each of them lies.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/rows_layout.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/scan.h"
#include "table/dtype.h"
#include "table/row_policy.h"
#include "table/rule.h"

enum { LENGTH_BYTES = 8, HEAD_ALIGN = 64 };

/* What a column has an item for. */
enum subject { OF_ROWS, OF_CLEARED, OF_COUNTED };

static const struct {
    const char *name;
    const char *dtype;
    enum subject subject;
} columns[PSI_ROWS_COLUMNS] = {
    [PSI_ROWS_IDS] = {"ids", "I64", OF_ROWS},
    [PSI_ROWS_STEPS] = {"steps", "U32", OF_ROWS},
    [PSI_ROWS_COUNTS] = {"counts", "U32", OF_ROWS},
    [PSI_ROWS_VALUES] = {"values", "F32", OF_ROWS},
    [PSI_ROWS_STATE] = {"state", "F32", OF_ROWS},
    [PSI_ROWS_STATE_LAST] = {"state", "F32", OF_ROWS},
    [PSI_ROWS_CLEARED] = {"cleared", "U32", OF_CLEARED},
    [PSI_ROWS_COUNTED] = {"admission.buckets", "U32", OF_COUNTED},
    [PSI_ROWS_EPOCHS] = {"admission.epochs", "U32", OF_COUNTED},
    [PSI_ROWS_COUNTERS] = {"admission.counters", "U8", OF_COUNTED},
};

struct psi_row_form
psi_row_form_of(const struct psi_spec *spec)
{
    return (struct psi_row_form){
        .dtype = spec->dtype,
        .rule = spec->rule.rule,
        .width = spec->width,
        .row_wise = spec->rows.row_wise,
        .bucket_bits = spec->bucket_bits,
        .counter_bytes = spec->rows.admit_after > 1 ? spec->rows.admit_counters : 0,
    };
}

uint32_t
psi_rows_state_numbers(const struct psi_row_form *form)
{
    return psi_row_state_numbers(&(struct psi_row_policy){.row_wise = form->row_wise != 0},
                                 form->rule, form->width);
}

uint32_t
psi_rows_state_arrays(const struct psi_row_form *form)
{
    return form->row_wise != 0 ? 1 : psi_rule_states(form->rule);
}

/* Numbers of an item that has several; 0: the tensor has one dimension. */
static uint32_t
inner(const struct psi_row_form *form, enum psi_rows_column column)
{
    switch (column) {
    case PSI_ROWS_VALUES:
        return form->width;
    case PSI_ROWS_STATE:
    case PSI_ROWS_STATE_LAST:
        return form->row_wise != 0 ? 1 : form->width;
    case PSI_ROWS_COUNTERS:
        return form->counter_bytes;
    default:
        return 0;
    }
}

static size_t
number_bytes(enum psi_rows_column column)
{
    return column == PSI_ROWS_IDS ? 8 : column == PSI_ROWS_COUNTERS ? 1 : 4;
}

size_t
psi_rows_item_bytes(const struct psi_row_form *form, enum psi_rows_column column)
{
    const uint32_t numbers = inner(form, column);

    return number_bytes(column) * (numbers == 0 ? 1 : numbers);
}

uint32_t
psi_rows_items(const struct psi_row_form *form, const struct psi_rows_count *count,
               enum psi_rows_column column)
{
    if (column >= PSI_ROWS_STATE && column <= PSI_ROWS_STATE_LAST &&
        (uint32_t)(column - PSI_ROWS_STATE) >= psi_rows_state_arrays(form)) {
        return 0;
    }
    switch (columns[column].subject) {
    case OF_ROWS:
        return count->rows;
    case OF_CLEARED:
        return count->cleared;
    default:
        return count->counted;
    }
}

void
psi_rows_column_name(const struct psi_row_form *form, enum psi_rows_column column,
                     char name[PSI_ROWS_NAME_BYTES])
{
    if (column >= PSI_ROWS_STATE && column <= PSI_ROWS_STATE_LAST) {
        snprintf(name, PSI_ROWS_NAME_BYTES, "%s.%s", columns[column].name,
                 psi_rule_state_name(form->rule, (unsigned)(column - PSI_ROWS_STATE)));
    } else {
        snprintf(name, PSI_ROWS_NAME_BYTES, "%s", columns[column].name);
    }
}

/* Where it lies in the data, from `begin` on. */
static void
put_column(FILE *out, const struct psi_row_form *form, enum psi_rows_column column, uint32_t items,
           uint64_t begin)
{
    const uint32_t numbers = inner(form, column);
    char name[PSI_ROWS_NAME_BYTES];

    psi_rows_column_name(form, column, name);
    fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%u", name, columns[column].dtype, items);
    if (numbers > 0) {
        fprintf(out, ",%u", numbers);
    }
    fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
            (unsigned long long)(begin + (uint64_t)items * psi_rows_item_bytes(form, column)));
}

psd_status
psi_rows_lay_out(struct psi_rows_layout *layout, const char *table, const struct psi_row_form *form,
                 const struct psi_rows_count *count, struct psd_error *err)
{
    uint64_t length;
    long used;
    FILE *out;

    memset(layout, 0, sizeof(*layout));
    out = fmemopen(layout->head, sizeof(layout->head), "w");
    if (out == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save table %s: no memory", table);
    }
    fprintf(out, "%*s{\"__metadata__\":{\"format\":\"poseidon-rows\",\"table\":", LENGTH_BYTES, "");
    psi_scan_quote(out, table);
    fputc('}', out);
    for (enum psi_rows_column column = 0; column < PSI_ROWS_COLUMNS; column++) {
        const uint32_t items = psi_rows_items(form, count, column);

        if (items > 0) {
            layout->begin[column] = layout->bytes; /* so far, of the data */
            put_column(out, form, column, items, layout->bytes);
            layout->bytes += (uint64_t)items * psi_rows_item_bytes(form, column);
        }
    }
    fputc('}', out);
    used = ftell(out);
    psi_assert(used > 0 && used <= PSI_ROWS_HEAD_MAX - HEAD_ALIGN);
    layout->head_bytes = ((size_t)used + HEAD_ALIGN - 1) / HEAD_ALIGN * HEAD_ALIGN;
    fprintf(out, "%*s", (int)(layout->head_bytes - (size_t)used), "");
    if (fclose(out) != 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save table %s: no memory", table);
    }
    length = htole64(layout->head_bytes - LENGTH_BYTES);
    memcpy(layout->head, &length, sizeof(length));
    for (enum psi_rows_column column = 0; column < PSI_ROWS_COLUMNS; column++) {
        layout->begin[column] += layout->head_bytes;
    }
    layout->bytes += layout->head_bytes;
    return PSD_OK;
}
