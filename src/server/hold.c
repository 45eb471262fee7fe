/*
 * hold.c - results that workers hold until everybody has them.
 *
 * When a server dies, the sum of a round that has closed is lost, and the gradients with it. So of
 * each round somebody must be able to show the result until everybody has it. A worker that keeps
 * what it was given can (PSI_FLAG_KEEPS). One that cannot keeps the caller waiting instead: it holds
 * the result, and is not through with its step until it hears RELEASE. Every worker that was sent a
 * result that others hold says GOT when it is there, and the last GOT releases those who hold it.
 *
 * One result of a chunk is held at a time: the next round closes with a gradient of everybody, and
 * whoever gives one has the result before it. That is also how a GOT that was lost with its
 * connection is made up for.
 *
 * Who keeps its results and leaves the job could show them no longer. So it says BYE to each lane
 * first: from then on it holds the last ones, as if it did not keep them, and everybody else is asked
 * to say GOT (GOT from a lane). When it holds none any more, it hears that it may go (BYE).
 *
 * RELEASE goes to a worker once per turn of the loop, for all results together; GOT likewise.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

/* ---- telling ------------------------------------------------------------------------------- */

static void
flush(struct session *session, uint8_t type, struct result_list *list)
{
    const struct psi_frame frame = {.type = type, .view = session->lane->view.id};
    const struct psi_results results = {.count = list->count, .result = list->result};

    if (results.count > 0 && psi_post_results(session->guest.conn, &frame, &results) != PSD_OK) {
        psi_guest_doom(&session->guest); /* it says GOT again when it is back, or is asked again */
    }
    list->count = 0;
}

void
hold_flush(struct lane *lane)
{
    lane->results_due = false;
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        struct session *session = lane->sessions[rank];

        if (session != NULL) {
            flush(session, PSI_FRAME_RELEASE, &session->releases);
            psi_fail_point(server_hold_told);
            flush(session, PSI_FRAME_GOT, &session->asks);
        }
    }
}

static void
tell(struct session *session, uint8_t type, struct result_list *list,
     const struct psi_result *result)
{
    if (list->result == NULL) {
        list->result = malloc(PSI_RESULTS_MAX * sizeof(*list->result));
    }
    if (list->result == NULL) {
        psi_guest_doom(&session->guest);
        return;
    }
    list->result[list->count++] = *result;
    session->lane->results_due = true;
    if (list->count == PSI_RESULTS_MAX) {
        flush(session, type, list);
    }
}

/* Everybody has the result: the rank need not hold it any longer. */
void
hold_release(struct lane *lane, const struct chunk *chunk, uint32_t rank, uint64_t step)
{
    struct session *session = lane->sessions[rank];
    const struct psi_result result = {chunk->table->id, chunk->index, step};

    if (session != NULL) { /* else it says GOT again when it is back */
        tell(session, PSI_FRAME_RELEASE, &session->releases, &result);
    }
}

/* Has the rank got what is held? It says so as soon as it has. */
static void
ask(struct lane *lane, const struct chunk *chunk, uint32_t rank)
{
    struct session *session = lane->sessions[rank];
    const struct psi_result result = {chunk->table->id, chunk->index, chunk->held->step};

    if (session != NULL) { /* else it is asked when it is back */
        tell(session, PSI_FRAME_GOT, &session->asks, &result);
    }
}

static void
release_holders(struct lane *lane, struct chunk *chunk)
{
    const struct held_result *held = chunk->held;

    psi_fail_point(server_hold_released);
    chunk->held = NULL;
    lane->leavers_due = true;
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        if (psi_ranks_has(&held->holders, rank)) {
            hold_release(lane, chunk, rank, held->step);
        }
    }
}

static void
release_if_all_have_it(struct lane *lane, struct chunk *chunk)
{
    if (psi_ranks_count(&chunk->held->awaited) == 0) {
        release_holders(lane, chunk);
    }
}

