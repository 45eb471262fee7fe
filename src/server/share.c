/*
 * share.c - what workers ask of each other through a lane: published state, and the global step.
 *
 * A replacement asks the lane for a piece of a live worker's state (SHARE_PULL); the lane passes
 * the request on over that worker's own connection, and the piece back. The replacement asks for
 * one piece at a time, so a relay holds at most one piece per asker.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

enum { RELAYS_MAX = 64 }; /* of one session */

static void
tell_asker(struct lane *lane, uint32_t asker, uint32_t request, psd_status status, const char *text)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_ACK, .view = lane->view.id, .request = request};

    if (lane->sessions[asker] != NULL) {
        (void)psi_post_error(lane->sessions[asker]->guest.conn, &frame, status, 0, text);
    }
}

/* What the rank had asked of others: a later life must not get the answers. */
static void
forget_questions(struct lane *lane, uint32_t rank)
{
    for (uint32_t i = 0; i < lane->rows; i++) {
        struct relay **link = lane->sessions[i] == NULL ? NULL : &lane->sessions[i]->relays;

        while (link != NULL && *link != NULL) {
            struct relay *relay = *link;

            if (relay->asker == rank) {
                *link = relay->next;
                free(relay);
            } else {
                link = &relay->next;
            }
        }
    }
}

/* A worker is gone: those who asked it hear so and ask another. */
void
share_session_gone(struct session *session)
{
    while (session->relays != NULL) {
        struct relay *relay = session->relays;

        session->relays = relay->next;
        tell_asker(session->lane, relay->asker, relay->request, PSD_ERR_PEER_LOST,
                   "the worker asked for its state is gone");
        free(relay);
    }
    forget_questions(session->lane, session->rank);
    pair_steps_forget(session->lane, session->rank);
}

psd_status
share_pull_arrived(struct session *session, const void *payload, size_t bytes,
                   struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct psi_frame frame = session->guest.inbox.frame;
    struct psi_share share;
    struct session *asked;
    struct relay *relay;
    unsigned count = 0;
    const psd_status status = psi_share_decode(payload, bytes, &share, err);

    if (status != PSD_OK) {
        return status;
    }
    asked = share.from < lane->rows ? lane->sessions[share.from] : NULL;
    for (relay = asked == NULL ? NULL : asked->relays; relay != NULL; relay = relay->next) {
        count++;
    }
    if (asked == NULL || asked == session || count >= RELAYS_MAX) {
        tell_asker(lane, session->rank, frame.request, PSD_ERR_PEER_LOST,
                   "the worker asked for its state is not here");
        return PSD_OK;
    }
    relay = calloc(1, sizeof(*relay));
    if (relay == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "relay: no memory");
    }
    relay->asker = session->rank;
    relay->request = frame.request;
    relay->relay_id = ++lane->relay_next;
    relay->next = asked->relays;
    asked->relays = relay;
    frame.request = relay->relay_id;
    frame.view = lane->view.id;
    frame.flags = 0; /* a checksum was of the bytes that came, not of those that leave */
    (void)psi_post_share(asked->guest.conn, &frame, &share);
    return PSD_OK;
}

psd_status
share_data_sink(struct session *session, struct psi_sink *sink_p, struct psd_error *err)
{
    return psi_inbox_body(&session->guest.inbox, sink_p, err);
}

/* SHARE_DATA, or an ACK that says why not: back to the asker. */
psd_status
share_data_arrived(struct session *session, void *payload, size_t bytes, struct psd_error *err)
{
    struct lane *lane = session->lane;
    struct psi_frame frame = session->guest.inbox.frame;
    struct relay **link = &session->relays;
    struct relay *relay;

    (void)err;
    while (*link != NULL && (*link)->relay_id != frame.request) {
        link = &(*link)->next;
    }
    relay = *link;
    if (relay == NULL) {
        return PSD_OK; /* its asker is gone */
    }
    *link = relay->next;
    frame.request = relay->request;
    frame.view = lane->view.id;
    frame.flags = 0;
    if (lane->sessions[relay->asker] != NULL) {
        (void)psi_post_body(lane->sessions[relay->asker]->guest.conn, &frame, payload, bytes);
    }
    free(relay);
    return PSD_OK;
}

