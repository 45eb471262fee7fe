/*
 * answers.c - answers: values, acknowledgements, and what cannot be answered yet.
 *
 * A value is sent from where it lies: the reply borrows the chunk's memory (a pin). When that
 * memory is about to change, what is still unsent of it is copied first, so nobody sees half of two
 * versions.
 *
 * Nobody is told of what is not committed: every answer goes by clock.committed, not by the version
 * that the chunk has already reached.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

enum {
    READS_PARKED_MAX = 256,  /* of one worker, on one chunk */
    PUSHES_PARKED_MAX = 256, /* ... of one gradient: one of them waits, the others gave up */
};

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
part_of(const struct chunk *chunk, unsigned part)
{
    const struct store *store = chunk->table->store;

    return store->ops->part(store, chunk->place, part, chunk->current);
}

static struct store_piece
value_in(const struct chunk *chunk, uint32_t buffer)
{
    const struct store *store = chunk->table->store;

    return store->ops->read(store, chunk->place, buffer);
}

/* A copy of all parts, one after the other, as they are at this moment. NULL: no memory. */
static uint8_t *
copy_all_parts(const struct chunk *chunk, size_t *bytes_p)
{
    uint8_t *copy;
    uint8_t *at;

    *bytes_p = 0;
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        *bytes_p += part_of(chunk, part).bytes;
    }
    copy = malloc(*bytes_p);
    at = copy;
    for (unsigned part = 0; copy != NULL && part < PSI_PARTS_MAX; part++) {
        const struct store_piece piece = part_of(chunk, part);

        if (piece.bytes > 0) {
            memcpy(at, piece.base, piece.bytes);
            at += piece.bytes;
        }
    }
    return copy;
}

static struct psi_frame
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
    payload.owner = copy_all_parts(chunk, &payload.bytes);
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
    return chunk->clock.next[parked->rank] > parked->step ? PSD_OK : PSD_ERR_DROPPED;
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

