/*
 * gather.c - what the workers of one host have given, added and sent as one.
 *
 * A chunk's gradients of one step are gathered until all that push through this worker have given
 * theirs. Then the largest nodes of the tree over ranks that are complete leave as operations of
 * their own, in the usual queues and windows of the lanes; a sum is made when it leaves, so that a
 * window bounds the memory for sums. The answer is everybody's answer.
 *
 * The value that comes back lies where the others can read it. It stays until they have: before the
 * next one comes, every worker has pushed the next step of that chunk, and by that said that it has
 * read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/host/gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/fail.h"
#include "rpc/post.h"

/* ---- memory -------------------------------------------------------------------------------- */

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

static void
give_back(struct psi_client *client, struct gathered_table *gathered, struct contribution **list)
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
        give_back(client, gathered, &gathered->gatherings[i].given);
        give_back(client, gathered, &gathered->gatherings[i].early);
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

static uint8_t *
value_of(const struct gathering *gathering)
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

/* ---- who waits for whom -------------------------------------------------------------------- */

static void
open_remove(struct host *host, struct gathering *gathering)
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
static uint32_t
lacking(const struct psi_client *client, const struct gathering *gathering, uint32_t rank)
{
    while (rank < client->job.workers &&
           (psi_ranks_has(&gathering->have, rank) || !takes_part(client, gathering, rank))) {
        rank++;
    }
    return rank < client->job.workers ? rank : UINT32_MAX;
}

/* ---- answers ------------------------------------------------------------------------------- */

/* How a gathering ended for those that gave to it. */
struct ending {
    psd_status status;
    const char *text;
};

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
        payload.base = value_of(gathering);
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
                                .value = wants_value ? value_of(gathering) : NULL,
                                .step = gathering->version,
                                .updates = gathering->updates,
                            });
    } else {
        answer_session(client, gathering, given, &ending, wants_value && ending.status == PSD_OK);
    }
}

static void
answer_all(struct psi_client *client, const struct gathering *gathering, struct ending ending)
{
    for (const struct contribution *given = gathering->given; given != NULL; given = given->next) {
        answer(client, gathering, given, ending);
    }
}

/* ---- sending ------------------------------------------------------------------------------- */

/* The gradients of the node, by rising rank. */
static uint32_t
collect(const struct psi_client *client, const struct psd_op *op)
{
    const uint32_t end = psi_node_end(op->node_first, op->node_level, client->job.workers);
    const struct contribution *given = op->gathering->given;
    uint32_t count = 0;

    for (; given != NULL && given->rank < end; given = given->next) {
        if (given->rank >= op->node_first && given->data != NULL) {
            client->host->leaves[count++] =
                (struct leaf){.rank = given->rank, .is_sum = given->is_real, .data = given->data};
        }
    }
    return count;
}

/* Makes what the operation sends, if it is not there yet. A single gradient of another worker is
 * sent from where it is; our own caller may take its back at any time. False: no memory now. */
bool
psi_gather_fill(struct psd_op *op)
{
    struct psi_client *client = op->client;
    struct host *host = client->host;
    const bool is_sum = op->node_level > 0;
    struct psi_sum sum;
    uint32_t count;

    if (op->gathering == NULL || op->transfer.from != NULL || op->transfer.empty) {
        return true;
    }
    count = collect(client, op);
    psi_assert(count == op->node_leaves);
    if (!is_sum && host->leaves[0].rank != client->job.rank) {
        op->transfer.from = host->leaves[0].data;
        return true;
    }
    op->node_pool = is_sum ? &op->table->gathered->sums : &op->table->gathered->copies;
    op->node_bytes = psi_pool_take(op->node_pool);
    if (op->node_bytes == NULL) {
        return false;
    }
    if (is_sum) {
        const psi_arithmetic callers = psi_arithmetic_enter();

        psi_sum_init(&sum, host->kernels, op->table->spec.dtype, host->leaves, count,
                     host->scratch);
        psi_sum_all(&sum, (uint32_t)psi_chunk_elements(op->table->spec.count, op->first_chunk),
                    op->node_bytes);
        psi_arithmetic_leave(callers);
    } else {
        memcpy(op->node_bytes, host->leaves[0].data, psi_transfer_bytes(op, op->first_chunk));
    }
    op->transfer.from = op->node_bytes;
    return true;
}

