/*
 * barrier.c - the n-th barrier: released when every worker the job waits for has come to it.
 *
 * A worker's request number of a released barrier is not kept: one that asks again is answered at
 * once. Deadlines are the workers' business.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdio.h>

#include "master/state.h"

static void
release(struct master *master, struct worker *worker)
{
    struct session *session = worker->member.session;
    struct psi_frame ack = master_frame(master, PSI_FRAME_ACK);

    worker->barrier_waiting = false;
    if (session != NULL) {
        ack.seq = worker->barrier;
        ack.request = worker->barrier_request;
        master_posted(session, psi_post(session->conn, &ack));
    }
}

void
master_barrier_check(struct master *master)
{
    uint64_t reached = UINT64_MAX;

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct worker *worker = &master->worker[rank];

        if (master_worker_expected(master, worker) && worker->barrier < reached) {
            reached = worker->barrier;
        }
    }
    if (reached != UINT64_MAX && reached > master->barrier_released) {
        master->barrier_released = reached;
    }
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        struct worker *worker = &master->worker[rank];

        if (worker->barrier_waiting && worker->barrier <= master->barrier_released) {
            release(master, worker);
        }
    }
}

psd_status
master_on_barrier(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &session->inbox.frame;
    struct worker *worker = &session->master->worker[session->member->rank];

    (void)body;
    (void)bytes;
    (void)err;
    worker->barrier = frame->seq;
    worker->barrier_request = frame->request;
    worker->barrier_waiting = true;
    master_barrier_check(session->master);
    return PSD_OK;
}

psd_status
master_on_why(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const uint64_t barrier = session->inbox.frame.seq;
    const struct psi_frame because = master_answer(session, PSI_FRAME_BECAUSE);
    struct names names = {0};
    char text[PSI_TEXT_MAX];

    (void)body;
    (void)bytes;
    (void)err;
    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const struct worker *worker = &master->worker[rank];

        if (barrier > master->barrier_released && master_worker_expected(master, worker) &&
            worker->barrier < barrier) {
            master_names_add(&names, "worker", rank);
        }
    }
    master_names_end(&names);
    if (names.count > 0) {
        snprintf(text, sizeof(text), "waiting for %s", names.text);
    } else {
        snprintf(text, sizeof(text), "barrier %" PRIu64 " waits for nobody", barrier);
    }
    master_posted(session, psi_post_error(session->conn, &because, PSD_OK, 0, text));
    return PSD_OK;
}
