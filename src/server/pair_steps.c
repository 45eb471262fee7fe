/*
 * pair_steps.c - the global step of a lane that has a copy: an addition is answered when the copy
 * knows of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "rpc/post.h"
#include "server/state.h"

/* All of it was told without this copy. */
bool
pair_steps_begin(struct lane *lane)
{
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        struct parcel *parcel;

        if (lane->global.adders[rank].adds == NULL) {
            continue;
        }
        parcel = parcel_of_steps(lane, rank, PSI_STEP_ADDS_MAX);
        if (parcel == NULL) {
            return false;
        }
        pair_enqueue(lane, parcel);
    }
    return true;
}

/* The copy has what there was before it: it is told of additions before anybody else. */
static bool
is_paired(const struct pair *pair)
{
    return pair->acked >= pair->begun;
}

bool
pair_steps_must_wait(const struct lane *lane)
{
    const struct pair *pair = lane->pair;

    return pair != NULL && is_paired(pair) && (pair->is_broken || pair->acked < pair->last);
}

/* The rank has just added. */
void
pair_steps_added(struct lane *lane, uint32_t rank)
{
    struct pair *pair = lane->pair;
    struct parcel *parcel;

    if (pair == NULL || pair->is_broken) {
        return;
    }
    parcel = parcel_of_steps(lane, rank, 1);
    if (parcel == NULL) {
        pair_break(lane, "no memory to tell it of the global step");
        return;
    }
    pair_enqueue(lane, parcel);
    if (!is_paired(pair)) {
        pair->told_alone = pair->last;
    }
}

bool
pair_steps_wait(struct lane *lane, uint32_t rank, uint32_t request, uint64_t result)
{
    struct pair *pair = lane->pair;
    struct step_wait *wait = calloc(1, sizeof(*wait));

    if (wait == NULL) {
        return false;
    }
    wait->rank = rank;
    wait->request = request;
    wait->result = result;
    wait->parcel = pair->is_broken ? UINT64_MAX : pair->last;
    *pair->waits_end = wait;
    pair->waits_end = &wait->next;
    return true;
}

static void
answer(struct lane *lane, const struct step_wait *wait)
{
    const struct psi_frame frame = {.type = PSI_FRAME_ACK,
                                    .view = lane->view.id,
                                    .request = wait->request,
                                    .step = wait->result};
    struct session *session = lane->sessions[wait->rank];

    if (session != NULL && psi_post(session->guest.conn, &frame) != PSD_OK) {
        psi_guest_doom(&session->guest);
    }
}

void
pair_steps_answer(struct lane *lane)
{
    struct pair *pair = lane->pair;

    while (pair->waits != NULL && pair->waits->parcel <= pair->acked) {
        struct step_wait *wait = pair->waits;

        pair->waits = wait->next;
        if (pair->waits == NULL) {
            pair->waits_end = &pair->waits;
        }
        psi_fail_point(server_global_step_told);
        answer(lane, wait);
        free(wait);
    }
}

/* Its connection is gone: it asks again. */
void
pair_steps_forget(struct lane *lane, uint32_t rank)
{
    struct step_wait **link = lane->pair == NULL ? NULL : &lane->pair->waits;

    while (link != NULL && *link != NULL) {
        struct step_wait *wait = *link;

        if (wait->rank == rank) {
            *link = wait->next;
            free(wait);
        } else {
            link = &wait->next;
        }
    }
    if (link != NULL) {
        lane->pair->waits_end = link;
    }
}

void
pair_steps_free(struct pair *pair)
{
    while (pair->waits != NULL) {
        struct step_wait *wait = pair->waits;

        pair->waits = wait->next;
        free(wait);
    }
}
