/*
 * pushes.c - a gradient comes in: is it one, does it count, and where does it go?
 *
 * What was given is remembered in the chunk (clock.next, marks), so that a repeated push counts once
 * whatever connection or incarnation brings it. One that counts joins the open round of a
 * bulk-synchronous table, or changes any other table by itself; one that does not is answered as
 * what it is: repeated, late, or early.
 *
 * Apart from rounds.c: here is all that looks at frames and senders, there what happens to gradients
 * that have been taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/exit_code.h"
#include "base/fail.h"
#include "server/state.h"

static uint32_t
gradient_cost(size_t bytes)
{
    return bytes < PSI_GRADIENT_COST_MIN ? PSI_GRADIENT_COST_MIN : (uint32_t)bytes;
}

/* Whose gradient the session's current frame brings; of a sum: the first of them. */
uint32_t
push_rank(const struct session *session)
{
    return session->guest.inbox.meta.has_node ? session->guest.inbox.meta.node_first
                                              : session->rank;
}

static uint32_t
push_end(const struct session *session)
{
    return psi_node_end(push_rank(session), session->guest.inbox.frame.level, session->lane->rows);
}

/*
 * A worker may bring what other workers of its host give: their gradients, or the sum of a node of
 * the tree. Only where no gradient is ever taken back or left out: then it does not matter that a
 * sum cannot be taken apart.
 */
static bool
is_a_node(const struct session *session, const struct psi_spec *spec)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct psi_meta *meta = &session->guest.inbox.meta;
    const bool empty = (frame->flags & PSI_FLAG_EMPTY) != 0;

    if (!meta->has_node) {
        return frame->level == 0;
    }
    return session->lane->job.policy == PSI_DEATH_FAIL && !session->lane->job.elastic &&
           psi_spec_synchronous(spec) && spec->backup_workers == 0 &&
           frame->level < SUM_TREE_DEPTH && meta->node_first % (1u << frame->level) == 0 &&
           meta->node_first < session->lane->rows &&
           meta->node_leaves <= push_end(session) - meta->node_first &&
           empty == (meta->node_leaves == 0);
}

/* What the frame's gradient must be. */
static struct store_form
push_form(const struct session *session, const struct chunk *chunk)
{
    const struct store *store = chunk->table->store;

    return store->ops->sink(store, chunk->place, session->guest.inbox.frame.level > 0);
}

/* Finds the chunk a data frame is about and checks all that must agree. */
static psd_status
push_target(const struct session *session, struct chunk **chunk_p, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct table *table;
    struct chunk *chunk;
    struct store_form form;
    uint64_t count;
    const psd_status status = asked_chunk(session, &chunk, err);

    if (status != PSD_OK) {
        return status;
    }
    table = chunk->table;
    if (!is_a_node(session, &table->spec)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "%s to chunk %u of table %s: a sum of level %u from rank %u on",
                        psi_frame_type_name(frame->type), frame->chunk, table->spec.name,
                        frame->level, push_rank(session));
    }
    if (psi_spec_is_sparse(&table->spec) || psi_frame_is_sparse(frame->type)) {
        *chunk_p = chunk;
        return rows_target(session, chunk, err);
    }
    form = push_form(session, chunk);
    count = (frame->flags & PSI_FLAG_EMPTY) != 0 ? 0 : form.numbers;
    if (!psi_codec_fits(psi_codec_find(frame->codec), form.dtype, count, frame->payload_bytes) ||
        (count > 0 && frame->dtype != form.dtype) || session->guest.inbox.meta.has_part ||
        (session->guest.inbox.meta.has_weight && session->guest.inbox.meta.weight != 1.0f)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "%s to chunk %u of table %s: %u bytes of type %u, expected %llu numbers "
                        "of %s (%s)",
                        psi_frame_type_name(frame->type), frame->chunk, table->spec.name,
                        frame->payload_bytes, frame->dtype, (unsigned long long)count,
                        psi_dtype_name(form.dtype), psi_codec_find(frame->codec)->name);
    }
    *chunk_p = chunk;
    return PSD_OK;
}

static enum psi_admission
admit(const struct session *session, const struct chunk *chunk)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct table *table = chunk->table;

    if (chunk->adopting != NULL) {
        return PSI_ADMIT_TOO_EARLY;
    }
    if (table->spec.staleness == PSD_STALENESS_UNBOUNDED) {
        return psi_clock_admit_sequence(&chunk->marks[session->rank], frame->incarnation,
                                        frame->seq);
    }
    return psi_clock_admit_sum(&table->rule, &table->members, &chunk->clock, push_rank(session),
                               push_end(session), frame->step);
}

