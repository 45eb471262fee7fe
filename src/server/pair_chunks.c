/*
 * pair_chunks.c - a lane that has a copy: whole chunks, by turns or in the place of many changes; and
 * what is told when the copy has something.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "server/state.h"

#define SECOND_NS UINT64_C(1000000000)

enum {
    SNAPSHOT_BYTES =
        8 << 20, /* on their way, or as much as of sums: changes queue up behind them */
};

/* All of the chunk as it is, in the place of changes that were not sent one by one. */
static void
catch_up(struct lane *lane, struct chunk *chunk)
{
    struct parcel *parcel = lane->pair->is_broken ? NULL : parcel_of_chunk(lane, chunk);

    if (parcel == NULL) {
        pair_break(lane, "no memory to tell it of table %s", chunk->table->spec.name);
        return;
    }
    parcel->is_change = true;
    parcel->version = chunk->clock.version;
    chunk->copy.last = pair_enqueue(lane, parcel);
    chunk->copy.is_behind = false;
    chunk->copy.waiting = 1;
}

static void
change_arrived(struct lane *lane, struct chunk *chunk, uint64_t version)
{
    if (chunk->copy.mode != COPY_PAIRED) {
        return;
    }
    if (version > chunk->clock.committed) {
        chunk->clock.committed = version;
        psi_fail_point(server_pair_committed);
    }
    if (chunk->copy.waiting > 0 && --chunk->copy.waiting == 0 && chunk->copy.is_behind) {
        catch_up(lane, chunk);
    }
}

/* The copy has a parcel: what waited for it may be told. */
void
pair_parcel_arrived(struct lane *lane, const struct parcel *parcel)
{
    const struct table *table = table_find(lane, parcel->frame.table);
    struct chunk *chunk = table == NULL ? NULL : table_chunk(table, parcel->frame.chunk);
    struct pair *pair = lane->pair;

    if (chunk == NULL ||
        (parcel->frame.type != PSI_FRAME_REPLICATE && parcel->frame.type != PSI_FRAME_SNAPSHOT)) {
        return;
    }
    if (chunk->copy.mode == COPY_JOINING && chunk->copy.snapshot == parcel->frame.seq) {
        chunk->copy.mode = COPY_PAIRED;
        pair->unpaired--;
        if (chunk->copy.last > pair->told_alone) {
            pair->told_alone = chunk->copy.last;
        }
    }
    if (chunk->copy.load == parcel->frame.seq) {
        chunk->copy.load = 0;
    }
    if (parcel->is_change) {
        change_arrived(lane, chunk, parcel->version);
    }
    round_go_on(lane, chunk);
}

/* ---- what happens on the lane -------------------------------------------------------------- */

/* Its values came from outside: all of it is said anew. */
void
pair_loaded(struct lane *lane, struct chunk *chunk)
{
    struct parcel *parcel;

    if (lane->pair == NULL || !pair_has_table(chunk->table) || chunk->copy.mode == COPY_ALONE) {
        return;
    }
    if (psi_spec_is_sparse(&chunk->table->spec)) {
        pair_rows_begin(lane, chunk);
        return;
    }
    parcel = lane->pair->is_broken ? NULL : parcel_of_chunk(lane, chunk);
    if (parcel == NULL) {
        pair_break(lane, "no memory to tell it of table %s", chunk->table->spec.name);
    } else {
        chunk->copy.last = pair_enqueue(lane, parcel);
    }
    if (chunk->copy.mode == COPY_PAIRED) {
        chunk->copy.load = parcel == NULL ? UINT64_MAX : chunk->copy.last;
    }
}

bool
pair_is_told_of_loads(const struct table *table)
{
    uint64_t i = 0;

    while (i < table->chunk_count && table->chunks[i].copy.load == 0) {
        i++;
    }
    return i < table->chunk_count;
}

/* A new table: the copy makes the same initial values, and hears of every change from the first on.
 * No snapshot is needed. */
void
pair_table_opened(struct lane *lane, struct table *table, const void *body, size_t bytes)
{
    struct parcel *parcel;

    if (lane->pair == NULL || !pair_has_table(table)) {
        return;
    }
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        table->chunks[i].copy = (struct chunk_copy){.mode = COPY_PAIRED};
    }
    parcel = parcel_of_body(PSI_FRAME_TABLE_OPEN, table->id, body, bytes);
    if (parcel == NULL) {
        pair_break(lane, "no memory to tell it of table %s", table->spec.name);
    } else {
        pair_enqueue(lane, parcel);
    }
}

