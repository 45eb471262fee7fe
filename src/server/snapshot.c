/*
 * snapshot.c - a lane's part of a checkpoint: its chunks as they are at one step, while rounds go on.
 *
 * The master names the step. A chunk that has come to it is copied and handed to the disk: when there
 * is time for it, or at the latest when its next round is about to change it. So a step waits for at
 * most the copying; only when the copies that the disk has not taken yet would take too much memory,
 * rounds wait for the disk. Tables without rounds have no step in common: of those each chunk is of
 * one moment, after the first worker has come to the step.
 *
 * Invariants
 *   - chunk->due: of a table of the order, and not handed over; its version is at most the step, if
 *     the table has rounds;
 *   - what is handed over of a table with rounds was committed: no other life of the server differs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "server/snapshot_rows.h"
#include "server/snapshot_state.h"

enum {
    LEISURE_BYTES =
        16
        << 20, /* so much waits for the disk at most, unless rounds press or there is room anyway */
    TURN_BYTES = 1 << 20,   /* copied per turn of the loop ... */
    ROWS_BYTES = 128 << 10, /* ... of rows, which lie here and there */
    WAIT_MS = 10000,        /* rounds wait no longer for a disk that takes nothing */
    HANGS_MS = 600000,      /* and nobody does */
};

static const struct lane_disk *
disk_of(const struct lane *lane)
{
    return lane->config.disk;
}

/* How long rounds have waited for the disk. */
static void
tell_slow(const struct lane *lane)
{
    const struct snapshot *snapshot = lane->snapshot;

    psi_log(&lane->log, PSI_LOG_INFO, "CHECKPOINT-SLOW",
            "rounds waited %llu ms for the disk: the copies of a checkpoint may take %llu MiB",
            (unsigned long long)((psi_now_ns(lane->env) - snapshot->waits_ns) / 1000000),
            (unsigned long long)(snapshot->room >> 20));
}

/* What the disk has of it stays there. */
static void
forget(struct lane *lane)
{
    struct snapshot *snapshot = lane->snapshot;

    if (snapshot == NULL) {
        return;
    }
    if (snapshot->waits) {
        tell_slow(lane);
        lane->rounds_due = true; /* nothing else would make them go on */
    }
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->order != NULL && i < table->chunk_count; i++) {
            table->chunks[i].due = false;
            table->chunks[i].is_ready_to_save = false;
        }
        snapshot_rows_end(table);
        table->order = NULL;
    }
    free(snapshot->order.table);
    free(snapshot->written);
    free(snapshot);
    lane->snapshot = NULL;
}

void
snapshot_drop(struct lane *lane)
{
    if (lane->snapshot != NULL || lane->ahead.is_made) {
        disk_of(lane)->drop(disk_of(lane)->self);
    }
    lane->ahead = (struct snapshot_ahead){0};
    forget(lane);
}

static void __attribute__((format(printf, 2, 3))) fail(struct lane *lane, const char *format, ...)
{
    struct snapshot *snapshot = lane->snapshot;
    va_list args;

    if (snapshot->failed) {
        return;
    }
    va_start(args, format);
    vsnprintf(snapshot->text, sizeof(snapshot->text), format, args);
    va_end(args);
    snapshot->failed = true;
    snapshot->told = snapshot_tell_failure(lane, snapshot->number, snapshot->text);
}

/* ------------------------------------------------------------------------------- handing over --- */

static bool
is_sparse(const struct chunk *chunk)
{
    return psi_spec_is_sparse(&chunk->table->spec);
}

/* About; of rows those that are handed over at a time. */
static size_t
chunk_bytes(const struct chunk *chunk)
{
    const struct psi_spec *spec = &chunk->table->spec;

    if (is_sparse(chunk)) {
        return ROWS_BYTES;
    }

    return psi_chunk_elements(spec->count, chunk->index) * psi_spec_all_parts_bytes(spec);
}

/* One part of the chunk, as it is now. */
static void
hand_over_part(struct lane *lane, const struct chunk *chunk, unsigned part)
{
    const struct store_piece piece = chunk_part(chunk, part);
    const uint64_t first =
        psi_chunk_first(chunk->index) * psi_spec_part_bytes(&chunk->table->spec, part);

    if (piece.bytes > 0) {
        disk_of(lane)->write(disk_of(lane)->self, psi_saved_kind(part),
                             chunk->table->order->begin[part] + first, piece.base, piece.bytes);
        lane->snapshot->given += piece.bytes;
    }
}

static void
count_updates(struct snapshot *snapshot, const struct chunk *chunk)
{
    struct psi_written_table *written =
        &snapshot->written[chunk->table->order - snapshot->order.table];

    if (chunk->updates > written->updates) {
        written->updates = chunk->updates;
    }
}

