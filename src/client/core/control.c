/*
 * control.c - requests that are not about chunks: tables, barriers, the table of nodes, leaving.
 *
 * Each can be repeated without harm, so after a cut all unanswered ones are simply sent again. They
 * go to the master, except the global step and other workers' state, which go to lane 0.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/results.h"
#include "client/core/state.h"
#include "rpc/post.h"

enum { NODES_MAX = PSI_RANKS_MAX + PSI_SERVERS_MAX + 1 };

static struct psi_peer *
target(struct psd_op *op)
{
    struct psi_client *client = op->client;

    if (op->kind == OP_STEP_ADD || op->kind == OP_SHARE) {
        return client->lane_count > 0 ? &client->lanes[0]->peer : NULL;
    }
    return &client->master.peer;
}

void
psi_control_send(struct psd_op *op)
{
    struct psi_peer *peer = target(op);

    if (op->kind == OP_BYE && !op->client->leaving) {
        return; /* servers have to agree first */
    }
    if (peer != NULL && peer->state == PSI_PEER_UP) {
        op->control.frame.view = op->client->view.id;
        if (psi_post_body(peer->conn, &op->control.frame, op->control.body,
                          op->control.body_bytes) != PSD_OK) {
            struct psd_error reason;

            psi_fail(&reason, PSD_ERR_NO_MEMORY, "a request could not be queued");
            psi_peer_reset(peer, &reason); /* it is sent again on the next connection */
        }
    }
}

/* Backup workers: the master, which decides who is in a round, hears that all of this worker's
 * gradients of the step are on their way. */
void
psi_control_have(const struct psd_op *op)
{
    const struct psi_client *client = op->client;
    const struct psi_frame frame = {
        .type = PSI_FRAME_HAVE,
        .view = client->view.id,
        .table = op->table->id,
        .step = op->transfer.step,
        .rank = (uint16_t)client->job.rank,
        .incarnation = (uint16_t)client->job.incarnation,
    };

    if (psi_master_link_is_up(&client->master)) {
        (void)psi_post(client->master.peer.conn, &frame);
    }
}

/* What a master in another life cannot know from the requests that are unanswered. */
void
psi_control_tell_state(struct psi_client *client)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_WORKER_STATE,
        .view = client->view.id,
        .rank = (uint16_t)client->job.rank,
        .incarnation = (uint16_t)client->job.incarnation,
    };
    struct psi_worker_state state = {.before = client->job.barriers};

    for (unsigned kind = 0; kind < PSI_BARRIER_KINDS; kind++) {
        state.come[kind] = client->barrier[kind];
        state.passed[kind] = client->barrier[kind];
    }
    for (const struct psd_op *op = client->pending; op != NULL; op = op->next) {
        if (op->kind == OP_BARRIER) {
            state.passed[op->control.frame.table]--;
        }
    }
    (void)psi_post_worker_state(client->master.peer.conn, &frame, &state);
}

void
psi_control_resend(struct psi_client *client)
{
    for (struct psd_op *op = client->pending; op != NULL; op = op->next) {
        if (op->kind != OP_TRANSFER) {
            psi_control_send(op);
        } else if (psi_transfer_completes_step(op)) {
            psi_control_have(op);
        }
    }
}

/* A control operation with its frame; the caller adds a body, then submits it. */
static psd_status
control_create(struct psi_client *client, enum op_kind kind, uint8_t type, uint32_t timeout_ms,
               struct psd_op **op_p, struct psd_error *err)
{
    struct psd_op *op = NULL;

    if (client->state == PSI_CLIENT_OVER) {
        *err = client->error;
        return err->status;
    }
    op = psi_op_create(client, &client->requests, kind, timeout_ms);
    if (op == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a request");
    }
    op->control.request = 0x80000000u | ++client->control_id;
    op->control.frame.type = type;
    op->control.frame.request = op->control.request;
    op->control.frame.rank = (uint16_t)client->job.rank;
    op->control.frame.incarnation = (uint16_t)client->job.incarnation;
    *op_p = op;
    return PSD_OK;
}

static psd_status
set_body(struct psd_op *op, const struct psi_pack *pack, struct psd_error *err)
{
    op->control.body = pack->overflow ? NULL : malloc(pack->used);
    if (op->control.body == NULL) {
        psi_op_discard(op);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a request");
    }
    memcpy(op->control.body, pack->bytes, pack->used);
    op->control.body_bytes = pack->used;
    return PSD_OK;
}

