/*
 * waits.c - whom a lane's rounds wait for, and how the master is told what the lane counts.
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

#define US_NS UINT64_C(1000)

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
round_gradient_came(struct lane *lane, struct round *round, uint32_t rank)
{
    const uint64_t now_ns = turn_began_ns(lane);

    if (round->slots == NULL) {
        round->opened_ns = now_ns;
        round->arrived_ns = now_ns;
    }
    round->gap_ns = now_ns - round->arrived_ns;
    round->arrived_ns = now_ns;
    round->last = rank;
}

/* The round has closed: it waited for its last gradient alone since the one before. */
void
round_waited(struct lane *lane, const struct round *round)
{
    psi_metric_add(lane->metrics, PSI_METRIC_ROUND_WAIT, round->arrived_ns - round->opened_ns);
    lane->late_ns[round->last] += round->gap_ns;
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

/* Those that were waited for longest, if there are too many. */
static void
tell_late(const struct lane *lane, struct psi_telling *telling)
{
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        const struct psi_late late = {.rank = rank, .wait_us = lane->late_ns[rank] / US_NS};
        uint32_t at = telling->lates;

        if (late.wait_us == 0) {
            continue;
        }
        if (at == PSI_LATE_MAX) {
            at = 0;
            for (uint32_t i = 1; i < PSI_LATE_MAX; i++) {
                at = telling->late[i].wait_us < telling->late[at].wait_us ? i : at;
            }
            if (telling->late[at].wait_us >= late.wait_us) {
                continue;
            }
        } else {
            telling->lates++;
        }
        telling->late[at] = late;
    }
}

static void
measure(struct lane *lane)
{
    psi_metric_set(lane->metrics, PSI_METRIC_POOL_USED, lane->pool.bytes);
    psi_metric_set(lane->metrics, PSI_METRIC_TABLE_MEMORY, lane->memory_used);
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
    tell_late(lane, lane->telling);
    (void)psi_post_telling(lane->master.peer.conn, &frame, lane->telling);
}
