/*
 * adopt.c - a chunk of which an earlier life of this server had everything, and this one nothing.
 *
 * Each worker tells where it is in it (ADOPT): the first step that it is not through with, and
 * whether it can show a result. Until every member has, nothing of the chunk moves: pushes and reads
 * wait. Then let c be the smallest of those steps. Every round before c is over, for everybody.
 *
 *   - Some have yet to be given the result of c, and somebody has it: the round closed in the
 *     earlier life. Who has it is asked to show it (GIVE), and that answers the pushes of c that
 *     are repeated. It is never made anew: somebody may have gone on with it.
 *   - Nobody has it: the round was open. Everybody gives the gradient again, and has it still.
 *   - Everybody has it: the next round is open. The value is blank: nobody needs it, nobody can
 *     read it.
 *
 * What fits none of these cannot be made anew, and the job fails, naming the worker that has gone on
 * without a result that it could show.
 *
 * Invariants
 *   - while the lane is frozen no chunk opens: what the master was told of it stays true;
 *   - a worker that is gone is not asked; one that has left is not waited for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "rpc/post.h"
#include "server/adopt_reports.h"
#include "server/lost_part.h"

struct adoption {
    uint64_t left; /* chunks that have not been opened */
    struct adopting *chunks;
    struct report *reports;
    struct lost_part *lost; /* by rank, LOST_STEPS_MAX each */
};

/* ---- begin and end ------------------------------------------------------------------------- */

uint64_t
adopt_bytes(const struct lane *lane, uint64_t chunks)
{
    return sizeof(struct adoption) +
           chunks * (sizeof(struct adopting) + lane->rows * sizeof(struct report)) +
           lane->rows * LOST_STEPS_MAX * sizeof(struct lost_part);
}

void
adopt_free(struct table *table)
{
    if (table->adoption != NULL) {
        free(table->adoption->lost);
        free(table->adoption->reports);
        free(table->adoption->chunks);
        free(table->adoption);
        table->adoption = NULL;
    }
}

static void
count_missing(const struct lane *lane, struct adopting *adopting)
{
    adopting->missing = 0;
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        adopting->missing += adopt_is_member(lane, rank) && !adopting->reports[rank].here;
    }
}

psd_status
adopt_begin(struct lane *lane, struct table *table, struct psd_error *err)
{
    struct adoption *adoption = calloc(1, sizeof(*adoption));

    table->adoption = adoption;
    if (adoption != NULL) {
        adoption->chunks = calloc(table->chunk_count, sizeof(*adoption->chunks));
        adoption->reports = calloc(table->chunk_count * lane->rows, sizeof(*adoption->reports));
        adoption->lost = calloc((size_t)lane->rows * LOST_STEPS_MAX, sizeof(*adoption->lost));
    }
    if (adoption == NULL || adoption->chunks == NULL || adoption->reports == NULL ||
        adoption->lost == NULL) {
        adopt_free(table);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory to adopt %llu chunks",
                        table->spec.name, (unsigned long long)table->chunk_count);
    }
    adoption->left = table->chunk_count;
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        struct adopting *adopting = &adoption->chunks[i];

        adopting->reports = adoption->reports + i * lane->rows;
        adopting->asked = NOBODY;
        count_missing(lane, adopting);
        table->chunks[i].adopting = adopting;
        table->chunks[i].ready = false;
    }
    psi_fail_point(server_adopt_begun);
    return PSD_OK;
}

/*
 * The chunk opens at `version`. What those who have left gave to that round in the earlier life is lost. So is what they
 * gave to the next one, if nobody else had the result of this one. How far they came the view says, and with which step
 * those began that had joined the table.
 */