static void
start(struct psd_op *op, struct psd_op **op_p)
{
    psi_op_submit(op);
    psi_control_send(op);
    *op_p = op;
}

psd_status
psi_client_table_open(struct psi_client *client, const struct psi_spec *spec, uint8_t priority,
                      struct psd_op **op_p, struct psd_error *err)
{
    struct psi_table_info *info = calloc(1, sizeof(*info));
    uint8_t bytes[16384];
    struct psi_pack pack;
    struct psd_op *op = NULL;
    psd_status status;

    if (info == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a request");
    }
    info->spec = *spec;
    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_table_info_encode(&pack, info);
    free(info);
    status = control_create(client, OP_TABLE_OPEN, PSI_FRAME_TABLE_OPEN, 0, &op, err);
    if (status != PSD_OK) {
        return status;
    }
    op->control.priority_wanted = priority;
    status = set_body(op, &pack, err);
    if (status == PSD_OK) {
        start(op, op_p);
    }
    return status;
}

static psd_status
meet(struct psi_client *client, enum psi_barrier_kind kind, uint32_t timeout_ms,
     struct psd_op **op_p, struct psd_error *err)
{
    struct psd_op *op = NULL;
    const psd_status status =
        control_create(client, OP_BARRIER, PSI_FRAME_BARRIER, timeout_ms, &op, err);

    if (status == PSD_OK) {
        op->control.frame.table = kind;
        op->control.frame.seq = ++client->barrier[kind];
        start(op, op_p);
    }
    return status;
}

psd_status
psi_client_barrier(struct psi_client *client, uint32_t timeout_ms, struct psd_op **op_p,
                   struct psd_error *err)
{
    return meet(client, PSI_BARRIER_CALLED, timeout_ms, op_p, err);
}

psd_status
psi_client_load_barrier(struct psi_client *client, struct psd_op **op_p, struct psd_error *err)
{
    return meet(client, PSI_BARRIER_LOAD, PSD_FOREVER, op_p, err);
}

bool
psi_client_load_is_over(const struct psi_client *client)
{
    return client->barrier[PSI_BARRIER_LOAD] < client->job.load_barriers;
}

/* A call that did not get through has not passed its barrier: the number goes to whoever comes
 * next, those that wait already first. */
void
psi_control_barrier_again(const struct psd_op *failed)
{
    struct psi_client *client = failed->client;
    const uint32_t kind = failed->control.frame.table;

    client->barrier[kind]--;
    for (struct psd_op *op = client->pending; op != NULL; op = op->next) {
        if (op->kind == OP_BARRIER && op->control.frame.table == kind &&
            op->control.frame.seq > failed->control.frame.seq) {
            op->control.frame.seq--;
            psi_control_send(op);
        }
    }
}

psd_status
psi_client_nodes(struct psi_client *client, struct psd_op **op_p, struct psd_error *err)
{
    struct psd_op *op = NULL;
    const psd_status status = control_create(client, OP_NODES, PSI_FRAME_NODES, 0, &op, err);

    if (status == PSD_OK) {
        start(op, op_p);
    }
    return status;
}

static void
pack_pace(const struct psi_client *client, struct psi_pack *pack, uint8_t *bytes, size_t capacity,
          uint32_t every_ms)
{
    psi_pack_init(pack, bytes, capacity);
    psi_subscribe_encode(
        pack, &(struct psi_subscribe){.every_ms = every_ms, .metrics = client->watcher != NULL});
}

psd_status
psi_client_subscribe(struct psi_client *client, uint32_t every_ms, struct psd_op **op_p,
                     struct psd_error *err)
{
    uint8_t bytes[16];
    struct psi_pack pack;
    struct psd_op *op = NULL;
    psd_status status =
        control_create(client, OP_SUBSCRIBE, PSI_FRAME_SUBSCRIBE, PSD_FOREVER, &op, err);

    if (status != PSD_OK) {
        return status;
    }
    pack_pace(client, &pack, bytes, sizeof(bytes), every_ms);
    status = set_body(op, &pack, err);
    if (status == PSD_OK) {
        start(op, op_p);
    }
    return status;
}

/* Said again, it takes the place of what was said before. */
void
psi_subscribe_pace(struct psd_op *op, uint32_t every_ms)
{
    struct psi_pack pack;

    if (!op->ended) {
        pack_pace(op->client, &pack, op->control.body, op->control.body_bytes, every_ms);
        psi_control_send(op);
    }
}

