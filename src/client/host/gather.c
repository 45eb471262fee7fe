/*
 * gather.c - what the workers of one host give: kept until all have given, and answered.
 *
 * A chunk's gradients of one step are gathered until all that push through this worker have given
 * theirs. Then they leave, added (gather_send.c). The answer is everybody's answer.
 *
 * The value that comes back lies where the others can read it. It stays until they have: before the
 * next one comes, every worker has pushed the next step of that chunk, and by that said that it has
 * read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "client/host/gather.h"
#include "rpc/post.h"

void
psi_gather_open_remove(struct host *host, struct gathering *gathering)
{
    if (!gathering->is_open) {
        return;
    }
    gathering->is_open = false;
    if (gathering->open_prev != NULL) {
        gathering->open_prev->open_next = gathering->open_next;
    } else {
        host->open = gathering->open_next;
    }
    if (gathering->open_next != NULL) {
        gathering->open_next->open_prev = gathering->open_prev;
    } else {
        host->open_last = gathering->open_prev;
    }
}

static void
open_add(struct host *host, struct gathering *gathering)
{
    gathering->is_open = true;
    gathering->open_next = NULL;
    gathering->open_prev = host->open_last;
    if (host->open_last != NULL) {
        host->open_last->open_next = gathering;
    } else {
        host->open = gathering;
        host->progressed = true;
    }
    host->open_last = gathering;
}

/* Does the rank push this step of the chunk through us? */
static bool
takes_part(const struct psi_client *client, const struct gathering *gathering, uint32_t rank)
{
    const struct psd_table *table = gathering->table;

    if (rank == client->job.rank) {
        return table->route_from <= gathering->step;
    }
    return client->host->by_rank[rank] != NULL && table->gathered->from[rank] <= gathering->step &&
           psi_ranks_has(&client->host->by_rank[rank]->lanes, table->flat.places[gathering->chunk]);
}

/* The first rank from `rank` on whose gradient has not come; UINT32_MAX: all are here. */
uint32_t
psi_gather_lacking(const struct psi_client *client, const struct gathering *gathering,
                   uint32_t rank)
{
    while (rank < client->job.workers &&
           (psi_ranks_has(&gathering->have, rank) || !takes_part(client, gathering, rank))) {
        rank++;
    }
    return rank < client->job.workers ? rank : UINT32_MAX;
}

static void
answer_session(struct psi_client *client, const struct gathering *gathering,
               const struct contribution *given, const struct ending *ending, bool value)
{
    const struct psd_table *table = gathering->table;
    struct host_session *session = client->host->by_rank[given->rank];
    const struct psi_frame frame = {
        .type = value ? PSI_FRAME_VALUE : PSI_FRAME_ACK,
        .view = client->view.id,
        .request = given->request,
        .table = table->id,
        .chunk = gathering->chunk,
        .step = value ? gathering->version : gathering->step,
        .seq = value ? gathering->updates : 0,
        .dtype = (uint8_t)(value ? table->spec.dtype : 0),
        .status = (int16_t)ending->status,
    };
    struct psi_payload payload = {.patient = true};
    psd_status status;

    if (session == NULL) {
        return;
    }
    if (value) {
        payload.base = psi_gathering_value(gathering);
        payload.bytes =
            psi_chunk_elements(table->spec.count, gathering->chunk) * table->element_bytes;
        payload.stable = true;
        payload.checksum = client->config.checksum;
    }
    status = ending->status == PSD_OK
                 ? psi_post_payload(session->guest.conn, &frame, NULL, &payload)
                 : psi_post_error(session->guest.conn, &frame, ending->status, 0, ending->text);
    if (status != PSD_OK) {
        psi_guest_doom(&session->guest);
    }
}

static void
answer(struct psi_client *client, const struct gathering *gathering,
       const struct contribution *given, struct ending ending)
{
    const bool wants_value = given->type == PSI_FRAME_PUSH_PULL && ending.status == PSD_OK;

    if (wants_value && gathering->version != given->step + 1) {
        ending = (struct ending){PSD_ERR_STEP, "its value is no longer here: pull it"};
    }
    if (given->rank == client->job.rank) {
        psi_lane_answer_own(psi_host_lane(client),
                            &(struct own_answer){
                                .request = given->request,
                                .status = ending.status,
                                .text = ending.text,
                                .value = wants_value ? psi_gathering_value(gathering) : NULL,
                                .step = gathering->version,
                                .updates = gathering->updates,
                            });
    } else {
        answer_session(client, gathering, given, &ending, wants_value && ending.status == PSD_OK);
    }
}

