/*
 * adopt.c - another life of a server is told where this worker is in each table, and what it can
 * show.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/lane_parts.h"
#include "client/core/results.h"
#include "client/core/sparse_sums.h"
#include "rpc/post.h"

/* The first step of the chunk that this worker is not through with. */
static uint64_t
base_of(const struct psd_table *table, uint32_t chunk)
{
    uint64_t base = table->next_step[chunk];

    for (const struct psd_op *op = table->last_op; op != NULL; op = op->table_prev) {
        if (psi_op_is_push(op) && op->transfer.step < base && chunk >= op->first_chunk &&
            chunk - op->first_chunk < op->chunk_count &&
            op->chunks[chunk - op->first_chunk] != CHUNK_DONE) {
            base = op->transfer.step;
        }
    }
    return base;
}

/* What it has of it. What came for the workers of this host, and has not been handed out because
 * not all of their sums were answered, is as good as held; or kept, if this worker gave its own gradient
 * apart from theirs, and is through with the step. */
static enum psi_has
has(const struct psd_table *table, uint32_t chunk, uint64_t base)
{
    const struct result *result = &table->results[chunk];

    if (psi_gather_result(table, chunk, base) != NULL) {
        return PSI_HAS_HELD;
    }
    if (result->base == base && result->has != PSI_HAS_PASSED && result->has != PSI_HAS_NOTHING) {
        return result->has;
    }
    if (base > 0 && psi_gather_last(table, chunk, base - 1) != NULL) {
        return PSI_HAS_KEPT;
    }
    return result->base == base ? result->has : PSI_HAS_NOTHING;
}

bool
psi_result_is_here(const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    const struct result *result = &table->results[chunk];

    return base_of(table, chunk) > step || (result->has == PSI_HAS_HELD && result->base == step);
}

static struct psi_adopt_run
run_of(const struct psd_table *table, uint32_t chunk)
{
    const uint64_t base = base_of(table, chunk);

    return (struct psi_adopt_run){
        .first = chunk, .count = 1, .base = base, .has = has(table, chunk, base)};
}

static bool
continues(const struct psi_adopt_run *run, const struct psi_adopt_run *next)
{
    return run->first + run->count == next->first && run->base == next->base &&
           run->has == next->has;
}

static psd_status
post(const struct lane_link *lane, const struct psd_table *table, const struct psi_adopt *adopt)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_ADOPT,
        .view = lane->client->view.id,
        .table = table->id,
        .rank = (uint16_t)lane->client->job.rank,
        .incarnation = (uint16_t)lane->client->job.incarnation,
    };

    return psi_post_adopt(lane->peer.conn, &frame, adopt);
}

/* False: the connection has not taken all of it. */
static bool
adopt(const struct lane_link *lane, const struct psd_table *table)
{
    const uint32_t *chunks = table->flat.lane_chunks[lane->index];
    const uint32_t count = table->flat.lane_counts[lane->index];
    struct psi_adopt message = {.run = malloc(PSI_ADOPT_RUNS_MAX * sizeof(*message.run))};
    psd_status status = message.run != NULL ? PSD_OK : PSD_ERR_NO_MEMORY;

    for (uint32_t i = 0; status == PSD_OK && i < count; i++) {
        const struct psi_adopt_run run = run_of(table, chunks[i]);

        table->results[chunks[i]].lacked = run.has == PSI_HAS_HELD ? 0 : run.base + 1;
        if (message.runs > 0 && continues(&message.run[message.runs - 1], &run)) {
            message.run[message.runs - 1].count++;
            continue;
        }
        if (message.runs == PSI_ADOPT_RUNS_MAX) {
            status = post(lane, table, &message);
            message.runs = 0;
        }
        message.run[message.runs++] = run;
    }
    if (status == PSD_OK && message.runs > 0) {
        status = post(lane, table, &message);
    }
    free(message.run);
    return status == PSD_OK;
}

/* Has its server had another life before? */
static bool
had_another_life(const struct lane_link *lane)
{
    const struct psi_view_place *place =
        psi_view_place(&lane->client->view, lane->server, lane->lane);

    return place != NULL && place->since != 0;
}

void
psi_adopt_lane(struct lane_link *lane)
{
    const struct psi_client *client = lane->client;

    if (!had_another_life(lane)) {
        return;
    }
    for (size_t i = 0; i < client->table_count; i++) {
        if (client->tables[i]->results != NULL && !adopt(lane, client->tables[i])) {
            psi_lane_break(lane, "send failed");
            return;
        }
    }
}