static void
count_lost(const struct lane *lane, const struct table *table, uint64_t version)
{
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        const struct psi_view_worker *worker = &lane->view.worker[rank];
        const uint64_t first = table->members.joined_at[rank];
        struct lost_part *lost = table->adoption->lost + rank * LOST_STEPS_MAX;

        if (worker->member || worker->incarnation == 0 || version >= worker->counts_until) {
            continue; /* it never came to that step */
        }
        if (version >= first) {
            lost_part_add(lost, version);
        }
        if (version + 1 >= first && version + 3 == worker->counts_until) {
            lost_part_add(lost, version + 1); /* it gave all of the next one */
        }
    }
}

static void
tell_lost(const struct lane *lane, const struct table *table)
{
    uint32_t told = 0;

    for (uint32_t i = 0; i < lane->rows * LOST_STEPS_MAX; i++) {
        lost_part_tell(lane, table, i / LOST_STEPS_MAX, table->adoption->lost[i], &told);
    }
    lost_part_tell_rest(lane, table, told);
}

/* The last chunk of the table is open. */
static void
end_adoption(struct lane *lane, struct table *table)
{
    const uint64_t bytes = adopt_bytes(lane, table->chunk_count);

    tell_lost(lane, table);
    adopt_free(table);
    table->bytes -= bytes;
    lane->memory_used -= bytes;
}

/*
 * The chunk is what it was at `version`. Of those who have left, nothing is awaited, whatever the
 * master decided that they gave: it was lost.
 */
static void
open_chunk(struct lane *lane, struct chunk *chunk, uint64_t version, bool blank)
{
    struct table *table = chunk->table;

    chunk->adopting = NULL;
    chunk->ready = true;
    chunk->blank = blank;
    chunk->pushed = version != table->first_step;
    chunk->updates = version;
    chunk->clock.version = version;
    chunk->clock.committed = version;
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        const uint64_t left_at = table->members.left_at[rank];
        const bool gave_nothing = left_at <= table->members.joined_at[rank];

        chunk->clock.next[rank] =
            adopt_is_member(lane, rank) || left_at < version || gave_nothing ? version : left_at;
    }
    count_lost(lane, table, version);
    if (--table->adoption->left == 0) {
        end_adoption(lane, table);
    }
}

static void
go_on(struct lane *lane, struct chunk *chunk)
{
    psi_fail_point(server_adopt_opened);
    hold_opened(lane, chunk);
    round_go_on(lane, chunk);
}

/* ---- what to do with a chunk of which all have told ---------------------------------------- */

static uint32_t
first_of(const struct psi_ranks *ranks)
{
    uint32_t rank = 0;

    while (rank < PSI_RANKS_MAX && !psi_ranks_has(ranks, rank)) {
        rank++;
    }
    return rank;
}

static void
fail(struct lane *lane, const struct chunk *chunk, const struct findings *findings)
{
    const uint32_t ahead = (uint32_t)(findings->far != NOBODY ? findings->far : findings->ahead);
    const struct psi_ranks *behind =
        psi_ranks_count(&findings->pushers) > 0 ? &findings->pushers : &findings->holders;
    char text[PSI_TEXT_MAX];

    snprintf(text, sizeof(text),
             "server %u was lost, and table %s chunk %u cannot be made anew: worker %u has gone on "
             "to step %llu, worker %u is still in step %llu, and nobody can show its result",
             lane->config.server, chunk->table->spec.name, chunk->index, ahead,
             (unsigned long long)chunk->adopting->reports[ahead].base, first_of(behind),
             (unsigned long long)findings->step);
    lane_fail_job(lane, PSD_ERR_PEER_LOST, PSI_EXIT_SERVER_LOST, text);
}

static void
say_give(const struct lane *lane, const struct chunk *chunk)
{
    const struct adopting *adopting = chunk->adopting;
    struct session *session = lane->sessions[adopting->asked];
    const struct psi_frame frame = {
        .type = PSI_FRAME_GIVE,
        .view = lane->view.id,
        .request = adopting->asked_part,
        .table = chunk->table->id,
        .chunk = chunk->index,
        .step = adopting->asked_step,
    };

    if (psi_post(session->guest.conn, &frame) != PSD_OK) {
        psi_guest_doom(&session->guest); /* it is asked when it is back */
    }
    psi_fail_point(server_adopt_asked);
}

