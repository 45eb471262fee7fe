/*
 * lane.c - the life of a lane: find the master, join, work, leave.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/lane.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

#define MS_NS UINT64_C(1000000)

enum {
    FAREWELL_MS = 500,       /* for the last frame to the master */
    WAITING_FIRST_MS = 2000, /* without a master, before a line about it */
    WAITING_MS = 10000,      /* and between two of them */
};

void
lane_finish(struct lane *lane, int exit_code, const char *format, ...)
{
    va_list args;

    if (lane->finished) {
        return;
    }
    lane->finished = true;
    lane->exit_code = exit_code;
    va_start(args, format);
    vsnprintf(lane->text, sizeof(lane->text), format, args);
    va_end(args);
}

void
lane_fail_job(struct lane *lane, psd_status status, int exit_code, const char *text)
{
    const struct psi_frame frame = {.type = PSI_FRAME_END, .view = lane->view.id};

    if (psi_master_link_is_up(&lane->master)) {
        (void)psi_post_error(lane->master.peer.conn, &frame, status, exit_code, text);
        psi_peer_close_after_send(&lane->master.peer, FAREWELL_MS);
    }
    lane_finish(lane, exit_code, "%s", text);
}

void
lane_stop(struct lane *lane, int exit_code, const char *reason)
{
    const bool sent_away = exit_code == PSI_EXIT_FENCED || exit_code == PSI_EXIT_REFUSED;

    if (lane->config.is_standby || sent_away) {
        /* Nobody misses one that stood by; and a job from which other lanes of the process were sent
         * away goes on: the master sees that this one is gone, too. */
        lane_finish(lane, exit_code, "%s", reason);
    } else if (!lane->finished) {
        lane_fail_job(lane, PSD_ERR_PEER_LOST, exit_code, reason);
    }
}

static void
hello(void *owner, struct psi_hello *hello_p)
{
    const struct lane *lane = owner;

    const struct lane_name place = {lane->config.server, lane->config.lane, lane->config.lanes};
    const struct lane_name *name = lane->config.is_standby ? &lane->standby : &place;

    hello_p->role = lane->config.is_standby ? PSI_ROLE_STANDBY : PSI_ROLE_SERVER;
    hello_p->rank = name->server;
    hello_p->lane = name->lane;
    hello_p->lanes = name->lanes;
    hello_p->host = lane->config.process;
    hello_p->incarnation = lane->joined ? lane->job.incarnation : 0;
    hello_p->life = lane->life;
    hello_p->kernel_revision = PSI_KERNEL_REVISION;
    hello_p->job = lane->joined || lane->promoted != 0 || lane->mirror != NULL ? lane->job.job : 0;
    hello_p->view = lane->promoted != 0 && !lane->joined ? lane->copied_view : lane->view.id;
    hello_p->pair = lane->joined ? 0 : lane->promoted;
    snprintf(hello_p->address, sizeof(hello_p->address), "%s", lane->address);
}

/* Each worker gets an equal part of the pool, at least one chunk. */
static void
size_windows(struct lane *lane, uint32_t workers)
{
    const uint64_t share = lane->config.pool_bytes / workers;
    const uint64_t window = share < CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX : share;

    lane->window_bytes = window > UINT32_MAX ? UINT32_MAX : (uint32_t)window;
    /* Twice: a slot's size is rounded up to a power of two. */
    lane->pool.bytes_max = 2 * workers * ((uint64_t)lane->window_bytes + CHUNK_BYTES_MAX);
}

/* A master in another life, that has not heard of all lanes yet? */
static bool
wants_to_know(const struct lane *lane, const struct psi_welcome *welcome)
{
    return welcome->view == 0 && lane->view.id > 0 && welcome->term > psi_view_term(lane->view.id);
}

