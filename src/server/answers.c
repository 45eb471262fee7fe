/*
 * answers.c - what a request is answered with, if it can be by now: a value, or word of its end.
 *
 * A value is sent from where it lies: the reply borrows the chunk's memory (a pin). When that
 * memory is about to change, what is still unsent of it is copied first, so nobody sees half of two
 * versions.
 *
 * Nobody is told of what is not committed: every answer goes by clock.committed, not by the version
 * that the chunk has already reached. What cannot be answered yet waits in parked.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

void
answer_status(struct lane *lane, uint32_t rank, uint32_t request, const struct chunk *chunk,
              psd_status status, const char *text)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_ACK,
        .view = lane->view.id,
        .request = request,
        .table = chunk->table->id,
        .chunk = chunk->index,
        .step = chunk->clock.committed,
        .status = (int16_t)status,
    };

    const struct psi_payload yes = {.patient = true};
    struct session *session = lane->sessions[rank];
    psd_status sent;

    if (session == NULL) {
        return; /* it will ask again when it is back */
    }
    sent = status == PSD_OK ? psi_post_payload(session->guest.conn, &frame, NULL, &yes)
                            : psi_post_error(session->guest.conn, &frame, status, 0, text);
    if (sent != PSD_OK) {
        psi_guest_doom(&session->guest);
    }
}

void
answer_too_early(struct lane *lane, uint32_t rank, uint32_t request, const struct chunk *chunk,
                 uint64_t step)
{
    char text[PSI_TEXT_MAX];

    snprintf(text, sizeof(text), "table %s chunk %u: gradient of step %llu, but step %llu is open",
             chunk->table->spec.name, chunk->index, (unsigned long long)step,
             (unsigned long long)chunk->clock.version);
    answer_status(lane, rank, request, chunk, PSD_ERR_STEP, text);
}

static void
unpin(void *owner, uint64_t buffer)
{
    struct chunk *chunk = owner;

    psi_assert(chunk->pins[buffer] > 0);
    chunk->pins[buffer]--;
}

/*
 * May a worker on this host read the value where it is? It has read the answer to its push_pull
 * before it pushes the next step, and without that push this value does not change. One that lost
 * its place in the job may see it change: it is told so at its next call.
 */
static bool
stays_until_read(const struct session *session, const struct chunk *chunk,
                 const struct parked *parked)
{
    return session->guest.conn->lends && parked->type == PSI_FRAME_PUSH_PULL &&
           parked->rank == parked->sender && psi_spec_synchronous(&chunk->table->spec) &&
           chunk->table->rule.backup == 0;
}

static void
free_copy(void *owner, uint64_t cookie)
{
    (void)cookie;
    free(owner);
}

static struct store_piece
value_in(const struct chunk *chunk, uint32_t buffer)
{
    const struct store *store = chunk->table->store;

    return store->ops->read(store, chunk->place, buffer);
}

/* A copy of all parts, one after the other, as they are at this moment. NULL: no memory. */
static uint8_t *
copy_all_parts(struct lane *lane, const struct chunk *chunk, size_t *bytes_p)
{
    uint8_t *copy;
    uint8_t *at;

    *bytes_p = 0;
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        *bytes_p += chunk_part(chunk, part).bytes;
    }
    copy = malloc(*bytes_p);
    at = copy;
    for (unsigned part = 0; copy != NULL && part < PSI_PARTS_MAX; part++) {
        const struct store_piece piece = chunk_part(chunk, part);

        if (piece.bytes > 0) {
            timed_copy(lane, at, piece.base, piece.bytes);
            at += piece.bytes;
        }
    }
    return copy;
}

struct psi_frame
value_frame(const struct lane *lane, const struct chunk *chunk, const struct parked *parked)
{
    return (struct psi_frame){
        .type = PSI_FRAME_VALUE,
        .flags = chunk->held == NULL ? 0 : hold_flag(chunk, parked),
        .view = lane->view.id,
        .request = parked->request,
        .table = chunk->table->id,
        .chunk = chunk->index,
        .step = chunk->clock.committed,
        .seq = chunk->updates,
    };
}

/* For a save: value and optimizer state of one and the same update. */
static void
answer_all_parts(struct lane *lane, const struct chunk *chunk, const struct parked *parked)
{
    struct session *session = lane->sessions[parked->sender];
    const struct psi_frame frame = value_frame(lane, chunk, parked);
    struct psi_payload payload = {
        .checksum = lane->config.checksum, .patient = true, .release = free_copy};

    if (session == NULL) {
        return;
    }
    payload.owner = copy_all_parts(lane, chunk, &payload.bytes);
    payload.base = payload.owner;
    if (payload.owner == NULL ||
        psi_post_payload(session->guest.conn, &frame, NULL, &payload) != PSD_OK) {
        free(payload.owner);
        psi_guest_doom(&session->guest);
    }
}

