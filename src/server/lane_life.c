/*
 * lane_life.c - making a lane, emptying it, and freeing it.
 *
 * A lane whose place has been handed over begins anew, as one that stands by. It stays what a process was
 * hardened with: the same thread, the same listener. All that it knew and had is gone, and it draws another
 * life, so that nothing that is said of the last one can be taken for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "server/lane.h"
#include "server/state.h"

/* More entries of `size` bytes each: `from` of them are there, the others are 0. */
static bool
grow(void **entries_p, size_t size, uint32_t from, uint32_t to)
{
    void *grown = realloc(*entries_p, to * size);

    if (grown == NULL) {
        return false;
    }
    memset((char *)grown + from * size, 0, (to - from) * size);
    *entries_p = grown;
    return true;
}

#define GROW(entries, from, to) grow((void **)&(entries), sizeof(*(entries)), from, to)

/* Room for so many ranks in all that is kept of a rank; tables make theirs when they are opened. */
psd_status
lane_grow(struct lane *lane, uint32_t to)
{
    const uint32_t from = lane->rows;

    if (from == to && lane->view.worker != NULL) {
        return PSD_OK; /* it has been a copy */
    }
    if (psi_view_init(&lane->view, to) != PSD_OK || !GROW(lane->sessions, from, to) ||
        !GROW(lane->used, from, to) || !GROW(lane->leaves, from, to) ||
        !GROW(lane->given, from, to) || !GROW(lane->senders, from, to) ||
        !GROW(lane->waited_ns, from, to) || !GROW(lane->global.adders, from, to)) {
        return PSD_ERR_NO_MEMORY;
    }
    lane->rows = to;
    return PSD_OK;
}

void
lane_take_name(struct lane *lane, uint32_t server, uint32_t index, uint32_t lanes)
{
    lane->config.memory_max = lane->config.memory_max * lane->config.lanes / lanes;
    lane->config.pool_bytes = lane->config.pool_bytes * lane->config.lanes / lanes;
    lane->config.server = server;
    lane->config.lane = index;
    lane->config.lanes = lanes;
}

/* All that a lane has before it has met anybody. */
static void
begin(struct lane *lane, const struct lane_config *config)
{
    lane->warnings.log = &lane->log;
    lane->guests.events = &lane_guest_events;
    lane->config = *config;
    lane->born = *config;
    lane->frozen_rank = -1;
    lane->joining_rank = -1;
    lane->report_ns = UINT64_MAX;
    lane->replicate = replicate_alone;
    lane->life = lane->env->ops->random(lane->env) | 1;
    psi_pool_init(&lane->parked, sizeof(struct parked));
}

psd_status
lane_create(struct psi_env *env, const struct lane_config *config, const struct psi_log *log,
            struct lane **lane_p, struct psd_error *err)
{
    struct lane *lane = calloc(1, sizeof(*lane));
    psd_status status;

    if (lane == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "lane: no memory");
    }
    lane->env = env;
    lane->log = *log;
    lane->standby = (struct lane_name){config->server, config->lane, config->lanes};
    begin(lane, config);
    snprintf(lane->master_address, sizeof(lane->master_address), "%s", config->master_address);
    lane->metrics = psi_metrics_create();
    lane->scratch = aligned_alloc(64, STORE_SCRATCH_BYTES);
    if (lane->metrics == NULL || lane->scratch == NULL) {
        status = psi_fail(err, PSD_ERR_NO_MEMORY, "lane: no memory");
        goto err_free_lane;
    }
    status = env->ops->listen(env, config->listen_address, &lane_listener_events, lane,
                              &lane->listener, lane->address, err);
    if (status != PSD_OK) {
        goto err_free_lane;
    }
    lane_find_master(lane);
    *lane_p = lane;
    return PSD_OK;

err_free_lane:
    free(lane->scratch);
    free(lane->metrics);
    free(lane);
    return status;
}

/* Ends every connection; others may make new ones, while it listens. */
static void
close_connections(struct lane *lane)
{
    psi_peer_close(&lane->master.peer);
    pair_destroy(lane);
    while (lane->guests.first != NULL) {
        session_end((struct session *)lane->guests.first);
    }
}

void
lane_hang_up(struct lane *lane)
{
    close_connections(lane);
    if (lane->listener != NULL) {
        lane->env->ops->unlisten(lane->env, lane->listener);
        lane->listener = NULL;
    }
}

/* All that it has of the job. */
static void
empty(struct lane *lane)
{
    snapshot_drop(lane);
    mirror_forget(lane);
    tables_destroy(lane);
    free(lane->table_of);
    slot_pool_fini(&lane->pool);
    psi_pool_fini(&lane->parked);
    psi_view_fini(&lane->view);
    journal_free(lane);
    free(lane->sessions);
    free(lane->used);
    free(lane->leaves);
    free(lane->given);
    free(lane->senders);
    global_step_fini(lane);
    free(lane->telling);
    free(lane->spans);
    free(lane->waited_ns);
}

void
lane_begin_anew(struct lane *lane)
{
    struct lane was;

    close_connections(lane);
    empty(lane);
    was = *lane;
    *lane = (struct lane){.env = was.env,
                          .log = was.log,
                          .standby = was.standby,
                          .shares_cores = was.shares_cores,
                          .listener = was.listener,
                          .metrics = was.metrics,
                          .scratch = was.scratch,
                          .leaving = was.leaving};
    memcpy(lane->master_address, was.master_address, sizeof(lane->master_address));
    memcpy(lane->address, was.address, sizeof(lane->address));
    begin(lane, &was.born);
}

void
lane_destroy(struct lane *lane)
{
    if (lane == NULL) {
        return;
    }
    lane_hang_up(lane);
    empty(lane);
    free(lane->scratch);
    free(lane->metrics);
    free(lane);
}