static void
on_up(void *owner, const struct psi_welcome *welcome)
{
    struct lane *lane = owner;

    psi_fail_point(server_welcomed);
    if (lane->config.is_standby) {
        standby_welcomed(lane, welcome);
        return;
    }
    if (lane->joined) {
        if (wants_to_know(lane, welcome)) {
            journal_tell(lane);
        }
        return;
    }
    if (welcome->workers == 0 || welcome->workers > PSI_RANKS_MAX ||
        lane_grow(lane, welcome->workers) != PSD_OK) {
        lane_finish(lane, PSI_EXIT_CANNOT_START, "no memory for a job of %u workers",
                    welcome->workers);
        return;
    }
    lane->job = *welcome;
    lane->joined = true;
    if (lane->promoted == 0) {
        lane->kept = welcome->incarnation;
    }
    size_windows(lane, welcome->workers);
    psi_log(&lane->log, PSI_LOG_INFO, "JOINED",
            "lane %u of %u listens on %s, master %s, %u worker%s, window %u KiB each",
            lane->config.lane, lane->config.lanes, lane->address, lane->master_address,
            welcome->workers, psi_plural(welcome->workers), lane->window_bytes >> 10);
}

static void
on_down(void *owner, const struct psd_error *reason)
{
    const struct lane *lane = owner;

    psi_log(&lane->log, PSI_LOG_DEBUG, "MASTER-GONE", "%s: %s", lane->master.peer.address,
            reason->text);
}

static void
on_refused(void *owner, const struct psi_verdict *verdict)
{
    struct lane *lane = owner;

    if (verdict->status == PSD_ERR_STATE && !lane->config.is_standby) {
        lane->stands_by =
            true; /* another lane has its place: it was promoted, or it was given it */
        return;
    }
    lane_finish(lane,
                lane->master.peer.unproved          ? PSI_EXIT_AUTH
                : verdict->status == PSD_ERR_FENCED ? PSI_EXIT_FENCED
                                                    : PSI_EXIT_REFUSED,
                "refused by the master at %s: %s", lane->master.peer.address, verdict->text);
}

static psd_status
table_opened(struct lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    static const struct psi_frame ack = {.type = PSI_FRAME_ACK};
    struct psi_table_info *info = malloc(sizeof(*info));
    struct psi_frame frame = ack;
    struct table *table;
    psd_status status;

    if (info == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "TABLE_OPEN: no memory");
    }
    status = psi_table_info_decode(payload, bytes, info, err);
    if (status != PSD_OK) {
        free(info);
        return status;
    }
    psi_fail_point(server_table_ordered);
    table = table_find(lane, info->id);
    if (table != NULL) {
        table->announced = false; /* asked again after a cut: answered again */
        lane->tables_unready = true;
        if (!info->again && table_was_not_resumed(lane, table)) {
            psi_fail(&table->refused, PSD_ERR_STATE,
                     "table %s: a server died while it read its values from the checkpoint: start "
                     "the job again, with --resume",
                     table->spec.name);
        }
    } else {
        frame.table = info->id;
        frame.view = lane->view.id;
        status = table_open(lane, info, err);
        if (status == PSD_OK) {
            status = journal_open(lane, info->id, payload, bytes, err);
        }
        table = table_find(lane, info->id);
        if (status == PSD_OK && table != NULL) {
            psi_fail_point(server_table_opened);
            pair_table_opened(lane, table, payload, bytes);
        }
        if (status != PSD_OK) {
            (void)psi_post_error(lane->master.peer.conn, &frame, status, 0, err->text);
        } else if (table == NULL) {
            (void)psi_post(lane->master.peer.conn, &frame); /* no chunk of it here: ready */
        }
    }
    free(info);
    return PSD_OK;
}

static psd_status
close_arrived(struct lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &lane->master.peer.inbox.frame;
    struct closing closing = {.known = true, .step = frame->step};
    struct table *table = table_find(lane, frame->table);
    const psd_status status = psi_ranks_decode(payload, bytes, &closing.ranks, err);

    if (status != PSD_OK) {
        return status;
    }
    if (table != NULL && table->backup != NULL && frame->step < PSI_STEP_NEVER) {
        backup_decide(lane, table, &closing);
    }
    return PSD_OK;
}

static psd_status
propose_arrived(struct lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_propose propose;
    const psd_status status = psi_propose_decode(payload, bytes, &propose, err);

    if (status == PSD_OK) {
        view_proposed(lane, &propose);
    }
    return status;
}

