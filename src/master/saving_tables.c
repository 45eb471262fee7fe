/*
 * saving_tables.c - what of tables is saved, and what a generation of them is made of.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "master/disk.h"
#include "master/state.h"

void
master_generation_destroy(struct master_generation *generation)
{
    if (generation == NULL) {
        return;
    }
    psi_outline_fini(&generation->outline);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_manifest_file_fini(&generation->sums[kind]);
    }
    psi_manifest_fini(&generation->rows);
    free(generation->tables);
    free(generation);
}

static int
by_name(const void *a, const void *b)
{
    const struct table *const *left = a;
    const struct table *const *right = b;

    return strcmp((*left)->spec.name, (*right)->spec.name);
}

/* The update tables, by name. NULL: one is being opened, or no memory. */
const struct table **
master_saved_tables(const struct master *master, size_t *count_p)
{
    const struct table **list = calloc(master->tables + 1, sizeof(list[0]));
    size_t count = 0;
    bool settled = list != NULL;

    for (uint32_t id = 0; settled && id < master->tables; id++) {
        const struct table *table = master->table[id];

        settled = table->state != TABLE_OPENING;
        if (table->state == TABLE_READY && table->spec.use == PSD_USE_UPDATE) {
            list[count++] = table;
        }
    }
    if (!settled) {
        free(list);
        return NULL;
    }
    qsort(list, count, sizeof(list[0]), by_name);
    *count_p = count;
    return list;
}

psd_status
master_saved_outline(const struct table **list, size_t count, uint64_t step,
                     struct psi_outline *outline_p, struct psd_error *err)
{
    const struct psi_spec **specs = calloc(count + 1, sizeof(specs[0]));
    psd_status status =
        specs == NULL ? psi_fail(err, PSD_ERR_NO_MEMORY, "checkpoint: no memory") : PSD_OK;

    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        specs[i] = &list[i]->spec;
    }
    if (status == PSD_OK) {
        status = psi_outline_init(outline_p, specs, count, step, err);
    }
    free(specs);
    return status;
}

/* Is there a table that could be saved, if not now? */
bool
master_has_saved_tables(const struct master *master)
{
    uint32_t id = 0;

    while (id < master->tables && (master->table[id]->spec.use != PSD_USE_UPDATE ||
                                   master->table[id]->state == TABLE_DROPPED)) {
        id++;
    }
    return id < master->tables;
}

static void
describe(struct psi_manifest_table *record, const struct table *table, uint64_t step)
{
    memcpy(record->name, table->spec.name, sizeof(record->name));
    psi_spec_text(&table->spec, record->spec, sizeof(record->spec));
    record->step = step;
    record->moment =
        psi_spec_synchronous(&table->spec) ? PSI_MANIFEST_MOMENT_STEP : PSI_MANIFEST_MOMENT_CHUNK;
}

static psd_status
add_rows(struct master_generation *generation, const struct psi_spec *spec, struct psd_error *err)
{
    const struct psi_row_form form = psi_row_form_of(spec);

    return !psi_spec_is_sparse(spec) ||
                   psi_manifest_add_rows(&generation->rows, spec->name, &form) != NULL
               ? PSD_OK
               : psi_fail(err, PSD_ERR_NO_MEMORY, "checkpoint: no memory");
}

/* PSD_ERR_NO_MEMORY and the like: nothing is left of it. */
psd_status
master_make_generation(struct saving *saving, const struct table **list, size_t count,
                       struct psd_error *err)
{
    struct master_generation *generation = calloc(1, sizeof(*generation));
    psd_status status;

    saving->generation = generation;
    saving->order = (struct psi_order){.token = saving->token,
                                       .generation = saving->generation_number,
                                       .after = saving->after,
                                       .tables = (uint32_t)count};
    saving->order.table = calloc(count + 1, sizeof(*saving->order.table));
    if (generation == NULL || saving->order.table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "checkpoint: no memory");
    }
    generation->step = saving->step;
    generation->table_count = count;
    generation->tables = calloc(count + 1, sizeof(generation->tables[0]));
    status = master_saved_outline(list, count, saving->step, &generation->outline, err);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        saving->order.bytes[kind] = generation->outline.bytes[kind];
        if (generation->tables == NULL ||
            !psi_manifest_file_init(&generation->sums[kind], generation->outline.bytes[kind])) {
            status = psi_fail(err, PSD_ERR_NO_MEMORY, "checkpoint: no memory");
        }
    }
    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        status = add_rows(generation, &list[i]->spec, err);
        describe(&generation->tables[i], list[i], saving->step);
        saving->order.table[i].id = list[i]->id;
        memcpy(saving->order.table[i].begin, generation->outline.begin[i],
               sizeof(saving->order.table[i].begin));
    }
    return status;
}

/* The worker has named the step. */
psd_status
master_saving_of_part(struct master *master, uint64_t step, struct psd_error *err)
{
    const struct table *none[1] = {NULL};

    master->saving.step = step;
    return master_make_generation(&master->saving, none, 0, err);
}
