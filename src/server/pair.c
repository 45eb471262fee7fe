/*
 * pair.c - a lane that has a copy: what the copy is told, and what waits for it.
 *
 * Each chunk joins by itself: ALONE until its snapshot is made, JOINING until the copy has that,
 * PAIRED from then on. Before it is PAIRED its answers wait for nobody, so what was told then the
 * copy may lack: only when it has all of that does the lane call it eligible, and only then may it
 * take the lane's place. The lane goes on alone when the master says so, and never because a
 * connection broke: the copy may be alive, and be given the place in this very moment.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/identity.h"
#include "rpc/post.h"
#include "server/state.h"

#define MS_NS UINT64_C(1000000)

enum {
    SLOW_MS = 1000,       /* before a line about a copy that is slow, ... */
    SLOW_LINE_MS = 10000, /* ... and between two of them */
    AGAIN_MS = 500,       /* before the copy that has the place is looked for */
};

bool
pair_has_table(const struct table *table)
{
    return !table->is_remade;
}

void
pair_break(struct lane *lane, const char *format, ...)
{
    struct pair *pair = lane->pair;
    va_list args;

    if (pair == NULL || pair->is_broken) {
        return;
    }
    pair->is_broken = true;
    va_start(args, format);
    vsnprintf(pair->reason, sizeof(pair->reason), format, args);
    va_end(args);
}

/* ---- the connection ------------------------------------------------------------------------ */

static void
hello(void *owner, struct psi_peer *peer, struct psi_hello *hello_p)
{
    const struct lane *lane = owner;

    (void)peer;
    hello_p->role = PSI_ROLE_SERVER;
    hello_p->rank = lane->config.server;
    hello_p->lane = lane->config.lane;
    hello_p->lanes = lane->config.lanes;
    hello_p->incarnation = lane->job.incarnation;
    hello_p->life = lane->life;
    hello_p->kernel_revision = PSI_KERNEL_REVISION;
    hello_p->job = lane->job.job;
    hello_p->view = lane->view.id;
    hello_p->pair = lane->pair->number;
}

static void
on_up(void *owner, struct psi_peer *peer, const struct psi_welcome *welcome)
{
    struct lane *lane = owner;

    (void)peer;
    (void)welcome;
    lane->pair->is_met = false; /* it says next what it has; only that is a sign of life */
}

static void
on_down(void *owner, struct psi_peer *peer, const struct psd_error *reason)
{
    struct lane *lane = owner;

    (void)peer;
    psi_log(&lane->log, PSI_LOG_DEBUG, "COPY-CUT", "%s: %s", lane->pair->copy.address,
            reason->text);
    lane->pair->is_met = false;
    if (lane->pair->has_given) { /* most likely it has the place, and listens to us no more */
        lane->pair->again_ns = psi_now_ns(lane->env) + AGAIN_MS * MS_NS;
    }
}

static void
on_refused(void *owner, struct psi_peer *peer, const struct psi_verdict *verdict)
{
    (void)peer;
    pair_break(owner, "refused: %.300s", verdict->text);
}

static psd_status
acked(struct lane *lane, const struct psi_frame *frame, struct psd_error *err)
{
    struct pair *pair = lane->pair;
    struct parcel *parcel;
    bool lacked_view;

    if (frame->seq > pair->last || frame->seq < pair->acked) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "REPLICATE_ACK of %llu, expected %llu to %llu",
                        (unsigned long long)frame->seq, (unsigned long long)pair->acked,
                        (unsigned long long)pair->last);
    }
    if (frame->seq > pair->acked || pair->first == NULL) { /* else it only came back */
        pair->heard_ns = psi_now_ns(lane->env);
    }
    lacked_view = !pair_has_view(lane);
    pair->acked = frame->seq;
    psi_fail_point(server_pair_acked);
    while (!lane->finished && (parcel = pair_take_acked(pair)) != NULL) {
        pair_parcel_arrived(lane, parcel);
        parcel_free(parcel);
    }
    if (!pair->is_met) {
        pair->is_met = true;
        pair_send_again(lane);
    }
    if (!lane->finished) {
        pair_slots_go_on(lane);
    }
    pair_steps_answer(lane);
    if (lacked_view && pair_has_view(lane)) {
        rounds_try_close_all(lane);
    }
    view_report_look(lane, psi_now_ns(lane->env));
    return PSD_OK;
}