static psd_status
end_arrived(struct lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_verdict verdict;
    const struct psi_frame bye = {.type = PSI_FRAME_BYE, .view = lane->view.id};
    const psd_status status = psi_verdict_decode(payload, bytes, &verdict, err);

    for (uint32_t rank = 0; status == PSD_OK && rank < lane->rows; rank++) {
        if (lane->view.worker[rank].member) {
            lane_tell_done(lane, rank);
        }
    }
    if (status == PSD_OK) {
        if (!lane->config.is_standby) {
            (void)psi_post(lane->master.peer.conn, &bye); /* or the master would wait for us */
        }
        psi_peer_close_after_send(&lane->master.peer, FAREWELL_MS);
        lane_finish(lane, verdict.exit_code, "%s", verdict.text);
    }
    return status;
}

static psd_status
on_frame(void *owner, const void *payload, size_t bytes, struct psd_error *err)
{
    struct lane *lane = owner;
    const struct psi_frame *frame = &lane->master.peer.inbox.frame;

    switch (frame->type) {
    case PSI_FRAME_VIEW_COMMIT:
        return view_arrived(lane, payload, bytes, err);
    case PSI_FRAME_VIEW_PROPOSE:
        return propose_arrived(lane, payload, bytes, err);
    case PSI_FRAME_VIEW_ABORT:
        view_aborted(lane);
        return PSD_OK;
    case PSI_FRAME_TABLE_OPEN:
        return table_opened(lane, payload, bytes, err);
    case PSI_FRAME_TABLE_DROP:
        table_drop(lane, frame->table);
        journal_drop(lane, frame->table);
        return PSD_OK;
    case PSI_FRAME_TABLE_RESUME:
        return journal_resume_table(lane, frame->table, frame->rank, frame->step, err);
    case PSI_FRAME_DONE:
        return journal_done(lane, payload, bytes, err);
    case PSI_FRAME_CLOSE:
        return close_arrived(lane, payload, bytes, err);
    case PSI_FRAME_TAKE_PLACE:
        return standby_take_place(lane, frame, err);
    case PSI_FRAME_PAIR:
        return lane->config.is_standby ? mirror_ordered(lane, payload, bytes, err)
                                       : pair_ordered(lane, payload, bytes, err);
    case PSI_FRAME_GIVE_PLACE:
        pair_give(lane, frame->seq);
        return PSD_OK;
    case PSI_FRAME_UNPAIR:
        mirror_ended(lane, frame->seq);
        pair_ended(lane, frame->seq);
        return PSD_OK;
    case PSI_FRAME_CHECKPOINT:
        return snapshot_ordered(lane, payload, bytes, err);
    case PSI_FRAME_END:
        return end_arrived(lane, payload, bytes, err);
    default:
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from the master: not expected",
                        psi_frame_type_name(frame->type));
    }
}

static void
ping(void *owner, struct psi_ping *ping_p)
{
    const struct lane *lane = owner;

    ping_p->step = lane->global.value; /* the job's, on the lane that keeps it: it needs a copy */
    pair_beat(lane);
}

static const struct psi_master_events master_events = {
    .hello = hello,
    .on_up = on_up,
    .on_down = on_down,
    .on_refused = on_refused,
    .on_frame = on_frame,
    .ping = ping,
    .tell = lane_tell,
    .hush = lane_hush,
};

void
lane_find_master(struct lane *lane)
{
    lane->started_ns = psi_now_ns(lane->env);
    lane->waiting_line_ns = lane->started_ns + WAITING_FIRST_MS * MS_NS;
    psi_master_link_start(&lane->master, lane->env, lane->master_address, &master_events, lane);
}

/* Until when the master has to be found. */
static uint64_t
start_ns(const struct lane *lane)
{
    return lane->master.welcomed ? UINT64_MAX
                                 : lane->started_ns + lane->config.start_timeout_ms * MS_NS;
}

/* Somebody who looks at the log sees whom the server waits for, and why in vain. One lane speaks
 * for all of them. */
static uint64_t
waiting_line_ns(const struct lane *lane)
{
    return lane->master.welcomed || lane->config.lane != 0 || lane->config.is_standby
               ? UINT64_MAX
               : lane->waiting_line_ns;
}