void
psi_gather_answer_all(struct psi_client *client, const struct gathering *gathering,
                      struct ending ending)
{
    for (const struct contribution *given = gathering->given; given != NULL; given = given->next) {
        answer(client, gathering, given, ending);
    }
}

static struct contribution **
find(struct gathering *gathering, uint32_t rank)
{
    struct contribution **link = &gathering->given;

    while (*link != NULL && (*link)->rank < rank) {
        link = &(*link)->next;
    }
    return link;
}

/* The same step once more, from a worker that gave up waiting: the gradient counts once. */
static void
repeat(struct psi_client *client, struct gathering *gathering, struct contribution *given)
{
    struct contribution **link = find(gathering, given->rank);
    struct contribution *old = *link;

    if (gathering->sent) {
        old->request = given->request;
        old->type = given->type;
        psi_contribution_free(client, gathering->table->gathered, given);
        return;
    }
    given->next = old->next;
    *link = given;
    psi_contribution_free(client, gathering->table->gathered, old);
}

/* Of a step that is over. */
static void
answer_old(struct psi_client *client, struct gathering *gathering, struct contribution *given)
{
    answer(client, gathering, given, (struct ending){PSD_OK, ""});
    psi_contribution_free(client, gathering->table->gathered, given);
}

void
psi_gather_give(struct psi_client *client, struct gathering *gathering, struct contribution *given)
{
    struct contribution **link;

    if (gathering->given == NULL && given->step >= gathering->done) {
        gathering->step = given->step;
        gathering->priority = 0;
        open_add(client->host, gathering);
    }
    if (given->step > gathering->step) {
        given->next = gathering->early;
        gathering->early = given;
        return;
    }
    if (given->step < gathering->step || given->step < gathering->done) {
        answer_old(client, gathering, given);
        return;
    }
    if (given->priority > gathering->priority) {
        gathering->priority = given->priority;
    }
    if (psi_ranks_has(&gathering->have, given->rank)) {
        repeat(client, gathering, given);
        return;
    }
    link = find(gathering, given->rank);
    given->next = *link;
    *link = given;
    psi_ranks_add(&gathering->have, given->rank);
    if (gathering->sent) {
        psi_gather_send_late(client, gathering, given);
    } else {
        psi_gather_send_if_complete(client, gathering);
    }
}

/* Our own caller's gradient, where it is. */
void
psi_gather_own(struct psd_op *op, uint32_t chunk, uint32_t request)
{
    struct psi_client *client = op->client;
    struct contribution *given = psi_contribution_create(client);

    if (given == NULL) {
        psi_gather_no_memory(client);
        return;
    }
    given->rank = client->job.rank;
    given->request = request;
    given->step = op->transfer.step;
    given->type = op->transfer.type;
    given->priority = op->priority;
    if (!op->transfer.empty) {
        given->data = (const uint8_t *)op->transfer.from +
                      (chunk - op->first_chunk) * PSD_CHUNK_ELEMENTS * op->table->element_bytes;
    }
    psi_gather_give(client, psi_gathering_find(op->table, chunk), given);
}

/* Sums that have not left yet are made now, of what is about to go. */
static void
fill_all(struct psi_client *client, const struct gathering *gathering)
{
    for (struct psd_op *node = gathering->nodes; node != NULL; node = node->node.next) {
        if (client->state != PSI_CLIENT_OVER && !psi_gather_fill(node)) {
            psi_gather_no_memory(client);
        }
    }
}

/* The caller takes its gradient back. What is part of a sum by now stays in it. */
void
psi_gather_withdraw(const struct psd_op *op, uint32_t chunk)
{
    struct psi_client *client = op->client;
    struct gathering *gathering = psi_gathering_find(op->table, chunk);
    const bool early = op->transfer.step > gathering->step;
    struct contribution **link = early ? &gathering->early : &gathering->given;
    struct contribution *given;

    while (*link != NULL &&
           ((*link)->rank != client->job.rank || (*link)->step != op->transfer.step)) {
        link = &(*link)->next;
    }
    given = *link;
    if (given == NULL) {
        return;
    }
    if (!early && gathering->sent) {
        fill_all(client, gathering);
        given->data = NULL;
        given->is_withdrawn = true;
        return;
    }
    *link = given->next;
    psi_contribution_free(client, op->table->gathered, given);
    if (!early) {
        psi_ranks_remove(&gathering->have, client->job.rank);
    }
    if (gathering->given == NULL) {
        psi_gather_open_remove(client->host, gathering);
    }
}