/* Rows stay as they are from now on, for the disk. */
static void
freeze_rows(struct lane *lane, struct chunk *chunk)
{
    struct psd_error err;

    if (lane->snapshot->failed || snapshot_rows_are_frozen(chunk->table)) {
        return;
    }
    count_updates(lane->snapshot, chunk);
    if (snapshot_rows_freeze(chunk->table, &err) != PSD_OK) {
        fail(lane, "%s", err.text);
    }
}

static uint64_t
cpu_ns(const struct lane *lane)
{
    return lane->config.cpu_ns != NULL ? lane->config.cpu_ns() : 0;
}

/* Some rows. */
static void
hand_over_rows(struct lane *lane, struct chunk *chunk)
{
    struct psd_error err;
    uint64_t begin_ns;
    bool more = false;

    freeze_rows(lane, chunk);
    if (lane->snapshot->failed) {
        return;
    }
    begin_ns = cpu_ns(lane);
    if (snapshot_rows_go_on(chunk->table, ROWS_BYTES, &more, &err) != PSD_OK) {
        fail(lane, "%s", err.text);
    } else if (!more) {
        chunk->due = false;
        lane->snapshot->left--;
    }
    lane->snapshot->rows_ns += cpu_ns(lane) - begin_ns;
}

static void
hand_over(struct lane *lane, struct chunk *chunk)
{
    struct snapshot *snapshot = lane->snapshot;

    chunk->due = false;
    snapshot->left--;
    count_updates(snapshot, chunk);
    for (unsigned part = 0; part < PSI_PARTS_MAX && !snapshot->failed; part++) {
        hand_over_part(lane, chunk, part);
    }
}

/* Handed over, and not written yet. */
static uint64_t
unwritten(const struct lane *lane)
{
    struct lane_disk_news news = {0};

    disk_of(lane)->look(disk_of(lane)->self, &news);
    return news.failed ? 0 : lane->snapshot->given - news.written;
}

bool
snapshot_must_wait(struct lane *lane, const struct chunk *chunk)
{
    struct snapshot *snapshot = lane->snapshot;
    uint64_t bytes;

    if (snapshot->failed || (is_sparse(chunk) ? chunk->clock.version < snapshot->step
                                              : chunk->clock.version != snapshot->step)) {
        return false;
    }
    bytes = unwritten(lane);
    if (bytes == 0 || bytes + chunk_bytes(chunk) <= snapshot->room) {
        return false;
    }
    if (!snapshot->waits) {
        snapshot->waits = true;
        snapshot->waits_ns = psi_now_ns(lane->env);
    }
    return true;
}

static void
make_ready(struct snapshot *snapshot, struct chunk *chunk)
{
    if (!chunk->is_ready_to_save) {
        chunk->is_ready_to_save = true;
        chunk->next_ready = NULL;
        *snapshot->ready_end = chunk;
        snapshot->ready_end = &chunk->next_ready;
    }
}

void
snapshot_overtaken(struct lane *lane, struct chunk *chunk, uint64_t next)
{
    if (chunk->clock.version <= lane->snapshot->step && next > lane->snapshot->step) {
        if (is_sparse(chunk)) {
            freeze_rows(lane, chunk);
            make_ready(lane->snapshot, chunk);
        } else {
            hand_over(lane, chunk);
        }
    }
}

void
snapshot_reached(struct lane *lane, struct chunk *chunk)
{
    struct snapshot *snapshot = lane->snapshot;

    if (chunk->clock.version == snapshot->step) {
        make_ready(snapshot, chunk);
    } else if (chunk->clock.version > snapshot->step &&
               !(is_sparse(chunk) && snapshot_rows_are_frozen(chunk->table))) {
        fail(lane, "table %s went from before step %llu to step %llu", chunk->table->spec.name,
             (unsigned long long)snapshot->step, (unsigned long long)chunk->clock.version);
    }
}

/* -------------------------------------------------------------------------------------- order --- */

static void
order_rows(struct lane *lane, struct table *table)
{
    struct snapshot *snapshot = lane->snapshot;
    const struct rows_order order = {.token = snapshot->order.token,
                                     .after = snapshot->order.after,
                                     .step = snapshot->step,
                                     .disk = disk_of(lane),
                                     .files_p = &snapshot->rows_files,
                                     .given_p = &snapshot->given};
    struct psd_error err;

    if (snapshot_rows_ordered(table, &order, &err) != PSD_OK) {
        fail(lane, "%s", err.text);
    }
}

