/*
 * table_room.c - what tables take on a lane, and whether that may be so much. Rows of sparse tables come
 * with their gradients.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdatomic.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "server/state.h"

/* Of this lane, and of all of the process; less of it, too. */
void
lane_count_memory(struct lane *lane, uint64_t more)
{
    lane->memory_used += more;
    if (lane->config.budget != NULL) {
        atomic_fetch_add(&lane->config.budget->used, more);
    }
}

/* Tables of this server come first: a copy has what they leave. */
bool
lane_has_room_for_copy(const struct lane *lane, uint64_t bytes)
{
    const struct lane_budget *budget = lane->config.budget;

    return budget == NULL || atomic_load(&budget->used) + bytes <= budget->max;
}

/* Does the job go on with it when a server dies? */
bool
table_outlives_servers(const struct lane *lane, const struct table *table)
{
    return lane->job.survives && table->is_remade;
}

/* What a table takes besides its numbers: for many small tables, this is most of it. */
uint64_t
table_bookkeeping_bytes(const struct lane *lane, const struct table *table)
{
    const uint64_t cell =
        sizeof(*table->clocks) +
        (table->spec.staleness == PSD_STALENESS_UNBOUNDED ? sizeof(*table->marks) : 0);

    return sizeof(*table) + table->chunks_in_all * sizeof(*table->local) +
           table->chunk_count * (sizeof(*table->chunks) + lane->rows * cell) +
           2 * lane->rows * sizeof(*table->members.left_at) +
           (table_outlives_servers(lane, table) ? table->chunk_count * sizeof(*table->held) : 0) +
           (table->again ? adopt_bytes(lane, table->chunk_count) : 0);
}

/* Once, until it is better again. */
static void
tell_full_disk(const struct lane *lane, struct table *table)
{
    const struct store_row_counts *rows = &table->store->rows;

    if (rows->full != NULL && !table->disk_is_full) {
        psi_log(
            &lane->log, PSI_LOG_WARN, "ROWS-STAY",
            "table %s: rows beyond capacity_rows stay in memory, of which memory_max_mib is the "
            "bound: %s",
            table->spec.name, rows->full);
    } else if (rows->full == NULL && table->disk_is_full) {
        psi_log(&lane->log, PSI_LOG_INFO, "ROWS-GO", "table %s: rows leave memory again",
                table->spec.name);
    }
    table->disk_is_full = rows->full != NULL;
}

static void
count_rows(struct lane *lane, struct table *table)
{
    const uint64_t before = table->bytes;

    tell_full_disk(lane, table);
    table->bytes = table->store->bytes + table_bookkeeping_bytes(lane, table);
    lane_count_memory(lane, table->bytes - before);
}

bool
table_may_stay(struct lane *lane, struct table *table)
{
    struct psd_error err;

    count_rows(lane, table);
    if (lane->memory_used <= lane->config.memory_max) {
        return true;
    }
    psi_fail(&err, PSD_ERR_TOO_BIG,
             "table %s: server %u has no room for more rows: they take %llu MiB, and all tables "
             "%llu of %llu MiB (setting memory_max_mib%s)",
             table->spec.name, lane->standby.server, (unsigned long long)(table->bytes >> 20),
             (unsigned long long)(lane->memory_used >> 20),
             (unsigned long long)(lane->config.memory_max >> 20),
             lane->config.lanes > 1 ? ", of which this lane has an equal share" : "");
    lane_fail_job(lane, err.status, PSI_EXIT_NO_ROOM, err.text);
    return false;
}

psd_status
table_copy_may_stay(struct lane *lane, struct table *table, struct psd_error *err)
{
    count_rows(lane, table);
    if (lane->memory_used <= lane->config.memory_max && lane_has_room_for_copy(lane, 0)) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_TOO_BIG,
                    "table %s: no room for a copy of its rows: they take %llu MiB (setting "
                    "memory_max_mib)",
                    table->spec.name, (unsigned long long)(table->bytes >> 20));
}
