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

#include "base/resident.h"
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
round_gradient_came(struct lane *lane, struct round *round, uint32_t rank)
{
    const uint64_t now_ns = turn_began_ns(lane);

    if (round->slots == NULL) {
        round->opened_ns = now_ns;
        round->arrived_ns = now_ns;
    }
    round->before_ns = round->arrived_ns;
    round->arrived_ns = now_ns;
    round->last = rank;
}

__attribute__((noinline)) static void
keep_span(struct lane *lane, const struct chunk *chunk, uint64_t step)
{
    const struct round *round = &chunk->round;
    const bool waited = round->arrived_ns > round->before_ns;

    psi_spans_add_round(lane->spans,
                        &(struct psi_span){.kind = PSI_SPAN_ROUND,
                                           .what = chunk->table->id,
                                           .who = waited ? round->last : UINT32_MAX,
                                           .apply_us = (uint32_t)(lane->applied_ns / 1000),
                                           .step = step},
                        round->opened_ns, psi_now_ns(lane->env));
}

/* The round of this step has closed. */
void
round_waited(struct lane *lane, struct chunk *chunk, uint64_t step)
{
    struct round *round = &chunk->round;

    psi_metric_add(lane->metrics, PSI_METRIC_ROUND_WAIT, round->arrived_ns - round->opened_ns);
    lane->waited_ns[round->last] += round->arrived_ns - round->before_ns;
    if (lane->spans != NULL && psi_spans_want(lane->spans, step) && step <= PSI_TOLD_STEP_MAX) {
        keep_span(lane, chunk, step);
    }
    round->opened_ns = round->arrived_ns; /* backup workers: the next may be of nobody */
    round->before_ns = round->arrived_ns;
    lane->applied_ns = 0; /* likewise: that one changes nothing */
}

/* Small ones are not timed. */
int64_t
timed_apply(struct lane *lane, const struct chunk *chunk, const struct store_change *change)
{
    struct store *store = chunk->table->store;
    uint64_t begun_ns;
    int64_t bad;

    if (store->ops->numbers(store, change) < PSI_METRIC_TIMED) {
        lane->applied_ns = 0;
        return store->ops->apply(store, chunk->place, change);
    }
    begun_ns = psi_now_ns(lane->env);
    bad = store->ops->apply(store, chunk->place, change);
    lane->applied_ns = psi_now_ns(lane->env) - begun_ns;
    psi_metric_add(lane->metrics, PSI_METRIC_ADD_TIME, lane->applied_ns);
    return bad;
}

/* Likewise. */
void
timed_copy(struct lane *lane, void *to, const void *from, size_t bytes)
{
    psi_env_copy(lane->env, to, from, bytes, &lane->copied_ns);
}

/* ---- telling ------------------------------------------------------------------------------- */

static uint64_t
queued_bytes(const struct lane *lane)
{
    uint64_t bytes = psi_conn_queued_bytes(lane->master.peer.conn);

    for (const struct psi_guest *guest = lane->guests.first; guest != NULL; guest = guest->next) {
        bytes += psi_conn_queued_bytes(guest->conn); /* workers, other servers and strangers */
    }
    return bytes + (lane->pair != NULL ? psi_conn_queued_bytes(lane->pair->peer.conn) : 0);
}

/* Of the tables that are there: what one that was dropped has read and written is forgotten. */
static void
measure_rows(struct lane *lane)
{
    struct store_row_counts all = {0};

    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        const struct store_row_counts *rows = &table->store->rows;

        all.hot += rows->hot;
        all.cold += rows->cold;
        all.cold_bytes = rows->cold_bytes > all.cold_bytes ? rows->cold_bytes : all.cold_bytes;
        all.cold_reads += rows->cold_reads;
        all.cold_writes += rows->cold_writes;
        all.cold_ns += rows->cold_ns;
    }
    psi_metric_set(lane->metrics, PSI_METRIC_ROWS_HOT, all.hot);
    psi_metric_set(lane->metrics, PSI_METRIC_ROWS_COLD, all.cold);
    psi_metric_set(lane->metrics, PSI_METRIC_COLD_BYTES, all.cold_bytes);
    psi_metric_set(lane->metrics, PSI_METRIC_COLD_READS, all.cold_reads);
    psi_metric_set(lane->metrics, PSI_METRIC_COLD_WRITES, all.cold_writes);
    psi_metric_set(lane->metrics, PSI_METRIC_COLD_TIME, all.cold_ns);
}