/* One node as an operation of its own. */
static bool
send_node(struct psi_client *client, struct gathering *gathering, uint32_t first, uint32_t level,
          bool pull)
{
    struct psd_table *table = gathering->table;
    struct psd_op *op = psi_op_create(client, &table->gathered->ops, OP_TRANSFER, PSD_FOREVER);

    if (op == NULL) {
        return false;
    }
    op->table = table;
    op->spread = &table->flat;
    op->gathering = gathering;
    op->priority = gathering->priority;
    op->node_first = first;
    op->node_level = level;
    op->node_leaves = collect(client, op);
    op->transfer = (struct psi_transfer){
        .type = pull ? PSI_FRAME_PUSH_PULL : PSI_FRAME_PUSH,
        .empty = op->node_leaves == 0,
        .step = gathering->step,
        .first = psi_chunk_first(gathering->chunk),
        .count = psi_chunk_elements(table->spec.count, gathering->chunk),
        .to = value_of(gathering),
    };
    op->first_chunk = gathering->chunk;
    op->chunk_count = 1;
    op->remaining = 1;
    psi_transfer_clear_parts(op);
    op->node_next = gathering->nodes;
    gathering->nodes = op;
    psi_op_submit_node(op);
    psi_lane_enqueue(op);
    return true;
}

static bool
some_wants_value(const struct gathering *gathering)
{
    const struct contribution *given = gathering->given;

    while (given != NULL && given->type != PSI_FRAME_PUSH_PULL) {
        given = given->next;
    }
    return given != NULL;
}

static void
send_wanted(struct psi_client *client, const struct gathering *gathering)
{
    const struct psi_frame wanted = {
        .table = gathering->table->id, .chunk = gathering->chunk, .step = gathering->step};

    if (gathering->step < gathering->wanted_until) {
        psi_lane_want(client->lanes[gathering->table->flat.places[gathering->chunk]], &wanted);
    }
}

static void
fail_without_memory(struct psi_client *client)
{
    psi_client_over(client, PSD_ERR_NO_MEMORY, "no memory to push for the workers of this host");
}

/* Everything that is here leaves, as few nodes; one of them brings the value back. */
static void
send_all(struct psi_client *client, struct gathering *gathering)
{
    const uint32_t workers = client->job.workers;
    bool pull = some_wants_value(gathering);
    uint32_t end;

    gathering->pulls = pull;
    open_remove(client->host, gathering);
    client->host->progressed = true;
    gathering->sent = true;
    for (uint32_t rank = gathering->given->rank; rank < workers; rank = end) {
        uint32_t level;

        if (!psi_ranks_has(&gathering->have, rank)) {
            end = rank + 1;
            continue;
        }
        level = psi_ranks_node_level(&gathering->have, rank, workers);
        end = psi_node_end(rank, level, workers);
        if (!send_node(client, gathering, rank, end > rank + 1 ? level : 0, pull)) {
            fail_without_memory(client);
            return;
        }
        pull = false;
    }
}

/* Of a worker that nobody waited for: it had not yet said that it pushes through us. */
static void
send_late(struct psi_client *client, struct gathering *gathering, const struct contribution *given)
{
    const bool pull = given->type == PSI_FRAME_PUSH_PULL && !gathering->pulls;

    gathering->pulls = gathering->pulls || pull;
    if (client->state != PSI_CLIENT_OVER && !send_node(client, gathering, given->rank, 0, pull)) {
        fail_without_memory(client);
    }
    send_wanted(client, gathering);
}

/*
 * A server refused a sum because it has some of the gradients in it already: a worker whose
 * connection to us was cut has pushed its own. So each leaves alone, and counts once. False: one of
 * them is nowhere but in the sum.
 */
static bool
send_leaves(struct psi_client *client, struct gathering *gathering, const struct psd_op *sum)
{
    const uint32_t end = psi_node_end(sum->node_first, sum->node_level, client->job.workers);
    bool pull = sum->transfer.type == PSI_FRAME_PUSH_PULL;

    for (const struct contribution *given = gathering->given; given != NULL; given = given->next) {
        if (given->is_withdrawn && given->rank >= sum->node_first && given->rank < end) {
            return false;
        }
    }
    for (const struct contribution *given = gathering->given; given != NULL; given = given->next) {
        if (given->rank < sum->node_first || given->rank >= end) {
            continue;
        }
        if (!send_node(client, gathering, given->rank, 0, pull)) {
            fail_without_memory(client);
            break;
        }
        pull = false;
    }
    send_wanted(client, gathering);
    return true;
}

/* The one thing that PSD_ERR_STATE means for a sum. */
static bool
is_partly_given(const struct psd_op *op)
{
    return op->node_level > 0 && op->error.status == PSD_ERR_STATE;
}

static void
send_if_complete(struct psi_client *client, struct gathering *gathering)
{
    if (gathering->given != NULL && !gathering->sent && client->state != PSI_CLIENT_OVER &&
        lacking(client, gathering, 0) == UINT32_MAX) {
        send_all(client, gathering);
        send_wanted(client, gathering);
    }
}

