/*
 * parked.c - requests that cannot be answered yet: kept chunk by chunk, in order of arrival.
 *
 * A request waits until a round, a change or an initial value lets it be answered, or until its
 * worker is gone. What it is answered with is not decided here: answers.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "server/state.h"

enum {
    READS_PARKED_MAX = 256,     /* of one worker, on one chunk */
    PUSHES_PARKED_MAX = 256,    /* ... of one gradient: one of them waits, the others gave up */
    ASKED_BYTES_MAX = 64 << 20, /* ids of rows that one worker's requests keep */
};

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
        .asked = {.ids = (const void *)session->rows.asked_ids, .count = session->rows.asked},
    };
}

/* The chunk of the session's current frame, or an error that costs the connection. */
psd_status
asked_chunk(const struct session *session, struct chunk **chunk_p, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct table *table = table_find(session->lane, frame->table);

    *chunk_p = table == NULL ? NULL : table_chunk(table, frame->chunk);
    if (*chunk_p == NULL) {
        /* If the place has moved, and the sender has not heard of it, nobody breaks the rules. */
        return psi_fail(err, frame->view < session->lane->since ? PSD_ERR_STATE : PSD_ERR_PROTOCOL,
                        "%s: no chunk %u of table %u here", psi_frame_type_name(frame->type),
                        frame->chunk, frame->table);
    }
    return PSD_OK;
}

/* Ids of rows lie where the frame came in: a request that waits keeps its own. false: no room. */
static bool
keep_asked(struct lane *lane, struct parked *parked)
{
    const size_t bytes = parked->asked.count * sizeof(uint64_t);
    struct sender *sender = &lane->senders[parked->sender];
    uint64_t *ids;

    if (bytes == 0) {
        return true;
    }
    if (sender->asked_bytes + bytes > ASKED_BYTES_MAX) {
        return false;
    }
    ids = malloc(bytes);
    if (ids == NULL) {
        return false;
    }
    memcpy(ids, parked->asked.ids, bytes);
    parked->asked.ids = ids;
    sender->asked_bytes += bytes;
    return true;
}

static void
let_go_of_asked(struct lane *lane, struct parked *parked)
{
    if (parked->asked.count > 0) {
        lane->senders[parked->sender].asked_bytes -= parked->asked.count * sizeof(uint64_t);
        free((void *)(uintptr_t)parked->asked.ids);
    }
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
turn_away(const struct chunk *chunk, struct lane *lane, const struct parked *asked,
          const char *text, struct psd_error *err)
{
    if (is_push(asked)) {
        return psi_fail(err, PSD_ERR_BUSY, "table %s chunk %u: worker %u, push of step %llu: %s",
                        chunk->table->spec.name, chunk->index, asked->rank,
                        (unsigned long long)asked->step, text);
    }
    answer_status(lane, asked->sender, asked->request, chunk, PSD_ERR_BUSY, text);
    return PSD_OK;
}

static psd_status
keep(struct chunk *chunk, const struct session *session, const struct parked *asked,
     struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct parked *parked;

    if (chunk->parked_count >= READS_PARKED_MAX && !is_push(asked) &&
        reads_of(chunk, asked->sender) >= READS_PARKED_MAX) {
        return turn_away(chunk, lane, asked, "too many reads of this worker wait for one chunk",
                         err);
    }
    if (chunk->parked_count >= PUSHES_PARKED_MAX && is_push(asked) &&
        pushes_of(chunk, asked->sender, asked->rank) >= PUSHES_PARKED_MAX) {
        return turn_away(chunk, lane, asked, "it is repeated without end", err);
    }
    parked = psi_pool_take(&lane->parked);
    if (parked == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no memory for a request",
                        asked->sender);
    }
    *parked = *asked;
    if (!keep_asked(lane, parked)) {
        psi_pool_give(&lane->parked, parked);
        return turn_away(chunk, lane, asked, "more ids of this worker wait here than may (64 MiB)",
                         err);
    }
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

    asked.after++;
    return keep(chunk, session, &asked, err);
}

/* Those that wait already are not looked at: nothing has changed for them. */
psd_status
answer_or_park(struct chunk *chunk, const struct session *session, struct psd_error *err)
{
    const struct parked asked = asked_by(session, chunk);

    return request_answered(session->lane, chunk, &asked) ? PSD_OK
                                                          : keep(chunk, session, &asked, err);
}

psd_status
pull_arrived(struct session *session, struct psd_error *err)
{
    struct chunk *chunk = NULL;
    psd_status status = asked_chunk(session, &chunk, err);

    if (status == PSD_OK && psi_spec_is_sparse(&chunk->table->spec) !=
                                psi_frame_is_sparse(session->guest.inbox.frame.type)) {
        status =
            psi_fail(err, PSD_ERR_PROTOCOL, "%s of table %s, which is %ssparse",
                     psi_frame_type_name(session->guest.inbox.frame.type), chunk->table->spec.name,
                     psi_spec_is_sparse(&chunk->table->spec) ? "" : "not ");
    }
    if (status == PSD_OK && session->guest.inbox.meta.has_part) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "%s of part %u: parts are not read one by one",
                          psi_frame_type_name(session->guest.inbox.frame.type),
                          session->guest.inbox.meta.part);
    }
    return status == PSD_OK ? answer_or_park(chunk, session, err) : status;
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
    let_go_of_asked(lane, parked);
    psi_pool_give(&lane->parked, parked);
}

void
parked_answer(struct lane *lane, struct chunk *chunk)
{
    struct parked **link = &chunk->parked;

    while (*link != NULL) {
        if (request_answered(lane, chunk, *link)) {
            unpark(lane, chunk, link);
            psi_fail_point(server_value_told);
        } else {
            link = &(*link)->next;
        }
    }
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
