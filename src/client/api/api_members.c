/*
 * api_roster.c - who counts in a step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>

#include "base/args.h"
#include "base/fail.h"
#include "client/api/api.h"

/* What every version of struct psd_members has. */
enum { MEMBERS_LEAST = offsetof(struct psd_members, index) + sizeof(uint32_t) };

_Static_assert(PSD_NO_INDEX == PSI_INDEX_NONE, "one word for nobody");

static psd_status
members_locked(psd_context *context, uint64_t step, struct psi_roster *found_p, uint32_t *ranks,
               size_t capacity, struct psd_error *err)
{
    const uint32_t timeout_ms = context->client->config.op_timeout_ms;
    const struct psi_client *client = context->client;

    if (!psi_client_knows_roster(client)) {
        psi_context_wait_roster_locked(context, psi_context_deadline_ns(context, timeout_ms));
    }
    if (psi_client_state(client) == PSI_CLIENT_OVER) {
        *err = *psi_client_error(client);
        return err->status;
    }
    if (!psi_client_knows_roster(client)) {
        return psi_fail(err, PSD_ERR_TIMEOUT,
                        "who counts in the step: servers know view %u, and the master has not told "
                        "worker %u of it in %u ms: it has view %u",
                        client->heard_view, client->job.rank, timeout_ms, client->view.id);
    }
    *found_p = psi_client_roster(client, step, ranks, capacity);
    return PSD_OK;
}

psd_status
psd_members(psd_context *context, uint64_t step, struct psd_members *members_p, uint32_t *ranks,
            size_t capacity)
{
    struct psd_error *err = psi_error();
    struct psi_roster found = {0};
    psd_status status = psi_context_check(context, err);
    size_t bytes;

    if (status == PSD_OK && (members_p == NULL || (ranks == NULL && capacity > 0))) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_members: members_p or ranks is NULL");
    }
    if (status == PSD_OK) {
        status = psi_args_check_size(members_p->struct_size, MEMBERS_LEAST, sizeof(*members_p),
                                     "psd_members", err);
    }
    if (status != PSD_OK) {
        return status;
    }
    psi_context_lock(context);
    status = members_locked(context, step, &found, ranks, capacity, err);
    pthread_mutex_unlock(&context->lock);
    if (status == PSD_OK) {
        bytes = members_p->struct_size;
        psi_args_fill(members_p, bytes,
                      &(struct psd_members){.struct_size = bytes,
                                            .version = found.version,
                                            .since = found.since,
                                            .count = found.count,
                                            .index = found.index},
                      sizeof(*members_p));
    }
    return status;
}
