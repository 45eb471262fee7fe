/*
 * tables.c - opening a table on this lane: which chunks live here, and their memory.
 *
 * A table that does not fit is refused before anything is touched. Its memory is then written piece
 * by piece between other work (tables_prepare), and the master hears of it when all is ready.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/snapshot_rows.h"
#include "server/source.h"
#include "server/state.h"
#include "shard/shard.h"
#include "store/dense/dense.h"
#include "table/places.h"

enum {
    PREPARE_BYTES = 1 << 20, /* per turn of the loop: on a busy machine that may take long */
};

struct table *
table_find(const struct lane *lane, uint32_t id)
{
    return id < lane->table_capacity ? lane->table_of[id] : NULL;
}

struct chunk *
table_chunk(const struct table *table, uint32_t index)
{
    if (index >= table->chunks_in_all || table->local[index] == UINT32_MAX ||
        table->prepared < table->chunk_count) {
        return NULL;
    }
    return &table->chunks[table->local[index]];
}

struct store_piece
chunk_part(const struct chunk *chunk, unsigned part)
{
    const struct store *store = chunk->table->store;

    return store->ops->part(store, chunk->place, part, chunk->current);
}

struct store_piece
chunk_last_value(const struct chunk *chunk)
{
    const struct store *store = chunk->table->store;

    return chunk->table->retain ? store->ops->read(store, chunk->place, 1 - chunk->current)
                                : (struct store_piece){NULL, 0};
}

static void
lend(struct lane *lane, const struct psi_segment *segment)
{
    if (segment != NULL) {
        lane->env->ops->lend(lane->env, segment);
        lane->segments++;
    }
}

static void
take_back(struct lane *lane, const struct psi_segment *segment)
{
    if (segment != NULL) {
        lane->env->ops->take_back(lane->env, segment);
        lane->segments--;
    }
}

static void
table_destroy(struct lane *lane, struct table *table)
{
    for (uint64_t i = 0; table->chunks != NULL && i < table->chunk_count; i++) {
        struct chunk *chunk = &table->chunks[i];

        while (chunk->round.slots != NULL) {
            round_take_back(lane, chunk, chunk->round.slots->rank);
        }
        parked_free(lane, chunk);
        value_about_to_change(lane, chunk, 0);
        value_about_to_change(lane, chunk, 1);
    }
    lane_count_memory(lane, 0 - table->bytes);
    if (table->store != NULL) {
        take_back(lane, table->store->values);
        take_back(lane, table->store->state);
        table->store->ops->destroy(table->store);
    }
    snapshot_rows_forget(table);
    free(table->local);
    free(table->chunks);
    free(table->clocks);
    free(table->marks);
    free(table->members.joined_at);
    free(table->members.left_at);
    free(table->backup);
    free(table->held);
    adopt_free(table);
    free(table);
}

/* Which chunks live on this lane: fills local[] and counts them and their elements. */
static psd_status
table_place(struct lane *lane, struct table *table, struct psi_loads *loads, uint64_t *elements_p,
            struct psd_error *err)
{
    const uint64_t chunks = table->chunks_in_all;
    const uint32_t place = loads->first_place[lane->config.server] + lane->config.lane;
    uint16_t *places = calloc(chunks, sizeof(*places));

    table->local = malloc(chunks * sizeof(*table->local));
    if (places == NULL || table->local == NULL) {
        free(places);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for the places of %llu chunks",
                        table->spec.name, (unsigned long long)chunks);
    }
    psi_table_place(&table->spec, psi_dtype_bytes(table->spec.dtype), loads, places);
    *elements_p = 0;
    for (uint64_t i = 0; i < chunks; i++) {
        table->local[i] = UINT32_MAX;
        if (places[i] == place) {
            table->local[i] = (uint32_t)table->chunk_count++;
            *elements_p +=
                psi_spec_is_sparse(&table->spec) ? 0 : psi_chunk_elements(table->spec.count, i);
        }
    }
    free(places);
    return PSD_OK;
}

/* Are values lent to workers on this host at all (answers.c), and are there descriptors for it? */
static bool
wants_segment(const struct lane *lane, const struct table *table)
{
    return lane->config.lends && lane->env->ops->lend != NULL &&
           psi_spec_synchronous(&table->spec) && table->spec.backup_workers == 0 &&
           (lane->config.segments_max == 0 || lane->segments < lane->config.segments_max);
}