/* A gradient on loan is added where it is, if the numbers in it are where numbers may be (ids must not
 * change after they were looked at), and if its worker can do without a copy it has made for us until the round closes. */
static bool
may_keep(const struct session *session, const struct chunk *chunk, const struct psi_sink *sink)
{
    const struct sender *sender = &session->lane->senders[session->rank];
    const uint32_t bytes = session->guest.inbox.frame.payload_bytes;

    return sink->lent != NULL && !psi_spec_is_sparse(&chunk->table->spec) &&
           (uintptr_t)sink->lent % psi_dtype_bytes(push_form(session, chunk).dtype) == 0 &&
           (sink->stays || (sender->copies < PSI_COPIES_KEPT_MAX &&
                            sender->copy_bytes + bytes <= PSI_COPIES_KEPT_BYTES_MAX));
}

static uint64_t
left_by_tables(const struct lane *lane)
{
    const uint64_t most = lane->config.memory_max;

    return lane->memory_used < most ? most - lane->memory_used : 0;
}

/* One gradient of rows is larger than the pool, and than what tables leave. */
static psd_status
no_room_for_rows(const struct session *session, const struct chunk *chunk, struct psd_error *err)
{
    struct lane *lane = session->lane;

    psi_fail(err, PSD_ERR_TOO_BIG,
             "table %s: server %u has no room for what worker %u pushes in step %llu: %llu MiB of "
             "rows, and all tables %llu of %llu MiB (setting memory_max_mib%s)",
             chunk->table->spec.name, lane->standby.server, session->rank,
             (unsigned long long)session->guest.inbox.frame.step,
             (unsigned long long)(lane->pool.alone_bytes >> 20),
             (unsigned long long)(lane->memory_used >> 20),
             (unsigned long long)(lane->config.memory_max >> 20),
             lane->config.lanes > 1 ? ", of which this lane has an equal share" : "");
    lane_fail_job(lane, err->status, PSI_EXIT_NO_ROOM, err->text);
    return err->status;
}

/* A window is of chunks. Rows may be more than a worker's share of the pool: then they leave it to the chunks of
 * others, which have nowhere else to go. */
static bool
goes_beside(const struct session *session, uint32_t bytes)
{
    const struct lane *lane = session->lane;
    const uint64_t share = (uint64_t)lane->window_bytes + CHUNK_BYTES_MAX;

    return psi_frame_is_sparse(session->guest.inbox.frame.type) &&
           (row_parts_go_on(session) ||
            lane->used[push_rank(session)] + gradient_cost(bytes) > share);
}

/* Where the gradient goes: a slot if it may count, nowhere if it is a repetition. */
psd_status
push_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    struct lane *lane = session->lane;
    const uint32_t bytes = session->guest.inbox.frame.payload_bytes;
    struct chunk *chunk = NULL;
    psd_status status = push_target(session, &chunk, err);

    if (status != PSD_OK) {
        return status;
    }
    sink_p->into = NULL;
    if (admit(session, chunk) != PSI_ADMIT_COUNT) {
        /* Which rows it asks for is in there, and is answered all the same. */
        return session->guest.inbox.frame.type == PSI_FRAME_SPARSE_PUSH_PULL
                   ? psi_inbox_body(&session->guest.inbox, sink_p, err)
                   : PSD_OK;
    }
    if (may_keep(session, chunk, sink_p)) {
        session->receiving = slot_take(&lane->pool, 0);
        if (session->receiving == NULL) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no slot", session->rank);
        }
        session->receiving->gradient = sink_p->lent;
        session->receiving->loan = sink_p->loan;
        session->receiving->copy_bytes = sink_p->stays ? 0 : bytes;
        sink_p->keep = true;
        return PSD_OK;
    }
    want_make_room(lane, push_rank(session), chunk, gradient_cost(bytes));
    if (!goes_beside(session, bytes)) {
        session->receiving = slot_take(&lane->pool, bytes);
    }
    if (session->receiving == NULL && psi_frame_is_sparse(session->guest.inbox.frame.type)) {
        session->receiving = slot_take_alone(&lane->pool, bytes, left_by_tables(lane));
        if (session->receiving == NULL) {
            return no_room_for_rows(session, chunk, err);
        }
    }
    if (session->receiving == NULL) {
        return psi_fail(err, PSD_ERR_BUSY,
                        "worker %u: no room for %u bytes: its window of %u bytes is exceeded",
                        session->rank, bytes, lane->window_bytes);
    }
    sink_p->into = session->receiving->data;
    return PSD_OK;
}

