/*
 * barrier.c - the n-th barrier: released when every worker the job waits for has come to it.
 *
 * Several threads of a worker may wait at once, each in a barrier of its own number. Numbers of
 * released barriers are not kept: whoever asks again is answered at once. Deadlines are the
 * workers' business: one whose call timed out asks again, with the same number and another request.
 *
 * A worker counts from 1 in every life. In psd_barrier()'s the first of a replacement is the first
 * that was not released before it came: what its predecessor passed it does not pass again, and the
 * others are not to wait until it has caught up. In psd_load()'s it is the first: it loads where
 * the others have loaded, and finds those barriers released.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "master/state.h"

enum { ARRIVALS_MAX = 4096 }; /* threads of one worker */

static void
release(struct master *master, struct session *session, const struct arrival *arrival)
{
    struct psi_frame ack = master_frame(master, PSI_FRAME_ACK);

    ack.request = arrival->request;
    master_posted(session, psi_post(session->guest.conn, &ack));
    psi_fail_point(master_barrier_released_one);
}

/* A worker without a connection asks again when it is back. */
static void
release_reached(struct master *master, struct worker *worker)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < worker->arrivals; i++) {
        const struct arrival *arrival = &worker->arrival[i];

        if (arrival->barrier > master->barrier_released[arrival->kind]) {
            worker->arrival[left++] = *arrival;
        } else if (worker->member.session != NULL) {
            release(master, worker->member.session, arrival);
        }
    }
    worker->arrivals = left;
}

static void
check_kind(struct master *master, unsigned kind)
{
    uint64_t reached = UINT64_MAX;

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct worker *worker = &master->worker[rank];

        if (master_worker_expected(master, worker) && worker->barrier[kind] < reached) {
            reached = worker->barrier[kind];
        }
    }
    if (reached != UINT64_MAX && reached > master->barrier_released[kind] &&
        (kind != PSI_BARRIER_LOAD || master_done_keeps_load(master, reached))) {
        master->barrier_released[kind] = reached;
    }
}

void
master_barrier_check(struct master *master)
{
    for (unsigned kind = 0; kind < PSI_BARRIER_KINDS; kind++) {
        check_kind(master, kind);
    }
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        release_reached(master, &master->worker[rank]);
    }
}

void
master_barrier_left(const struct master *master, struct worker *worker)
{
    worker->arrivals = 0;
    for (unsigned kind = 0; kind < PSI_BARRIER_KINDS; kind++) {
        if (worker->barrier[kind] > master->barrier_released[kind]) {
            worker->barrier[kind] = master->barrier_released[kind];
        }
    }
}

void
master_barrier_replaced(const struct master *master, struct worker *worker)
{
    const uint64_t called = master->barrier_released[PSI_BARRIER_CALLED];

    worker->arrivals = 0;
    worker->barrier_base[PSI_BARRIER_CALLED] = called;
    worker->barrier[PSI_BARRIER_CALLED] = called;
    worker->barrier[PSI_BARRIER_LOAD] = 0;
}

/* Where to note who waits in that barrier; NULL: no memory, or too many. */
static struct arrival *
arrival_at(struct worker *worker, uint32_t kind, uint64_t barrier)
{
    for (uint32_t i = 0; i < worker->arrivals; i++) {
        if (worker->arrival[i].kind == kind && worker->arrival[i].barrier == barrier) {
            return &worker->arrival[i];
        }
    }
    if (worker->arrivals == worker->arrivals_capacity) {
        const uint32_t capacity = worker->arrivals == 0 ? 4 : 2 * worker->arrivals;
        struct arrival *grown =
            capacity > ARRIVALS_MAX ? NULL : realloc(worker->arrival, capacity * sizeof(*grown));

        if (grown == NULL) {
            return NULL;
        }
        worker->arrival = grown;
        worker->arrivals_capacity = capacity;
    }
    return &worker->arrival[worker->arrivals++];
}

