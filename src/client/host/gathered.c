/*
 * gathered.c - memory for what the workers of one host give: tables, chunks, contributions.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/host/gather.h"

static uint64_t
largest_chunk(const struct psd_table *table)
{
    return psi_chunk_elements(table->spec.count, 0);
}

psd_status
psi_gathered_create(struct psd_table *table)
{
    const uint32_t lane = table->client->lane_count;
    const uint32_t chunks = table->by_host.lane_counts[lane];
    const uint64_t chunk_bytes = largest_chunk(table) * table->element_bytes;
    struct gathered_table *gathered = calloc(1, sizeof(*gathered));

    if (gathered == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    table->gathered = gathered;
    psi_pool_init(&gathered->sums, largest_chunk(table) * psi_dtype_state_bytes(table->spec.dtype));
    psi_pool_init(&gathered->copies, chunk_bytes);
    psi_pool_init(&gathered->ops,
                  sizeof(struct psd_op) + 1 + (table->flat.lanes_used + 1) * sizeof(struct part));
    gathered->from = calloc(table->client->job.workers, sizeof(*gathered->from));
    gathered->gatherings = calloc(chunks, sizeof(*gathered->gatherings));
    if (gathered->from == NULL || gathered->gatherings == NULL ||
        psi_segment_create(&gathered->values, chunks * chunk_bytes, NULL) != PSD_OK ||
        psi_segment_populate(&gathered->values, NULL) != PSD_OK) {
        psi_gathered_destroy(table);
        return PSD_ERR_NO_MEMORY;
    }
    for (uint32_t rank = 0; rank < table->client->job.workers; rank++) {
        gathered->from[rank] = PSI_STEP_NEVER;
    }
    for (uint32_t i = 0; i < chunks; i++) {
        gathered->gatherings[i].table = table;
        gathered->gatherings[i].chunk = table->by_host.lane_chunks[lane][i];
    }
    if (table->client->env->ops->lend != NULL) {
        table->client->env->ops->lend(table->client->env, &gathered->values);
    }
    return PSD_OK;
}

void
psi_contributions_free(struct psi_client *client, struct gathered_table *gathered,
                       struct contribution **list)
{
    while (*list != NULL) {
        struct contribution *given = *list;

        *list = given->next;
        psi_contribution_free(client, gathered, given);
    }
}

void
psi_gathered_destroy(struct psd_table *table)
{
    struct gathered_table *gathered = table->gathered;
    struct psi_client *client = table->client;

    if (gathered == NULL) {
        return;
    }
    for (uint32_t i = 0;
         gathered->gatherings != NULL && i < table->by_host.lane_counts[client->lane_count]; i++) {
        psi_contributions_free(client, gathered, &gathered->gatherings[i].given);
        psi_contributions_free(client, gathered, &gathered->gatherings[i].early);
    }
    if (gathered->values.base != NULL && client->env->ops->take_back != NULL) {
        client->env->ops->take_back(client->env, &gathered->values);
    }
    psi_segment_destroy(&gathered->values);
    psi_pool_fini(&gathered->sums);
    psi_pool_fini(&gathered->copies);
    psi_pool_fini(&gathered->ops);
    free(gathered->from);
    free(gathered->gatherings);
    free(gathered);
    table->gathered = NULL;
}

struct gathering *
psi_gathering_find(const struct psd_table *table, uint32_t chunk)
{
    const uint32_t lane = table->client->lane_count;
    const uint32_t index = psi_spread_index(&table->by_host, lane, chunk);

    if (index >= table->by_host.lane_counts[lane] ||
        table->by_host.lane_chunks[lane][index] != chunk) {
        return NULL;
    }
    return &table->gathered->gatherings[index];
}

uint8_t *
psi_gathering_value(const struct gathering *gathering)
{
    const struct gathered_table *gathered = gathering->table->gathered;
    const uint64_t index = (uint64_t)(gathering - gathered->gatherings);

    return gathered->values.base +
           index * largest_chunk(gathering->table) * gathering->table->element_bytes;
}

struct contribution *
psi_contribution_create(struct psi_client *client)
{
    struct contribution *given = psi_pool_take(&client->host->contributions);

    if (given != NULL) {
        *given = (struct contribution){0};
    }
    return given;
}

/* It is on loan; bytes: of a copy that its worker made for us, or 0. */
void
psi_contribution_kept(struct psi_client *client, struct contribution *given, uint32_t bytes)
{
    struct kept *kept = &client->host->kept[given->rank];

    given->kept_bytes = bytes;
    kept->count += bytes > 0;
    kept->bytes += bytes;
}

/* The gradient goes back to whoever it came from. */
static void
release(struct psi_client *client, struct gathered_table *gathered, struct contribution *given)
{
    if (given->loan != NULL) {
        struct kept *kept = &client->host->kept[given->rank];

        kept->count -= given->kept_bytes > 0;
        kept->bytes -= given->kept_bytes;
        given->loan->give_back(given->loan);
        given->loan = NULL;
    }
    if (given->copy != NULL) {
        psi_pool_give(&gathered->copies, given->copy);
        given->copy = NULL;
    }
    given->data = NULL;
}

void
psi_contribution_free(struct psi_client *client, struct gathered_table *gathered,
                      struct contribution *given)
{
    if (given != NULL) {
        release(client, gathered, given);
        psi_pool_give(&client->host->contributions, given);
    }
}
