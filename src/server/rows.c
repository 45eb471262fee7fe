/*
 * rows.c - frames about rows of sparse tables: are they what they say, and what answers them.
 *
 * To everything else a lane's share of a sparse table is one chunk: its clock, its round and who
 * waits for it are as of any other. What is different is in the payload: which rows are meant. It is
 * looked through once, where nobody can change it any more, before anything counts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"
#include "shard/bucket.h"
#include "store/sparse/kind.h"
#include "table/dtype.h"

static size_t
row_bytes(const struct chunk *chunk)
{
    const struct psi_spec *spec = &chunk->table->spec;

    return spec->width * psi_dtype_bytes(spec->dtype);
}

const struct store_ops *
rows_kind(const struct psi_spec *spec)
{
    return psi_spec_is_sparse_sum(spec) ? &store_sparse_sum : &store_sparse;
}

/* All that can be known of a push before its payload has come. */
psd_status
rows_target(const struct session *session, const struct chunk *chunk, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct psi_meta *meta = &session->guest.inbox.meta;
    const struct psi_spec *spec = &chunk->table->spec;

    if (psi_spec_is_sparse(spec) != psi_frame_is_sparse(frame->type)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to table %s, which is %ssparse",
                        psi_frame_type_name(frame->type), spec->name,
                        psi_spec_is_sparse(spec) ? "" : "not ");
    }
    if (psi_spec_is_sparse_sum(spec) && frame->type == PSI_FRAME_SPARSE_PUSH &&
        (frame->flags & PSI_FLAG_RESULT) == 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to table %s, whose sum answers a %s",
                        psi_frame_type_name(frame->type), spec->name,
                        psi_frame_type_name(PSI_FRAME_SPARSE_PUSH_PULL));
    }
    if ((frame->flags & PSI_FLAG_MORE) != 0 && !psi_frame_has_gradient(frame->type)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to table %s, in parts",
                        psi_frame_type_name(frame->type), spec->name);
    }
    if (frame->payload_bytes < PSI_ROWS_HEAD_BYTES || frame->dtype != spec->dtype ||
        frame->codec != 0 || meta->has_part || meta->has_node ||
        (meta->has_weight && meta->weight != 1.0f)) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to table %s: %u bytes of type %u, expected %s",
                        psi_frame_type_name(frame->type), spec->name, frame->payload_bytes,
                        frame->dtype, psi_dtype_name(spec->dtype));
    }
    if (psi_frame_has_gradient(frame->type) && frame->step > PSI_ROWS_STEP_MAX) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to table %s: step %llu, at most %u",
                        psi_frame_type_name(frame->type), spec->name,
                        (unsigned long long)frame->step, PSI_ROWS_STEP_MAX);
    }
    return PSD_OK;
}

/* How many may it ask for? Of a sum, where its next part begins; only the last part of a push asks. */
static uint32_t
asked_max(const struct session *session, const struct psi_spec *spec)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const uint64_t each = spec->width * psi_dtype_bytes(spec->dtype);

    if (!psi_frame_wants_value(frame->type) || (frame->flags & PSI_FLAG_MORE) != 0) {
        return 0;
    }
    if (psi_spec_is_sparse_sum(spec)) {
        return frame->type == PSI_FRAME_SPARSE_PULL;
    }
    return (uint32_t)((PSI_FRAME_CHUNK_MAX - PSI_ROWS_HEAD_BYTES) / each);
}

/* Notes in the session what its frame is about. Whoever sends anything else loses its connection. */
psd_status
rows_look_through(struct session *session, const struct chunk *chunk, const void *payload,
                  size_t bytes, struct psd_error *err)
{
    const struct table *table = chunk->table;
    const uint8_t type = session->guest.inbox.frame.type;
    const uint32_t bits = table->spec.bucket_bits;
    const uint32_t places = (uint32_t)table->chunks_in_all;
    const struct psi_rows_form form = {
        .row_bytes = row_bytes(chunk),
        .bucket_bits = bits,
        .first_bucket = psi_bucket_first(chunk->index, bits, places),
        .end_bucket = psi_bucket_first(chunk->index + 1, bits, places),
    };
    const uint32_t most = asked_max(session, &table->spec);
    struct psd_error why;
    psd_status status = psi_rows_decode(payload, bytes, &form, &session->rows, &why);

    if (status == PSD_OK && !psi_frame_has_gradient(type) && session->rows.gradients > 0) {
        status = psi_fail(&why, PSD_ERR_PROTOCOL, "%u rows of %u gradients, and %u asked for",
                          session->rows.pushed, session->rows.gradients, session->rows.asked);
    }
    if (status == PSD_OK && session->rows.asked > most) {
        status = psi_fail(&why, PSD_ERR_PROTOCOL, "%u rows asked for, more than %u%s",
                          session->rows.asked, most, most > 1 ? ", more than a frame holds" : "");
    }
    return status == PSD_OK ? PSD_OK
                            : psi_fail(err, status, "%s of table %s: %s", psi_frame_type_name(type),
                                       table->spec.name, why.text);
}

psd_status
rows_pull_arrived(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    struct chunk *chunk = NULL;
    psd_status status = asked_chunk(session, &chunk, err);

    if (status == PSD_OK) {
        status = rows_target(session, chunk, err);
    }
    if (status == PSD_OK) {
        status = rows_look_through(session, chunk, payload, bytes, err);
    }
    if (status == PSD_OK) {
        status = pull_arrived(session, err);
    }
    session->rows = (struct psi_rows){0};
    return status;
}

