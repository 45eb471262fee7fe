/*
 * tables.c - a table as the client sees it: where its chunks live, and how far this worker is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/lone.h"
#include "client/core/results.h"
#include "client/core/state.h"
#include "client/core/table_view.h"
#include "table/places.h"

/* by_host shares the lists of the lanes that it leaves as they are. */
static void
spread_by_host_fini(struct psd_table *table)
{
    struct spread *spread = &table->by_host;

    if (spread->lane_chunks != NULL) {
        free(spread->lane_chunks[table->client->lane_count]);
    }
    free(spread->lane_chunks);
    free(spread->lane_counts);
    free(spread->lanes);
    free(spread->lane_parts);
    free(spread->places);
    free(table->relayed);
    table->relayed = NULL;
    *spread = (struct spread){0};
}

void
psi_table_destroy(struct psd_table *table)
{
    struct spread *spread = &table->flat;

    psi_gathered_destroy(table);
    psi_results_destroy(table);
    psi_split_destroy(table);
    spread_by_host_fini(table);
    for (uint32_t lane = 0; spread->lane_chunks != NULL && lane < table->client->lane_count;
         lane++) {
        free(spread->lane_chunks[lane]);
    }
    free(spread->lane_chunks);
    free(spread->lane_counts);
    free(spread->lanes);
    free(spread->lane_parts);
    free(spread->places);
    free(table->next_step);
    free(table->info);
    psi_table_view_destroy(table->view);
    psi_pool_fini(&table->ops);
    free(table);
}

static psd_status
spread_allocate(struct spread *spread, uint32_t lanes)
{
    spread->lane_chunks = calloc(lanes, sizeof(uint32_t *));
    spread->lane_counts = calloc(lanes, sizeof(*spread->lane_counts));
    spread->lanes = calloc(lanes, sizeof(*spread->lanes));
    spread->lane_parts = calloc(lanes, sizeof(*spread->lane_parts));
    return spread->lane_chunks == NULL || spread->lane_counts == NULL || spread->lanes == NULL ||
                   spread->lane_parts == NULL
               ? PSD_ERR_NO_MEMORY
               : PSD_OK;
}

/* Sorts the chunks by lane. */
static psd_status
spread_flat(struct psd_table *table)
{
    const uint32_t lanes = table->client->lane_count;
    struct spread *spread = &table->flat;

    if (spread_allocate(spread, lanes) != PSD_OK) {
        return PSD_ERR_NO_MEMORY;
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        spread->lane_counts[spread->places[chunk]]++;
    }
    for (uint32_t lane = 0; lane < lanes; lane++) {
        spread->lane_chunks[lane] = calloc(spread->lane_counts[lane] + 1u, sizeof(uint32_t));
        if (spread->lane_chunks[lane] == NULL) {
            return PSD_ERR_NO_MEMORY;
        }
        if (spread->lane_counts[lane] > 0) {
            spread->lane_parts[lane] = (uint16_t)spread->lanes_used;
            spread->lanes[spread->lanes_used++] = (uint16_t)lane;
        }
        spread->lane_counts[lane] = 0;
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        const uint32_t lane = spread->places[chunk];

        spread->lane_chunks[lane][spread->lane_counts[lane]++] = (uint32_t)chunk;
    }
    return PSD_OK;
}

/* The chunks of these lanes go to the host's own. */
psd_status
psi_table_spread_by_host(struct psd_table *table, const struct psi_ranks *lanes)
{
    const uint32_t host = table->client->lane_count;
    const struct spread *flat = &table->flat;
    struct spread *spread = &table->by_host;

    spread_by_host_fini(table);
    spread->places = calloc(table->chunk_count, sizeof(*spread->places));
    table->relayed = calloc(table->chunk_count, sizeof(*table->relayed));
    if (spread->places == NULL || table->relayed == NULL ||
        spread_allocate(spread, host + 1) != PSD_OK) {
        spread_by_host_fini(table);
        return PSD_ERR_NO_MEMORY;
    }
    spread->lane_chunks[host] = calloc(table->chunk_count, sizeof(uint32_t));
    if (spread->lane_chunks[host] == NULL) {
        spread_by_host_fini(table);
        return PSD_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < flat->lanes_used; i++) {
        const uint16_t lane = flat->lanes[i];

        spread->lanes[i] = lane;
        spread->lane_parts[lane] = (uint16_t)i;
        spread->lane_chunks[lane] = flat->lane_chunks[lane];
        spread->lane_counts[lane] = psi_ranks_has(lanes, lane) ? 0 : flat->lane_counts[lane];
    }
    spread->lanes[flat->lanes_used] = (uint16_t)host;
    spread->lane_parts[host] = (uint16_t)flat->lanes_used;
    spread->lanes_used = flat->lanes_used + 1;
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        spread->places[chunk] = flat->places[chunk];
        if (psi_ranks_has(lanes, flat->places[chunk])) {
            spread->places[chunk] = (uint16_t)host;
            spread->lane_chunks[host][spread->lane_counts[host]++] = (uint32_t)chunk;
        }
    }
    return PSD_OK;
}

/* Of no chunk anything has been pushed of it, or of a later one. */
uint64_t
psi_table_first_unsent_step(const struct psd_table *table)
{
    uint64_t step = 0;

    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        step = table->next_step[chunk] > step ? table->next_step[chunk] : step;
    }
    return step;
}

bool
psi_table_is_loaded(const struct psd_table *table)
{
    return table->spec.use == PSD_USE_UPDATE || psi_table_first_unsent_step(table) == 0;
}

struct psd_table *
psi_table_find(const struct psi_client *client, uint32_t id)
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
    struct psd_table *table = psi_table_find(client, info->id);

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
    table->codec = &psi_codec_identity;
    table->chunk_count = psi_table_chunks(&info->spec, &loads);
    table->resume_step = info->step;
    table->resuming = client->job.incarnation > 1;
    table->is_lone = psi_lone_is(client, &info->spec);
    table->route_from = PSI_STEP_NEVER;
    table->flat.places = calloc(table->chunk_count, sizeof(*table->flat.places));
    table->next_step = calloc(table->chunk_count, sizeof(*table->next_step));
    if (table->flat.places == NULL || table->next_step == NULL) {
        psi_table_destroy(table);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", info->spec.name);
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        table->next_step[chunk] = info->step;
    }
    psi_table_place(&info->spec, table->element_bytes, &loads, table->flat.places);
    if (psi_recall_keep(table, info) != PSD_OK || psi_group_join(table) != PSD_OK ||
        spread_flat(table) != PSD_OK || psi_results_create(table) != PSD_OK ||
        remember(client, table) != PSD_OK) {
        psi_table_destroy(table);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", info->spec.name);
    }
    psi_transfers_init(table);
    psi_adopt_table(table);
    psi_route_table(table);
    *table_p = table;
    return PSD_OK;
}

const struct psi_spec *
psi_table_spec(const struct psd_table *table)
{
    return &table->spec;
}

struct psd_table *
psi_client_table(const struct psi_client *client, size_t index)
{
    return index < client->table_count ? client->tables[index] : NULL;
}