static psd_status
on_frame(void *owner, struct psi_peer *peer, void *payload, size_t bytes, struct psd_error *err)
{
    struct lane *lane = owner;
    const struct psi_frame *frame = &peer->inbox.frame;
    struct psi_verdict verdict;

    if (frame->type == PSI_FRAME_PONG) {
        return PSD_OK; /* it is reached; what it was told is another matter */
    }
    if (frame->type != PSI_FRAME_REPLICATE_ACK) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from a copy: not expected",
                        psi_frame_type_name(frame->type));
    }
    if (frame->status == PSD_OK) {
        return acked(lane, frame, err);
    }
    if (psi_verdict_decode(payload, bytes, &verdict, err) != PSD_OK) {
        return err->status;
    }
    pair_break(lane, "%.400s", verdict.text);
    return PSD_OK;
}

static const struct psi_peer_events copy_events = {
    .hello = hello,
    .on_up = on_up,
    .on_down = on_down,
    .on_refused = on_refused,
    .on_frame = on_frame,
};

/* ---- beginning and ending ------------------------------------------------------------------ */

static void
chunks_begin(struct lane *lane, struct table *table)
{
    table->alone = table->chunk_count;
    table->alone_at = 0;
    lane->pair->unpaired += table->chunk_count;
    lane->pair->alone += table->chunk_count;
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        table->chunks[i].copy = (struct chunk_copy){.mode = COPY_ALONE};
    }
}

/* Where replacements of workers go on: another life of the master may ask the copy alone. */
static bool
tell_resumes(struct lane *lane, uint32_t table)
{
    uint32_t rank;
    uint64_t step;

    for (uint32_t i = 0; journal_resume_at(lane, table, i, &rank, &step); i++) {
        struct parcel *parcel = parcel_of_body(PSI_FRAME_TABLE_RESUME, table, NULL, 0);

        if (parcel == NULL) {
            return false;
        }
        parcel->frame.rank = (uint16_t)rank;
        parcel->frame.step = step;
        pair_enqueue(lane, parcel);
    }
    return true;
}

/* Everything that the lane has so far: small things now, chunks one after the other later. */
static void
tell_all(struct lane *lane)
{
    size_t bytes;

    if (lane->journal.view != NULL) {
        pair_view(lane, lane->journal.view, lane->journal.view_bytes);
    }
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        const void *body = pair_has_table(table) ? journal_table(lane, table->id, &bytes) : NULL;
        struct parcel *parcel;

        if (body == NULL) {
            continue;
        }
        chunks_begin(lane, table);
        parcel = parcel_of_body(PSI_FRAME_TABLE_OPEN, table->id, body, bytes);
        if (parcel != NULL) {
            pair_enqueue(lane, parcel);
        }
        if (parcel == NULL || !tell_resumes(lane, table->id)) {
            pair_break(lane, "no memory to tell it of table %s", table->spec.name);
            return;
        }
    }
    if (!pair_steps_begin(lane)) {
        pair_break(lane, "no memory to tell it of the global step");
    }
}

static void
begin(struct lane *lane, uint64_t number, const struct psi_pair *copy)
{
    struct pair *pair = calloc(1, sizeof(*pair));

    if (pair == NULL) { /* the order is said again on a new connection */
        lane_renew_master(lane);
        return;
    }
    pair->number = number;
    pair->rate = lane->master.peer.inbox.frame.step;
    pair->copy = *copy;
    pair->end = &pair->first;
    pair->waits_end = &pair->waits;
    pair->heard_ns = psi_now_ns(lane->env);
    psi_peer_start(&pair->peer, lane->env, copy->address, &copy_events, lane, 0);
    psi_identity_standby(pair->peer.name, copy->server, copy->lane);
    lane->pair = pair;
    lane->replicate = replicate_to_copy;
    pair_slots_init(lane);
    psi_log(&lane->log, PSI_LOG_DEBUG, "COPY", "a lane of server %u (%s) is to be its copy",
            copy->server, copy->address);
    tell_all(lane);
    pair->begun = pair->last;
    psi_fail_point(server_pair_begun);
}