/* How many gradients the session's current frame brings: 0 if it says that it adds nothing. */
static uint32_t
gradients_in(const struct session *session)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;

    if (psi_frame_is_sparse(frame->type)) {
        return session->rows.gradients;
    }
    if ((frame->flags & PSI_FLAG_EMPTY) != 0) {
        return 0;
    }
    return session->guest.inbox.meta.has_node ? session->guest.inbox.meta.node_leaves : 1;
}

/* A gradient joins the open round, and its sender, whose request is kept,
 * waits for the end of it. */
static void
hold(struct session *session, struct chunk *chunk, struct slot *slot)
{
    struct lane *lane = session->lane;
    const struct psi_frame *frame = &session->guest.inbox.frame;

    slot->rank = push_rank(session);
    slot->end = push_end(session);
    slot->sender = session->rank;
    slot->leaves = gradients_in(session);
    /* A PUSH is told no result: it holds nobody up. */
    slot->wants_value = psi_frame_wants_value(frame->type);
    slot->holds =
        slot->wants_value && chunk->table->held != NULL && (frame->flags & PSI_FLAG_KEEPS) == 0;
    slot->cost = slot->loan != NULL ? PSI_GRADIENT_COST_MIN : gradient_cost(frame->payload_bytes);
    for (const struct slot *part = slot->more; part != NULL; part = part->more) {
        slot->cost += part->cost;
    }
    if (chunk->round.slots == NULL) {
        psi_metric_add(lane->metrics, PSI_METRIC_ROUNDS_OPENED, 1);
    }
    if (lane->rows > 1) { /* a lone worker waits for nobody */
        round_gradient_came(lane, &chunk->round, slot->rank);
    }
    slot->next = chunk->round.slots;
    chunk->round.slots = slot;
    lane->used[slot->rank] += slot->cost;
    lane->senders[slot->sender].copies += slot->copy_bytes > 0;
    lane->senders[slot->sender].copy_bytes += slot->copy_bytes;
    for (uint32_t rank = slot->rank; rank < slot->end; rank++) {
        chunk->clock.next[rank] = frame->step + 1;
    }
    chunk->table->priority = frame->priority;
    if (chunk->held != NULL) {
        hold_passed(session, chunk);
    }
    open_add(lane, &chunk->round);
    round_try_close(lane, chunk);
}

/* Stale-synchronous and asynchronous tables: applied by itself, answered at once. */
static void
apply_alone(struct session *session, struct chunk *chunk, struct slot *slot)
{
    struct lane *lane = session->lane;
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct leaf leaf = {
        .rank = session->rank, .is_sum = slot->is_sum, .data = slot->gradient};
    const bool empty = gradients_in(session) == 0;
    const struct closed_round alone = {
        .step = frame->step,
        .leaves = &leaf,
        .leaf_count = empty ? 0 : 1,
        .gradients = empty ? 0 : 1,
        .rank = session->rank,
        .mark = {.incarnation = frame->incarnation, .sequence = frame->seq},
    };

    if (!empty && !chunk_update(lane, chunk, &alone)) {
        slot_give(&lane->pool, slot);
        return; /* the job has failed, everybody is being told */
    }
    chunk->clock.version += empty; /* that it was pushed is news by itself */
    if (chunk->marks != NULL) {
        chunk->marks[session->rank] = alone.mark;
    } else {
        chunk->clock.next[session->rank] = frame->step + 1;
    }
    psi_fail_point(server_push_applied);
    psi_metric_add(lane->metrics, PSI_METRIC_ROUNDS_CLOSED, 1);
    lane->replicate(lane, chunk, &alone);
    slot_give(&lane->pool, slot);
    parked_answer(lane, chunk);
    lane->furthest = alone.step + 1 > lane->furthest ? alone.step + 1 : lane->furthest;
}

/* What has come becomes numbers, where it is if its codec lets it be. */
static psd_status
decode(const struct session *session, const struct chunk *chunk, struct slot *slot,
       struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct psi_codec *codec = psi_codec_find(frame->codec);
    const struct psi_encoded encoded = {.bytes = slot->gradient, .size = frame->payload_bytes};
    struct store_form form;
    struct psi_decoded decoded;

    if (psi_frame_is_sparse(frame->type)) {
        slot->is_sum = false;
        slot->rows = (struct store_rows){.ids = (const void *)session->rows.ids,
                                         .rows = session->rows.rows,
                                         .count = session->rows.pushed,
                                         .next = slot->more == NULL ? NULL : &slot->more->rows};
        slot->gradient = (const void *)&slot->rows;
        return PSD_OK;
    }
    slot->is_sum = frame->level > 0;
    if ((frame->flags & PSI_FLAG_EMPTY) != 0) {
        return PSD_OK;
    }
    form = push_form(session, chunk);
    decoded = codec->decode(form.dtype, encoded, form.numbers, NULL);
    if (decoded.numbers == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s to chunk %u of table %s: not of codec %s",
                        psi_frame_type_name(frame->type), frame->chunk, chunk->table->spec.name,
                        codec->name);
    }
    slot->gradient = decoded.numbers;
    slot->is_sum = slot->is_sum || decoded.is_real;
    return PSD_OK;
}