/* Nobody waits for it any more. What it has given stays given. */
void
psi_gather_member_gone(struct psi_client *client)
{
    struct gathering *next;

    for (struct gathering *open = client->host->open; open != NULL; open = next) {
        next = open->open_next;
        psi_gather_send_if_complete(client, open);
    }
}

/* Leaves now if it is complete, else as soon as it is. */
void
psi_gather_wanted(const struct psd_table *table, const struct psi_frame *wanted)
{
    struct gathering *gathering = psi_gathering_find(table, wanted->chunk);

    if (gathering != NULL && gathering->wanted_until <= wanted->step) {
        gathering->wanted_until = wanted->step + 1;
    }
    if (gathering != NULL && gathering->sent) {
        psi_gather_send_wanted(table->client, gathering);
    }
}

/*
 * Workers that push in different orders can fill what they may have unanswered with chunks that
 * nobody else has pushed. So those that are not complete are asked for, one after the other.
 */
void
psi_gather_want(struct psi_client *client)
{
    struct host *host = client->host;
    struct gathering *gathering = host->open;
    const struct psi_frame frame = {
        .type = PSI_FRAME_WANT,
        .view = client->view.id,
        .table = gathering->table->id,
        .chunk = gathering->chunk,
        .step = gathering->step,
    };
    uint32_t rank = psi_gather_lacking(client, gathering, 0);

    psi_gather_open_remove(host, gathering);
    open_add(host, gathering);
    for (; rank != UINT32_MAX; rank = psi_gather_lacking(client, gathering, rank + 1)) {
        if (rank != client->job.rank) {
            (void)psi_post(host->by_rank[rank]->guest.conn, &frame);
        }
    }
    psi_lane_want(psi_host_lane(client), &frame);
}

/* Writes who is missing, if somebody of this host is. Else asks the server; false then. */
bool
psi_gather_why(const struct psd_table *table, uint32_t chunk, char *text, size_t size)
{
    const struct gathering *gathering = psi_gathering_find(table, chunk);
    const struct psi_client *client = table->client;
    const char *separator = " worker ";
    uint32_t rank;
    size_t used;

    if (gathering == NULL || gathering->sent) {
        const struct psd_op *node = gathering != NULL ? gathering->nodes : NULL;

        while (node != NULL && !psi_lane_ask_why_node(node)) {
            node = node->node.next;
        }
        return false;
    }
    used = (size_t)snprintf(text, size, "table %s step %llu waits for", table->spec.name,
                            (unsigned long long)gathering->step);
    rank = psi_gather_lacking(client, gathering, 0);
    for (unsigned named = 0; rank != UINT32_MAX && named < 8 && used + 24 < size; named++) {
        used += (size_t)snprintf(text + used, size - used, "%s%u", separator, rank);
        separator = ", worker ";
        rank = psi_gather_lacking(client, gathering, rank + 1);
    }
    snprintf(text + used, size - used, " of this host");
    return true;
}

/* A server has said what a node waits for: everybody who gave to it may want to know. */
void
psi_gather_because(const struct psd_op *op, const char *text)
{
    struct psi_client *client = op->client;
    const struct contribution *given = op->node.gathering->given;

    for (; given != NULL; given = given->next) {
        const struct host_session *session = client->host->by_rank[given->rank];
        const struct psi_frame frame = {
            .type = PSI_FRAME_BECAUSE,
            .view = client->view.id,
            .request = given->request,
            .table = op->table->id,
            .chunk = op->node.gathering->chunk,
        };

        if (given->rank == client->job.rank) {
            psi_lane_tell_own(psi_host_lane(client), given->request, text);
        } else if (session != NULL) {
            (void)psi_post_error(session->guest.conn, &frame, PSD_PENDING, 0, text);
        }
    }
}
