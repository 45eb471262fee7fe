/*
 * views.c - the membership of the job, as the master numbers it.
 *
 * A proposal freezes the lane: no round closes until the master has heard from every lane what the
 * leaving rank has given, and decided what of it counts (docs/consistency.md). Without the freeze
 * two lanes could close one round with two different sets of members.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/follow_view.h"
#include "rpc/post.h"
#include "server/lost_part.h"
#include "server/state.h"

#define MS_NS UINT64_C(1000000)

void
lane_renew_master(struct lane *lane)
{
    struct psd_error reason;

    psi_fail(&reason, PSD_ERR_NO_MEMORY, "no memory to answer the master");
    psi_peer_reset(&lane->master.peer, &reason);
}

static void
acknowledge(struct lane *lane, const struct psi_view_ack *ack)
{
    const struct psi_frame frame = {.type = PSI_FRAME_VIEW_ACK, .view = lane->view.id};

    if (psi_master_link_is_up(&lane->master) &&
        psi_post_view_ack(lane->master.peer.conn, &frame, ack) != PSD_OK) {
        lane_renew_master(lane);
    }
}

/* Where the chunk is, and the rank in it. */
struct standing {
    bool known;
    uint64_t version;
    uint64_t given; /* behind the last step that it gave */
    uint64_t next;  /* the first that it may still have to give */
};

/*
 * What a rank has given to an open round dies with the server: the copy has none of it. A worker that lives
 * gives it again; the replacement of one that is dead has to, too, so it begins with that round.
 */
static bool
repeats_open_rounds(const struct lane *lane)
{
    return lane->job.policy == PSI_DEATH_WAIT && lane->job.survives;
}

/*
 * With backup workers the rank has no part in most rounds it did not give to: what has closed is
 * over, whoever was in it. What it gave to an earlier life of the server is gone, unless it is in a
 * result that others have.
 */
static struct standing
standing_of(const struct lane *lane, const struct chunk *chunk, uint32_t rank)
{
    const struct psi_clock *clock = &chunk->clock;
    struct standing standing = {.known = true,
                                .version = clock->version,
                                .given = psi_clock_next(&chunk->table->members, clock, rank)};

    if (repeats_open_rounds(lane) && psi_spec_synchronous(&chunk->table->spec) &&
        clock->next[rank] > standing.version) {
        standing.given = standing.version;
    }
    if (chunk->adopting != NULL) {
        standing.known = adopt_version(lane, chunk, rank, &standing.version);
        standing.given = standing.version > chunk->table->members.joined_at[rank]
                             ? standing.version
                             : chunk->table->members.joined_at[rank];
    }
    standing.next = chunk->table->backup != NULL && standing.given < standing.version
                        ? standing.version
                        : standing.given;
    return standing;
}

/* What the rank has given of one table's chunks on this lane. */
static struct psi_given
given_of(const struct lane *lane, const struct table *table, uint32_t rank)
{
    struct psi_given given = {.table = table->id};

    given.next_min = PSI_STEP_NEVER;
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        const struct standing chunk = standing_of(lane, &table->chunks[i], rank);

        if (chunk.known) {
            given.chunks++;
            given.next_min = chunk.next < given.next_min ? chunk.next : given.next_min;
            given.next_max = chunk.next > given.next_max ? chunk.next : given.next_max;
        }
    }
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        const struct standing chunk = standing_of(lane, &table->chunks[i], rank);

        given.ahead += chunk.known && chunk.next > given.next_min;
        given.closed +=
            chunk.known && chunk.given == given.next_max && chunk.version >= given.next_max;
    }
    return given;
}

/* The first step of which the chunk has nothing; without rounds: that nobody has given. */
static uint64_t
untouched_step(const struct lane *lane, const struct chunk *chunk)
{
    uint64_t step = chunk->clock.version + (chunk->round.slots != NULL);

    if (chunk->adopting != NULL) {
        (void)adopt_version(lane, chunk, (uint32_t)lane->joining_rank, &step);
        return step + 1; /* its round may be open */
    }
    if (!psi_spec_synchronous(&chunk->table->spec)) {
        step = 0;
        for (uint32_t rank = 0; rank < lane->rows; rank++) {
            step = chunk->clock.next[rank] > step ? chunk->clock.next[rank] : step;
        }
    }
    return step;
}