/* Lanes share the memory equally; a person thinks of servers. */
static psd_status
fail_without_room(const struct lane *lane, const struct table *table, uint64_t bytes,
                  struct psd_error *err)
{
    const uint64_t max = lane->config.memory_max;
    const uint32_t lanes = lane->config.lanes;

    return psi_fail(err, PSD_ERR_TOO_BIG,
                    "table %s: server %u needs %llu MiB for its part, %llu of %llu MiB are free "
                    "(setting memory_max_mib%s)",
                    table->spec.name, lane->standby.server, /* the part may be another's */
                    (unsigned long long)(lanes * bytes >> 20),
                    (unsigned long long)(lanes * (max - lane->memory_used) >> 20),
                    (unsigned long long)(lanes * max >> 20),
                    lanes > 1 ? ", of which each lane has an equal share" : "");
}

/* 0: it has none. */
static uint64_t
first_chunk_here(const struct table *table)
{
    uint64_t first = 0;

    while (table->chunk_count > 0 && table->local[first] == UINT32_MAX) {
        first++;
    }
    return first;
}

static psd_status
table_allocate(struct lane *lane, struct table *table, uint64_t elements, struct psd_error *err)
{
    const struct store_layout layout = {
        .spec = &table->spec,
        .chunks = table->chunk_count,
        .first_chunk = first_chunk_here(table),
        .chunks_in_all = table->chunks_in_all,
        .memory_max = lane->config.memory_max,
        .cold = lane->config.cold,
        .elements = elements,
        .retain = table->retain,
        .shared = wants_segment(lane, table),
        .copied = lane->config.lends_state,
        .level = lane->config.kernel,
    };
    const struct store_ops *kind =
        psi_spec_is_sparse(&table->spec) ? rows_kind(&table->spec) : &store_dense;
    const uint64_t bytes = kind->bytes(&layout) + table_bookkeeping_bytes(lane, table);
    const uint64_t cells = table->chunk_count * lane->rows;
    uint32_t rank;
    uint64_t step;
    psd_status status;

    if (bytes > lane->config.memory_max - lane->memory_used) {
        return fail_without_room(lane, table, bytes, err);
    }
    if (lane->mirror != NULL && !lane_has_room_for_copy(lane, bytes)) {
        return psi_fail(err, PSD_ERR_TOO_BIG,
                        "table %s: no room for a copy of it: %llu MiB more than the %llu MiB of "
                        "memory_max_mib",
                        table->spec.name, (unsigned long long)(bytes >> 20),
                        (unsigned long long)(lane->config.budget->max >> 20));
    }
    table->chunks = calloc(table->chunk_count + 1, sizeof(*table->chunks));
    table->clocks = calloc(cells + 1, sizeof(*table->clocks));
    if (table->spec.staleness == PSD_STALENESS_UNBOUNDED) {
        table->marks = calloc(cells + 1, sizeof(*table->marks));
    }
    if (table->spec.backup_workers > 0) {
        table->backup = calloc(1, sizeof(*table->backup));
    }
    if (table_outlives_servers(lane, table)) {
        table->held = calloc(table->chunk_count + 1, sizeof(*table->held));
    }
    table->members.joined_at = calloc(lane->rows, sizeof(*table->members.joined_at));
    table->members.left_at = calloc(lane->rows, sizeof(*table->members.left_at));
    if (table->chunks == NULL || table->clocks == NULL || table->members.joined_at == NULL ||
        table->members.left_at == NULL ||
        (table->spec.backup_workers > 0 && table->backup == NULL) ||
        (table_outlives_servers(lane, table) && table->held == NULL) ||
        (table->spec.staleness == PSD_STALENESS_UNBOUNDED && table->marks == NULL)) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for %llu chunks",
                        table->spec.name, (unsigned long long)table->chunk_count);
    }
    status = kind->create(&layout, &table->store, err);
    if (status != PSD_OK) {
        return status;
    }
    for (rank = 0; rank < lane->rows; rank++) {
        table->members.left_at[rank] = lane->view.worker[rank].member ? PSI_STEP_NEVER : 0;
    }
    for (uint32_t i = 0; journal_resume_at(lane, table->id, i, &rank, &step); i++) {
        table->members.joined_at[rank] = step;
    }
    table->bytes = table->store->bytes + table_bookkeeping_bytes(lane, table);
    lane_count_memory(lane, table->bytes);
    lend(lane, table->store->values);
    lend(lane, table->store->state);
    return PSD_OK;
}

