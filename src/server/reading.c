/*
 * reading.c - readers: who looks at the values of a running job, and is no part of it.
 *
 * A reader has no rank and no step. No round, no view and no list of who waits knows of it. It asks for
 * one thing at a time, small enough that a lane is done with it in a fraction of a millisecond, and is
 * answered behind everybody else: one answer in a turn of the loop, in the order in which they asked. What it gets is the value that is
 * committed at that moment, with its step, and with how long ago the master was heard at least: so long
 * ago the place was this lane's, whatever has become of it since.
 *
 * Invariants
 *   - reader->is_asking: its request waits; lane->readers_asking of them do;
 *   - nothing here changes a table, and no memory of a table is lent.
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
    READERS_MAX = 64,
    UNREAD_BYTES_MAX = 2 << 20, /* who has not taken so much gets nothing more until it has */
};

/* What a reader asks for. */
struct reader {
    uint64_t life;
    bool is_asking;
    uint8_t type;  /* PULL, SPARSE_PULL */
    uint64_t came; /* as so-manieth of all requests of readers */
    uint32_t request;
    uint32_t table;
    uint32_t chunk;
    uint64_t *ids; /* owned; SPARSE_PULL */
    uint32_t count;
};

static void
forget_request(struct session *session)
{
    struct reader *reader = session->reader;

    free(reader->ids);
    reader->ids = NULL;
    session->lane->readers_asking -= reader->is_asking;
    reader->is_asking = false;
}

void
reader_gone(struct session *session)
{
    if (session->reader != NULL) {
        forget_request(session);
        session->lane->readers--;
        free(session->reader);
        session->reader = NULL;
    }
}

/* ---- meeting ------------------------------------------------------------------------------- */

/* Its connection may have been cut without our noticing. */
static void
end_earlier(struct lane *lane, uint64_t life)
{
    struct session *session = (struct session *)lane->guests.first;

    while (session != NULL && (session->reader == NULL || session->reader->life != life)) {
        session = (struct session *)session->guest.next;
    }
    if (session != NULL) {
        session_end(session);
    }
}

psd_status
reader_hello(struct session *session, const struct psi_hello *hello)
{
    struct lane *lane = session->lane;
    const struct psi_frame frame = {.type = PSI_FRAME_WELCOME, .view = lane->view.id};
    struct psi_welcome welcome = lane->job;
    char text[PSI_TEXT_MAX];

    if (hello->job != lane->job.job) {
        snprintf(text, sizeof(text), "server %u: it reads another job", lane->config.server);
        psi_guest_refuse(&session->guest, PSD_ERR_REFUSED, text);
        return PSD_OK;
    }
    end_earlier(lane, hello->life);
    if (lane->readers >= READERS_MAX) {
        snprintf(text, sizeof(text), "server %u has %d readers, and no room for more",
                 lane->config.server, READERS_MAX);
        psi_guest_refuse(&session->guest, PSD_ERR_BUSY, text);
        return PSD_OK;
    }
    session->reader = calloc(1, sizeof(*session->reader));
    if (session->reader == NULL) {
        psi_guest_refuse(&session->guest, PSD_ERR_NO_MEMORY, "no memory for a reader");
        return PSD_OK;
    }
    session->reader->life = hello->life;
    lane->readers++;
    welcome.rank = 0; /* nobody's */
    welcome.window_bytes = 0;
    welcome.view = lane->view.id;
    (void)psi_post_welcome(session->guest.conn, &frame, &welcome);
    return PSD_OK;
}

/* ---- requests ------------------------------------------------------------------------------ */

static psd_status
refuse_frame(const struct session *session, struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_PROTOCOL,
                    "%s from a reader: it may look (PULL, SPARSE_PULL), and nothing else",
                    psi_frame_type_name(session->guest.inbox.frame.type));
}

psd_status
reader_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const size_t most = psi_rows_bytes(0, 0, PSI_READ_ROWS_MAX);

    if (frame->type != PSI_FRAME_SPARSE_PULL) {
        return refuse_frame(session, err);
    }
    if (frame->payload_bytes > most) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s of %u bytes from a reader, at most %zu",
                        psi_frame_type_name(frame->type), frame->payload_bytes, most);
    }
    return psi_inbox_body(&session->guest.inbox, sink_p, err);
}

