/*
 * share.c - this worker's published state, handed to replacements piece by piece.
 *
 * Pieces are copied under the lock at the moment they are asked for, so withdrawing the state
 * (before the optimizer changes it) cannot meet a copy half way.
 *
 * A piece of a step that we have not reached yet waits until we publish it, but not for longer
 * than a heartbeat: we may never get there, because we wait for the replacement that asks, or are
 * one ourselves that has no state yet. It then asks another worker, and comes back to us if it
 * must.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/state.h"
#include "rpc/post.h"

enum { WAITING_MAX = 64 };

/* A question that came before its answer. */
struct waiting_share {
    struct waiting_share *next;
    struct lane_link *lane;
    uint32_t request;
    uint64_t until_ns;
    struct psi_share share;
};

static void
refuse(struct psi_client *client, struct lane_link *lane, uint32_t request, psd_status status,
       const char *text)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_ACK,
        .view = client->view.id,
        .request = request,
        .rank = (uint16_t)client->job.rank,
        .incarnation = (uint16_t)client->job.incarnation,
    };

    (void)psi_post_error(lane->peer.conn, &frame, status, 0, text);
}

/* Answers a question about the step that is published now. */
static void
answer(struct psi_client *client, struct lane_link *lane, uint32_t request,
       const struct psi_share *share)
{
    const struct published *published = &client->published;
    const struct psi_frame frame = {
        .type = PSI_FRAME_SHARE_DATA,
        .view = client->view.id,
        .request = request,
        .rank = (uint16_t)client->job.rank,
        .incarnation = (uint16_t)client->job.incarnation,
    };
    char text[PSI_TEXT_MAX];
    size_t i = 0;

    while (i < published->count && strcmp(published->names[i], share->name) != 0) {
        i++;
    }
    if (i == published->count || published->states[i].bytes != share->total ||
        share->offset > share->total || share->bytes > share->total - share->offset) {
        snprintf(text, sizeof(text), "state %s: worker %u has %zu bytes of it, asked for %llu",
                 share->name, client->job.rank,
                 i == published->count ? (size_t)0 : published->states[i].bytes,
                 (unsigned long long)share->total);
        refuse(client, lane, request, PSD_ERR_MISMATCH, text);
        return;
    }
    (void)psi_post_body(lane->peer.conn, &frame,
                        (const uint8_t *)published->states[i].data + share->offset, share->bytes);
}

static void
consider(struct psi_client *client, struct lane_link *lane, uint32_t request,
         const struct psi_share *share)
{
    char text[PSI_TEXT_MAX];

    if (client->published.step == share->step) {
        answer(client, lane, request, share);
        return;
    }
    snprintf(text, sizeof(text), "state of step %llu: worker %u is at step %llu",
             (unsigned long long)share->step, client->job.rank,
             (unsigned long long)client->published.step);
    refuse(client, lane, request, PSD_ERR_STATE, text);
}

static psd_status
wait_for_it(struct psi_client *client, struct lane_link *lane, uint32_t request,
            const struct psi_share *share)
{
    struct waiting_share *waiting;
    unsigned count = 0;

    for (waiting = client->published.waiting; waiting != NULL; waiting = waiting->next) {
        count++;
    }
    waiting = count < WAITING_MAX ? calloc(1, sizeof(*waiting)) : NULL;
    if (waiting == NULL) {
        refuse(client, lane, request, PSD_ERR_BUSY, "too many questions about published state");
        return PSD_OK;
    }
    waiting->lane = lane;
    waiting->request = request;
    waiting->until_ns = psi_now_ns(client->env) + (uint64_t)client->job.heartbeat_ms * 1000 * 1000;
    waiting->share = *share;
    waiting->next = client->published.waiting;
    client->published.waiting = waiting;
    return PSD_OK;
}