static const struct add *
find_add(const struct adder *adder, const struct psi_frame *frame)
{
    for (unsigned i = 0; adder->adds != NULL && i < PSI_STEP_ADDS_MAX; i++) {
        if (adder->adds[i].incarnation == frame->incarnation &&
            adder->adds[i].sequence == frame->seq) {
            return &adder->adds[i];
        }
    }
    return NULL;
}

static psd_status
note_add(struct adder *adder, uint32_t rank, const struct add *add, struct psd_error *err)
{
    if (adder->adds == NULL) {
        adder->adds = calloc(PSI_STEP_ADDS_MAX, sizeof(*adder->adds));
    }
    if (adder->adds == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no memory to add to the global step",
                        rank);
    }
    adder->mark.incarnation = add->incarnation;
    adder->mark.sequence = add->sequence;
    adder->last = (adder->last + 1) % PSI_STEP_ADDS_MAX;
    adder->adds[adder->last] = *add;
    return PSD_OK;
}

static psd_status
add(struct lane *lane, struct adder *adder, const struct psi_frame *frame, struct psd_error *err)
{
    const struct add made = {.incarnation = frame->incarnation,
                             .sequence = frame->seq,
                             .result = lane->global.value + frame->step};
    const psd_status status = note_add(adder, frame->rank, &made, err);

    if (status == PSD_OK) {
        lane->global.value = made.result;
    }
    return status;
}

psd_status
global_step_take(struct lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_step_state state;
    psd_status status = psi_step_state_decode(payload, bytes, &state, err);

    if (status == PSD_OK && state.rank >= lane->rows) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "STEP_STATE: worker %u", state.rank);
    }
    for (uint32_t i = 0; status == PSD_OK && i < state.count; i++) {
        const struct add made = {.incarnation = state.add[i].incarnation,
                                 .sequence = state.add[i].sequence,
                                 .result = state.add[i].result};

        status = note_add(&lane->global.adders[state.rank], state.rank, &made, err);
    }
    if (status == PSD_OK) {
        lane->global.value = state.value;
    }
    return status;
}

/*
 * Adds frame.step (the addend travels there) exactly once per (incarnation, sequence). A repetition
 * gets the answer of the first time: a worker has no more of them under way than are kept.
 */
psd_status
step_add_arrived(struct session *session, struct psd_error *err)
{
    struct lane *lane = session->lane;
    const struct psi_frame *frame = &session->guest.inbox.frame;
    struct adder *adder = &lane->global.adders[session->rank];
    struct psi_frame answer = {
        .type = PSI_FRAME_ACK, .view = lane->view.id, .request = frame->request};
    const struct add *done;

    if (psi_clock_admit_sequence(&adder->mark, frame->incarnation, frame->seq) == PSI_ADMIT_COUNT) {
        const psd_status status = add(lane, adder, frame, err);

        if (status != PSD_OK) {
            return status;
        }
        psi_fail_point(server_global_step_added);
        pair_steps_added(lane, session->rank);
    }
    done = find_add(adder, frame);
    if (done == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "STEP_ADD %llu of worker %u: repeated after more than %d others",
                        (unsigned long long)frame->seq, session->rank, PSI_STEP_ADDS_MAX);
    }
    if (pair_steps_must_wait(lane)) {
        psi_fail_point(server_global_step_waits);
        return pair_steps_wait(lane, session->rank, frame->request, done->result)
                   ? PSD_OK
                   : psi_fail(err, PSD_ERR_NO_MEMORY, "worker %u: no memory for a request",
                              session->rank);
    }
    answer.step = done->result;
    if (psi_post(session->guest.conn, &answer) != PSD_OK) {
        psi_guest_doom(&session->guest);
    }
    return PSD_OK;
}

void
global_step_clear(struct lane *lane)
{
    for (uint32_t rank = 0; lane->global.adders != NULL && rank < lane->rows; rank++) {
        free(lane->global.adders[rank].adds);
        lane->global.adders[rank] = (struct adder){0};
    }
    lane->global.value = 0;
}

void
global_step_fini(struct lane *lane)
{
    global_step_clear(lane);
    free(lane->global.adders);
}