/* Asks one that is here for the result; if none is, the next that comes back is asked. */
static void
ask(struct lane *lane, struct chunk *chunk, const struct findings *findings)
{
    struct adopting *adopting = chunk->adopting;
    uint32_t rank = 0;

    if (adopting->asked != NOBODY && adopting->asked_step == findings->step) {
        return;
    }
    adopting->asked = NOBODY;
    while (rank < lane->rows &&
           (lane->sessions[rank] == NULL || !psi_ranks_has(&findings->showers, rank))) {
        rank++;
    }
    if (rank < lane->rows) {
        adopting->asked = rank;
        adopting->asked_step = findings->step;
        adopting->asked_part = 0;
        say_give(lane, chunk);
    }
}

/* The round of `step` is over, and everybody has its result. */
static void
open_behind(struct lane *lane, struct chunk *chunk, const struct findings *findings)
{
    open_chunk(lane, chunk, findings->step + 1, true);
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        if (psi_ranks_has(&findings->holders, rank)) {
            hold_release(lane, chunk, rank, findings->step);
        }
    }
    go_on(lane, chunk);
}

/* Only what a table begins with is, unless a worker gave it. */
static bool
is_known(const struct table *table, uint64_t version)
{
    return version == table->first_step && table->spec.init != PSD_INIT_RANK0;
}

static void
examine(struct lane *lane, struct chunk *chunk)
{
    struct findings findings;

    if (chunk->adopting->missing > 0 || lane->frozen_rank >= 0 || lane->finished) {
        return;
    }
    findings = adopt_find(lane, chunk);
    if (findings.step == PSI_STEP_NEVER) {
        return; /* no member is left */
    }
    if (findings.far != NOBODY) {
        fail(lane, chunk, &findings);
    } else if (psi_ranks_count(&findings.pushers) == 0) {
        open_behind(lane, chunk, &findings);
    } else if (psi_ranks_count(&findings.showers) > 0) {
        ask(lane, chunk, &findings);
    } else if (findings.ahead != NOBODY) {
        fail(lane, chunk, &findings);
    } else {
        open_chunk(lane, chunk, findings.step, !is_known(chunk->table, findings.step));
        go_on(lane, chunk);
    }
}

/* ---- ADOPT --------------------------------------------------------------------------------- */

/* Runs rise: no chunk is told of twice. */
static psd_status
check_run(const struct table *table, const struct psi_adopt_run *run, uint32_t first,
          struct psd_error *err)
{
    if (run->first < first || run->first + (uint64_t)run->count > table->chunks_in_all ||
        run->base >= PSI_STEP_NEVER - 1 || (run->has == PSI_HAS_KEPT && run->base == 0)) {
        return psi_fail(
            err, PSD_ERR_PROTOCOL, "ADOPT of table %s: %u chunks from %u on, base %llu, kind %d",
            table->spec.name, run->count, run->first, (unsigned long long)run->base, (int)run->has);
    }
    return PSD_OK;
}

/* Told again after a cut, of a chunk that is open: what it has counts as a GOT. */
static psd_status
told_again(const struct session *session, struct chunk *chunk, const struct psi_adopt_run *run,
           struct psd_error *err)
{
    if (run->has == PSI_HAS_HELD && run->base >= chunk->clock.committed) {
        return psi_fail(
            err, PSD_ERR_PROTOCOL,
            "ADOPT: the result of step %llu of table %s chunk %u, but step %llu is open",
            (unsigned long long)run->base, chunk->table->spec.name, chunk->index,
            (unsigned long long)chunk->clock.committed);
    }
    if (run->has == PSI_HAS_HELD) {
        hold_got(session->lane, chunk, session->rank, run->base);
    } else {
        hold_at_base(session->lane, chunk, session->rank, run->base);
    }
    return PSD_OK;
}