/* Which buffer answers a read. */
static int
readable_buffer(const struct chunk *chunk, const struct parked *parked, uint64_t step)
{
    const struct table *table = chunk->table;
    const bool synchronous = psi_spec_synchronous(&table->spec);
    const bool exact = (parked->flags & PSI_FLAG_EXACT) != 0;
    const uint64_t committed = chunk->clock.committed;
    int buffer;

    if (!chunk->ready || !psi_clock_may_read(&table->rule, &table->members, &chunk->clock, step)) {
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
 * for another round. */
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
    if (chunk->table->rule.backup == 0) {
        answer_too_early(lane, parked->sender, parked->request, chunk, parked->step);
        return true;
    }
    return false;
}

static bool
answered(struct lane *lane, struct chunk *chunk, const struct parked *parked)
{
    psd_status outcome;

    if (parked->early) {
        return early_is_over(lane, chunk, parked);
    }
    if (parked->type == PSI_FRAME_PULL || parked->type == PSI_FRAME_STATE_PULL) {
        return read_answered(lane, chunk, parked, parked->step);
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
    if (parked->type == PSI_FRAME_PUSH_PULL) {
        return read_answered(lane, chunk, parked, parked->step + 1);
    }
    answer_status(lane, parked->sender, parked->request, chunk, PSD_OK, "");
    return true;
}

static void
unpark(struct lane *lane, struct chunk *chunk, struct parked **link)
{
    struct parked *parked = *link;

    *link = parked->next;
    if (*link == NULL) {
        chunk->parked_end = link;
    }
    chunk->parked_count--;
    psi_pool_give(&lane->parked, parked);
}

void
parked_answer(struct lane *lane, struct chunk *chunk)
{
    struct parked **link = &chunk->parked;

    while (*link != NULL) {
        if (answered(lane, chunk, *link)) {
            unpark(lane, chunk, link);
        } else {
            link = &(*link)->next;
        }
    }
}

/* The request of the session's current frame. */
static struct parked
asked_by(const struct session *session, const struct chunk *chunk)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const bool push = psi_frame_has_gradient(frame->type);

    return (struct parked){
        .rank = push ? push_rank(session) : session->rank,
        .sender = session->rank,
        .request = frame->request,
        .type = frame->type,
        .flags = frame->flags,
        .step = frame->step,
        .after = chunk->clock.version,
        .early = push && psi_spec_synchronous(&chunk->table->spec) &&
                 (frame->step > chunk->clock.version || chunk->adopting != NULL),
    };
}

static bool
is_push(const struct parked *parked)
{
    return psi_frame_has_gradient(parked->type);
}

static unsigned
reads_of(const struct chunk *chunk, uint32_t sender)
{
    unsigned reads = 0;

    for (const struct parked *parked = chunk->parked; parked != NULL; parked = parked->next) {
        reads += parked->sender == sender && !is_push(parked);
    }
    return reads;
}

static unsigned
pushes_of(const struct chunk *chunk, uint32_t sender, uint32_t rank)
{
    unsigned pushes = 0;

    for (const struct parked *parked = chunk->parked; parked != NULL; parked = parked->next) {
        pushes += parked->sender == sender && parked->rank == rank && is_push(parked);
    }
    return pushes;
}

/*
 * Too many requests cannot all be kept. A read is refused: it changes nothing, so "not applied" is
 * true of it. A push must not be: it may repeat one that counts. Its connection is cut instead, the
 * requests that its worker gave up go with it, and what the worker still waits for it asks again.
 */
static psd_status
keep(struct chunk *chunk, const struct session *session, const struct parked *asked,
     struct psd_error *err)
{
    struct parked *parked;

    if (chunk->parked_count >= READS_PARKED_MAX && !is_push(asked) &&
        reads_of(chunk, asked->sender) >= READS_PARKED_MAX) {
        answer_status(session->lane, asked->sender, asked->request, chunk, PSD_ERR_BUSY,
                      "too many reads of this worker wait for one chunk");
        return PSD_OK;
    }
    if (chunk->parked_count >= PUSHES_PARKED_MAX && is_push(asked) &&
        pushes_of(chunk, asked->sender, asked->rank) >= PUSHES_PARKED_MAX) {
        return psi_fail(err, PSD_ERR_BUSY,
                        "table %s chunk %u: worker %u repeats its push of step %llu without end",
                        chunk->table->spec.name, chunk->index, asked->rank,
                        (unsigned long long)asked->step);
    }
    parked = psi_pool_take(&session->lane->parked);
    if (parked == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no memory for a request",
                        asked->sender);
    }
    *parked = *asked;
    *chunk->parked_end = parked;
    chunk->parked_end = &parked->next;
    chunk->parked_count++;
    return PSD_OK;
}

/* Keeps the request of the session's current frame, until the change that it makes is committed. */
psd_status
park(struct chunk *chunk, const struct session *session, struct psd_error *err)
{
    struct parked asked = asked_by(session, chunk);

    asked.after += (asked.flags & PSI_FLAG_EMPTY) == 0;
    return keep(chunk, session, &asked, err);
}

/* Those that wait already are not looked at: nothing has changed for them. */
psd_status
answer_or_park(struct chunk *chunk, const struct session *session, struct psd_error *err)
{
    const struct parked asked = asked_by(session, chunk);

    return answered(session->lane, chunk, &asked) ? PSD_OK : keep(chunk, session, &asked, err);
}

static bool
is_push_of(const struct parked *parked, uint32_t rank)
{
    return parked->rank == rank && is_push(parked);
}

void
parked_forget_push(struct lane *lane, struct chunk *chunk, uint32_t rank)
{
    struct parked **link = &chunk->parked;

    while (*link != NULL) {
        if (is_push_of(*link, rank)) {
            unpark(lane, chunk, link);
        } else {
            link = &(*link)->next;
        }
    }
}

void
parked_forget_sender(struct lane *lane, struct chunk *chunk, uint32_t sender)
{
    struct parked **link = &chunk->parked;

    while (*link != NULL) {
        if ((*link)->sender == sender) {
            unpark(lane, chunk, link);
        } else {
            link = &(*link)->next;
        }
    }
}