void
psi_adopt_table(const struct psd_table *table)
{
    const struct psi_client *client = table->client;

    for (uint32_t i = 0; table->results != NULL && i < client->lane_count; i++) {
        struct lane_link *lane = client->lanes[i];

        if (lane->peer.state == PSI_PEER_UP && had_another_life(lane) && !adopt(lane, table)) {
            psi_lane_break(lane, "send failed");
        }
    }
}

void
psi_adopt_came(const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    struct lane_link *lane = table->client->lanes[table->flat.places[chunk]];
    struct psi_adopt_run run;

    if (table->results[chunk].lacked != step + 1 || lane->peer.state != PSI_PEER_UP) {
        return; /* when it is up again it hears of everything */
    }
    table->results[chunk].lacked = 0;
    run = run_of(table, chunk);
    if (post(lane, table, &(struct psi_adopt){.runs = 1, .run = &run}) != PSD_OK) {
        psi_lane_break(lane, "send failed");
    }
}

/* ---- GIVE ---------------------------------------------------------------------------------- */

/* The result of that step; NULL: it is not here. */
static const void *
find_value(const struct psd_table *table, uint32_t chunk, uint64_t step)
{
    const struct result *result = &table->results[chunk];

    if (result->has == PSI_HAS_HELD && result->base == step) {
        return (const uint8_t *)result->op->transfer.to + (chunk - result->op->first_chunk) *
                                                              (uint64_t)PSD_CHUNK_ELEMENTS *
                                                              table->element_bytes;
    }
    return result->has == PSI_HAS_KEPT && result->base == step + 1
               ? result->data
               : psi_gather_last(table, chunk, step);
}

static void
free_copy(void *owner, uint64_t cookie)
{
    (void)cookie;
    free(owner);
}

/* What is shown of a result: all of it, or of rows a part. */
struct shown {
    const void *data; /* NULL: it is not here */
    size_t bytes;
    bool more; /* parts come behind it */
};

static struct shown
find_shown(const struct psd_table *table, const struct psi_frame *asked)
{
    const struct result *result = &table->results[asked->chunk];
    struct shown found = {0};

    if (!psi_spec_is_sparse(&table->spec)) {
        found.data = find_value(table, asked->chunk, asked->step);
        found.bytes = psi_chunk_elements(table->spec.count, asked->chunk) * table->element_bytes;
    } else if (result->has == PSI_HAS_KEPT && result->base == asked->step + 1) {
        found.data = psi_place_sum_part(result->rows, asked->request, &found.bytes, &found.more);
    }
    return found;
}

/* As a copy: what is held may be released, and what is kept overtaken, before it has left. */
static psd_status
give(struct lane_link *lane, const struct psd_table *table, const struct shown *found)
{
    const struct psi_frame *asked = &lane->peer.inbox.frame;
    const uint16_t more = found->more ? PSI_FLAG_MORE : 0;
    const struct psi_frame frame = {
        .type = psi_spec_is_sparse(&table->spec) ? PSI_FRAME_SPARSE_PUSH : PSI_FRAME_PUSH,
        .flags = PSI_FLAG_RESULT | more,
        .dtype = (uint8_t)table->spec.dtype,
        .step = asked->step,
        .view = lane->client->view.id,
        .request = asked->request,
        .table = table->id,
        .chunk = asked->chunk,
        .rank = (uint16_t)lane->client->job.rank,
        .incarnation = (uint16_t)lane->client->job.incarnation,
    };
    struct psi_payload payload = {
        .bytes = found->bytes,
        .checksum = lane->client->config.checksum,
        .release = free_copy,
    };
    psd_status status;

    payload.owner = malloc(payload.bytes);
    if (payload.owner == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    psi_client_copy(lane->client, payload.owner, found->data, payload.bytes);
    payload.base = payload.owner;
    status = psi_post_payload(lane->peer.conn, &frame, NULL, &payload);
    if (status != PSD_OK) {
        free(payload.owner);
    }
    return status;
}

psd_status
psi_give_arrived(struct lane_link *lane, struct psd_error *err)
{
    const struct psi_frame *asked = &lane->peer.inbox.frame;
    const struct psd_table *table = psi_table_find(lane->client, asked->table);
    const bool is_known =
        table != NULL && table->results != NULL && asked->chunk < table->chunk_count;
    const struct shown found = is_known ? find_shown(table, asked) : (struct shown){0};

    if (found.data == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "GIVE of step %llu, chunk %u of table %u: this worker does not have it",
                        (unsigned long long)asked->step, asked->chunk, asked->table);
    }
    if (give(lane, table, &found) != PSD_OK) {
        psi_lane_break(lane, "send failed"); /* it is asked for again */
    }
    return PSD_OK;
}
