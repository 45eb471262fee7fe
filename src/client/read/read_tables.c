/*
 * read_tables.c - the tables of the job, as the master tells a reader of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/read/reader_state.h"
#include "table/places.h"
#include "wire/message.h"

static void
destroy(struct psi_read_table *table)
{
    if (table != NULL) {
        free(table->place_of);
        free(table);
    }
}

void
read_tables_destroy(struct psi_reader *reader)
{
    for (uint32_t i = 0; i < reader->tables; i++) {
        destroy(reader->table[i]);
    }
    free(reader->table);
}

/* NULL: no memory. */
static struct psi_read_table *
make_table(struct psi_table_info *info)
{
    struct psi_read_table *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        return NULL;
    }
    table->id = info->id;
    table->spec = info->spec;
    table->places = info->loads.places;
    table->chunks = psi_table_chunks(&info->spec, &info->loads);
    if (!psi_spec_is_sparse(&table->spec)) {
        table->place_of = calloc(table->chunks, sizeof(*table->place_of));
        if (table->place_of == NULL) {
            destroy(table);
            return NULL;
        }
        psi_table_place(&table->spec, psi_dtype_bytes(table->spec.dtype), &info->loads,
                        table->place_of);
    }
    return table;
}

static bool
is_known(const struct psi_reader *reader, uint32_t id)
{
    for (uint32_t i = 0; i < reader->tables; i++) {
        if (reader->table[i]->id == id) {
            return true;
        }
    }
    return false;
}

static psd_status
add(struct psi_reader *reader, struct psi_table_info *info, struct psd_error *err)
{
    struct psi_read_table **grown =
        realloc(reader->table, (reader->tables + 1) * sizeof(struct psi_read_table *));
    struct psi_read_table *table = NULL;

    if (grown != NULL) {
        reader->table = grown;
        table = make_table(info);
    }
    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for table %s", info->spec.name);
    }
    reader->table[reader->tables++] = table;
    return PSD_OK;
}

psd_status
read_table_arrived(struct psi_reader *reader, const void *body, size_t bytes, struct psd_error *err)
{
    struct psi_table_info *info = malloc(sizeof(*info));
    psd_status status;

    if (info == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a table");
    }
    status = psi_table_info_decode(body, bytes, info, err);
    if (status == PSD_OK && info->loads.places != reader->lanes) {
        status =
            psi_fail(err, PSD_ERR_PROTOCOL, "TABLE_INFO of table %s: %u places, %u in the view",
                     info->spec.name, info->loads.places, reader->lanes);
    }
    if (status == PSD_OK && !is_known(reader, info->id)) { /* told again after a cut */
        status = add(reader, info, err);
    }
    free(info);
    return status;
}

/* A name that was given twice is that of the last one. */
const struct psi_read_table *
psi_reader_find(const struct psi_reader *reader, const char *name)
{
    for (uint32_t i = reader->tables; i-- > 0;) {
        if (strcmp(reader->table[i]->spec.name, name) == 0) {
            return reader->table[i];
        }
    }
    return NULL;
}

const struct psi_read_table *
psi_reader_table(const struct psi_reader *reader, uint32_t index)
{
    return index < reader->tables ? reader->table[index] : NULL;
}
