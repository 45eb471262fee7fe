/*
 * tables.c - a table as the client sees it: where its chunks live, and how far this worker is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "client/state.h"
#include "client/table_view.h"

void
psi_table_destroy(struct psd_table *table)
{
    for (uint32_t lane = 0; table->lane_chunks != NULL && lane < table->client->lane_count;
         lane++) {
        free(table->lane_chunks[lane]);
    }
    free(table->lane_chunks);
    free(table->lane_counts);
    free(table->lanes);
    free(table->lane_parts);
    free(table->places);
    free(table->next_step);
    psi_table_view_destroy(table->view);
    psi_pool_fini(&table->ops);
    free(table);
}

/* Sorts the chunks by lane. */
static psd_status
spread(struct psd_table *table)
{
    const uint32_t lanes = table->client->lane_count;

    table->lane_chunks = calloc(lanes, sizeof(uint32_t *));
    table->lane_counts = calloc(lanes, sizeof(*table->lane_counts));
    table->lanes = calloc(lanes, sizeof(*table->lanes));
    table->lane_parts = calloc(lanes, sizeof(*table->lane_parts));
    if (table->lane_chunks == NULL || table->lane_counts == NULL || table->lanes == NULL ||
        table->lane_parts == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        table->lane_counts[table->places[chunk]]++;
    }
    for (uint32_t lane = 0; lane < lanes; lane++) {
        table->lane_chunks[lane] = calloc(table->lane_counts[lane] + 1u, sizeof(uint32_t));
        if (table->lane_chunks[lane] == NULL) {
            return PSD_ERR_NO_MEMORY;
        }
        if (table->lane_counts[lane] > 0) {
            table->lane_parts[lane] = (uint16_t)table->lanes_used;
            table->lanes[table->lanes_used++] = (uint16_t)lane;
        }
        table->lane_counts[lane] = 0;
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        const uint32_t lane = table->places[chunk];

        table->lane_chunks[lane][table->lane_counts[lane]++] = (uint32_t)chunk;
    }
    return PSD_OK;
}

static struct psd_table *
find(const struct psi_client *client, uint32_t id)
{
    for (size_t i = 0; i < client->table_count; i++) {
        if (client->tables[i]->id == id) {
            return client->tables[i];
        }
    }
    return NULL;
}

static psd_status
remember(struct psi_client *client, struct psd_table *table)
{
    if (client->table_count == client->table_capacity) {
        const size_t capacity = client->table_capacity == 0 ? 16 : 2 * client->table_capacity;
        struct psd_table **grown = realloc(client->tables, capacity * sizeof(*grown));

        if (grown == NULL) {
            return PSD_ERR_NO_MEMORY;
        }
        client->tables = grown;
        client->table_capacity = capacity;
    }
    client->tables[client->table_count++] = table;
    return PSD_OK;
}

psd_status
psi_table_create(struct psi_client *client, const struct psi_table_info *info, uint8_t priority,
                 struct psd_table **table_p, struct psd_error *err)
{
    struct psi_loads loads = info->loads;
    struct psd_table *table = find(client, info->id);

    if (table != NULL && psi_spec_difference(&table->spec, &info->spec) == NULL) {
        *table_p = table;
        return PSD_OK;
    }
    if (table != NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "table %s: its number %u is that of table %s",
                        info->spec.name, info->id, table->spec.name);
    }
    if (loads.places == 0 || loads.places != client->lane_count) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "table %s: %u places, the view has %u",
                        info->spec.name, loads.places, client->lane_count);
    }
    table = calloc(1, sizeof(*table));
    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", info->spec.name);
    }
    table->client = client;
    table->id = info->id;
    table->priority = priority;
    table->spec = info->spec;
    table->element_bytes = psi_dtype_bytes(info->spec.dtype);
    table->chunk_count = psi_chunk_count(info->spec.count);
    table->resume_step = info->step;
    table->resuming = client->job.incarnation > 1;
    table->places = calloc(table->chunk_count, sizeof(*table->places));
    table->next_step = calloc(table->chunk_count, sizeof(*table->next_step));
    if (table->places == NULL || table->next_step == NULL) {
        psi_table_destroy(table);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", info->spec.name);
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        table->next_step[chunk] = info->step;
    }
    psi_shard_place(&loads, info->spec.count, table->element_bytes, table->places);
    if (spread(table) != PSD_OK || remember(client, table) != PSD_OK) {
        psi_table_destroy(table);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", info->spec.name);
    }
    psi_transfers_init(table);
    *table_p = table;
    return PSD_OK;
}

const struct psi_spec *
psi_table_spec(const struct psd_table *table)
{
    return &table->spec;
}

struct psi_client *
psi_table_client(const struct psd_table *table)
{
    return table->client;
}

struct psd_table *
psi_client_table(const struct psi_client *client, size_t index)
{
    return index < client->table_count ? client->tables[index] : NULL;
}
