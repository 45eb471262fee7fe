/*
 * saved_tables.c - the tables that are saved and loaded, and the tensors that each of them is in files.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/api/saved_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static void
name_part(struct saved_part *part, const char *table, const char *what)
{
    const size_t length = strlen(table);
    const size_t what_length = strlen(what);

    psi_assert(length + 1 + what_length < sizeof(part->name));
    memcpy(part->name, table, length);
    part->name[length] = '.';
    memcpy(part->name + length + 1, what, what_length + 1);
}

/* All parts of a table, the value last: on the servers it is what makes a loaded chunk count. */
unsigned
psi_saved_parts(const struct psi_spec *spec, struct saved_part parts[PSI_PARTS_MAX])
{
    const psd_dtype state_dtype = spec->dtype == PSD_F64 ? PSD_F64 : PSD_F32;
    unsigned count = 0;

    if (psi_dtype_bytes(spec->dtype) == 2) {
        parts[count] = (struct saved_part){PSI_PART_MASTER, PSI_CHECKPOINT_STATE, PSD_F32};
        name_part(&parts[count++], spec->name, "master");
    }
    for (unsigned state = 0; state < psi_rule_states(spec->rule.rule); state++) {
        parts[count] = (struct saved_part){(uint8_t)(PSI_PART_STATE + state), PSI_CHECKPOINT_STATE,
                                           state_dtype};
        name_part(&parts[count++], spec->name, psi_rule_state_name(spec->rule.rule, state));
    }
    parts[count] = (struct saved_part){PSI_PART_VALUE, PSI_CHECKPOINT_PARAMS, spec->dtype};
    memcpy(parts[count++].name, spec->name, sizeof(spec->name));
    return count;
}

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
