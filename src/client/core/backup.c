/*
 * backup.c - tables with the same number of backup workers, which a worker pushes together.
 *
 * Who is in a step is decided once for all of them. A worker that is not hears so from each of its
 * pushes, with the step that the others have come to; the furthest counts for the whole group, so
 * that its tables never are at different steps when all its pushes have ended.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "client/core/core.h"
#include "client/core/state.h"

psd_status
psi_group_join(struct psd_table *table)
{
    struct psi_client *client = table->client;
    struct backup_group *group = client->groups;

    if (table->spec.backup_workers == 0) {
        return PSD_OK;
    }
    while (group != NULL && group->backup_workers != table->spec.backup_workers) {
        group = group->next;
    }
    if (group == NULL) {
        group = calloc(1, sizeof(*group));
        if (group == NULL) {
            return PSD_ERR_NO_MEMORY;
        }
        group->backup_workers = table->spec.backup_workers;
        group->next = client->groups;
        client->groups = group;
    }
    table->group = group;
    return PSD_OK;
}

void
psi_groups_destroy(struct psi_client *client)
{
    while (client->groups != NULL) {
        struct backup_group *group = client->groups;

        client->groups = group->next;
        free(group);
    }
}

void
psi_group_reached(const struct psd_table *table, uint64_t step)
{
    if (table->group != NULL && step > table->group->reached) {
        table->group->reached = step;
    }
}

uint64_t
psi_table_step(const struct psd_table *table)
{
    uint64_t step = table->next_step[0];

    if (table->group != NULL && table->group->reached > step) {
        step = table->group->reached;
    }
    return step;
}