static void
chunks_init(struct lane *lane, struct table *table)
{
    const uint64_t chunks = table->chunks_in_all;
    const uint32_t workers = lane->rows;

    for (uint64_t i = 0; i < chunks; i++) {
        struct chunk *chunk;

        if (table->local[i] == UINT32_MAX) {
            continue;
        }
        chunk = &table->chunks[table->local[i]];
        chunk->table = table;
        chunk->index = (uint32_t)i;
        chunk->place = table->local[i];
        chunk->round.chunk = chunk;
        chunk->clock.version = table->first_step;
        chunk->clock.committed = table->first_step;
        chunk->clock.next = table->clocks + (uint64_t)table->local[i] * workers;
        chunk->parked_end = &chunk->parked;
        chunk->ready = table->spec.init != PSD_INIT_RANK0;
        if (table->marks != NULL) {
            chunk->marks = table->marks + (uint64_t)table->local[i] * workers;
        }
        table->store->ops->place(table->store, chunk->place, i);
    }
}

/* Room for the number of a table: numbers are given from 0 on. */
static psd_status
table_number(struct lane *lane, uint32_t id, struct psd_error *err)
{
    const uint32_t capacity = id < 64 ? 64 : 2 * id;
    struct table **grown;

    if (id >= PSI_TABLES_MAX) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "table number %u, expected less than %d", id,
                        PSI_TABLES_MAX);
    }
    if (id < lane->table_capacity) {
        return PSD_OK;
    }
    grown = realloc(lane->table_of, capacity * sizeof(*grown));
    if (grown == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for %u tables", capacity);
    }
    memset(grown + lane->table_capacity, 0, (capacity - lane->table_capacity) * sizeof(*grown));
    lane->table_of = grown;
    lane->table_capacity = capacity;
    return PSD_OK;
}

/* Tables with equally many backup workers are at one step. One that is opened late begins where the others are. */
static bool
joins_others(struct lane *lane, uint32_t backup_workers)
{
    const bool joins = backup_workers > 0 && psi_ranks_has(&lane->begun, backup_workers);

    if (backup_workers > 0) {
        psi_ranks_add(&lane->begun, backup_workers);
    }
    return joins;
}

psd_status
table_open(struct lane *lane, const struct psi_table_info *info, struct psd_error *err)
{
    const bool is_remade = psi_spec_is_remade(&info->spec, lane->job.policy == PSI_DEATH_WAIT);
    struct psi_loads loads = info->loads;
    struct table *table;
    uint64_t elements = 0;
    psd_status status = psi_spec_check(&info->spec, lane->job.workers, err);

    if (status == PSD_OK) {
        status = table_number(lane, info->id, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (lane->config.server >= loads.servers ||
        lane->config.lane >=
            loads.first_place[lane->config.server + 1] - loads.first_place[lane->config.server]) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "table %s: its places do not include server %u",
                        info->spec.name, lane->config.server);
    }
    /* A copy has all that was told. A table that it has not heard of is as it was opened. */
    if (info->again && lane->promoted == 0 && !(lane->job.survives && is_remade)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "table %s: what server %u had of it was lost, and is not made anew",
                        info->spec.name, lane->config.server);
    }
    if (psi_table_chunks(&info->spec, &loads) > PSI_CHUNKS_MAX) {
        return psi_fail(err, PSD_ERR_TOO_BIG, "table %s: %llu chunks, at most %d", info->spec.name,
                        (unsigned long long)psi_table_chunks(&info->spec, &loads), PSI_CHUNKS_MAX);
    }
    table = calloc(1, sizeof(*table));
    if (table == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", info->spec.name);
    }
    table->id = info->id;
    table->spec = info->spec;
    table->chunks_in_all = psi_table_chunks(&info->spec, &loads);
    table->first_step = info->step;
    table->is_late = joins_others(lane, info->spec.backup_workers);
    table->is_remade = is_remade;
    table->again = info->again && is_remade;
    table->promised = view_promise(lane, info->step);
    table->rule.workers = lane->rows;
    table->rule.staleness = info->spec.staleness;
    table->rule.backup = info->spec.backup_workers;
    /* With backup workers no step is ever repeated. */
    table->retain = lane->job.policy == PSI_DEATH_WAIT && info->spec.use == PSD_USE_UPDATE &&
                    psi_spec_synchronous(&info->spec) && info->spec.backup_workers == 0;
    status = table_place(lane, table, &loads, &elements, err);
    if (status == PSD_OK && table->chunk_count == 0) {
        table_destroy(lane, table); /* nothing of it is here, and nobody asks for it */
        return PSD_OK;
    }
    if (status == PSD_OK) {
        status = table_allocate(lane, table, elements, err);
    }
    if (status == PSD_OK) {
        chunks_init(lane, table);
        status = table->again ? adopt_begin(lane, table, err) : PSD_OK;
    }
    if (status != PSD_OK) {
        table->chunk_count = 0;
        table_destroy(lane, table);
        return status;
    }
    lane->table_of[table->id] = table;
    table->next = lane->tables;
    lane->tables = table;
    lane->tables_unready = true;
    return PSD_OK;
}