/* Does anybody wait for the end of the rank's push on this chunk? */
bool
parked_push(const struct chunk *chunk, uint32_t rank)
{
    const struct parked *parked = chunk->parked;

    while (parked != NULL && !is_push_of(parked, rank)) {
        parked = parked->next;
    }
    return parked != NULL;
}

void
parked_free(struct lane *lane, struct chunk *chunk)
{
    while (chunk->parked != NULL) {
        unpark(lane, chunk, &chunk->parked);
    }
}

/* The chunk of the session's current frame, or an error that costs the connection. */
static psd_status
target(const struct session *session, struct chunk **chunk_p, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct table *table = table_find(session->lane, frame->table);

    *chunk_p = table == NULL ? NULL : table_chunk(table, frame->chunk);
    if (*chunk_p == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: no chunk %u of table %u here",
                        psi_frame_type_name(frame->type), frame->chunk, frame->table);
    }
    return PSD_OK;
}

psd_status
pull_arrived(struct session *session, struct psd_error *err)
{
    struct chunk *chunk = NULL;
    psd_status status = target(session, &chunk, err);

    if (status == PSD_OK && session->guest.inbox.meta.has_part) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "%s of part %u: parts are not read one by one",
                          psi_frame_type_name(session->guest.inbox.frame.type),
                          session->guest.inbox.meta.part);
    }
    return status == PSD_OK ? answer_or_park(chunk, session, err) : status;
}

/* An empty STATE_PUSH, for tables that have nothing to load. */
static bool
brings_step_only(const struct chunk *chunk, const struct psi_frame *frame)
{
    return frame->type == PSI_FRAME_STATE_PUSH && (frame->flags & PSI_FLAG_EMPTY) != 0 &&
           chunk->table->spec.use == PSD_USE_SUM;
}

/* The chunk and the part that an INIT or a STATE_PUSH brings. */
static psd_status
load_target(const struct session *session, struct chunk **chunk_p, unsigned *part_p,
            struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const unsigned part =
        session->guest.inbox.meta.has_part ? session->guest.inbox.meta.part : PSI_PART_VALUE;
    const psd_status status = target(session, chunk_p, err);
    size_t bytes;

    if (status != PSD_OK) {
        return status;
    }
    bytes = part_of(*chunk_p, part).bytes;
    if (bytes == 0 || frame->payload_bytes != (brings_step_only(*chunk_p, frame) ? 0 : bytes)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to table %s: part %u of %u bytes",
                        psi_frame_type_name(frame->type), (*chunk_p)->table->spec.name, part,
                        frame->payload_bytes);
    }
    *part_p = part;
    return PSD_OK;
}

/*
 * Not written in place: while it comes in, others may read and push, the table may be dropped, and
 * the connection may end. An initial value is taken once; a loaded part any number of times, as
 * long as no gradient has come since the job began.
 */
psd_status
load_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    struct chunk *chunk = NULL;
    unsigned part = 0;
    const psd_status status = load_target(session, &chunk, &part, err);

    return status == PSD_OK ? psi_inbox_body(&session->guest.inbox, sink_p, err) : status;
}

/* The chunk now is what the file says it was at `step`. */
static void
load(struct session *session, struct chunk *chunk, unsigned part, const void *payload)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;

    if (part == PSI_PART_VALUE) {
        value_about_to_change(session->lane, chunk, chunk->current);
    }
    if (!brings_step_only(chunk, frame)) {
        memcpy(part_of(chunk, part).base, payload, frame->payload_bytes);
    }
    if (part != PSI_PART_VALUE) {
        return;
    }
    if (frame->type == PSI_FRAME_INIT) {
        chunk->table->store->ops->value_loaded(chunk->table->store, chunk->place, chunk->current);
    } else {
        chunk->clock.version = frame->step;
        chunk->clock.committed = frame->step;
        chunk->updates = frame->seq;
        for (uint32_t rank = 0; rank < session->lane->rows; rank++) {
            chunk->clock.next[rank] = frame->step;
        }
    }
    chunk->ready = true;
    chunk->blank = chunk->blank && brings_step_only(chunk, frame);
}