/* A payload that nobody needs, of a push that comes twice, did not come in. */
psd_status
rows_push_arrived(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    struct chunk *chunk = NULL;
    psd_status status = asked_chunk(session, &chunk, err);

    if (status == PSD_OK && payload != NULL) {
        status = rows_target(session, chunk, err);
    }
    if (status == PSD_OK && payload != NULL) {
        status = rows_look_through(session, chunk, payload, bytes, err);
    }
    if (status == PSD_OK && (session->guest.inbox.frame.flags & PSI_FLAG_MORE) != 0) {
        status = row_parts_add(session, err);
    } else if (status == PSD_OK) {
        status = row_parts_end(session, err);
        if (status == PSD_OK) {
            status = push_arrived(session, err);
        }
    }
    session->rows = (struct psi_rows){0};
    return status;
}

psd_status
rows_shown(struct session *session, const struct chunk *chunk, const void *payload, size_t bytes,
           bool is_first, struct psd_error *err)
{
    struct store *store = chunk->table->store;
    const struct psi_rows *shown = &session->rows;
    psd_status status = rows_look_through(session, chunk, payload, bytes, err);

    if (status == PSD_OK && shown->gradients != 1) {
        status =
            psi_fail(err, PSD_ERR_PROTOCOL, "a result of table %s that says it has no gradient",
                     chunk->table->spec.name);
    }
    if (status == PSD_OK) {
        const struct store_rows rows = {
            .ids = (const void *)shown->ids, .rows = shown->rows, .count = shown->pushed};

        status = store->ops->take_sums(store, chunk->place, &rows, is_first, err);
    }
    session->rows = (struct psi_rows){0};
    return status;
}

static void
free_rows(void *owner, uint64_t cookie)
{
    (void)cookie;
    free(owner);
}

/* The part of a sum that is asked for: from behind an id on, or from the beginning. */
static struct store_rows
sum_part(const struct lane *lane, const struct chunk *chunk, const struct parked *parked,
         bool *more_p)
{
    const struct store *store = chunk->table->store;
    struct store_rows rows = store->ops->sums(store, chunk->place);
    const uint32_t most = psi_rows_part(row_bytes(chunk), lane->config.rows_part_bytes);
    uint32_t first = 0;
    uint32_t end = rows.count;

    while (parked->asked.count > 0 && first < end) {
        const uint32_t middle = first + (end - first) / 2;

        if (psi_bucket_before(parked->asked.ids[0], rows.ids[middle])) {
            end = middle;
        } else {
            first = middle + 1;
        }
    }
    *more_p = rows.count - first > most;
    if (first > 0) { /* of no rows there is no memory */
        rows.ids += first;
        rows.rows = (const uint8_t *)rows.rows + first * row_bytes(chunk);
    }
    rows.count = *more_p ? most : rows.count - first;
    return rows;
}

uint8_t *
rows_gather(const struct chunk *chunk, const struct store_rows *asked, uint32_t buffer,
            size_t *bytes_p)
{
    struct store *store = chunk->table->store;
    uint8_t *answer;

    *bytes_p = psi_rows_value_bytes(row_bytes(chunk), asked->count);
    answer = malloc(*bytes_p);
    if (answer != NULL) {
        store->ops->lookup(store, chunk->place, buffer, asked,
                           psi_rows_value_encode(answer, asked->count));
    }
    return answer;
}

/* What answers a request. NULL: no memory. Rows that are asked for are gathered, and those of a sum
 * copied, where the network takes them from: they may change before it has. */
static uint8_t *
make_answer(const struct lane *lane, const struct chunk *chunk, const struct parked *parked,
            uint32_t buffer, size_t *bytes_p, bool *more_p)
{
    const size_t each = row_bytes(chunk);
    struct store_rows rows;
    uint8_t *answer;

    if (!psi_spec_is_sparse_sum(&chunk->table->spec)) {
        return rows_gather(chunk, &parked->asked, buffer, bytes_p);
    }
    rows = sum_part(lane, chunk, parked, more_p);
    *bytes_p = psi_rows_bytes(each, rows.count, 0);
    answer = malloc(*bytes_p);
    if (answer != NULL) {
        psi_rows_sum_encode(answer, each, rows.ids, rows.rows, rows.count);
    }
    return answer;
}

void
rows_answer(struct lane *lane, const struct chunk *chunk, const struct parked *parked,
            uint32_t buffer)
{
    struct session *session = lane->sessions[parked->sender];
    struct psi_frame frame = value_frame(lane, chunk, parked);
    struct psi_payload payload = {
        .checksum = lane->config.checksum,
        .patient = true,
        .release = free_rows,
    };

    bool more = false;

    if (session == NULL) {
        return; /* it asks again when it is back */
    }
    payload.owner = make_answer(lane, chunk, parked, buffer, &payload.bytes, &more);
    payload.base = payload.owner;
    if (payload.owner == NULL) {
        psi_guest_doom(&session->guest);
        return;
    }
    frame.type = PSI_FRAME_SPARSE_VALUE;
    frame.flags |= more ? PSI_FLAG_MORE : 0;
    frame.dtype = (uint8_t)chunk->table->spec.dtype;
    if (psi_post_payload(session->guest.conn, &frame, NULL, &payload) != PSD_OK) {
        free(payload.owner);
        psi_guest_doom(&session->guest);
        return;
    }
    psi_metric_add(lane->metrics, PSI_METRIC_VALUES_OUT, 1);
    psi_metric_add(lane->metrics, PSI_METRIC_VALUE_BYTES_OUT, payload.bytes);
}