void
table_drop(struct lane *lane, uint32_t id)
{
    struct table **link = &lane->tables;

    while (*link != NULL && (*link)->id != id) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        struct table *table = *link;

        if (table->order != NULL) {
            snapshot_drop(lane);
        }
        pair_table_dropped(lane, table);
        *link = table->next;
        lane->table_of[id] = NULL;
        table_destroy(lane, table);
    }
}

void
tables_destroy(struct lane *lane)
{
    while (lane->tables != NULL) {
        table_drop(lane, lane->tables->id);
    }
}

/* The master takes a table that is refused back everywhere. */
static bool
tell_master(const struct lane *lane, const struct table *table)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_ACK, .view = lane->view.id, .table = table->id};

    if (!psi_master_link_is_up(&lane->master)) {
        return false;
    }
    return (table->refused.status == PSD_OK
                ? psi_post(lane->master.peer.conn, &frame)
                : psi_post_error(lane->master.peer.conn, &frame, table->refused.status, 0,
                                 table->refused.text)) == PSD_OK;
}

static void
announce(struct lane *lane, struct table *table)
{
    if (lane->config.is_standby) { /* a copy tells its owner */
        table->announced = true;
    } else if (tell_master(lane, table)) {
        table->announced = true;
        psi_fail_point(server_table_ready);
    }
}

/* The next chunk of the table. Returns about how many bytes that took. */
static size_t
prepare_next(struct lane *lane, struct table *table)
{
    struct chunk *chunk = &table->chunks[table->prepared];
    struct psd_error err;
    bool more = false;
    size_t done = 0;

    if (!chunk->prepared) {
        done = table->store->ops->prepare(table->store, table->prepared);
    }
    if (chunk_may_be_resumed(lane, table) && chunk_resume(lane, chunk, &more, &err) != PSD_OK) {
        table->refused = err;
        table->prepared = table->chunk_count;
        return done;
    }
    table->prepared += !more;
    return more ? PREPARE_BYTES : done;
}

void
tables_prepare(struct lane *lane)
{
    if (!lane->tables_unready) {
        return;
    }
    lane->tables_unready = false;
    for (struct table *table = lane->tables; table != NULL; table = table->next) {
        size_t done = 0;

        while (table->prepared < table->chunk_count && done < PREPARE_BYTES) {
            done += prepare_next(lane, table);
        }
        if (table->prepared < table->chunk_count) {
            lane->tables_unready = true;
            return;
        }
        if (!table->announced && !pair_is_told_of_loads(table)) {
            announce(lane, table);
        }
        lane->tables_unready = lane->tables_unready || !table->announced;
    }
}

bool
tables_want_a_turn(const struct lane *lane)
{
    const struct table *table = lane->tables_unready ? lane->tables : NULL;

    while (table != NULL && table->prepared == table->chunk_count &&
           (table->announced || pair_is_told_of_loads(table) ||
            (!psi_master_link_is_up(&lane->master) && !lane->config.is_standby))) {
        table = table->next;
    }
    return table != NULL;
}