static void
answer_error(struct session *session, psd_status status, const char *text)
{
    const struct psi_frame *asked = &session->guest.inbox.frame;
    const struct psi_frame frame = {.type = PSI_FRAME_ACK,
                                    .view = session->lane->view.id,
                                    .request = asked->request,
                                    .table = asked->table,
                                    .chunk = asked->chunk,
                                    .status = (int16_t)status};

    if (psi_post_error(session->guest.conn, &frame, status, 0, text) != PSD_OK) {
        psi_guest_doom(&session->guest);
    }
}

/* Keeps the ids of the rows that are asked for. They lie where the frame came in. */
static psd_status
keep_ids(struct session *session, const struct chunk *chunk, const void *payload, size_t bytes,
         struct psd_error *err)
{
    struct reader *reader = session->reader;
    const size_t row_bytes = chunk->table->spec.width * psi_dtype_bytes(chunk->table->spec.dtype);
    const uint32_t most =
        psi_rows_read_max(row_bytes, chunk->table->spec.rows.full == PSI_FULL_SPILL);
    psd_status status = rows_look_through(session, chunk, payload, bytes, err);

    if (status == PSD_OK && session->rows.asked > most) {
        status =
            psi_fail(err, PSD_ERR_PROTOCOL, "%u rows asked for by a reader, at most %u at once",
                     session->rows.asked, most);
    }
    if (status == PSD_OK) {
        const size_t ids_bytes = session->rows.asked * sizeof(uint64_t);

        reader->count = session->rows.asked;
        reader->ids = malloc(ids_bytes + 1);
        if (reader->ids == NULL) {
            status = psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for what a reader asks for");
        } else {
            memcpy(reader->ids, session->rows.asked_ids, ids_bytes);
        }
    }
    session->rows = (struct psi_rows){0};
    return status;
}

static psd_status
check_request(const struct session *session, const struct chunk *chunk, size_t bytes,
              struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;

    if ((frame->flags & ~PSI_FLAG_CHECKSUM) != 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s with flags 0x%04x from a reader",
                        psi_frame_type_name(frame->type), frame->flags);
    }
    if (psi_frame_is_sparse(frame->type)) {
        return rows_target(session, chunk, err);
    }
    if (bytes > 0 || psi_spec_is_sparse(&chunk->table->spec)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s of table %s from a reader, with %zu bytes",
                        psi_frame_type_name(frame->type), chunk->table->spec.name, bytes);
    }
    return PSD_OK;
}

static void
note_request(struct session *session)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    struct reader *reader = session->reader;

    reader->type = frame->type;
    reader->request = frame->request;
    reader->table = frame->table;
    reader->chunk = frame->chunk;
    reader->is_asking = true;
    reader->came = session->lane->reads_asked++;
    session->lane->readers_asking++;
}

psd_status
reader_frame(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct table *table;
    struct chunk *chunk;
    psd_status status;

    if (!psi_frame_only_reads(frame->type)) {
        return refuse_frame(session, err);
    }
    if (session->reader->is_asking) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from a reader that waits for an answer",
                        psi_frame_type_name(frame->type));
    }
    table = table_find(session->lane, frame->table);
    chunk = table == NULL ? NULL : table_chunk(table, frame->chunk);
    if (chunk == NULL) { /* not yet, or no longer */
        answer_error(session, PSD_ERR_BUSY, "the table is not in this lane");
        return PSD_OK;
    }
    if (table->spec.use == PSD_USE_SUM) {
        answer_error(session, PSD_ERR_STATE, "the table is a sum: servers keep no values of it");
        return PSD_OK;
    }
    status = check_request(session, chunk, bytes, err);
    if (status == PSD_OK && psi_frame_is_sparse(frame->type)) {
        status = keep_ids(session, chunk, payload, bytes, err);
    }
    if (status == PSD_OK) {
        note_request(session);
    }
    return status;
}

/* ---- answers ------------------------------------------------------------------------------- */

enum { NOT_YET = -1 };

/* Which buffer has what is committed. Others are told of nothing else, so a reader is not, either. Of
 * tables without rounds later changes may show: they never stop. */
static int
committed_buffer(const struct chunk *chunk)
{
    const struct psi_clock *clock = &chunk->clock;

    if (!chunk->ready || chunk->blank || chunk->copy.load != 0 || chunk->adopting != NULL) {
        return NOT_YET;
    }
    if (!psi_spec_synchronous(&chunk->table->spec) || clock->committed == clock->version) {
        return (int)chunk->current;
    }
    return chunk->table->retain && clock->committed + 1 == clock->version
               ? (int)(1 - chunk->current)
               : NOT_YET;
}

