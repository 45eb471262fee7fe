/*
 * hold.c - results that are held: they are here, but the operation does not end before everybody has
 * them.
 *
 * The worker says GOT for each, and the server says RELEASE when all have said it. Until then the
 * caller's memory is the library's, and the result can be shown to another life of the server.
 *
 * Whoever keeps its results says GOT too, for those who hold. It is said again whenever the
 * connection was cut, for it may have been lost.
 *
 * Operations end as a whole, so a GOT by itself is of no use to most: it waits for the rest of its
 * operation from the same lane, and all are said in one frame, which is answered by one RELEASE. But
 * another worker may have cut the same chunks into other operations, and wait for this one before it
 * gives what the rest waits for: so it does not wait for long.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "client/core/lane_parts.h"
#include "client/core/results.h"
#include "rpc/post.h"

#define GOT_WAITS_NS UINT64_C(5000000)

void
psi_result_hold(struct psd_op *op, uint32_t chunk)
{
    struct result *result = &op->table->results[chunk];

    result->base = op->transfer.step;
    result->has = PSI_HAS_HELD;
    result->op = op;
}

uint64_t
psi_results_unhold(const struct psd_op *op)
{
    uint64_t count = 0;

    for (uint64_t i = 0; op->table->results != NULL && i < op->chunk_count; i++) {
        struct result *result = &op->table->results[op->first_chunk + i];

        if (result->has == PSI_HAS_HELD && result->op == op) {
            result->has = PSI_HAS_NOTHING;
            result->op = NULL;
            count++;
        }
    }
    return count;
}

/* ---- GOT ----------------------------------------------------------------------------------- */

/* What waited to be said is said, or lost with the connection. */
static void
wait_no_longer(struct lane_link *lane)
{
    struct psi_client *client = lane->client;

    if (lane->got_ns != 0) {
        lane->got_ns = 0;
        client->got_waiting--;
        client->got_ns = client->got_waiting == 0 ? 0 : client->got_ns;
    }
}

/* False: there is no memory, and the job is over. */
static bool
add(struct lane_link *lane, const struct psi_result *result)
{
    if (lane->got_count == PSI_RESULTS_MAX) {
        psi_got_send(lane);
    }
    if (lane->got == NULL) {
        lane->got = malloc(PSI_RESULTS_MAX * sizeof(*lane->got));
    }
    if (lane->got == NULL) {
        psi_client_over(lane->client, PSD_ERR_NO_MEMORY, "no memory to tell of results");
        return false;
    }
    lane->got[lane->got_count++] = *result;
    return true;
}

void
psi_got(struct lane_link *lane, const struct psi_result *result)
{
    if (add(lane, result)) {
        lane->got_due = true;
        psi_lane_mark_busy(lane);
    }
}

void
psi_got_later(struct lane_link *lane, const struct psi_result *result)
{
    struct psi_client *client = lane->client;

    if (!add(lane, result) || lane->got_ns != 0) {
        return;
    }
    lane->got_ns = psi_now_ns(client->env) + GOT_WAITS_NS;
    client->got_waiting++;
    if (client->got_ns == 0) { /* else it is earlier: all wait for the same time */
        client->got_ns = lane->got_ns;
    }
}

void
psi_got_tick(struct psi_client *client, uint64_t now_ns)
{
    if (client->got_ns == 0 || now_ns < client->got_ns) {
        return;
    }
    client->got_ns = 0;
    for (uint32_t i = 0; i <= client->lane_count; i++) {
        struct lane_link *lane = client->lanes[i];

        if (lane->got_ns == 0) {
            continue;
        }
        if (now_ns >= lane->got_ns) {
            lane->got_due = true;
            psi_lane_mark_busy(lane);
        } else if (client->got_ns == 0 || lane->got_ns < client->got_ns) {
            client->got_ns = lane->got_ns;
        }
    }
}

void
psi_got_lost(struct lane_link *lane)
{
    wait_no_longer(lane);
    lane->got_count = 0;
    lane->got_due = false;
}

void
psi_got_send(struct lane_link *lane)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_GOT,
        .view = lane->client->view.id,
        .rank = (uint16_t)lane->client->job.rank,
        .incarnation = (uint16_t)lane->client->job.incarnation,
    };
    const struct psi_results results = {.count = lane->got_count, .result = lane->got};

    psi_got_lost(lane);
    if (lane->peer.state == PSI_PEER_UP &&
        psi_post_results(lane->peer.conn, &frame, &results) != PSD_OK) {
        psi_lane_break(lane, "send failed");
    }
}