static psd_status
tell(const struct session *session, struct chunk *chunk, const struct psi_adopt_run *run,
     struct psd_error *err)
{
    struct report *report;

    if (chunk->adopting == NULL) {
        return told_again(session, chunk, run, err);
    }
    report = &chunk->adopting->reports[session->rank];
    chunk->adopting->missing -= !report->here && adopt_is_member(session->lane, session->rank);
    *report = (struct report){.here = true, .has = (uint8_t)run->has, .base = run->base};
    psi_fail_point(server_adopt_told);
    examine(session->lane, chunk);
    return PSD_OK;
}

/* A run may go over chunks that are on other lanes. */
static psd_status
tell_run(const struct session *session, const struct table *table, const struct psi_adopt_run *run,
         struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (uint32_t i = 0; i < run->count && status == PSD_OK; i++) {
        struct chunk *chunk = table_chunk(table, run->first + i);

        if (chunk != NULL) {
            status = tell(session, chunk, run, err);
        }
    }
    return status;
}

static psd_status
tell_all(const struct session *session, const struct table *table, struct psi_adopt *adopt,
         const void *payload, size_t bytes, struct psd_error *err)
{
    psd_status status = psi_adopt_decode(payload, bytes, adopt, err);
    uint32_t end = 0;

    for (uint32_t i = 0; i < adopt->runs && status == PSD_OK; i++) {
        status = check_run(table, &adopt->run[i], end, err);
        end = adopt->run[i].first + adopt->run[i].count;
        if (status == PSD_OK) {
            status = tell_run(session, table, &adopt->run[i], err);
        }
    }
    return status;
}

psd_status
adopt_arrived(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    const struct table *table = table_find(session->lane, session->guest.inbox.frame.table);
    struct psi_adopt adopt = {0};
    psd_status status;

    if (table == NULL || table->held == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "ADOPT: no table %u here that outlives a server",
                        session->guest.inbox.frame.table);
    }
    adopt.run = malloc(PSI_ADOPT_RUNS_MAX * sizeof(*adopt.run));
    if (adopt.run == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "ADOPT of table %s: no memory", table->spec.name);
    }
    status = tell_all(session, table, &adopt, payload, bytes, err);
    free(adopt.run);
    return status; /* the master is told with the next turn, if it waits for what was told */
}

/* ---- a result that is shown ---------------------------------------------------------------- */

/* Of a tensor it has the size of the chunk. */
static psd_status
check_result(const struct session *session, const struct chunk *chunk, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct table *table = chunk->table;
    struct store_piece value;

    value = table->store->ops->part(table->store, chunk->place, PSI_PART_VALUE, chunk->current);
    if (frame->type != PSI_FRAME_PUSH || (frame->flags & PSI_FLAG_EMPTY) != 0 ||
        frame->level != 0 || session->guest.inbox.meta.has_node ||
        frame->codec != PSI_CODEC_IDENTITY || frame->dtype != (uint8_t)table->spec.dtype ||
        frame->payload_bytes != value.bytes) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "a result of chunk %u of table %s: %u bytes of type %u, expected %zu of %s",
                        frame->chunk, table->spec.name, frame->payload_bytes, frame->dtype,
                        value.bytes, psi_dtype_name(table->spec.dtype));
    }
    return PSD_OK;
}

static psd_status
result_target(const struct session *session, struct chunk **chunk_p, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct table *table = table_find(session->lane, frame->table);
    struct chunk *chunk = table == NULL ? NULL : table_chunk(table, frame->chunk);
    psd_status status;

    if (chunk == NULL || !table->again || psi_frame_wants_value(frame->type)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "a result of chunk %u of table %u: nobody asked for it", frame->chunk,
                        frame->table);
    }
    status = psi_spec_is_sparse(&table->spec) ? rows_target(session, chunk, err)
                                              : check_result(session, chunk, err);
    *chunk_p = status == PSD_OK ? chunk : NULL;
    return status;
}

