/*
 * api_state.c - other workers' state, for replacements in sum jobs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/fail.h"
#include "client/api/api.h"

/* What every version of struct psd_state has: not its size, which grows. */
enum { STATE_LEAST = offsetof(struct psd_state, bytes) + sizeof(size_t) };

/* An array of the caller's, of elements as its version of the header has them. To be freed. */
static psd_status
copy_states(const struct psd_state *given, size_t state_bytes, size_t count,
            struct psd_state **states_p, struct psd_error *err)
{
    struct psd_state *states;
    psd_status status =
        psi_args_check_size(state_bytes, STATE_LEAST, sizeof(*states), "psd_state", err);

    if (status != PSD_OK) {
        return status; /* without any entry, too: the next call may have some */
    }
    states = calloc(count > 0 ? count : 1, sizeof(*states));
    if (states == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "state: no memory for %zu entries", count);
    }
    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        status = psi_args_copy_sized(&states[i], sizeof(states[i]),
                                     (const uint8_t *)given + i * state_bytes, state_bytes,
                                     STATE_LEAST, "psd_state", err);
    }
    if (status != PSD_OK) {
        free(states);
        return status;
    }
    *states_p = states;
    return PSD_OK;
}

psd_status
psd_state_publish(psd_context *context, uint64_t step, const struct psd_state *given,
                  size_t state_bytes, size_t count)
{
    struct psd_error *err = psi_error();
    struct psd_state *states = NULL;
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && given == NULL && count > 0) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_state_publish: states is NULL");
    }
    if (status == PSD_OK) {
        status = copy_states(given, state_bytes, count, &states, err);
    }
    if (status == PSD_OK) {
        psi_context_lock(context);
        status = psi_client_publish(context->client, step, states, count, err);
        psi_context_settle_locked(context);
        pthread_mutex_unlock(&context->lock);
    }
    free(states);
    return status;
}

enum { PIECE_BYTES = 256 << 10 };

static psd_status
fetch_from(psd_context *context, uint32_t rank, uint64_t step, const struct psd_state *state,
           struct psd_error *err)
{
    struct psi_share share = {.from = rank, .step = step, .total = state->bytes};
    psd_status status = PSD_OK;
    psd_op *op;

    if (state->name == NULL || strlen(state->name) >= sizeof(share.name)) {
        return psi_fail(err, PSD_ERR_INVALID, "fetch state: no usable name");
    }
    strcpy(share.name, state->name);
    while (share.offset < state->bytes && status == PSD_OK) {
        const uint64_t left = state->bytes - share.offset;

        share.bytes = left < PIECE_BYTES ? (uint32_t)left : PIECE_BYTES;
        psi_context_lock(context);
        status = psi_client_share_pull(context->client, &share,
                                       (uint8_t *)state->data + share.offset, &op, err);
        if (status == PSD_OK) {
            status = psi_context_finish_locked(context, op, NULL, err);
        }
        pthread_mutex_unlock(&context->lock);
        share.offset += share.bytes;
    }
    if (status == PSD_ERR_TIMEOUT) {
        const struct psd_error reason = *err;

        psi_fail(err, status, "worker %u, state %s of step %llu: %.300s", rank, state->name,
                 (unsigned long long)step, reason.text);
    }
    return status;
}

/* The next live worker after `after` that could be asked; UINT32_MAX: none. */
static uint32_t
next_live(psd_context *context, uint32_t after)
{
    const struct psi_client *client = context->client;
    uint32_t rank;

    psi_context_lock(context);
    for (rank = after + 1; rank < client->job.workers; rank++) {
        if (rank != client->job.rank && client->view.worker[rank].member) {
            break;
        }
    }
    pthread_mutex_unlock(&context->lock);
    return rank < client->job.workers ? rank : UINT32_MAX;
}

static bool
is_over(psd_context *context)
{
    bool over;

    psi_context_lock(context);
    over = psi_client_state(context->client) == PSI_CLIENT_OVER;
    pthread_mutex_unlock(&context->lock);
    return over;
}

/* Asks one worker after the other. PSD_ERR_BUSY: one of them may still come to that step. */
static psd_status
fetch_from_anybody(psd_context *context, uint64_t step, const struct psd_state *states,
                   size_t count, struct psd_error *err)
{
    psd_status verdict = psi_fail(err, PSD_ERR_PEER_LOST, "fetch state: no other worker is alive");
    uint32_t rank;

    for (rank = next_live(context, UINT32_MAX); rank != UINT32_MAX;
         rank = next_live(context, rank)) {
        psd_status status = PSD_OK;

        for (size_t i = 0; i < count && status == PSD_OK; i++) {
            status = fetch_from(context, rank, step, &states[i], err);
        }
        if ((status != PSD_ERR_PEER_LOST && status != PSD_ERR_BUSY) || is_over(context)) {
            return status;
        }
        verdict = verdict == PSD_ERR_BUSY ? verdict : status;
    }
    return verdict;
}

static uint32_t
timeout_of(psd_context *context, uint64_t step)
{
    uint32_t timeout_ms;

    pthread_mutex_lock(&context->lock);
    timeout_ms = psi_client_timeout_ms(context->client, step);
    pthread_mutex_unlock(&context->lock);
    return timeout_ms;
}

/* Until somebody has come to that step, or the time of an operation is over. */
static psd_status
fetch_in_time(psd_context *context, uint64_t step, const struct psd_state *states, size_t count,
              struct psd_error *err)
{
    const uint32_t timeout_ms = timeout_of(context, step);
    const uint64_t until_ns = psi_context_deadline_ns(context, timeout_ms);
    psd_status status;

    do {
        status = fetch_from_anybody(context, step, states, count, err);
    } while (status == PSD_ERR_BUSY && psi_now_ns(psi_loop_env(context->loop)) < until_ns &&
             !is_over(context));
    if (status == PSD_ERR_BUSY) {
        const struct psd_error reason = *err;

        status = psi_fail(err, PSD_ERR_TIMEOUT, "fetch state: tried for %u ms; %.300s", timeout_ms,
                          reason.text);
    }
    return status;
}

psd_status
psd_state_fetch(psd_context *context, uint64_t step, const struct psd_state *given,
                size_t state_bytes, size_t count)
{
    struct psd_error *err = psi_error();
    struct psd_state *states;
    psd_status status = psi_context_check(context, err);

    if (status == PSD_OK && given == NULL) {
        status = psi_fail(err, PSD_ERR_INVALID, "psd_state_fetch: states is NULL");
    }
    if (status == PSD_OK) {
        status = copy_states(given, state_bytes, count, &states, err);
    }
    if (status == PSD_OK) {
        status = fetch_in_time(context, step, states, count, err);
        free(states);
    }
    return status;
}