static void
measure(struct lane *lane)
{
    const struct psi_env_counts counts = psi_env_counts(lane->env);

    psi_metric_set(lane->metrics, PSI_METRIC_POOL_USED, lane->pool.bytes);
    psi_metric_set(lane->metrics, PSI_METRIC_TABLE_MEMORY, lane->memory_used);
    measure_rows(lane);
    psi_metric_set(lane->metrics, PSI_METRIC_COPY_QUEUE,
                   lane->pair == NULL ? 0 : lane->pair->bytes);
    psi_metric_set(lane->metrics, PSI_METRIC_COPY_WHOLE,
                   lane->pair != NULL && lane->pair->is_eligible && !lane->pair->is_broken);
    psi_metric_set(lane->metrics, PSI_METRIC_COPY_LEFT,
                   lane->pair == NULL ? 0 : lane->pair->unpaired);
    psi_metric_set(lane->metrics, PSI_METRIC_GLOBAL_STEP, lane->global.value);
    psi_metric_set(lane->metrics, PSI_METRIC_SEAL_TIME, counts.sealed_ns);
    psi_metric_set(lane->metrics, PSI_METRIC_COPYING_TIME, counts.copied_ns + lane->copied_ns);
    psi_metric_set(lane->metrics, PSI_METRIC_FRAMES_OUT, counts.frames_out);
    psi_metric_set(lane->metrics, PSI_METRIC_SEND_QUEUE, queued_bytes(lane));
    if (lane->config.resident != NULL) {
        uint64_t shared;

        psi_metric_set(lane->metrics, PSI_METRIC_RESIDENT,
                       psi_resident_read(lane->config.resident, &shared));
    }
    if (lane->config.cpu_ns != NULL) {
        const uint64_t cpu_ns = lane->config.cpu_ns();
        const uint64_t lived_ns = psi_now_ns(lane->env) - lane->started_ns;

        psi_metric_set(lane->metrics, PSI_METRIC_CPU_TIME, cpu_ns);
        psi_metric_set(lane->metrics, PSI_METRIC_SLEEP_TIME,
                       lived_ns > cpu_ns ? lived_ns - cpu_ns : 0);
    }
}

/* Of many workers those for whom the lane waited longest. */
static void
tell_waited(const struct lane *lane, struct psi_telling *telling)
{
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        const uint64_t ns = lane->waited_ns[rank];
        uint32_t at = telling->waited;

        if (ns == 0) {
            continue;
        }
        if (at == PSI_WAITED_MAX) {
            at = 0;
            for (uint32_t i = 1; i < PSI_WAITED_MAX; i++) {
                at = telling->wait[i].ns < telling->wait[at].ns ? i : at;
            }
            if (telling->wait[at].ns >= ns) {
                continue;
            }
        } else {
            telling->waited++;
        }
        telling->wait[at] = (struct psi_waited){.rank = rank, .ns = ns};
    }
}

static void
tell_spans(struct lane *lane, struct psi_telling *telling)
{
    if (lane->spans == NULL) {
        lane->spans = calloc(1, sizeof(*lane->spans)); /* without it there is no timeline */
        return;
    }
    telling->spans = lane->spans->count;
    memcpy(telling->span, lane->spans->span, lane->spans->count * sizeof(telling->span[0]));
    psi_metric_set(lane->metrics, PSI_METRIC_SPANS_UNTOLD, lane->spans->lost);
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

    measure(lane); /* of one that stands by, the process adds it up for its log */
    if (lane->telling == NULL) {
        lane->telling = malloc(sizeof(*lane->telling));
    }
    if (lane->telling == NULL || !lane->joined || lane->config.is_standby) {
        return;
    }
    memset(lane->telling, 0, sizeof(*lane->telling));
    tell_spans(lane, lane->telling);
    tell_waited(lane, lane->telling);
    psi_telling_count(lane->telling, lane->metrics);
    if (psi_post_telling(lane->master.peer.conn, &frame, lane->telling) == PSD_OK &&
        lane->spans != NULL) {
        psi_spans_told(lane->spans);
    }
}

void
lane_hush(void *owner)
{
    struct lane *lane = owner;

    free(lane->spans);
    lane->spans = NULL;
}