/* The worker's answer to a push says whether others hold the result. Of a sum of rows it may come in parts, of
 * which those behind the first are asked for one by one. */
uint16_t
hold_flag(const struct chunk *chunk, const struct parked *parked)
{
    const bool wants_value = psi_frame_wants_value(parked->type);
    const bool is_answer =
        wants_value && psi_frame_has_gradient(parked->type) && parked->step == chunk->held->step;
    const bool is_rest =
        parked->type == PSI_FRAME_SPARSE_PULL && parked->step == chunk->held->step + 1;

    return is_answer || is_rest ? PSI_FLAG_HOLD : 0;
}

/* ---- rounds -------------------------------------------------------------------------------- */

/* Does the sender wait for the result of that step, and cannot keep it? */
static bool
will_hold(const struct parked *parked, uint64_t step)
{
    return parked->type == PSI_FRAME_PUSH_PULL && parked->step == step &&
           (parked->flags & PSI_FLAG_KEEPS) == 0;
}

/* One that gave to the round through another of its host, and was cut off from it, has come by itself:
 * nobody keeps for it what it is sent. */
static bool
has_late_holders(const struct chunk *chunk, uint64_t step)
{
    for (const struct parked *parked = chunk->parked; parked != NULL; parked = parked->next) {
        if (will_hold(parked, step)) {
            return true;
        }
    }
    return false;
}

static void
add_late_holders(const struct lane *lane, const struct chunk *chunk, struct held_result *held)
{
    for (const struct parked *parked = chunk->parked; parked != NULL; parked = parked->next) {
        if (will_hold(parked, held->step) && lane->view.worker[parked->sender].member) {
            psi_ranks_add(&held->awaited, parked->sender);
            psi_ranks_add(&held->holders, parked->sender);
        }
    }
}

/* A round has closed: its gradients are still here, nobody was answered yet. */
void
hold_round(struct lane *lane, struct chunk *chunk, const struct closed_round *round)
{
    struct held_result *held = &chunk->table->held[chunk->place];

    if (chunk->held != NULL) {
        release_holders(lane, chunk); /* all have given to this round: they have that result */
    }
    if (!round->has_holders && !has_late_holders(chunk, round->step)) {
        return;
    }
    *held = (struct held_result){.step = round->step};
    for (const struct slot *slot = chunk->round.slots; slot != NULL; slot = slot->next) {
        if (slot->wants_value && lane->view.worker[slot->sender].member) {
            psi_ranks_add(&held->awaited, slot->sender);
            if (slot->holds) {
                psi_ranks_add(&held->holders, slot->sender);
            }
        }
    }
    add_late_holders(lane, chunk, held);
    chunk->held = held;
    psi_fail_point(server_hold_begun);
    release_if_all_have_it(lane, chunk); /* those who would hold it have left */
}

/* The same for the result of a round that closed in an earlier life of the server. */
void
hold_adopted(struct chunk *chunk, uint64_t step, const struct psi_ranks *awaited,
             const struct psi_ranks *holders)
{
    struct held_result *held = &chunk->table->held[chunk->place];

    *held = (struct held_result){.step = step, .awaited = *awaited, .holders = *holders};
    chunk->held = held;
}

/* Ranks of the node that the session's current frame is about: not awaited themselves. */
static void
await_no_node(const struct session *session, struct held_result *held)
{
    const uint32_t first = push_rank(session);
    const uint32_t end = psi_node_end(first, session->guest.inbox.frame.level, session->lane->rows);

    for (uint32_t rank = first; rank < end; rank++) {
        psi_ranks_remove(&held->awaited, rank);
    }
}

/* A push came again, its round is over, and it is about to be answered with the result. Who is
 * answered is awaited: of an adopted chunk only now it is known who speaks for whom. */