static unsigned
step_adds_under_way(const struct psi_client *client)
{
    unsigned count = 0;

    for (const struct psd_op *op = client->pending; op != NULL; op = op->next) {
        count += op->kind == OP_STEP_ADD;
    }
    return count;
}

/* No more than the server keeps answers of: each may have to be repeated after a cut. */
psd_status
psi_client_step_add(struct psi_client *client, uint64_t add, struct psd_op **op_p,
                    struct psd_error *err)
{
    struct psd_op *op = NULL;
    psd_status status;

    if (step_adds_under_way(client) >= PSI_STEP_ADDS_MAX) {
        return psi_fail(err, PSD_ERR_BUSY, "global step: %d additions of this worker are under way",
                        PSI_STEP_ADDS_MAX);
    }
    status = control_create(client, OP_STEP_ADD, PSI_FRAME_STEP_ADD, 0, &op, err);
    if (status == PSD_OK) {
        client->step_used = true;
        op->control.frame.seq = ++client->seq;
        op->control.frame.step = add;
        start(op, op_p);
    }
    return status;
}

/* What no heartbeat and no telling has told yet. */
void
psi_client_tell_last(struct psi_client *client)
{
    psi_master_link_tell(&client->master);
    psi_client_ping(client);
}

psd_status
psi_client_bye(struct psi_client *client, struct psd_op **op_p, struct psd_error *err)
{
    struct psd_op *op = NULL;
    const psd_status status = control_create(client, OP_BYE, PSI_FRAME_BYE, 0, &op, err);

    if (status == PSD_OK) {
        psi_client_tell_last(client);
        start(op, op_p);
        psi_leave_begin(client);
    }
    return status;
}

psd_status
psi_client_share_pull(struct psi_client *client, const struct psi_share *share, void *to,
                      struct psd_op **op_p, struct psd_error *err)
{
    uint8_t bytes[512];
    struct psi_pack pack;
    struct psd_op *op = NULL;
    psd_status status = control_create(client, OP_SHARE, PSI_FRAME_SHARE_PULL, 0, &op, err);

    if (status != PSD_OK) {
        return status;
    }
    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_share_encode(&pack, share);
    op->control.to = to;
    op->control.to_bytes = share->bytes;
    status = set_body(op, &pack, err);
    if (status == PSD_OK) {
        start(op, op_p);
    }
    return status;
}

/* ---- answers ----------------------------------------------------------------------------- */

static struct psd_op *
find(const struct psi_client *client, uint32_t request)
{
    struct psd_op *op = client->pending;

    while (op != NULL && (op->kind == OP_TRANSFER || op->control.request != request)) {
        op = op->next;
    }
    return op;
}

/* The caller gives memory for the table it asked for: no other will do. */
static psd_status
check_asked(const struct psd_op *op, const struct psi_spec *spec, struct psd_error *err)
{
    struct psi_table_info *asked = malloc(sizeof(*asked));
    const char *difference;
    psd_status status;

    if (asked == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a table");
    }
    status = psi_table_info_decode(op->control.body, op->control.body_bytes, asked, err);
    psi_assert(status == PSD_OK);
    difference = psi_spec_difference(&asked->spec, spec);
    if (difference != NULL) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "TABLE_INFO for table %s: %s differs",
                          asked->spec.name, difference);
    }
    free(asked);
    return status;
}

static psd_status
table_info_arrived(struct psd_op *op, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_table_info *info = malloc(sizeof(*info));
    psd_status status;

    if (info == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a table");
    }
    status = psi_table_info_decode(payload, bytes, info, err);
    if (status == PSD_OK) {
        status = check_asked(op, &info->spec, err);
    }
    if (status == PSD_OK) {
        struct psd_error reason;

        status =
            psi_table_create(op->client, info, op->control.priority_wanted, &op->table, &reason);
        psi_op_end(op, status, status == PSD_OK ? PSD_OUTCOME_DONE : PSD_OUTCOME_NOT_APPLIED, "%s",
                   status == PSD_OK ? "" : reason.text);
        status = PSD_OK;
    }
    free(info);
    return status;
}

static psd_status
nodes_arrived(struct psd_op *op, const void *payload, size_t bytes, struct psd_error *err)
{
    const struct psi_nodes before = op->control.nodes;
    psd_status status;

    if (op->control.coming.node == NULL) { /* else of an answer before the last one */
        op->control.coming.node = calloc(NODES_MAX, sizeof(*op->control.coming.node));
    }
    if (op->control.coming.node == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for the table of nodes");
    }
    /* Not over the last one, which may not have been read yet: this one may be broken. */
    status = psi_nodes_decode(payload, bytes, &op->control.coming, err);
    if (status == PSD_OK) {
        op->control.nodes = op->control.coming;
        op->control.coming = before;
    }
    if (status == PSD_OK && op->kind == OP_SUBSCRIBE) {
        op->value++;
    } else if (status == PSD_OK) {
        psi_op_succeed(op);
    }
    return status;
}