void
pair_destroy(struct lane *lane)
{
    struct pair *pair = lane->pair;

    if (pair == NULL) {
        return;
    }
    psi_peer_close(&pair->peer);
    pair_empty(pair);
    pair_slots_fini(lane);
    pair_steps_free(pair);
    free(pair);
    lane->pair = NULL;
    lane->replicate = replicate_alone;
}

/* What waited for the copy waits no more. */
static void
go_alone(struct lane *lane)
{
    lane->goes_alone = false; /* an order that comes before the next tick begins another pair */
    lane->pair->acked = UINT64_MAX;
    pair_steps_answer(lane);
    pair_destroy(lane);
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; i < table->chunk_count && pair_has_table(table); i++) {
            table->chunks[i].copy = (struct chunk_copy){.mode = COPY_ALONE};
            table->chunks[i].clock.committed = table->chunks[i].clock.version;
        }
    }
    psi_fail_point(server_pair_alone);
    rounds_try_close_all(lane);
    view_report_look(lane, psi_now_ns(lane->env));
}

psd_status
pair_ordered(struct lane *lane, const void *body, size_t bytes, struct psd_error *err)
{
    const uint64_t number = lane->master.peer.inbox.frame.seq;
    struct psi_pair copy;
    const psd_status status = psi_pair_decode(body, bytes, &copy, err);

    if (status != PSD_OK) {
        return status;
    }
    if (lane->pair != NULL && lane->pair->number == number) { /* it is asked how that goes */
        lane->pair->is_told = false;
        lane->pair->is_lost_told = false;
        return PSD_OK;
    }
    if (lane->pair != NULL && lane->pair->number > number) {
        return PSD_OK; /* an old one */
    }
    if (lane->pair != NULL) { /* the master has ended the last one, or there would be no next */
        go_alone(lane);
    }
    psi_fail_point(server_pair_ordered);
    begin(lane, number, &copy);
    return PSD_OK;
}

void
pair_ended(struct lane *lane, uint64_t number)
{
    lane->goes_alone = lane->pair != NULL && lane->pair->number <= number;
    psi_fail_point(server_pair_ended);
}

/* ---- views --------------------------------------------------------------------------------- */

void
pair_view(struct lane *lane, const void *body, size_t bytes)
{
    struct parcel *parcel;

    if (lane->pair == NULL) {
        return;
    }
    parcel = parcel_of_body(PSI_FRAME_VIEW_COMMIT, 0, body, bytes);
    if (parcel == NULL) {
        pair_break(lane, "no memory to tell it of view %u", lane->view.id);
        lane->pair->view = UINT64_MAX;
    } else {
        lane->pair->view = pair_enqueue(lane, parcel);
    }
}

void
pair_view_comes(struct lane *lane, bool comes)
{
    if (lane->pair != NULL) {
        lane->pair->view_comes = comes;
    }
}

bool
pair_has_view(const struct lane *lane)
{
    const struct pair *pair = lane->pair;

    return pair == NULL || !pair->is_eligible || (pair->acked >= pair->view && !pair->view_comes);
}

/* ---- time ---------------------------------------------------------------------------------- */

/* As long as a member may be silent if it is not reached. If it is, twice as long: it may only be slow, and
 * if it is dead the master knows better, and sooner. */
static uint64_t
patience_ms(const struct lane *lane)
{
    return (lane->pair->peer.state == PSI_PEER_UP ? 2 : 1) * (uint64_t)lane->job.dead_ms;
}

/* Does it owe us anything? */
static bool
is_awaited(const struct pair *pair)
{
    return pair->first != NULL || !pair->is_met || pair->peer.state != PSI_PEER_UP;
}

/* There is always something on its way to the copy: so the kernel notices that nothing comes back while
 * nobody changes anything, too. */
void
pair_beat(const struct lane *lane)
{
    const struct pair *pair = lane->pair;
    const struct psi_frame frame = {.type = PSI_FRAME_PING, .view = lane->view.id};

    if (pair != NULL && pair->peer.state == PSI_PEER_UP &&
        pair->peer.conn->ops->queued_bytes(pair->peer.conn) == 0) {
        (void)psi_post(pair->peer.conn, &frame); /* a failure comes back as on_close */
    }
}