/* Sends the value: it is borrowed, not copied. */
static void
answer_value(struct lane *lane, struct chunk *chunk, const struct parked *parked, uint32_t buffer)
{
    const struct store_piece value = value_in(chunk, buffer);
    struct session *session = lane->sessions[parked->sender];
    struct psi_frame frame = value_frame(lane, chunk, parked);
    struct psi_payload payload = {
        .base = value.base,
        .bytes = value.bytes,
        .checksum = lane->config.checksum,
        .patient = true,
        .release = unpin,
        .owner = chunk,
        .cookie = buffer,
    };

    if (session == NULL) {
        return;
    }
    frame.dtype = (uint8_t)chunk->table->spec.dtype;
    payload.stable = stays_until_read(session, chunk, parked);
    chunk->pins[buffer]++;
    if (psi_post_payload(session->guest.conn, &frame, NULL, &payload) != PSD_OK) {
        chunk->pins[buffer]--;
        psi_guest_doom(&session->guest);
        return;
    }
    psi_metric_add(lane->metrics, PSI_METRIC_VALUES_OUT, 1);
    psi_metric_add(lane->metrics, PSI_METRIC_VALUE_BYTES_OUT, payload.bytes);
}

void
value_about_to_change(struct lane *lane, struct chunk *chunk, uint32_t buffer)
{
    for (uint32_t rank = 0; rank < lane->rows && chunk->pins[buffer] > 0; rank++) {
        struct psi_conn *conn =
            lane->sessions[rank] == NULL ? NULL : lane->sessions[rank]->guest.conn;

        if (conn != NULL) {
            const struct store_piece value = value_in(chunk, buffer);

            (void)conn->ops->unshare(conn, value.base, value.bytes);
        }
    }
    psi_assert(chunk->pins[buffer] == 0);
}

/* Is the push part of a parked request over, and how? PSD_PENDING: not yet. */
static psd_status
push_outcome(const struct chunk *chunk, const struct parked *parked)
{
    if (!psi_spec_synchronous(&chunk->table->spec)) {
        return chunk->clock.committed >= parked->after ? PSD_OK : PSD_PENDING;
    }
    if (chunk->clock.committed <= parked->step) {
        return PSD_PENDING;
    }
    return chunk->clock.next[parked->rank] > parked->step &&
                   parked->step >= chunk->table->members.joined_at[parked->rank]
               ? PSD_OK
               : PSD_ERR_DROPPED;
}

enum { NOT_YET = -1, GONE = -2 };

/* Where a version lies. A save takes values and optimizer state of one version, and the state has
 * no older one. */
static int
buffer_of(const struct chunk *chunk, const struct parked *parked, uint64_t version)
{
    if (version == chunk->clock.version) {
        return (int)chunk->current;
    }
    return chunk->table->retain && version + 1 == chunk->clock.version &&
                   parked->type != PSI_FRAME_STATE_PULL
               ? (int)(1 - chunk->current)
               : GONE;
}

/* Stale-synchronous: one is about to join, and may have to be waited for. */
static bool
is_beyond_promise(const struct table *table, uint64_t step)
{
    return table->promised != PSI_STEP_NEVER && !psi_spec_synchronous(&table->spec) &&
           table->spec.staleness != PSD_STALENESS_UNBOUNDED &&
           step > table->promised + table->spec.staleness;
}

/* Which buffer answers a read. */
static int
readable_buffer(const struct chunk *chunk, const struct parked *parked, uint64_t step)
{
    const struct table *table = chunk->table;
    const bool synchronous = psi_spec_synchronous(&table->spec);
    const bool exact = (parked->flags & PSI_FLAG_EXACT) != 0;
    const uint64_t committed = chunk->clock.committed;
    int buffer;

    if (!chunk->ready || chunk->copy.load != 0 ||
        !psi_clock_may_read(&table->rule, &table->members, &chunk->clock, step) ||
        is_beyond_promise(table, step)) {
        return NOT_YET;
    }
    if (!synchronous && committed < parked->after) {
        return NOT_YET;
    }
    if (!synchronous && !exact) {
        return (int)chunk->current; /* later changes may show: to wait for all would never end */
    }
    if (exact && step != committed) {
        return buffer_of(chunk, parked, step);
    }
    buffer = buffer_of(chunk, parked, committed);
    return buffer == GONE ? NOT_YET : buffer; /* overwritten by one that is not committed yet */
}