void
pair_table_dropped(struct lane *lane, const struct table *table)
{
    struct parcel *parcel;

    if (lane->pair == NULL || !pair_has_table(table)) {
        return;
    }
    for (uint64_t i = 0; i < table->chunk_count; i++) {
        lane->pair->unpaired -= table->chunks[i].copy.mode != COPY_PAIRED;
    }
    lane->pair->alone -= table->alone;
    pair_slots_forget(lane->pair, table);
    pair_keep_parts(lane, table);
    parcel = parcel_of_body(PSI_FRAME_TABLE_DROP, table->id, NULL, 0);
    if (parcel == NULL) {
        pair_break(lane, "no memory to tell it of table %s", table->spec.name);
    } else {
        pair_enqueue(lane, parcel);
    }
}

/* Of a chunk that is not PAIRED the copy hears before it may take the place. */
static bool
is_on_its_way(const struct pair *pair, const struct chunk *chunk)
{
    return chunk->copy.mode == COPY_PAIRED && chunk->marks == NULL &&
           (chunk->copy.is_behind || chunk->copy.last > pair->acked);
}

bool
pair_has_all_given(const struct lane *lane)
{
    for (const struct table *table = lane->pair == NULL ? NULL : lane->tables; table != NULL;
         table = table->next) {
        for (uint64_t i = 0; i < table->chunk_count; i++) {
            if (is_on_its_way(lane->pair, &table->chunks[i])) {
                return false;
            }
        }
    }
    return true;
}

/* ---- snapshots, by turns ------------------------------------------------------------------- */

/* Has all of it not been sent? */
static bool
lacks_snapshot(const struct chunk *chunk)
{
    return chunk->copy.mode == COPY_ALONE || chunk->copy.walks;
}

/* A chunk of which there is something to send; NULL: none whose memory is ready. */
static struct chunk *
find_alone(const struct lane *lane)
{
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        if (table->alone == 0 || table->prepared < table->chunk_count) {
            continue;
        }
        while (!lacks_snapshot(&table->chunks[table->alone_at])) {
            table->alone_at = (table->alone_at + 1) % table->chunk_count;
        }
        return &table->chunks[table->alone_at];
    }
    return NULL;
}

/* A place that moves takes its time: nobody waits for it, and workers have the network. What is on its
 * way goes first: the copy will say when it has that. */
uint64_t
pair_snapshot_next_ns(const struct pair *pair)
{
    if (pair->alone == 0 || pair->bytes >= SNAPSHOT_BYTES || pair->bytes > pair->slots.bytes ||
        !pair->is_met || pair->is_broken) {
        return UINT64_MAX;
    }
    return pair->rate == 0 ? 0 : pair->snapshot_ns;
}

static bool
may_send_snapshot(const struct lane *lane)
{
    return psi_now_ns(lane->env) >= pair_snapshot_next_ns(lane->pair);
}

static void
count_snapshot(const struct lane *lane, size_t bytes)
{
    struct pair *pair = lane->pair;

    if (pair->rate > 0) {
        pair->snapshot_ns =
            psi_now_ns(lane->env) + (uint64_t)((double)bytes / (double)pair->rate * SECOND_NS);
    }
}

/* Returns how many bytes that are; 0: no memory. */
static size_t
send_snapshot(struct lane *lane, struct chunk *chunk)
{
    struct parcel *parcel = parcel_of_chunk(lane, chunk);

    if (parcel == NULL) {
        return 0;
    }
    chunk->copy.mode = COPY_JOINING;
    chunk->copy.snapshot = pair_enqueue(lane, parcel);
    psi_fail_point(server_pair_snapshot_queued);
    chunk->copy.last = chunk->copy.snapshot;
    chunk->table->alone--;
    lane->pair->alone--;
    return parcel->bytes;
}

void
pair_send_snapshots(struct lane *lane)
{
    while (may_send_snapshot(lane)) {
        struct chunk *chunk = find_alone(lane);
        size_t bytes;

        if (chunk == NULL) {
            return;
        }
        bytes = psi_spec_is_sparse(&chunk->table->spec) ? pair_rows_send(lane, chunk)
                                                        : send_snapshot(lane, chunk);
        if (bytes == 0) {
            pair_break(lane, "no memory for a snapshot of table %s", chunk->table->spec.name);
            return;
        }
        count_snapshot(lane, bytes);
    }
}