/* What this lane commits counts: it has not handed its place over, and the master knows it there. */
static bool
has_its_place(const struct lane *lane)
{
    return !lane->stands_by && !lane->config.is_standby && lane->master.proved_ns != 0 &&
           (lane->pair == NULL || !lane->pair->has_given);
}

/* A copy: the table's memory may change before the network has taken it. NULL: no memory. */
static void *
copy_value(const struct chunk *chunk, const struct reader *reader, uint32_t buffer, size_t *bytes_p)
{
    const struct store *store = chunk->table->store;
    struct store_piece value;
    void *copy;

    if (psi_frame_is_sparse(reader->type)) {
        const struct store_rows asked = {.ids = reader->ids, .count = reader->count};

        return rows_gather(chunk, &asked, buffer, bytes_p);
    }
    value = store->ops->read(store, chunk->place, buffer);
    *bytes_p = value.bytes;
    copy = malloc(value.bytes + 1);
    if (copy != NULL) {
        memcpy(copy, value.base, value.bytes);
    }
    return copy;
}

static void
free_copy(void *owner, uint64_t cookie)
{
    (void)cookie;
    free(owner);
}

static void
answer(struct session *session, const struct chunk *chunk, uint32_t buffer)
{
    struct lane *lane = session->lane;
    const struct reader *reader = session->reader;
    const struct psi_frame frame = {
        .type = psi_frame_is_sparse(reader->type) ? PSI_FRAME_SPARSE_VALUE : PSI_FRAME_VALUE,
        .dtype = (uint8_t)chunk->table->spec.dtype,
        .view = lane->view.id,
        .request = reader->request,
        .table = chunk->table->id,
        .chunk = chunk->index,
        .step = chunk->clock.committed,
        .seq = psi_now_ns(lane->env) - lane->master.proved_ns,
    };
    struct psi_payload payload = {
        .checksum = lane->config.checksum, .patient = true, .release = free_copy};

    payload.owner = copy_value(chunk, reader, buffer, &payload.bytes);
    payload.base = payload.owner;
    forget_request(session);
    if (payload.owner == NULL ||
        psi_post_payload(session->guest.conn, &frame, NULL, &payload) != PSD_OK) {
        free(payload.owner);
        psi_guest_doom(&session->guest);
        return;
    }
    psi_metric_add(lane->metrics, PSI_METRIC_READS, 1);
    psi_metric_add(lane->metrics, PSI_METRIC_READ_BYTES, payload.bytes);
}

/* The chunk that a reader asks for, and in which buffer it is; NULL: it has to wait. */
static const struct chunk *
readable_chunk(const struct session *session, uint32_t *buffer_p)
{
    const struct reader *reader = session->reader;
    const struct table *table = table_find(session->lane, reader->table);
    const struct chunk *chunk = table == NULL ? NULL : table_chunk(table, reader->chunk);
    const int buffer = chunk == NULL ? NOT_YET : committed_buffer(chunk);

    if (buffer == NOT_YET || psi_conn_queued_bytes(session->guest.conn) > UNREAD_BYTES_MAX) {
        return NULL;
    }
    *buffer_p = (uint32_t)buffer;
    return chunk;
}

/* Of those that can be answered the one that has waited for longest. */
static struct session *
find_next(const struct lane *lane)
{
    struct session *found = NULL;

    for (struct session *session = (struct session *)lane->guests.first; session != NULL;
         session = (struct session *)session->guest.next) {
        const struct reader *reader = session->reader;
        uint32_t buffer;

        if (reader != NULL && reader->is_asking && session->guest.conn != NULL &&
            (found == NULL || reader->came < found->reader->came) &&
            readable_chunk(session, &buffer) != NULL) {
            found = session;
        }
    }
    return found;
}

void
readers_tick(struct lane *lane)
{
    struct session *session = has_its_place(lane) ? find_next(lane) : NULL;
    uint32_t buffer = 0;

    if (session != NULL) {
        const struct chunk *chunk = readable_chunk(session, &buffer);

        answer(session, chunk, buffer);
    }
    lane->readers_due = session != NULL && lane->readers_asking > 0;
}