/* Has it no initial value, or lost it? */
static bool
lacks_initial_value(const struct chunk *chunk)
{
    return !chunk->ready || (chunk->blank && !chunk->pushed);
}

psd_status
load_arrived(struct session *session, const void *payload, struct psd_error *err)
{
    struct lane *lane = session->lane;
    const bool first = session->guest.inbox.frame.type == PSI_FRAME_INIT;
    struct chunk *chunk = NULL;
    unsigned part = 0;
    const psd_status status = load_target(session, &chunk, &part, err);

    if (status != PSD_OK) {
        return status;
    }
    if (chunk->adopting != NULL) {
        answer_status(
            lane, session->rank, session->guest.inbox.frame.request, chunk, PSD_ERR_STATE,
            "load: a server was lost, and workers are telling its new life where they are");
        return PSD_OK;
    }
    if (first ? lacks_initial_value(chunk) && part == PSI_PART_VALUE : !chunk->pushed) {
        load(session, chunk, part, payload);
    } else if (!first) {
        answer_status(lane, session->rank, session->guest.inbox.frame.request, chunk, PSD_ERR_STATE,
                      "load: gradients are under way; load before the first push");
        return PSD_OK;
    }
    answer_status(lane, session->rank, session->guest.inbox.frame.request, chunk, PSD_OK, "");
    round_go_on(lane, chunk);
    return PSD_OK;
}

/* A worker whose model lacks the table never gives anything: a hint that it may be so. */
static const char gave_nothing[] = " (nothing from it yet: does it have this table?)";

/* The first rank, from `from` on, that the chunk waits for; -1: none. */
static int32_t
missing(const struct chunk *chunk, uint64_t step, uint32_t from)
{
    const struct table *table = chunk->table;
    const struct psi_ranks *closing = backup_closing(table, chunk->clock.version);
    int32_t rank = psi_clock_missing(&table->rule, &table->members, &chunk->clock, step, from);

    while (rank >= 0 && closing != NULL && !psi_ranks_has(closing, (uint32_t)rank)) {
        rank = psi_clock_missing(&table->rule, &table->members, &chunk->clock, step,
                                 (uint32_t)rank + 1);
    }
    return rank;
}

/* Who keeps the chunk from moving on, in words. */
static void
describe_wait(const struct lane *lane, const struct chunk *chunk, uint64_t step, char *text,
              size_t size)
{
    const struct table *table = chunk->table;
    size_t used;
    int32_t rank;
    unsigned named = 0;

    if (chunk->adopting != NULL) {
        adopt_describe(lane, chunk, text, size);
        return;
    }
    if (chunk->held != NULL && hold_describe(chunk, step, text, size)) {
        return;
    }
    if (!chunk->ready) {
        snprintf(text, size, "table %s waits for its initial values from worker 0",
                 table->spec.name);
        return;
    }
    used = (size_t)snprintf(text, size, "table %s step %llu waits for", table->spec.name,
                            (unsigned long long)(step > 0 ? step - 1 : 0));
    rank = missing(chunk, step, 0);
    for (; rank >= 0 && named < 8 && used + 24 + sizeof(gave_nothing) < size; named++) {
        used += (size_t)snprintf(text + used, size - used, "%s worker %d%s", named > 0 ? "," : "",
                                 rank, chunk->clock.next[rank] == 0 ? gave_nothing : "");
        rank = missing(chunk, step, (uint32_t)rank + 1);
    }
    if (named == 0) {
        snprintf(text + used, size - used, " nobody");
    }
}

psd_status
why_arrived(struct session *session, struct psd_error *err)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_BECAUSE,
        .view = session->lane->view.id,
        .request = session->guest.inbox.frame.request,
        .table = session->guest.inbox.frame.table,
        .chunk = session->guest.inbox.frame.chunk,
    };
    char text[PSI_TEXT_MAX];
    struct chunk *chunk = NULL;
    const psd_status status = target(session, &chunk, err);

    if (status == PSD_OK) {
        describe_wait(session->lane, chunk, session->guest.inbox.frame.step, text, sizeof(text));
        (void)psi_post_error(session->guest.conn, &frame, PSD_PENDING, 0, text);
    }
    return status;
}