void
psi_client_watch(struct psi_client *client, const struct psi_watcher *watcher)
{
    client->watcher = watcher;
}

static psd_status
metrics_arrived(struct psi_client *client, const struct psi_frame *frame, const void *payload,
                size_t bytes, struct psd_error *err)
{
    psd_status status;

    if (client->telling == NULL) {
        client->telling = malloc(sizeof(*client->telling));
    }
    if (client->telling == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for metrics");
    }
    status = psi_telling_decode(payload, bytes, client->telling, err);
    if (status == PSD_OK && client->watcher != NULL) {
        client->watcher->told(client->watcher->context, (uint8_t)frame->table, frame->rank,
                              frame->chunk, client->telling);
    }
    return status;
}

static psd_status
table_shown(struct psi_client *client, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_table_info *info = malloc(sizeof(*info));
    psd_status status;

    if (info == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a table");
    }
    status = psi_table_info_decode(payload, bytes, info, err);
    if (status == PSD_OK && client->watcher != NULL) {
        client->watcher->table(client->watcher->context, info);
    }
    free(info);
    return status;
}

static psd_status
answered(struct psd_op *op, const struct psi_frame *frame, const void *payload, size_t bytes,
         struct psd_error *err)
{
    const bool wants_more = op->kind == OP_TABLE_OPEN || op->kind == OP_NODES ||
                            op->kind == OP_SUBSCRIBE || op->kind == OP_SHARE;
    struct psi_verdict verdict;
    psd_status status;

    if (frame->status == PSD_OK && !wants_more) {
        op->value = frame->step;
        psi_op_succeed(op);
        return PSD_OK;
    }
    status = psi_verdict_decode(payload, bytes, &verdict, err);
    if (status == PSD_OK && verdict.status >= 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "ACK: status %d is no refusal", verdict.status);
    }
    if (status == PSD_OK) {
        psi_op_end(op, (psd_status)verdict.status, PSD_OUTCOME_NOT_APPLIED, "%s", verdict.text);
    }
    return status;
}

static psd_status
piece_arrived(struct psd_op *op, const void *payload, size_t bytes, struct psd_error *err)
{
    if (bytes != op->control.to_bytes) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "SHARE_DATA: %zu bytes, expected %u", bytes,
                        op->control.to_bytes);
    }
    psi_client_copy(op->client, op->control.to, payload, bytes);
    psi_op_succeed(op);
    return PSD_OK;
}

psd_status
psi_control_frame(struct psi_client *client, struct psi_peer *peer, const void *payload,
                  size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &peer->inbox.frame;
    struct psd_op *op = find(client, frame->request);
    struct psi_verdict verdict;

    if (op == NULL) {
        return PSD_OK; /* answered before, or given up */
    }
    if (frame->type == PSI_FRAME_TABLE_INFO && op->kind == OP_TABLE_OPEN) {
        return table_info_arrived(op, payload, bytes, err);
    }
    if (frame->type == PSI_FRAME_NODES_INFO && (op->kind == OP_NODES || op->kind == OP_SUBSCRIBE)) {
        return nodes_arrived(op, payload, bytes, err);
    }
    if (frame->type == PSI_FRAME_METRICS && op->kind == OP_SUBSCRIBE) {
        return metrics_arrived(client, frame, payload, bytes, err);
    }
    if (frame->type == PSI_FRAME_TABLE_INFO && op->kind == OP_SUBSCRIBE) {
        return table_shown(client, payload, bytes, err);
    }
    if (frame->type == PSI_FRAME_SHARE_DATA && op->kind == OP_SHARE) {
        return piece_arrived(op, payload, bytes, err);
    }
    if (frame->type == PSI_FRAME_ACK) {
        return answered(op, frame, payload, bytes, err);
    }
    if (frame->type == PSI_FRAME_BECAUSE &&
        psi_verdict_decode(payload, bytes, &verdict, err) == PSD_OK) {
        snprintf(op->because, sizeof(op->because), "%s", verdict.text);
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_PROTOCOL, "%s as an answer: not expected",
                    psi_frame_type_name(frame->type));
}
