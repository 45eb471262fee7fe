/*
 * view.c - who is in the job, by number.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "view/view.h"

#include <stdlib.h>

psd_status
psi_view_init(struct psi_view *view, uint32_t workers)
{
    *view = (struct psi_view){.worker = calloc(workers + 1, sizeof(*view->worker))};
    if (view->worker == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    view->workers = workers;
    return PSD_OK;
}

void
psi_view_fini(struct psi_view *view)
{
    free(view->worker);
    free(view->place);
    free(view->table);
    *view = (struct psi_view){0};
}

static bool
same_life(const struct psi_view_place *a, const struct psi_view_place *b)
{
    return a != NULL && a->incarnation == b->incarnation;
}

/* From which view on the life is there. Who takes its first view late may have missed another life
 * before it: the master counts them from 1 on. */
static uint32_t
since(const struct psi_view *view, const struct psi_view_place *place, uint32_t id)
{
    const struct psi_view_place *before = psi_view_place(view, place->server, place->lane);

    if (view->id == 0) {
        return place->incarnation > 1 ? id : 0;
    }
    return same_life(before, place) ? before->since : id;
}

psd_status
psi_view_take(struct psi_view *view, const struct psi_view *next, struct psi_view *old_p)
{
    struct psi_view taken = {
        .id = next->id,
        .workers = next->workers,
        .changes = next->changes,
        .worker = calloc(next->workers + 1, sizeof(*next->worker)),
        .places = next->places,
        .place = calloc(next->places + 1, sizeof(*next->place)),
    };

    if (taken.worker == NULL || taken.place == NULL) {
        psi_view_fini(&taken);
        return PSD_ERR_NO_MEMORY;
    }
    for (uint32_t rank = 0; rank < next->workers; rank++) {
        taken.worker[rank] = next->worker[rank];
    }
    for (uint32_t i = 0; i < next->places; i++) {
        taken.place[i] = next->place[i];
        taken.place[i].since = since(view, &next->place[i], next->id);
    }
    *old_p = *view;
    *view = taken;
    return PSD_OK;
}

static const struct psi_view_worker *
worker_of(const struct psi_view *view, uint32_t rank)
{
    static const struct psi_view_worker nobody;

    return rank < view->workers ? &view->worker[rank] : &nobody;
}

enum psi_rank_change
psi_view_rank(const struct psi_view *before, const struct psi_view *after, uint32_t rank)
{
    const struct psi_view_worker *was = worker_of(before, rank);
    const struct psi_view_worker *is = worker_of(after, rank);

    if (was->member != is->member) {
        return is->member ? PSI_RANK_JOINS : PSI_RANK_LEAVES;
    }
    return is->member && was->incarnation != is->incarnation ? PSI_RANK_REPLACED : PSI_RANK_STAYS;
}

const struct psi_view_place *
psi_view_place(const struct psi_view *view, uint32_t server, uint32_t lane)
{
    for (uint32_t i = 0; i < view->places; i++) {
        if (view->place[i].server == server && view->place[i].lane == lane) {
            return &view->place[i];
        }
    }
    return NULL;
}

bool
psi_view_has(const struct psi_view *view, uint32_t rank, uint32_t incarnation)
{
    const struct psi_view_worker *worker = worker_of(view, rank);

    return worker->member && worker->incarnation == incarnation;
}

void
psi_view_fence(struct psi_view *view, uint32_t rank)
{
    view->worker[rank].incarnation = 0; /* lives are counted from 1 */
}
