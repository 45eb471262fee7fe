/*
 * waits.c - how long a lane's rounds wait, and how the master is told what the lane counts.
 *
 * The clock is read once in a turn of the loop, when a gradient asks for it: what comes in one turn
 * came at one time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "rpc/post.h"
#include "server/state.h"

static uint64_t
turn_began_ns(struct lane *lane)
{
    if (lane->turn_ns == 0) {
        lane->turn_ns = psi_now_ns(lane->env);
    }
    return lane->turn_ns;
}

/* Before it joins the round. */
void
round_gradient_came(struct lane *lane, struct round *round)
{
    const uint64_t now_ns = turn_began_ns(lane);

    if (round->slots == NULL) {
        round->opened_ns = now_ns;
    }
    round->arrived_ns = now_ns;
}

/* The round has closed. */
void
round_waited(struct lane *lane, const struct round *round)
{
    psi_metric_add(lane->metrics, PSI_METRIC_ROUND_WAIT, round->arrived_ns - round->opened_ns);
}

int64_t
timed_apply(struct lane *lane, const struct chunk *chunk, const struct store_change *change)
{
    struct store *store = chunk->table->store;
    const uint64_t begun_ns = psi_now_ns(lane->env);
    const int64_t bad = store->ops->apply(store, chunk->place, change);

    psi_metric_add(lane->metrics, PSI_METRIC_ADD_TIME, psi_now_ns(lane->env) - begun_ns);
    return bad;
}

/* ---- telling ------------------------------------------------------------------------------- */

static void
measure(struct lane *lane)
{
    psi_metric_set(lane->metrics, PSI_METRIC_POOL_USED, lane->pool.bytes);
    psi_metric_set(lane->metrics, PSI_METRIC_TABLE_MEMORY, lane->memory_used);
    psi_metric_set(lane->metrics, PSI_METRIC_COPY_QUEUE,
                   lane->pair == NULL ? 0 : lane->pair->bytes);
    psi_metric_set(lane->metrics, PSI_METRIC_COPY_WHOLE,
                   lane->pair != NULL && lane->pair->is_eligible && !lane->pair->is_broken);
    psi_metric_set(lane->metrics, PSI_METRIC_COPY_LEFT,
                   lane->pair == NULL ? 0 : lane->pair->unpaired);
    psi_metric_set(lane->metrics, PSI_METRIC_GLOBAL_STEP, lane->global.value);
    psi_metric_set(lane->metrics, PSI_METRIC_SEAL_TIME, psi_sealed_ns(lane->env));
    if (lane->config.cpu_ns != NULL) {
        const uint64_t cpu_ns = lane->config.cpu_ns();
        const uint64_t lived_ns = psi_now_ns(lane->env) - lane->started_ns;

        psi_metric_set(lane->metrics, PSI_METRIC_CPU_TIME, cpu_ns);
        psi_metric_set(lane->metrics, PSI_METRIC_SLEEP_TIME,
                       lived_ns > cpu_ns ? lived_ns - cpu_ns : 0);
    }
}

void
lane_tell(void *owner)
{
    struct lane *lane = owner;
    const struct psi_frame frame = {.type = PSI_FRAME_METRICS,
                                    .view = lane->view.id,
                                    .rank = (uint16_t)lane->config.server,
                                    .chunk = lane->config.lane,
                                    .table = PSI_ROLE_SERVER};

    if (lane->telling == NULL) {
        lane->telling = malloc(sizeof(*lane->telling));
    }
    if (lane->telling == NULL || !lane->joined || lane->config.is_standby) {
        return;
    }
    memset(lane->telling, 0, sizeof(*lane->telling));
    measure(lane);
    psi_telling_count(lane->telling, lane->metrics);
    (void)psi_post_telling(lane->master.peer.conn, &frame, lane->telling);
}