uint64_t
view_promise(const struct lane *lane, uint64_t first_step)
{
    return lane->joining_rank < 0 ? PSI_STEP_NEVER : first_step;
}

/*
 * From which step on nothing of the table closes here, until it is known with which one the worker
 * begins that is about to join: not with an earlier one. The step that comes next is not held up, so
 * that nobody waits; unless training has not begun, for which the worker is in time.
 */
static struct psi_given
promise(const struct lane *lane, struct table *table)
{
    struct psi_given given = {.table = table->id, .chunks = table->chunk_count};

    for (uint64_t i = 0; i < table->chunk_count; i++) {
        const struct chunk *chunk = &table->chunks[i];
        const bool begun = chunk->pushed || table->again; /* or it may have, in an earlier life */
        const uint64_t step = untouched_step(lane, chunk) + begun;

        given.next_max = step > given.next_max ? step : given.next_max;
    }
    given.next_min = given.next_max;
    table->promised = given.next_max;
    return given;
}

/* Tells the master what the rank that leaves has given, or what one that joins comes to. */
static void
report(struct lane *lane)
{
    const bool joins = lane->joining_rank >= 0;
    const uint32_t rank = (uint32_t)lane->frozen_rank;
    struct psi_view_ack ack = {.id = lane->proposed};
    uint32_t tables = 0;

    lane->report_ns = UINT64_MAX;
    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        tables += table->chunk_count > 0;
    }
    ack.given = calloc(tables + 1, sizeof(*ack.given));
    if (ack.given == NULL) {
        lane_renew_master(lane);
        return;
    }
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        const struct psi_given given = joins ? promise(lane, table) : given_of(lane, table, rank);

        if (given.chunks > 0) {
            ack.given[ack.tables++] = given;
        }
    }
    acknowledge(lane, &ack);
    free(ack.given);
}

/* A replacement does not give what is reported as given: so nothing is before the copy has it. */
static bool
waits_for_copy(const struct lane *lane)
{
    return repeats_open_rounds(lane) && !pair_has_all_given(lane);
}

/*
 * Of chunks that are being adopted the other workers have to tell first: what the rank gave to an
 * earlier life of this server is lost, unless it is in a result that one of them has. Who has not
 * told in the time in which a silent worker is declared dead is dead, too, and leaves next. That time
 * is waited for once, and not for each of many that have left.
 */
void
view_report_look(struct lane *lane, uint64_t now_ns)
{
    const bool joins = lane->joining_rank >= 0; /* it told nobody anything, and can wait */
    const uint32_t rank = (uint32_t)(joins ? lane->joining_rank : lane->frozen_rank);

    if (lane->report_ns != UINT64_MAX && (joins || !waits_for_copy(lane)) &&
        ((now_ns >= lane->report_ns && !joins) || adopt_knows_all(lane, rank))) {
        report(lane);
    }
}

uint64_t
view_report_next_ns(const struct lane *lane)
{
    return lane->report_ns == UINT64_MAX || lane->joining_rank >= 0 || waits_for_copy(lane)
               ? UINT64_MAX
               : lane->report_ns;
}

static void
unfreeze(struct lane *lane)
{
    lane->frozen_rank = -1;
    lane->joining_rank = -1;
    lane->report_ns = UINT64_MAX;
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        table->promised = PSI_STEP_NEVER;
    }
}

/* The rank stays fenced: it is proposed again when the master has done what comes first. */
void
view_aborted(struct lane *lane)
{
    unfreeze(lane);
    psi_fail_point(server_view_aborted);
    adopt_look(lane);
    rounds_try_close_all(lane);
}

/* Has a change been proposed of which the lane has not heard how it ended? */
static bool
is_proposed(const struct lane *lane)
{
    return lane->frozen_rank >= 0 || lane->joining_rank >= 0;
}

