/*
 * part.c - a worker's part of a checkpoint: whether it can be asked for one, and at which step.
 *
 * The master knows steps of update tables alone. Where a job has none, the worker settles the step by
 * itself, one ahead, so that whatever runs on several workers can agree before it comes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/state.h"
#include "rpc/post.h"

static void
say(const struct psi_client *client, uint64_t number, uint64_t step, const struct psi_part *part)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_PART,
        .view = client->view.id,
        .seq = number,
        .step = step,
        .rank = (uint16_t)client->job.rank,
        .incarnation = (uint16_t)client->job.incarnation,
    };

    if (psi_master_link_is_up(&client->master)) { /* else psi_part_up() begins anew */
        (void)psi_post_part(client->master.peer.conn, &frame, part);
    }
}

/* What was wanted before is not any more, or is said again. */
void
psi_part_up(struct psi_client *client)
{
    const struct psi_part offer = {.news = PSI_PART_OFFERED};

    client->part.wanted = false;
    if (client->part.offered) {
        say(client, 0, 0, &offer);
    }
}

psd_status
psi_part_arrived(struct psi_client *client, const void *payload, size_t bytes,
                 struct psd_error *err)
{
    const struct psi_frame *frame = &client->master.peer.inbox.frame;
    struct own_part *mine = &client->part;
    struct psi_part part;
    const psd_status status = psi_part_decode(payload, bytes, &part, err);

    if (status != PSD_OK) {
        return status;
    }
    mine->wanted = part.news == PSI_PART_WANTED;
    mine->taken = false;
    mine->number = frame->seq;
    mine->at = mine->wanted && frame->step > 0 ? frame->step : PSD_CHECKPOINT_NONE;
    mine->order = part;
    return PSD_OK;
}

static uint64_t
settle(struct own_part *mine, uint64_t step)
{
    const uint64_t every = mine->order.every;

    if (every == PSI_PART_EPOCH) {
        return PSD_CHECKPOINT_EPOCH;
    }
    if (mine->at == PSD_CHECKPOINT_NONE) {
        mine->at = every > 0 ? (step / every + 1) * every : step + 1;
    }
    return mine->at;
}

uint64_t
psi_client_part_due(struct psi_client *client, uint64_t step)
{
    const struct psi_part late = {.news = PSI_PART_LATE};
    struct own_part *mine = &client->part;

    if (!mine->offered) {
        mine->offered = true;
        psi_part_up(client);
    }
    if (!mine->wanted || mine->taken) {
        return PSD_CHECKPOINT_NONE;
    }
    if (settle(mine, step) < step) {
        mine->wanted = false;
        say(client, mine->number, step, &late);
        return PSD_CHECKPOINT_NONE;
    }
    return settle(mine, step);
}

psd_status
psi_client_part_take(struct psi_client *client, uint64_t step, struct psi_part *order_p,
                     uint64_t *number_p, struct psd_error *err)
{
    struct own_part *mine = &client->part;
    const bool any = mine->order.every == PSI_PART_EPOCH && mine->at == PSD_CHECKPOINT_NONE;

    if (!mine->wanted || mine->taken || (!any && mine->at != step)) {
        return psi_fail(
            err, PSD_ERR_STATE,
            "checkpoint part of step %" PRIu64 ": %s; psd_checkpoint_due() says when", step,
            mine->wanted && mine->taken ? "one is being written" : "none of this step is wanted");
    }
    mine->taken = true;
    *order_p = mine->order;
    *number_p = mine->number;
    return PSD_OK;
}

bool
psi_client_part_tell(struct psi_client *client, uint64_t number, uint64_t step,
                     const struct psi_part *part)
{
    struct own_part *mine = &client->part;

    if (!mine->wanted || mine->number != number) {
        return false;
    }
    mine->wanted = false;
    say(client, number, step, part);
    return true;
}