/* Its request is kept before anything counts: what cannot be answered must not have happened. */
static psd_status
count_it(struct session *session, struct chunk *chunk, struct slot *slot, struct psd_error *err)
{
    struct lane *lane = session->lane;
    psd_status status;

    if (slot == NULL) {
        if ((session->guest.inbox.frame.flags & PSI_FLAG_EMPTY) == 0) {
            /* When its head came it was a repetition, or too early; while it came in, the slot was
             * let go, or the round opened. */
            const struct parked push = {.rank = push_rank(session),
                                        .sender = session->rank,
                                        .step = session->guest.inbox.frame.step};

            ask_again(lane, chunk, &push);
            return PSD_OK;
        }
        slot = slot_take(&lane->pool, 0);
        if (slot == NULL) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no slot", session->rank);
        }
    }
    if (!chunk->ready && !psi_spec_synchronous(&chunk->table->spec)) {
        slot_give(&lane->pool, slot);
        answer_status(lane, session->rank, session->guest.inbox.frame.request, chunk, PSD_ERR_STATE,
                      "no initial values yet: rank 0 gives them when it opens the table");
        return PSD_OK;
    }
    status = decode(session, chunk, slot, err);
    if (status == PSD_OK) {
        status = park(chunk, session, err);
    }
    if (status != PSD_OK) {
        slot_give(&lane->pool, slot);
        return status;
    }
    psi_fail_point(server_push_counted);
    chunk->pushed = true;
    if (psi_spec_synchronous(&chunk->table->spec)) {
        hold(session, chunk, slot);
    } else {
        apply_alone(session, chunk, slot);
    }
    return PSD_OK;
}

/* Bulk-synchronous: of one that has joined, and the round is not open yet. */
static bool
is_first_step(const struct session *session, const struct chunk *chunk)
{
    const uint64_t step = session->guest.inbox.frame.step;

    return psi_spec_synchronous(&chunk->table->spec) && step > chunk->clock.version &&
           step == chunk->table->members.joined_at[session->rank];
}

/* A gradient that does not count now: repeated, late, or early. */
static psd_status
decline(const struct session *session, struct chunk *chunk, enum psi_admission admission,
        struct psd_error *err)
{
    struct lane *lane = session->lane;
    const struct psi_frame *frame = &session->guest.inbox.frame;

    switch (admission) {
    case PSI_ADMIT_AGAIN:
        return park(chunk, session, err);
    case PSI_ADMIT_DONE:
        psi_fail_point(server_push_repeated);
        if (chunk->held != NULL) {
            hold_repeated(session, chunk);
        } else if (chunk->table->held != NULL) {
            hold_repeated_alone(session, chunk);
        }
        return answer_or_park(chunk, session, err);
    case PSI_ADMIT_DROPPED:
        if (psi_spec_synchronous(&chunk->table->spec) && frame->step < chunk->clock.version) {
            return answer_or_park(chunk, session, err); /* that round may not be told of yet */
        }
        answer_status(lane, session->rank, frame->request, chunk, PSD_ERR_DROPPED,
                      "the round closed with the gradients of other workers");
        return PSD_OK;
    case PSI_ADMIT_MIXED:
        answer_status(lane, session->rank, frame->request, chunk, PSD_ERR_STATE,
                      "some of the gradients of this sum have been given alone");
        return PSD_OK;
    default:
        if (chunk->table->rule.backup > 0 || chunk->adopting != NULL ||
            is_first_step(session, chunk)) {
            /* Another chunk has told it of a round that closed there: it will close here, too. Or
             * it is not known yet which round is open. Or it has joined, and the others are on their
             * way to its first step. */
            return park(chunk, session, err);
        }
        answer_too_early(lane, session->rank, frame->request, chunk, frame->step);
        return PSD_OK;
    }
}

psd_status
push_arrived(struct session *session, struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct slot *slot = session->receiving;
    struct chunk *chunk = NULL;
    enum psi_admission admission;
    psd_status status = push_target(session, &chunk, err);

    if (status != PSD_OK) {
        return status;
    }
    session->receiving = NULL;
    admission = admit(session, chunk);
    if (admission == PSI_ADMIT_COUNT) {
        return count_it(session, chunk, slot, err);
    }
    status = decline(session, chunk, admission, err);
    slot_give(&lane->pool, slot); /* it may have said which rows are asked for */
    return status;
}