static void
look_at_silence(struct lane *lane, uint64_t now_ns)
{
    struct pair *pair = lane->pair;

    if (!is_awaited(pair)) {
        pair->heard_ns = now_ns;
        return;
    }
    if (now_ns - pair->heard_ns >= patience_ms(lane) * MS_NS) {
        pair_break(lane, "nothing heard of it for %llu ms: %s",
                   (unsigned long long)patience_ms(lane),
                   pair->peer.state == PSI_PEER_UP ? "connected" : pair->peer.reason.text);
    } else if (now_ns - pair->heard_ns >= SLOW_MS * MS_NS && now_ns >= pair->warn_ns) {
        pair->warn_ns = now_ns + SLOW_LINE_MS * MS_NS;
        psi_log(&lane->log, PSI_LOG_WARN, "COPY-SLOW",
                "its copy in server %u (%s) has not answered for %llu ms; workers wait for it",
                pair->copy.server, pair->copy.address,
                (unsigned long long)((now_ns - pair->heard_ns) / MS_NS));
    }
}

static bool
say(const struct lane *lane, uint8_t type, const char *text)
{
    const struct psi_frame frame = {.type = type, .view = lane->view.id, .seq = lane->pair->number};

    return psi_master_link_is_up(&lane->master) &&
           (text == NULL ? psi_post(lane->master.peer.conn, &frame)
                         : psi_post_error(lane->master.peer.conn, &frame, PSD_ERR_PEER_LOST, 0,
                                          text)) == PSD_OK;
}

static void
become_eligible(struct lane *lane)
{
    struct pair *pair = lane->pair;
    struct parcel *parcel;

    if (pair->is_eligible || pair->is_broken || pair->unpaired > 0 || !pair->is_met ||
        pair->acked < pair->begun || pair->acked < pair->told_alone) {
        return;
    }
    parcel = parcel_of_body(PSI_FRAME_ELIGIBLE, 0, NULL, 0);
    if (parcel == NULL) {
        pair_break(lane, "no memory");
        return;
    }
    pair->eligible = pair_enqueue(lane, parcel);
    pair->is_eligible = true;
    psi_fail_point(server_pair_eligible);
}

void
pair_tick(struct lane *lane, uint64_t now_ns)
{
    struct pair *pair = lane->pair;

    if (lane->goes_alone) {
        lane->goes_alone = false;
        go_alone(lane);
        return;
    }
    if (now_ns >= pair->again_ns) {
        psi_peer_tick(&pair->peer, now_ns);
    }
    look_at_silence(lane, now_ns);
    pair_send_snapshots(lane);
    become_eligible(lane);
    pair_pump(lane);
    if (pair->is_broken && !pair->is_lost_told) {
        pair->is_lost_told = say(lane, PSI_FRAME_PAIR_LOST, pair->reason);
        psi_fail_point(server_pair_lost_told);
    } else if (pair->is_eligible && pair->acked >= pair->eligible && !pair->is_told &&
               !pair->is_broken) { /* the copy knows: it may have to say so itself */
        pair->is_told = say(lane, PSI_FRAME_ELIGIBLE, NULL);
        psi_fail_point(server_pair_eligible_told);
    }
    pair_give_look(lane);
}

uint64_t
pair_next_ns(const struct lane *lane)
{
    const struct pair *pair = lane->pair;
    uint64_t peer_ns = psi_peer_next_ns(&pair->peer);
    uint64_t next_ns = UINT64_MAX;

    peer_ns = peer_ns < pair->again_ns ? pair->again_ns : peer_ns;
    if (lane->goes_alone) {
        return 0;
    }
    if (is_awaited(pair) && !pair->is_broken) {
        const uint64_t slow_ns = pair->heard_ns + SLOW_MS * MS_NS;

        next_ns = pair->heard_ns + patience_ms(lane) * MS_NS;
        if (slow_ns < next_ns && pair->warn_ns < next_ns) {
            next_ns = slow_ns > pair->warn_ns ? slow_ns : pair->warn_ns;
        }
    }
    if (pair->rate > 0 && pair_snapshot_next_ns(pair) < next_ns) {
        next_ns = pair_snapshot_next_ns(pair);
    }
    return peer_ns < next_ns ? peer_ns : next_ns;
}
