/*
 * keep.c - results that are kept: this worker can show the last one of a chunk when its caller has
 * gone on.
 *
 * A server on this host lends its own memory. It writes there only when everybody, this worker too,
 * has given a gradient of the next step, and then nobody lacks this result. If the server dies, the
 * memory stays as long as the loan. What came as a copy is copied aside.
 *
 * What comes over a line into the table's view stays there until the next result comes, and that does
 * not come before everybody has this one either.
 *
 * Sums of rows come into memory of the library, whatever the way. The operation shares it with whoever
 * shows it: so of each place the last sum stays when the program has read it, and no other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "client/core/lane_parts.h"
#include "client/core/results.h"
#include "client/core/sparse_rows.h"
#include "client/core/sparse_sums.h"

psd_status
psi_results_create(struct psd_table *table)
{
    const struct psi_welcome *job = &table->client->job;

    if (!job->survives || !psi_spec_is_remade(&table->spec, job->policy == PSI_DEATH_WAIT)) {
        return PSD_OK;
    }
    table->results = calloc(table->chunk_count, sizeof(*table->results));
    if (table->results == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    for (uint64_t chunk = 0; chunk < table->chunk_count; chunk++) {
        /* There is nothing before the first step, which is as good as having it. */
        table->results[chunk].base = table->next_step[chunk];
        table->results[chunk].has = PSI_HAS_PASSED;
    }
    return PSD_OK;
}

static void
give_back(struct psi_client *client, struct result *result)
{
    if (result->loan != NULL) {
        result->loan->give_back(result->loan);
        result->loan = NULL;
    }
    if (result->rows != NULL) {
        client->kept_bytes -= psi_place_sum_bytes(result->rows);
        psi_place_sum_release(result->rows);
        result->rows = NULL;
    }
    result->data = NULL;
}

static uint64_t
chunk_bytes(const struct psd_table *table, uint64_t chunk)
{
    return psi_chunk_elements(table->spec.count, chunk) * table->element_bytes;
}

void
psi_results_destroy(struct psd_table *table)
{
    for (uint64_t chunk = 0; table->results != NULL && chunk < table->chunk_count; chunk++) {
        give_back(table->client, &table->results[chunk]);
        if (table->results[chunk].copy != NULL) {
            table->client->kept_bytes -= chunk_bytes(table, chunk);
            free(table->results[chunk].copy);
        }
    }
    free(table->results);
    table->results = NULL;
}

/* ---- a value comes ------------------------------------------------------------------------- */

/* Is it a result for a caller of ours? What is sent for this host comes into memory that keeps it
 * anyway; and what is only read belongs to no gradient. */
static bool
is_for_caller(const struct psd_op *op)
{
    return psi_op_is_push(op) && op->node.gathering == NULL;
}

/* Room for one value, before it is copied to where it belongs. */
static void *
bounce(struct lane_link *lane, size_t bytes)
{
    if (lane->bounce_bytes < bytes) {
        free(lane->bounce);
        lane->bounce = malloc(bytes);
        lane->bounce_bytes = lane->bounce != NULL ? bytes : 0;
    }
    return lane->bounce;
}

/* The next result comes over the last one, bit by bit: everybody has given to its round, so everybody
 * has that one. */
static void
overwrite(struct result *result, const void *into)
{
    if (result->has == PSI_HAS_KEPT && result->data == into) {
        result->has = PSI_HAS_PASSED;
        result->data = NULL;
    }
}

/* Over a line that may end halfway the result must not come into the gradient's place: the gradient
 * may be needed again. From a server of this host it comes at once. */
psd_status
psi_result_expect(struct lane_link *lane, struct request *request, struct psi_sink *sink_p)
{
    const struct psd_op *op = request->op;

    if (!is_for_caller(op) || op->transfer.rows != NULL) {
        return PSD_OK;
    }
    if (psi_result_is_viewed(lane, op)) {
        overwrite(&op->table->results[request->chunk], sink_p->into);
    } else if (lane->lends && sink_p->stays) {
        request->loan = sink_p->loan;
        sink_p->keep = true;
    } else if (!lane->lends && op->in_place) {
        lane->coming_to = sink_p->into;
        sink_p->apart = false; /* there is room for one */
        sink_p->into = bounce(lane, psi_transfer_bytes(op, request->chunk));
        return sink_p->into != NULL ? PSD_OK : PSD_ERR_NO_MEMORY;
    }
    return PSD_OK;
}

/* ---- it is here ---------------------------------------------------------------------------- */