void
view_proposed(struct lane *lane, const struct psi_propose *propose)
{
    const uint64_t now_ns = psi_now_ns(lane->env);

    if (propose->id <= lane->view.id || propose->rank >= lane->rows) {
        return; /* an old one, repeated */
    }
    if (propose->id != lane->proposed && is_proposed(lane)) {
        view_aborted(lane); /* the master called that one off while this lane was cut off */
    }
    if (lane->sessions[propose->rank] != NULL) {
        session_end(lane->sessions[propose->rank]); /* nothing more from that life */
    }
    if (propose->joins) {
        lane->joining_rank = (int64_t)propose->rank;
    } else {
        psi_view_fence(&lane->view, propose->rank); /* nor does it come back before the commit */
        lane->frozen_rank = (int64_t)propose->rank;
    }
    lane->proposed = propose->id;
    lane->report_ns = lane->told_by_ns;
    psi_fail_point(server_view_proposed);
    view_report_look(lane, now_ns);
}

void
lane_tell_done(const struct lane *lane, uint32_t rank)
{
    if (lane->config.lane == 0) { /* once for the server */
        psi_log(&lane->log, PSI_LOG_INFO, "WORKER-DONE", "ps %u received done %u",
                lane->config.server, rank);
    }
}

/* What it gave of its last step counts, or not, as was decided. Nothing of the next one does: it had begun that if it alone
 * knew a result that died with a server. */
static void
drop_given(struct lane *lane, const struct table *table, const struct psi_view_table *decision,
           uint32_t rank)
{
    for (uint64_t i = 0; psi_spec_synchronous(&table->spec) && i < table->chunk_count; i++) {
        const uint64_t version = table->chunks[i].clock.version;

        if (version > decision->left_at || (decision->drop && version == decision->left_at)) {
            round_drop(lane, &table->chunks[i], rank);
        }
    }
}

static void
rank_leaves(struct lane *lane, const struct psi_view *view)
{
    lane_tell_done(lane, view->who);
    for (uint32_t i = 0; i < view->tables; i++) {
        const struct psi_view_table *decision = &view->table[i];
        struct table *table = table_find(lane, decision->id);

        if (table == NULL) {
            continue;
        }
        table->members.left_at[view->who] = decision->left_at;
        drop_given(lane, table, decision, view->who);
    }
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        if (table->members.left_at[view->who] == PSI_STEP_NEVER) {
            table->members.left_at[view->who] = 0; /* it never gave anything of this one */
        }
    }
}

/* This life has missed the view by which the rank left: it was on its way into the job. It has nothing of the rank,
 * and whatever was decided of that was lost with the life before. */
static void
rank_has_left(struct lane *lane, uint32_t rank)
{
    lane_tell_done(lane, rank);
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        table->members.left_at[rank] = 0;
    }
}

/* It takes part from the steps on that the journal has in mind for it: those of the view, or told before. */
static void
rank_joins(struct lane *lane, uint32_t rank)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        table->members.left_at[rank] = PSI_STEP_NEVER;
    }
}

/*
 * What was told as not given is not there: the replacement gives it. A round that closed with what its
 * predecessor gave would let the others go on to the next step, and the replacement would ask them for the
 * weights of this one, which nobody has any more.
 */
static void
rank_is_replaced(struct lane *lane, uint32_t rank)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; psi_spec_synchronous(&table->spec) && i < table->chunk_count; i++) {
            round_drop(lane, &table->chunks[i], rank);
        }
    }
}

/* Where the rank was in the last round that closed, and is not in the open one: what the owner had of that
 * is lost. Of several steps the first; what comes behind it the rank had not begun. One that has joined has no part in
 * the steps before its first. */
static struct lost_part
open_part_of(const struct table *table, uint32_t rank)
{
    struct lost_part part = {.step = PSI_STEP_NEVER};

    for (uint64_t i = 0; i < table->chunk_count; i++) {
        const struct psi_clock *clock = &table->chunks[i].clock;
        const bool lacks_it =
            clock->next[rank] == clock->version && clock->version >= table->members.joined_at[rank];

        if (lacks_it && clock->version < part.step) {
            part = (struct lost_part){.step = clock->version};
        }
        part.chunks += lacks_it && clock->version == part.step;
    }
    return part;
}