static void
begin_table(struct lane *lane, struct psi_order_table *order, struct lane_disk_load *load)
{
    struct snapshot *snapshot = lane->snapshot;
    struct table *table = table_find(lane, order->id);

    if (table == NULL) {
        return; /* no chunk of it is here */
    }
    table->order = order;
    if (psi_spec_is_sparse(&table->spec)) {
        order_rows(lane, table);
    }
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        struct chunk *chunk = &table->chunks[i];

        chunk->due = true;
        snapshot->left++;
        snapshot_add_to_load(chunk, load);
        if (!psi_spec_synchronous(&table->spec)) {
            snapshot->alone_waits = true;
        } else if (chunk->clock.version == snapshot->step) {
            make_ready(snapshot, chunk);
        }
    }
}

static void
make_alone_ready(struct lane *lane)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0;
             table->order != NULL && !psi_spec_synchronous(&table->spec) && i < table->chunk_count;
             i++) {
            make_ready(lane->snapshot, &table->chunks[i]);
        }
    }
    lane->snapshot->alone_waits = false;
}

static bool
alone_may_begin(const struct lane *lane)
{
    return lane->snapshot->alone_waits && lane->furthest >= lane->snapshot->step;
}

/* Takes the order's list. */
static void
begin(struct lane *lane, uint64_t number, uint64_t step, const struct psi_order *order)
{
    struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
    struct psi_written_table *written = calloc(order->tables, sizeof(*written));
    struct psi_part_order part = {
        .token = order->token, .generation = order->generation, .after = order->after};
    struct lane_disk_load load = {0};

    if (snapshot == NULL || written == NULL) {
        free(snapshot);
        free(written);
        free(order->table);
        (void)snapshot_tell_failure(lane, number, "no memory for a checkpoint");
        return;
    }
    snapshot->number = number;
    snapshot->step = step;
    snapshot->order = *order;
    snapshot->written = written;
    snapshot->ready_end = &snapshot->ready;
    snapshot->room = snapshot_room(lane);
    snapshot->taken_ns = psi_now_ns(lane->env);
    lane->snapshot = snapshot;
    lane->ahead = (struct snapshot_ahead){0};
    memcpy(part.bytes, order->bytes, sizeof(part.bytes));
    for (uint32_t i = 0; i < order->tables; i++) {
        written[i].id = order->table[i].id;
        begin_table(lane, &snapshot->order.table[i], &load);
    }
    load.room = snapshot->room;
    disk_of(lane)->begin(disk_of(lane)->self, &part, &load);
    psi_log(&lane->log, PSI_LOG_DEBUG, "CHECKPOINT-ORDERED", "step %llu, %u tables",
            (unsigned long long)step, order->tables);
}

psd_status
snapshot_ordered(struct lane *lane, const void *payload, size_t bytes, struct psd_error *err)
{
    const struct psi_frame *frame = &lane->master.peer.inbox.frame;
    struct psi_order order = {.table = calloc(PSI_TABLES_MAX, sizeof(*order.table))};
    psd_status status;

    if (order.table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "CHECKPOINT: no memory");
    }
    status = psi_order_decode(payload, bytes, &order, err);
    if (status != PSD_OK) {
        free(order.table);
        return status;
    }
    if (lane->snapshot != NULL && lane->snapshot->number == frame->seq && order.tables > 0) {
        lane->snapshot->told = false; /* asked again after a cut: answered again */
        free(order.table);
        return PSD_OK;
    }
    if (order.tables == 0 && frame->step == PSI_STEP_NEVER) {
        snapshot_drop(lane);
    } else if (order.tables == 0) {
        forget(lane);
        snapshot_asked(lane, frame->seq);
    } else if (disk_of(lane) == NULL) {
        (void)snapshot_tell_failure(lane, frame->seq, "was started without --checkpoint");
    } else if (snapshot_highest(lane) <= frame->step) {
        forget(lane);
        begin(lane, frame->seq, frame->step, &order);
        return PSD_OK;
    } else {
        if (lane->snapshot != NULL) {
            snapshot_drop(lane);
        }
        snapshot_tell_reached(lane, frame->seq, PSI_WRITTEN_LATE);
    }
    free(order.table);
    return PSD_OK;
}

/* --------------------------------------------------------------------------------------- turn --- */

/* Can the first that is ready be handed over now? Forgets those that rounds have pressed out. */
static bool
has_ready(struct snapshot *snapshot)
{
    while (snapshot->ready != NULL && !snapshot->ready->due) {
        snapshot->ready->is_ready_to_save = false;
        snapshot->ready = snapshot->ready->next_ready;
    }
    if (snapshot->ready == NULL) {
        snapshot->ready_end = &snapshot->ready;
        return false;
    }
    if (is_sparse(snapshot->ready) && snapshot_rows_are_frozen(snapshot->ready->table)) {
        return true;
    }
    return snapshot->ready->ready &&
           (!psi_spec_synchronous(&snapshot->ready->table->spec) ||
            snapshot->ready->clock.committed == snapshot->ready->clock.version);
}