static void
no_memory(struct psi_client *client)
{
    psi_client_over(client, PSD_ERR_NO_MEMORY,
                    "no memory to keep results for servers that are lost");
}

static bool
copy_aside(struct psi_client *client, struct result *result, const void *payload, size_t bytes)
{
    if (result->copy == NULL) {
        result->copy = malloc(bytes);
        client->kept_bytes += result->copy != NULL ? bytes : 0;
    }
    if (result->copy != NULL) {
        psi_client_copy(client, result->copy, payload, bytes);
    }
    return result->copy != NULL;
}

static void
keep_rows(const struct psd_op *op, uint32_t chunk)
{
    struct result *result = &op->table->results[chunk];

    result->rows = psi_sparse_sums_share(psi_sparse_rows_sums(op->transfer.rows), chunk);
    op->client->kept_bytes += psi_place_sum_bytes(result->rows);
}

/* The last result goes when this one is here. */
static bool
keep(const struct lane_link *lane, const struct psd_op *op, uint32_t chunk, struct psi_loan *loan,
     const void *payload)
{
    struct result *result = &op->table->results[chunk];

    give_back(op->client, result);
    result->base = op->transfer.step + 1;
    result->has = PSI_HAS_KEPT;
    result->loan = loan;
    result->data = payload;
    if (op->transfer.rows != NULL) {
        keep_rows(op, chunk);
    } else if (loan == NULL && !psi_result_is_viewed(lane, op)) {
        if (!copy_aside(op->client, result, payload, psi_transfer_bytes(op, chunk))) {
            return false;
        }
        result->data = result->copy;
    }
    return true;
}

/* Nobody else lacks it, or so the server thinks; and it is the caller's alone now. */
static void
let_go(const struct psd_op *op, uint32_t chunk)
{
    struct result *result = &op->table->results[chunk];

    give_back(op->client, result);
    result->has = PSI_HAS_NOTHING;
}

/* Is it the last that the operation waits for from there? */
static bool
is_last(const struct lane_link *lane, const struct psd_op *op)
{
    const struct part *part = psi_part_of(lane, op);

    return part->unanswered == 1 && !part->queued;
}

/* Some hold the result until everybody says that it is here. A worker that sends for its host, and gave its own
 * gradient apart, is awaited once for both: it says so when the result is here for both. */
static void
say_got(struct lane_link *lane, const struct psd_op *op, uint32_t chunk)
{
    const bool is_early =
        is_for_caller(op) && psi_gather_lacks(op->table, chunk, op->transfer.step);
    const bool held = (lane->peer.inbox.frame.flags & PSI_FLAG_HOLD) != 0 && !is_early;

    const struct psi_result result = {op->table->id, chunk, op->transfer.step};

    op->table->results[chunk].got = held ? op->transfer.step + 1 : 0;
    if (held && is_last(lane, op)) {
        psi_got(lane, &result);
    } else if (held) {
        psi_got_later(lane, &result);
    }
}

void
psi_result_arrived(struct lane_link *lane, struct request *request, const void *payload)
{
    const struct psi_frame *frame = &lane->peer.inbox.frame;
    struct psi_loan *loan = request->loan;
    struct psd_op *op = request->op;
    const uint32_t chunk = request->chunk;

    request->loan = NULL;
    if (lane->coming_to != NULL) {
        psi_client_copy(lane->client, lane->coming_to, payload, frame->payload_bytes);
        lane->coming_to = NULL;
    }
    if (psi_op_is_push(op)) {
        say_got(lane, op, chunk);
    }
    if (!is_for_caller(op)) {
        psi_request_answered(lane, request, PSD_OK, "", frame);
    } else if (psi_result_is_kept(lane, op)) {
        if (!keep(lane, op, chunk, loan, payload)) {
            no_memory(lane->client);
            return;
        }
        psi_request_answered(lane, request, PSD_OK, "", frame);
    } else if ((frame->flags & PSI_FLAG_HOLD) != 0) {
        let_go(op, chunk);
        psi_result_hold(op, chunk);
        psi_request_held(lane, request, frame);
    } else {
        let_go(op, chunk);
        psi_request_answered(lane, request, PSD_OK, "", frame);
    }
}

void
psi_result_is_own(const struct psd_op *op, uint32_t chunk, const void *value)
{
    struct result *result = &op->table->results[chunk];

    give_back(op->client, result);
    result->base = op->transfer.step + 1;
    result->has = PSI_HAS_KEPT;
    result->data = value;
}