/* Everything has been answered. */
static void
begin_next(struct psi_client *client, struct gathering *gathering)
{
    struct contribution *early = gathering->early;

    gathering->sent = false;
    gathering->failed = false;
    gathering->early = NULL;
    give_back(client, gathering->table->gathered, &gathering->given);
    memset(&gathering->have, 0, sizeof(gathering->have));
    while (early != NULL) {
        struct contribution *given = early;

        early = given->next;
        psi_gather_give(client, gathering, given);
    }
}

/* A node has ended. */
void
psi_gather_sent(struct psd_op *op)
{
    struct psi_client *client = op->client;
    struct gathering *gathering = op->gathering;
    struct psd_op **link = &gathering->nodes;
    const bool over = client->state == PSI_CLIENT_OVER; /* others hear so from the master */

    while (*link != op) {
        link = &(*link)->node_next;
    }
    *link = op->node_next;
    if (is_partly_given(op) && !over && !gathering->failed && send_leaves(client, gathering, op)) {
        /* its gradients are on their way */
    } else if (op->error.status != PSD_OK && !gathering->failed) {
        gathering->failed = true;
        if (!over) {
            answer_all(client, gathering, (struct ending){op->error.status, op->error.text});
        }
    }
    if (op->error.status == PSD_OK && op->transfer.type == PSI_FRAME_PUSH_PULL) {
        gathering->version = op->value;
        gathering->updates = op->updates;
    }
    if (op->node_bytes != NULL) {
        psi_pool_give(op->node_pool, op->node_bytes);
    }
    psi_op_discard(op);
    if (gathering->nodes != NULL) {
        return;
    }
    if (!gathering->failed) {
        answer_all(client, gathering, (struct ending){PSD_OK, ""});
        gathering->done = gathering->step + 1;
    }
    begin_next(client, gathering);
}

/* ---- giving -------------------------------------------------------------------------------- */

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
        send_late(client, gathering, given);
    } else {
        send_if_complete(client, gathering);
    }
}

/* Our own caller's gradient, where it is. */
void
psi_gather_own(struct psd_op *op, uint32_t chunk, uint32_t request)
{
    struct psi_client *client = op->client;
    struct contribution *given = psi_contribution_create(client);

    if (given == NULL) {
        fail_without_memory(client);
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
    for (struct psd_op *node = gathering->nodes; node != NULL; node = node->node_next) {
        if (client->state != PSI_CLIENT_OVER && !psi_gather_fill(node)) {
            fail_without_memory(client);
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
        open_remove(client->host, gathering);
    }
}

/* Nobody waits for it any more. What it has given stays given. */
void
psi_gather_member_gone(struct psi_client *client)
{
    struct gathering *next;

    for (struct gathering *open = client->host->open; open != NULL; open = next) {
        next = open->open_next;
        send_if_complete(client, open);
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
        send_wanted(table->client, gathering);
    }
}

/* ---- what it waits for --------------------------------------------------------------------- */

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
    uint32_t rank = lacking(client, gathering, 0);

    open_remove(host, gathering);
    open_add(host, gathering);
    for (; rank != UINT32_MAX; rank = lacking(client, gathering, rank + 1)) {
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
            node = node->node_next;
        }
        return false;
    }
    used = (size_t)snprintf(text, size, "table %s step %llu waits for", table->spec.name,
                            (unsigned long long)gathering->step);
    rank = lacking(client, gathering, 0);
    for (unsigned named = 0; rank != UINT32_MAX && named < 8 && used + 24 < size; named++) {
        used += (size_t)snprintf(text + used, size - used, "%s%u", separator, rank);
        separator = ", worker ";
        rank = lacking(client, gathering, rank + 1);
    }
    snprintf(text + used, size - used, " of this host");
    return true;
}

/* A server has said what a node waits for: everybody who gave to it may want to know. */
void
psi_gather_because(const struct psd_op *op, const char *text)
{
    struct psi_client *client = op->client;
    const struct contribution *given = op->gathering->given;

    for (; given != NULL; given = given->next) {
        const struct host_session *session = client->host->by_rank[given->rank];
        const struct psi_frame frame = {
            .type = PSI_FRAME_BECAUSE,
            .view = client->view.id,
            .request = given->request,
            .table = op->table->id,
            .chunk = op->gathering->chunk,
        };

        if (given->rank == client->job.rank) {
            psi_lane_tell_own(psi_host_lane(client), given->request, text);
        } else if (session != NULL) {
            (void)psi_post_error(session->guest.conn, &frame, PSD_PENDING, 0, text);
        }
    }
}