/* ... while so much waits for the disk? Where memory is there, what is copied now is not copied when a round waits
 * for it. */
static bool
has_time(struct snapshot *snapshot, const struct lane_disk_news *news, uint64_t waiting)
{
    if (snapshot->failed || !has_ready(snapshot)) {
        return false;
    }
    return (waiting < LEISURE_BYTES || (news->has_room && !is_sparse(snapshot->ready))) &&
           (waiting == 0 || waiting + chunk_bytes(snapshot->ready) <= snapshot->room);
}

static void
hand_over_at_leisure(struct lane *lane, const struct lane_disk_news *news, uint64_t waiting)
{
    size_t done = 0;

    while (done < TURN_BYTES && has_time(lane->snapshot, news, waiting + done)) {
        struct chunk *chunk = lane->snapshot->ready;

        done += is_sparse(chunk) ? TURN_BYTES : chunk_bytes(chunk);
        if (is_sparse(chunk)) {
            hand_over_rows(lane, chunk);
        } else {
            hand_over(lane, chunk);
        }
    }
}

/* Rounds that waited for room go on. */
static void
go_on(struct lane *lane)
{
    lane->snapshot->waits = false;
    tell_slow(lane);
    rounds_try_close_all(lane);
}

/* A disk that has nothing to do does not hang. */
static void
look_for_a_hang(struct lane *lane, const struct lane_disk_news *news, uint64_t now_ns)
{
    struct snapshot *snapshot = lane->snapshot;
    const bool is_idle = news->written == snapshot->given && !snapshot->finished;
    uint64_t since_ns;

    if (news->written != snapshot->taken || is_idle || news->done) {
        snapshot->taken = news->written;
        snapshot->taken_ns = now_ns;
    }
    since_ns = now_ns - snapshot->taken_ns;
    if (snapshot->waits && now_ns - snapshot->waits_ns < since_ns) {
        since_ns = now_ns - snapshot->waits_ns;
    }
    if (since_ns >= (snapshot->waits ? WAIT_MS : HANGS_MS) * 1000000ull) {
        fail(lane,
             "the disk of the checkpoints has taken nothing for %llu s%s, %llu MiB wait for it; "
             "is it still there?",
             (unsigned long long)(since_ns / 1000000000),
             snapshot->waits ? ", and rounds waited for it" : "",
             (unsigned long long)((snapshot->given - news->written) >> 20));
    }
}

/* What has failed needs no rows any more. */
static void
end_rows(struct lane *lane)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        snapshot_rows_end(table);
    }
}

void
snapshot_tick(struct lane *lane, uint64_t now_ns)
{
    struct snapshot *snapshot = lane->snapshot;
    struct lane_disk_news news = {0};
    uint64_t waiting;

    disk_of(lane)->look(disk_of(lane)->self, &news);
    waiting = snapshot->given - news.written;
    if (news.failed) {
        fail(lane, "%s", news.text);
    } else if (!snapshot->failed) {
        look_for_a_hang(lane, &news, now_ns);
    }
    if (snapshot->failed) {
        end_rows(lane);
    }
    if (snapshot->waits && (snapshot->failed || waiting <= snapshot->room / 2)) {
        go_on(lane);
    }
    if (alone_may_begin(lane)) {
        make_alone_ready(lane);
    }
    hand_over_at_leisure(lane, &news, waiting);
    if (snapshot->left == 0 && !snapshot->finished && !snapshot->failed) {
        snapshot->finished = true;
        disk_of(lane)->finish(disk_of(lane)->self);
    } else if (snapshot->failed && !snapshot->told) {
        snapshot->told = snapshot_tell_failure(lane, snapshot->number, snapshot->text);
    } else if (news.done && !snapshot->told) {
        snapshot_tell_all(lane, &news);
    }
}

bool
snapshot_wants_a_turn(const struct lane *lane)
{
    struct snapshot *snapshot = lane->snapshot;
    struct lane_disk_news news = {0};

    if (snapshot == NULL) {
        return false;
    }
    if (snapshot->failed) {
        return !snapshot->told && psi_master_link_is_up(&lane->master);
    }
    disk_of(lane)->look(disk_of(lane)->self, &news);
    return (snapshot->left == 0 && !snapshot->finished) || news.failed || alone_may_begin(lane) ||
           (news.done && !snapshot->told && psi_master_link_is_up(&lane->master)) ||
           has_time(snapshot, &news, snapshot->given - news.written);
}