/* Which barrier the session's frame names, as all workers count them. */
static psd_status
named(const struct session *session, uint32_t *kind_p, uint64_t *barrier_p, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct worker *worker = &session->master->worker[session->member->rank];

    if (frame->table >= PSI_BARRIER_KINDS) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s: no barriers of kind %u",
                        psi_frame_type_name(frame->type), frame->table);
    }
    *kind_p = frame->table;
    *barrier_p = worker->barrier_base[frame->table] + frame->seq;
    return PSD_OK;
}

psd_status
master_on_barrier(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &session->guest.inbox.frame;
    struct worker *worker = &session->master->worker[session->member->rank];
    struct arrival *arrival;
    uint32_t kind;
    uint64_t barrier;
    const psd_status status = named(session, &kind, &barrier, err);

    (void)body;
    (void)bytes;
    if (status != PSD_OK) {
        return status;
    }
    arrival = arrival_at(worker, kind, barrier);
    if (arrival == NULL) {
        const struct psi_frame refusal = master_answer(session, PSI_FRAME_ACK);

        master_posted(session,
                      psi_post_error(session->guest.conn, &refusal, PSD_ERR_BUSY, 0,
                                     "barrier: too many threads of this worker wait in one"));
        return PSD_OK;
    }
    *arrival = (struct arrival){.kind = kind, .barrier = barrier, .request = frame->request};
    if (barrier > worker->barrier[kind]) {
        worker->barrier[kind] = barrier;
    }
    psi_fail_point(master_barrier_arrived);
    master_barrier_check(session->master);
    return PSD_OK;
}

psd_status
master_on_why(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct psi_frame because = master_answer(session, PSI_FRAME_BECAUSE);
    struct names names = {0};
    char text[PSI_TEXT_MAX];
    uint32_t kind;
    uint64_t barrier;
    const psd_status status = named(session, &kind, &barrier, err);

    (void)body;
    (void)bytes;
    if (status != PSD_OK) {
        return status;
    }
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct worker *worker = &master->worker[rank];

        if (barrier > master->barrier_released[kind] && master_worker_expected(master, worker) &&
            worker->barrier[kind] < barrier) {
            master_names_add(&names, "worker", rank);
        }
    }
    master_names_end(&names);
    if (names.count > 0) {
        snprintf(text, sizeof(text), "waiting for %s", names.text);
    } else {
        snprintf(text, sizeof(text), "barrier %" PRIu64 " waits for nobody", barrier);
    }
    master_posted(session, psi_post_error(session->guest.conn, &because, PSD_OK, 0, text));
    return PSD_OK;
}

/* A master that returned does not know to which barriers workers have come. What one of them has
 * passed was released, and those who still wait there are not to wait for ever. */
psd_status
master_on_worker_state(struct session *session, const void *body, size_t bytes,
                       struct psd_error *err)
{
    struct master *master = session->master;
    struct worker *worker = &master->worker[session->member->rank];
    struct psi_worker_state state;
    const psd_status status = psi_worker_state_decode(body, bytes, &state, err);

    if (status != PSD_OK) {
        return status;
    }
    worker->is_untold = false;
    if (worker->member.state == PSD_NODE_DONE && master_is_elastic(master)) {
        return PSD_OK; /* nobody waits for it, and those who joined since count from where others are */
    }
    if (state.before > worker->barrier_base[PSI_BARRIER_CALLED] ||
        worker->wanted != CHANGE_JOIN) { /* else more are over than when it met the last master */
        worker->barrier_base[PSI_BARRIER_CALLED] = state.before;
    }
    for (unsigned kind = 0; kind < PSI_BARRIER_KINDS; kind++) {
        const uint64_t passed = worker->barrier_base[kind] + state.passed[kind];

        worker->barrier[kind] = worker->barrier_base[kind] + state.come[kind];
        if (passed > master->barrier_released[kind]) {
            master->barrier_released[kind] = passed;
        }
    }
    master_barrier_check(master);
    return PSD_OK;
}