/* Not where it belongs: the connection may end half-way, and another worker be asked. */
psd_status
result_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    struct chunk *chunk = NULL;
    const psd_status status = result_target(session, &chunk, err);

    return status == PSD_OK ? psi_inbox_body(&session->guest.inbox, sink_p, err) : status;
}

/* The result of the round is here: it answers those who push, and they release those who hold it. */
static void
open_shown(struct lane *lane, struct chunk *chunk)
{
    const struct findings findings = adopt_find(lane, chunk);

    psi_fail_point(server_adopt_shown);
    open_chunk(lane, chunk, findings.step + 1, false);
    hold_adopted(chunk, findings.step, &findings.pushers, &findings.holders);
    go_on(lane, chunk);
}

static void
take_value(struct lane *lane, const struct chunk *chunk, const void *value)
{
    struct store *store = chunk->table->store;
    const struct store_piece piece =
        store->ops->part(store, chunk->place, PSI_PART_VALUE, chunk->current);

    timed_copy(lane, piece.base, value, piece.bytes);
    store->ops->value_loaded(store, chunk->place, chunk->current);
}

/* Rows are asked for part by part: all of them may be more than a connection takes at once. */
static psd_status
rows_came(struct session *session, struct chunk *chunk, const void *payload, size_t bytes,
          struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct adopting *adopting = chunk->adopting;
    const psd_status status =
        rows_shown(session, chunk, payload, bytes, adopting->asked_part == 0, err);

    if (status == PSD_ERR_NO_MEMORY) {
        lane_fail_job(lane, status, PSI_EXIT_NO_ROOM, err->text);
    }
    if (status != PSD_OK || !table_may_stay(lane, chunk->table)) {
        return status;
    }
    if ((session->guest.inbox.frame.flags & PSI_FLAG_MORE) != 0) {
        adopting->asked_part++;
        say_give(lane, chunk);
    } else {
        open_shown(lane, chunk);
    }
    return PSD_OK;
}

/* Members may have changed since it was asked for: then nobody waits for it any more. */
psd_status
result_arrived(struct session *session, const void *payload, size_t bytes, struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct chunk *chunk = NULL;
    const psd_status status = result_target(session, &chunk, err);
    struct adopting *adopting = status == PSD_OK ? chunk->adopting : NULL;

    if (adopting == NULL || adopting->asked != (int64_t)session->rank ||
        adopting->asked_step != session->guest.inbox.frame.step ||
        adopting->asked_part != session->guest.inbox.frame.request) {
        return status;
    }
    if (lane->frozen_rank >= 0) {
        adopting->asked = NOBODY; /* again, when it may open */
        return PSD_OK;
    }
    if (psi_spec_is_sparse(&chunk->table->spec)) {
        return rows_came(session, chunk, payload, bytes, err);
    }
    take_value(lane, chunk, payload);
    open_shown(lane, chunk);
    return PSD_OK;
}

/* ---- changes ------------------------------------------------------------------------------- */

/* Examines all chunks that are not open. Each may be the last one of its table. */
void
adopt_look(struct lane *lane)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->adoption != NULL && i < table->chunk_count; i++) {
            struct chunk *chunk = &table->chunks[i];

            if (chunk->adopting != NULL) {
                count_missing(lane, chunk->adopting);
                examine(lane, chunk);
            }
        }
    }
}

/* What it was asked for another is asked for. */
void
adopt_session_gone(const struct session *session)
{
    struct lane *lane = session->lane;

    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->adoption != NULL && i < table->chunk_count; i++) {
            struct chunk *chunk = &table->chunks[i];

            if (chunk->adopting != NULL && chunk->adopting->asked == (int64_t)session->rank) {
                chunk->adopting->asked = NOBODY;
                examine(lane, chunk);
            }
        }
    }
}
