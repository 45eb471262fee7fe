/*
 * roster.c - who counts, as this worker knows it.
 *
 * The master tells workers of a view after all lanes have it, so an answer of a lane may be of a view
 * that is still on its way here. Such an answer may be the last one of a step, and the view says who
 * counts in the next.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/core.h"
#include "client/core/state.h"

bool
psi_client_knows_roster(const struct psi_client *client)
{
    return client->view.id >= client->heard_view;
}

struct psi_roster
psi_client_roster(const struct psi_client *client, uint64_t step, uint32_t *ranks, size_t capacity)
{
    return psi_view_roster(&client->view, step, client->job.rank, ranks, capacity);
}