psd_status
psi_share_asked(struct lane_link *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_client *client = lane->client;
    const uint32_t request = lane->peer.inbox.frame.request;
    struct psi_share share;
    const psd_status status = psi_share_decode(payload, bytes, &share, err);

    if (status != PSD_OK) {
        return status;
    }
    if (!client->published.valid || client->published.step < share.step) {
        return wait_for_it(client, lane, request, &share);
    }
    consider(client, lane, request, &share);
    return PSD_OK;
}

static void
send_away(struct psi_client *client, const struct waiting_share *waiting)
{
    char text[PSI_TEXT_MAX];

    snprintf(text, sizeof(text), "state of step %llu: worker %u has not come to that step yet",
             (unsigned long long)waiting->share.step, client->job.rank);
    refuse(client, waiting->lane, waiting->request, PSD_ERR_BUSY, text);
}

void
psi_share_tick(struct psi_client *client, uint64_t now_ns)
{
    struct waiting_share **link = &client->published.waiting;

    while (*link != NULL) {
        struct waiting_share *waiting = *link;

        if (now_ns < waiting->until_ns) {
            link = &waiting->next;
            continue;
        }
        *link = waiting->next;
        send_away(client, waiting);
        free(waiting);
    }
}

uint64_t
psi_share_next_ns(const struct psi_client *client)
{
    const struct waiting_share *waiting;
    uint64_t next_ns = UINT64_MAX;

    for (waiting = client->published.waiting; waiting != NULL; waiting = waiting->next) {
        next_ns = waiting->until_ns < next_ns ? waiting->until_ns : next_ns;
    }
    return next_ns;
}

/* The lane tells its askers by itself when we are gone. */
void
psi_share_lane_down(struct lane_link *lane)
{
    struct waiting_share **link = &lane->client->published.waiting;

    while (*link != NULL) {
        struct waiting_share *waiting = *link;

        if (waiting->lane == lane) {
            *link = waiting->next;
            free(waiting);
        } else {
            link = &waiting->next;
        }
    }
}

static void
forget(struct psi_client *client)
{
    free(client->published.states);
    free(client->published.names);
    client->published.states = NULL;
    client->published.names = NULL;
    client->published.count = 0;
    client->published.valid = false;
}

void
psi_share_fini(struct psi_client *client)
{
    forget(client);
    while (client->published.waiting != NULL) {
        struct waiting_share *waiting = client->published.waiting;

        client->published.waiting = waiting->next;
        free(waiting);
    }
}

static void
answer_waiting(struct psi_client *client)
{
    struct waiting_share *waiting = client->published.waiting;

    client->published.waiting = NULL;
    while (waiting != NULL) {
        struct waiting_share *next = waiting->next;

        if (client->published.step < waiting->share.step) {
            waiting->next = client->published.waiting;
            client->published.waiting = waiting;
        } else {
            consider(client, waiting->lane, waiting->request, &waiting->share);
            free(waiting);
        }
        waiting = next;
    }
}

psd_status
psi_client_publish(struct psi_client *client, uint64_t step, const struct psd_state *states,
                   size_t count, struct psd_error *err)
{
    struct published *published = &client->published;

    forget(client);
    if (count == 0) {
        return PSD_OK;
    }
    published->states = calloc(count, sizeof(*published->states));
    published->names = calloc(count, sizeof(*published->names));
    if (published->states == NULL || published->names == NULL) {
        forget(client);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "publish state: no memory");
    }
    for (size_t i = 0; i < count; i++) {
        if (states[i].name == NULL || strlen(states[i].name) >= PSI_SHARE_NAME_MAX ||
            (states[i].data == NULL && states[i].bytes > 0)) {
            forget(client);
            return psi_fail(err, PSD_ERR_INVALID, "publish state: entry %zu has no usable name", i);
        }
        published->states[i] = states[i];
        snprintf(published->names[i], sizeof(published->names[i]), "%s", states[i].name);
    }
    published->count = count;
    published->step = step;
    published->valid = true;
    answer_waiting(client);
    return PSD_OK;
}