static void
tell_waiting(struct lane *lane, uint64_t now_ns)
{
    const char *reason = lane->master.peer.reason.text;

    if (now_ns >= waiting_line_ns(lane)) {
        psi_log(&lane->log, PSI_LOG_INFO, "MASTER-WAITING",
                "waiting for the master at %s (last attempt: %s)", lane->master.peer.address,
                reason[0] != '\0' ? reason : "no answer yet");
        lane->waiting_line_ns = now_ns + WAITING_MS * MS_NS;
    }
}

void
lane_tick(struct lane *lane)
{
    const uint64_t now_ns = psi_now_ns(lane->env);

    lane->turn_ns = 0;
    if (lane->finished) {
        return;
    }
    if (lane->stands_by) {
        standby_begin(lane);
    }
    if (psi_master_link_tick(&lane->master, now_ns)) {
        char text[PSI_TEXT_MAX];

        psi_master_link_lost_text(&lane->master, text, sizeof(text));
        lane_finish(lane, PSI_EXIT_MASTER_LOST, "%s", text);
        return;
    }
    tell_waiting(lane, now_ns);
    if (now_ns >= start_ns(lane)) {
        lane_finish(lane, PSI_EXIT_START_TIMEOUT, "master %s did not answer in %u ms: %s",
                    lane->master.peer.address, lane->config.start_timeout_ms,
                    lane->master.peer.reason.text);
        return;
    }
    psi_guests_cut_doomed(&lane->guests);
    tables_prepare(lane);
    want_look(lane, now_ns);
    view_report_look(lane, now_ns);
    if (lane->leavers_due) {
        hold_let_go(lane);
    }
    if (lane->results_due) {
        hold_flush(lane);
    }
    if (lane->pair != NULL) {
        pair_tick(lane, now_ns);
    }
    if (lane->mirror != NULL) {
        mirror_tick(lane);
    }
    if (lane->mirror != NULL && lane->mirror->is_given) {
        standby_take_over(lane);
    }
    if (lane->rounds_due) {
        lane->rounds_due = false;
        rounds_try_close_all(lane);
    }
    snapshot_ahead_tick(lane, now_ns);
    if (lane->snapshot != NULL) {
        snapshot_tick(lane, now_ns);
    }
}

uint64_t
lane_next_ns(const struct lane *lane)
{
    const uint64_t master_ns = psi_master_link_next_ns(&lane->master);
    const uint64_t want_ns = want_next_ns(lane);
    const uint64_t line_ns = waiting_line_ns(lane);
    const uint64_t report_ns = view_report_next_ns(lane);
    const uint64_t ahead_ns = snapshot_ahead_next_ns(lane);
    uint64_t next_ns = start_ns(lane);

    if (lane->finished) {
        return UINT64_MAX;
    }
    next_ns = master_ns < next_ns ? master_ns : next_ns;
    next_ns = want_ns < next_ns ? want_ns : next_ns;
    next_ns = line_ns < next_ns ? line_ns : next_ns;
    next_ns = report_ns < next_ns ? report_ns : next_ns;
    next_ns = ahead_ns < next_ns ? ahead_ns : next_ns;
    if (lane->pair != NULL) {
        const uint64_t pair_ns = pair_next_ns(lane);

        next_ns = pair_ns < next_ns ? pair_ns : next_ns;
    }
    return lane->stands_by || lane->takes_place || tables_want_a_turn(lane) || lane->results_due ||
                   lane->leavers_due || lane->rounds_due || snapshot_wants_a_turn(lane)
               ? 0
               : next_ns;
}

void
lane_share_cores(struct lane *lane)
{
    lane->shares_cores = true;
}

bool
lane_has_joined(const struct lane *lane)
{
    return lane->joined;
}

const struct psi_metrics *
lane_metrics(const struct lane *lane)
{
    return lane->metrics;
}

bool
lane_finished(const struct lane *lane, int *exit_code_p, const char **text_p)
{
    if (lane->finished) {
        *exit_code_p = lane->exit_code;
        *text_p = lane->text;
    }
    return lane->finished;
}