/* Nobody is shown what is not there. */
static void
answer_blank(struct lane *lane, const struct chunk *chunk, const struct parked *parked)
{
    const char *name = chunk->table->spec.name;
    char text[PSI_TEXT_MAX];

    if (chunk->clock.version == chunk->table->first_step) {
        snprintf(text, sizeof(text),
                 "table %s: the values that worker 0 gave it were lost with an earlier life of "
                 "server %u",
                 name, lane->config.server);
    } else {
        snprintf(text, sizeof(text),
                 "table %s: the sum of step %llu was lost with an earlier life of server %u, after "
                 "every worker had been given it; psd_push_pull brings each sum with its push",
                 name, (unsigned long long)(chunk->clock.version - 1), lane->config.server);
    }
    answer_status(lane, parked->sender, parked->request, chunk, PSD_ERR_STATE, text);
}

static bool
read_answered(struct lane *lane, struct chunk *chunk, const struct parked *parked, uint64_t step)
{
    const int buffer = readable_buffer(chunk, parked, step);

    if (buffer == NOT_YET) {
        return false;
    }
    if (parked->type == PSI_FRAME_PULL && (parked->flags & PSI_FLAG_EMPTY) != 0) {
        answer_status(lane, parked->sender, parked->request, chunk, PSD_OK, "");
        return true;
    }
    if (buffer == GONE) {
        char text[PSI_TEXT_MAX];

        snprintf(text, sizeof(text), "table %s: version %llu is gone, the current one is %llu",
                 chunk->table->spec.name, (unsigned long long)step,
                 (unsigned long long)chunk->clock.committed);
        answer_status(lane, parked->sender, parked->request, chunk, PSD_ERR_STEP, text);
        return true;
    }
    if (chunk->blank) {
        answer_blank(lane, chunk, parked);
        return true;
    }
    if (parked->type == PSI_FRAME_STATE_PULL) {
        answer_all_parts(lane, chunk, parked);
    } else if (psi_frame_is_sparse(parked->type)) {
        rows_answer(lane, chunk, parked, (uint32_t)buffer);
    } else {
        answer_value(lane, chunk, parked, (uint32_t)buffer);
    }
    return true;
}

/* A gradient that was not kept is wanted after all: its sender still has it. */
void
ask_again(struct lane *lane, const struct chunk *chunk, const struct parked *push)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_RESEND,
        .view = lane->view.id,
        .table = chunk->table->id,
        .chunk = chunk->index,
        .step = push->step,
        .rank = (uint16_t)push->rank,
    };

    if (lane->sessions[push->sender] != NULL) {
        (void)psi_post(lane->sessions[push->sender]->guest.conn, &frame);
    }
}

/* A push that came before its round: when that is open it is asked for again, which is no answer.
 * Without backup workers only a chunk that was being adopted has such pushes, and no reason to wait
 * for another round; and a worker that has joined, which waits until the others are at its first step. */
static bool
early_is_over(struct lane *lane, const struct chunk *chunk, const struct parked *parked)
{
    if (chunk->adopting != NULL) {
        return false;
    }
    if (chunk->clock.version >= parked->step) {
        ask_again(lane, chunk, parked);
        return true;
    }
    if (chunk->table->rule.backup == 0 &&
        parked->step != chunk->table->members.joined_at[parked->rank]) {
        answer_too_early(lane, parked->sender, parked->request, chunk, parked->step);
        return true;
    }
    return false;
}

bool
request_answered(struct lane *lane, struct chunk *chunk, const struct parked *parked)
{
    psd_status outcome;

    if (parked->early) {
        return early_is_over(lane, chunk, parked);
    }
    if (psi_frame_only_reads(parked->type) || parked->type == PSI_FRAME_STATE_PULL) {
        return read_answered(lane, chunk, parked, parked->step);
    }
    if (!psi_frame_has_gradient(parked->type)) { /* a load, of which the copy may not know yet */
        if (chunk->copy.load == 0) {
            answer_status(lane, parked->sender, parked->request, chunk, PSD_OK, "");
        }
        return chunk->copy.load == 0;
    }
    outcome = push_outcome(chunk, parked);
    if (outcome == PSD_PENDING) {
        return false;
    }
    if (outcome != PSD_OK) {
        answer_status(lane, parked->sender, parked->request, chunk, outcome,
                      "the round closed with the gradients of other workers");
        return true;
    }
    if (psi_frame_wants_value(parked->type)) {
        return read_answered(lane, chunk, parked, parked->step + 1);
    }
    answer_status(lane, parked->sender, parked->request, chunk, PSD_OK, "");
    return true;
}
