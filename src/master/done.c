/*
 * done.c - who has said BYE, and which loads are over: facts that lanes keep in mind before workers
 * hear of them.
 *
 * A worker whose BYE was answered ends, and nobody can ask it again. If only this life of the
 * master knew, the next one would take the worker for dead. So lanes hear of it first (DONE, with
 * all that have said BYE so far), and the job ends well only when they know that everybody has.
 *
 * The same with loads: a replacement of a worker must not load where others have gone on, and those
 * who know may be dead.
 *
 * Where nobody waits for another life of the master, none of this is needed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/state.h"

static bool
may_return(const struct master *master)
{
    return master->config.master_grace_ms > 0;
}

/* When the job is ending, all lanes had it in mind. */
static bool
matters(const struct master *master)
{
    return may_return(master) && master->phase == PHASE_RUNNING;
}

/* All that was said up to which mark is in the mind of every lane that the job has? */
static uint64_t
kept_mark(const struct master *master)
{
    uint64_t kept = master->done_mark;

    for (uint32_t place = 0; place < master->places && matters(master); place++) {
        const struct member *lane = master->place[place];

        if (lane->state != PSD_NODE_LOST && lane->done_acked < kept) {
            kept = lane->done_acked;
        }
    }
    return kept;
}

bool
master_done_is_kept(const struct master *master)
{
    return kept_mark(master) == master->done_mark;
}

static void
answer(struct master *master, struct worker *worker)
{
    struct psi_frame ack = master_frame(master, PSI_FRAME_ACK);

    ack.request = worker->bye_request;
    worker->bye_mark = 0;
    if (worker->member.session != NULL) { /* else it asks again when it is back */
        master_posted(worker->member.session, psi_post(worker->member.session->guest.conn, &ack));
        worker->is_answered = true;
        psi_fail_point(master_done_answered);
    }
}

bool
master_done_is_heard(const struct master *master)
{
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct worker *worker = &master->worker[rank];

        if (worker->member.state == PSD_NODE_DONE && !worker->is_answered) {
            return false;
        }
    }
    return true;
}

void
master_done_look(struct master *master)
{
    const uint64_t kept = kept_mark(master);

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        struct worker *worker = &master->worker[rank];

        if (worker->bye_mark != 0 && worker->bye_mark <= kept) {
            answer(master, worker);
        }
    }
    if (master->phase == PHASE_RUNNING) {
        master_barrier_check(master);
    }
    if (psi_ranks_count(&master->done) > 0 && kept == master->done_mark &&
        master->phase == PHASE_RUNNING) {
        master_check_done(master, NULL);
    }
}

void
master_done_resend(struct master *master, struct member *lane)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_DONE);

    frame.seq = master->done_mark;
    frame.step = master->loaded;
    if (lane->session != NULL && lane->done_acked < master->done_mark && may_return(master)) {
        struct psi_done done = {.ranks = master->done};

        for (uint32_t place = 0; place < master->places && master_may_pair(master); place++) {
            const struct member *owner = master->place[place];

            done.crossed.number[done.crossed.places++] =
                master->server[owner->rank].crossed[owner->lane];
        }
        master_posted(lane->session, psi_post_done(lane->session->guest.conn, &frame, &done));
    }
}

static void
tell_lanes(struct master *master)
{
    for (uint32_t place = 0; place < master->places; place++) {
        master_done_resend(master, master->place[place]);
    }
}

bool
master_done_keeps_load(struct master *master, uint64_t barriers)
{
    if (barriers > master->loaded) {
        master->loaded = barriers;
        master->loaded_mark = ++master->done_mark;
        tell_lanes(master);
    }
    return kept_mark(master) >= master->loaded_mark;
}

uint64_t
master_done_cross_out(struct master *master)
{
    master->done_mark++;
    tell_lanes(master);
    return master->done_mark;
}

bool
master_done_has_crossed_out(const struct master *master, uint64_t mark)
{
    return mark != 0 && kept_mark(master) >= mark;
}

void
master_done_say(struct master *master, struct worker *worker, const struct psi_frame *ack)
{
    worker->bye_request = ack->request;
    if (!psi_ranks_has(&master->done, worker->member.rank)) {
        psi_ranks_add(&master->done, worker->member.rank);
        worker->bye_mark = ++master->done_mark;
        tell_lanes(master);
    } else if (worker->bye_mark == 0) { /* repeated: what is kept now has it */
        worker->bye_mark = 1;
    }
    master_done_look(master);
}

psd_status
master_on_done(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    (void)body;
    (void)bytes;
    (void)err;
    if (session->guest.inbox.frame.seq <= session->master->done_mark) {
        session->member->done_acked = session->guest.inbox.frame.seq;
        psi_fail_point(master_done_acked);
        master_done_look(session->master);
    }
    return PSD_OK;
}