void
psi_got_again(struct lane_link *lane)
{
    struct psi_client *client = lane->client;

    for (size_t i = 0; i < client->table_count; i++) {
        const struct psd_table *table = client->tables[i];

        for (uint32_t j = 0; table->results != NULL && j < table->flat.lane_counts[lane->index];
             j++) {
            const uint32_t chunk = table->flat.lane_chunks[lane->index][j];
            const uint64_t got = table->results[chunk].got;

            if (got > 0) {
                psi_got(lane, &(struct psi_result){table->id, chunk, got - 1});
            }
        }
    }
}

void
psi_got_forget(const struct lane_link *lane)
{
    const struct psi_client *client = lane->client;

    for (size_t i = 0; i < client->table_count; i++) {
        const struct psd_table *table = client->tables[i];

        for (uint32_t j = 0; table->results != NULL && j < table->flat.lane_counts[lane->index];
             j++) {
            struct result *result = &table->results[table->flat.lane_chunks[lane->index][j]];

            result->asked = 0;
            if (result->has != PSI_HAS_HELD) {
                result->got = 0;
            }
        }
    }
}

/* ---- GOT is asked for ---------------------------------------------------------------------- */

void
psi_got_look(const struct psd_op *op, uint32_t chunk)
{
    const struct psd_table *table = op->table;
    struct result *result = &table->results[chunk];

    if (result->asked > 0 && psi_result_is_here(table, chunk, result->asked - 1)) {
        struct lane_link *lane = table->client->lanes[table->flat.places[chunk]];

        result->got = result->asked;
        result->asked = 0;
        psi_got(lane, &(struct psi_result){table->id, chunk, result->got - 1});
    }
}

static psd_status
asked_one(struct lane_link *lane, const struct psi_result *asked, struct psd_error *err)
{
    const struct psd_table *table = psi_table_find(lane->client, asked->table);
    struct result *result;

    if (table == NULL || table->results == NULL || asked->chunk >= table->chunk_count ||
        table->flat.places[asked->chunk] != lane->index) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "GOT of chunk %u of table %u: not of this server",
                        asked->chunk, asked->table);
    }
    result = &table->results[asked->chunk];
    if (psi_result_is_here(table, asked->chunk, asked->step)) {
        result->got = asked->step + 1;
        psi_got(lane, asked);
    } else {
        result->asked = asked->step + 1;
    }
    return PSD_OK;
}

psd_status
psi_got_asked(struct lane_link *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    PSI_UNINITIALIZED struct psi_result list[PSI_RESULTS_MAX];
    struct psi_results results = {.result = list};
    psd_status status = psi_results_decode(payload, bytes, &results, err);

    for (uint32_t i = 0; status == PSD_OK && i < results.count; i++) {
        status = asked_one(lane, &list[i], err);
    }
    return status;
}

/* ---- RELEASE ------------------------------------------------------------------------------- */

static void
release(const struct psd_table *table, const struct psi_result *released)
{
    struct result *result = &table->results[released->chunk];
    struct psd_op *op = result->op;

    if (result->got == released->step + 1) {
        result->got = 0;
    }
    if (result->has == PSI_HAS_HELD && result->base == released->step) {
        result->base = released->step + 1;
        result->has = PSI_HAS_PASSED;
        result->op = NULL;
        psi_chunk_released(op, released->chunk);
    }
}

psd_status
psi_release_arrived(struct lane_link *lane, const void *payload, size_t bytes,
                    struct psd_error *err)
{
    PSI_UNINITIALIZED struct psi_result list[PSI_RESULTS_MAX];
    struct psi_results results = {.result = list};
    const struct psd_table *table = NULL;
    const psd_status status = psi_results_decode(payload, bytes, &results, err);

    for (uint32_t i = 0; status == PSD_OK && i < results.count; i++) {
        if (table == NULL || table->id != list[i].table) {
            table = psi_table_find(lane->client, list[i].table);
        }
        if (table == NULL || table->results == NULL || list[i].chunk >= table->chunk_count ||
            table->flat.places[list[i].chunk] != lane->index) {
            return psi_fail(err, PSD_ERR_PROTOCOL, "RELEASE of chunk %u of table %u: not held",
                            list[i].chunk, list[i].table);
        }
        release(table, &list[i]);
    }
    return status;
}