void
hold_repeated(const struct session *session, struct chunk *chunk)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    struct held_result *held = chunk->held;

    if (frame->step != held->step) {
        return;
    }
    await_no_node(session, held);
    if (psi_frame_wants_value(frame->type)) {
        psi_ranks_add(&held->awaited, session->rank);
        if ((frame->flags & PSI_FLAG_KEEPS) == 0) {
            psi_ranks_add(&held->holders, session->rank);
        }
    }
    release_if_all_have_it(session->lane, chunk);
}

/* The rank holds the last result, whether it keeps it or not. Who has given to the next round has
 * it. Who speaks for others does not speak for them here: it may be the one that leaves. */
static void
hold_last(struct lane *lane, struct chunk *chunk, uint32_t rank)
{
    const uint64_t version = chunk->clock.version;

    if (chunk->adopting != NULL || version == chunk->table->first_step) {
        return; /* it has to be opened first; or nobody has been given anything */
    }
    if (chunk->held == NULL) {
        chunk->held = &chunk->table->held[chunk->place];
        *chunk->held = (struct held_result){.step = version - 1};
    }
    chunk->held->is_asked_for = true;
    psi_ranks_add(&chunk->held->holders, rank);
    for (uint32_t other = 0; other < lane->rows; other++) {
        if (other != rank && lane->view.worker[other].member &&
            chunk->table->members.joined_at[other] < version &&
            chunk->clock.next[other] <= version) {
            psi_ranks_add(&chunk->held->awaited, other);
            ask(lane, chunk, other);
        }
    }
    release_if_all_have_it(lane, chunk);
}

/* The same when nobody holds the result, because all who gave to the round keep it. */
void
hold_repeated_alone(const struct session *session, struct chunk *chunk)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;

    if (psi_frame_wants_value(frame->type) && (frame->flags & PSI_FLAG_KEEPS) == 0 &&
        frame->step + 1 == chunk->clock.version) {
        hold_last(session->lane, chunk, session->rank);
    }
}

/* The session's current frame is a gradient of the next round: its sender has the result. */
void
hold_passed(const struct session *session, struct chunk *chunk)
{
    await_no_node(session, chunk->held);
    psi_ranks_remove(&chunk->held->awaited, session->rank);
    release_if_all_have_it(session->lane, chunk);
}

/* The rank has the result of every step below `base`, which may be the one that is held. */
void
hold_at_base(struct lane *lane, struct chunk *chunk, uint32_t rank, uint64_t base)
{
    if (chunk->held != NULL && chunk->held->step < base) {
        psi_ranks_remove(&chunk->held->awaited, rank);
        release_if_all_have_it(lane, chunk);
    }
}

void
hold_got(struct lane *lane, struct chunk *chunk, uint32_t rank, uint64_t step)
{
    struct held_result *held = chunk->held;

    if (held == NULL || held->step != step) {
        hold_release(lane, chunk, rank, step); /* it has missed that it was released */
        return;
    }
    if (!psi_ranks_has(&held->awaited, rank)) {
        psi_ranks_add(&held->holders, rank); /* it waits, whatever we know of it */
        return;
    }
    psi_fail_point(server_hold_got);
    psi_ranks_remove(&held->awaited, rank);
    release_if_all_have_it(lane, chunk);
}

void
hold_rank_left(struct lane *lane, uint32_t rank)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->held != NULL && i < table->chunk_count; i++) {
            struct chunk *chunk = &table->chunks[i];

            if (chunk->held != NULL) {
                psi_ranks_remove(&chunk->held->awaited, rank);
                psi_ranks_remove(&chunk->held->holders, rank);
                release_if_all_have_it(lane, chunk);
            }
        }
    }
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* The chunk has just been opened by what workers have told. */
void
hold_opened(struct lane *lane, struct chunk *chunk)
{
    lane->leavers_due = true;
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        if (lane->sessions[rank] != NULL && lane->sessions[rank]->leaves) {
            hold_last(lane, chunk, rank);
        }
    }
}