/* Has it left by this view, as far as this lane knows? Who has had no life yet may still join. */
static bool
has_left(const struct psi_view *old, const struct psi_view *now, uint32_t rank)
{
    return !now->worker[rank].member && now->worker[rank].incarnation > 0 &&
           (old->id == 0 || old->worker[rank].member);
}

/* A copy has none of what the owner kept for an open round. Nor does it know whether the owner had any. */
static void
tell_lost_parts(const struct lane *lane, const struct table *table, const struct psi_view *old,
                const struct psi_view *now)
{
    uint32_t told = 0;

    for (uint32_t rank = 0; rank < now->workers; rank++) {
        if (has_left(old, now, rank)) {
            lost_part_tell(lane, table, rank, open_part_of(table, rank), &told);
        }
    }
    lost_part_tell_rest(lane, table, told);
}

/* A copy has its place, or hears for the first time who is in the job: what those who have left had
 * given to open rounds is lost with the owner, and what had closed has closed. Nobody waits for them. */
static void
take_members(struct lane *lane, const struct psi_view *old, const struct psi_view *now)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        if (psi_spec_synchronous(&table->spec) && !repeats_open_rounds(lane)) {
            tell_lost_parts(lane, table, old, now);
        }
        for (uint32_t rank = 0; rank < now->workers; rank++) {
            table->members.left_at[rank] = now->worker[rank].member ? PSI_STEP_NEVER : 0;
        }
    }
}

static psd_status
on_view(void *owner, const struct psi_view *old, const struct psi_view *now, struct psd_error *err)
{
    struct lane *lane = owner;
    const struct psi_view_place *here =
        psi_view_place(&lane->view, lane->config.server, lane->config.lane);
    psd_status status;

    for (uint32_t rank = 0; rank < now->workers; rank++) {
        const enum psi_rank_change change = psi_view_rank(old, now, rank);

        if (lane->sessions[rank] != NULL && change != PSI_RANK_STAYS) {
            session_end(lane->sessions[rank]); /* nothing more from that life */
        }
        if (change == PSI_RANK_REPLACED && repeats_open_rounds(lane)) {
            rank_is_replaced(lane, rank);
        }
        if (change == PSI_RANK_JOINS) {
            rank_joins(lane, rank); /* also if this life has missed the view that brought it */
        }
        if (change == PSI_RANK_LEAVES &&
            (now->change != PSI_VIEW_WORKER_LEFT || now->who != rank)) {
            rank_has_left(lane, rank);
        }
    }
    lane->since = here == NULL ? 0 : here->since;
    if (lane->since == now->id) {
        lane->told_by_ns = psi_now_ns(lane->env) + lane->job.dead_ms * MS_NS;
    }
    unfreeze(lane);
    if (lane->promoted != 0 && (old->id == 0 || lane->since == now->id)) {
        take_members(lane, old, now);
    }
    /* A master that returned says again what the last one had decided: to most it is not new. */
    if (now->change == PSI_VIEW_WORKER_LEFT &&
        psi_view_rank(old, now, now->who) == PSI_RANK_LEAVES) {
        rank_leaves(lane, now);
        hold_rank_left(lane, now->who);
    }
    status = journal_resume(lane, now, err);
    adopt_look(lane);
    rounds_try_close_all(lane);
    return status;
}

psd_status
view_arrived(struct lane *lane, const void *body, size_t bytes, struct psd_error *err)
{
    const uint32_t had = lane->view.id;
    struct psi_view_ack ack = {0};
    void *copy = malloc(bytes + 1);
    psd_status status;

    if (copy == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a view");
    }
    if (bytes > 0) {
        memcpy(copy, body, bytes);
    }
    psi_fail_point(server_view_arrived);
    pair_view_comes(lane, true);
    status = psi_follow_view(&lane->view, body, bytes, on_view, lane, &ack.id, err);
    pair_view_comes(lane, false);
    if (lane->view.id != had) {
        free(lane->journal.view);
        lane->journal.view = copy;
        lane->journal.view_bytes = bytes;
        pair_view(lane, copy, bytes);
        psi_fail_point(server_view_taken);
    } else {
        free(copy);
    }
    if (status == PSD_OK) {
        acknowledge(lane, &ack);
        psi_fail_point(server_view_acked);
    }
    return status;
}
