/*
 * snapshot_tell.c - what a lane tells the master of its part of a checkpoint.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/snapshot_rows.h"
#include "server/snapshot_state.h"

static struct psi_frame
answer(const struct lane *lane, uint64_t number, uint64_t step)
{
    return (struct psi_frame){
        .type = PSI_FRAME_WRITTEN, .view = lane->view.id, .seq = number, .step = step};
}

bool
snapshot_tell(const struct lane *lane, uint64_t number, uint64_t step,
              const struct psi_written *written)
{
    const struct psi_frame frame = answer(lane, number, step);

    return psi_master_link_is_up(&lane->master) &&
           psi_post_written(lane->master.peer.conn, &frame, written) == PSD_OK;
}

bool
snapshot_tell_failure(const struct lane *lane, uint64_t number, const char *text)
{
    struct psi_written written = {.news = PSI_WRITTEN_FAILED};

    snprintf(written.text, sizeof(written.text), "server %u: %.400s", lane->standby.server, text);
    return snapshot_tell(lane, number, 0, &written);
}

void
snapshot_tell_reached(const struct lane *lane, uint64_t number, enum psi_written_news news)
{
    const struct psi_written written = {.news = news};
    const uint64_t step = snapshot_highest(lane);

    (void)snapshot_tell(lane, number, step > lane->furthest ? step : lane->furthest, &written);
}

static bool
tell_blocks(const struct lane *lane, unsigned file, const struct psi_manifest_file *sums)
{
    struct psi_frame frame = answer(lane, lane->snapshot->number, lane->snapshot->step);

    frame.type = PSI_FRAME_BLOCKS;
    for (size_t first = 0; first < sums->block_count; first += PSI_BLOCKS_MAX) {
        const size_t rest = sums->block_count - first;
        const struct psi_blocks blocks = {
            .file = (uint8_t)file,
            .first = (uint32_t)first,
            .count = (uint32_t)(rest < PSI_BLOCKS_MAX ? rest : PSI_BLOCKS_MAX),
            .checksum = sums->blocks + first,
        };

        if (psi_post_blocks(lane->master.peer.conn, &frame, &blocks) != PSD_OK) {
            return false;
        }
    }
    return true;
}

static bool
tell_earlier(const struct lane *lane, unsigned file, const struct psi_ranges *earlier)
{
    struct psi_frame frame = answer(lane, lane->snapshot->number, lane->snapshot->step);

    frame.type = PSI_FRAME_EARLIER;
    for (size_t first = 0; first < earlier->count; first += PSI_EARLIER_MAX) {
        const size_t rest = earlier->count - first;
        const size_t count = rest < PSI_EARLIER_MAX ? rest : PSI_EARLIER_MAX;
        struct psi_refers refers = {.file = (uint8_t)file,
                                    .first = (uint32_t)first,
                                    .count = (uint32_t)count,
                                    .bytes = malloc(count * sizeof(*refers.bytes))};
        bool sent;

        for (size_t i = 0; refers.bytes != NULL && i < count; i++) {
            const struct psi_range *range = &earlier->list[first + i];

            refers.bytes[i] =
                (struct psi_earlier_bytes){range->generation, range->begin, range->end};
        }
        sent = refers.bytes != NULL &&
               psi_post_refers(lane->master.peer.conn, &frame, &refers) == PSD_OK;
        free(refers.bytes);
        if (!sent) {
            return false;
        }
    }
    return true;
}

/* The files of all sparse tables of the order. NULL and no count: there are none, or no memory. */
static bool
list_rows(const struct lane *lane, const struct lane_disk_news *news, struct rows_list *list)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        if (table->order != NULL && psi_spec_is_sparse(&table->spec) &&
            snapshot_rows_list(table, news, list, NULL) != PSD_OK) {
            return false;
        }
    }
    return true;
}

static bool
tell_rows(const struct lane *lane, const struct lane_disk_news *news)
{
    struct psi_frame frame = answer(lane, lane->snapshot->number, lane->snapshot->step);
    struct rows_list list = {0};
    bool sent = list_rows(lane, news, &list);

    frame.type = PSI_FRAME_ROWS_SAVED;
    for (uint32_t first = 0; first < list.count && sent; first += PSI_ROWS_SAVED_MAX) {
        const uint32_t rest = list.count - first;
        const struct psi_rows_saved saved = {
            .place = list.place,
            .first = first,
            .count = rest < PSI_ROWS_SAVED_MAX ? rest : PSI_ROWS_SAVED_MAX,
            .file = list.file + first,
        };

        sent = psi_post_rows_saved(lane->master.peer.conn, &frame, &saved) == PSD_OK;
    }
    free(list.file);
    return sent;
}

void
snapshot_tell_all(const struct lane *lane, const struct lane_disk_news *news)
{
    struct snapshot *snapshot = lane->snapshot;
    struct psi_written written = {
        .news = PSI_WRITTEN_ALL, .tables = snapshot->order.tables, .table = snapshot->written};

    struct lane_disk_cost cost = news->cost;

    if (!psi_master_link_is_up(&lane->master)) {
        return;
    }
    for (unsigned file = 0; file < PSI_SAVED_FILES; file++) {
        written.bytes[file] = news->bytes[file];
        written.checksum[file] = news->sums[file].checksum;
        if (!tell_blocks(lane, file, &news->sums[file]) ||
            !tell_earlier(lane, file, &news->sums[file].earlier)) {
            return;
        }
    }
    if (!tell_rows(lane, news)) {
        return;
    }
    snapshot->told = snapshot_tell(lane, snapshot->number, snapshot->step, &written);
    cost.copy_ns += snapshot->rows_ns;
    disk_tell_cost(&lane->log, snapshot->step, snapshot->given, &cost);
}
