/*
 * saved_tables.c - the tables that are saved and loaded.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/api/saved_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static int
by_table_name(const void *a, const void *b)
{
    psd_table *const *left = a;
    psd_table *const *right = b;

    return strcmp(psi_table_spec(*left)->name, psi_table_spec(*right)->name);
}

void
psi_saved_tables_fini(struct saved_tables *tables)
{
    free(tables->list);
    free(tables->buffer);
}

psd_status
psi_saved_tables_init(struct saved_tables *tables, psd_context *context, struct psd_error *err)
{
    size_t opened = 0;
    const psd_status status = psi_context_check_saved(context, err);

    if (status != PSD_OK) {
        return status;
    }
    while (psi_context_table(context, opened) != NULL) {
        opened++;
    }
    tables->count = 0;
    tables->list = calloc(opened + 1, sizeof(tables->list[0]));
    tables->buffer = malloc(BUFFER_BYTES);
    if (tables->list == NULL || tables->buffer == NULL) {
        psi_saved_tables_fini(tables);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save or load: no %d bytes for a buffer",
                        BUFFER_BYTES);
    }
    for (size_t i = 0; i < opened; i++) {
        psd_table *table = psi_context_table(context, i);

        if (psi_table_spec(table)->use == PSD_USE_UPDATE) {
            tables->list[tables->count++] = table;
        }
    }
    if (tables->count == 0) {
        psi_saved_tables_fini(tables);
        return psi_fail(err, PSD_ERR_STATE, "save or load: no table of use update is open");
    }
    qsort(tables->list, tables->count, sizeof(tables->list[0]), by_table_name);
    return PSD_OK;
}

uint64_t
psi_saved_range(const struct psi_spec *spec, uint64_t first)
{
    return spec->count - first < RANGE_ELEMENTS ? spec->count - first : RANGE_ELEMENTS;
}