psd_status
bye_arrived(struct session *session, struct psd_error *err)
{
    struct lane *lane = session->lane;

    if (!lane->job.survives) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "BYE to a server: its results outlive nobody");
    }
    session->leaves = true;
    lane->leavers_due = true;
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->held != NULL && i < table->chunk_count; i++) {
            hold_last(lane, &table->chunks[i], session->rank);
        }
    }
    return PSD_OK;
}

static bool
holds_something(const struct lane *lane, uint32_t rank)
{
    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->held != NULL && i < table->chunk_count; i++) {
            const struct chunk *chunk = &table->chunks[i];

            if (chunk->adopting != NULL ||
                (chunk->held != NULL && psi_ranks_has(&chunk->held->holders, rank))) {
                return true;
            }
        }
    }
    return false;
}

/* Lets those go who hold nothing any more. */
void
hold_let_go(struct lane *lane)
{
    const struct psi_frame frame = {.type = PSI_FRAME_BYE, .view = lane->view.id};

    lane->leavers_due = false;
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        struct session *session = lane->sessions[rank];

        if (session != NULL && session->leaves && !holds_something(lane, rank)) {
            session->leaves = false;
            if (psi_post(session->guest.conn, &frame) != PSD_OK) {
                psi_guest_doom(&session->guest); /* it says BYE again when it is back */
            }
        }
    }
}

/* The worker is here again: what it was asked may have been lost. */
void
hold_ask_again(struct lane *lane, uint32_t rank)
{
    if (!lane->job.survives) {
        return;
    }
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->held != NULL && i < table->chunk_count; i++) {
            const struct chunk *chunk = &table->chunks[i];

            if (chunk->held != NULL && chunk->held->is_asked_for &&
                psi_ranks_has(&chunk->held->awaited, rank)) {
                ask(lane, chunk, rank);
            }
        }
    }
}

/* ---- GOT ----------------------------------------------------------------------------------- */

static psd_status
got_one(struct session *session, const struct psi_result *result, struct psd_error *err)
{
    const struct table *table = table_find(session->lane, result->table);
    struct chunk *chunk = table == NULL ? NULL : table_chunk(table, result->chunk);

    if (chunk == NULL || table->held == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "GOT: no chunk %u of table %u here whose results are held", result->chunk,
                        result->table);
    }
    if (chunk->adopting != NULL) {
        return PSD_OK; /* its ADOPT says so, too */
    }
    if (result->step >= chunk->clock.committed) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "GOT: the result of step %llu of table %s chunk %u, but step %llu is open",
                        (unsigned long long)result->step, table->spec.name, chunk->index,
                        (unsigned long long)chunk->clock.committed);
    }
    hold_got(session->lane, chunk, session->rank, result->step);
    return PSD_OK;
}

psd_status
got_arrived(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_results results = {.result = session->lane->scratch};
    psd_status status = psi_results_decode(payload, bytes, &results, err);

    for (uint32_t i = 0; i < results.count && status == PSD_OK; i++) {
        status = got_one(session, &results.result[i], err);
    }
    return status;
}

/* ---- words --------------------------------------------------------------------------------- */

/* "worker 1, worker 4": the first few of them. */
void
name_workers(const struct psi_ranks *ranks, char *text, size_t size)
{
    unsigned named = 0;
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t rank = 0; rank < PSI_RANKS_MAX && used + 24 < size; rank++) {
        if (psi_ranks_has(ranks, rank)) {
            used += (size_t)snprintf(text + used, size - used, "%sworker %u",
                                     named++ > 0 ? ", " : "", rank);
        }
    }
}

/* False: a read of that step waits for something else. */
bool
hold_describe(const struct chunk *chunk, uint64_t step, char *text, size_t size)
{
    char names[PSI_TEXT_MAX / 2];

    if (step != chunk->held->step + 1) {
        return false;
    }
    name_workers(&chunk->held->awaited, names, sizeof(names));
    snprintf(text, size, "table %s step %llu: its result is held until it has come to %s",
             chunk->table->spec.name, (unsigned long long)chunk->held->step, names);
    return true;
}
