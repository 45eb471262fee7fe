/*
 * copies.c - what must be true of servers' copies, looked at from outside.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "copies.h"

#include <string.h>

#include "peek.h"
#include "server/state.h"

enum { ROWS_BYTES = 65536 };

bool
copies_are_pair(const struct lane *owner, const struct lane *lane)
{
    return owner->pair != NULL && lane != NULL && lane->mirror != NULL &&
           lane->mirror->number == owner->pair->number && lane->mirror->owner.life == owner->life;
}

/* Where the copy of that lane runs; NULL: it has none. */
static const struct lane_host *
host_of_copy(const struct job *job, const struct lane *owner)
{
    for (unsigned i = 0; i < job->lanes && owner->pair != NULL; i++) {
        if (copies_are_pair(owner, job->lane[i].lane)) {
            return &job->lane[i];
        }
    }
    return NULL;
}

/* The lane that is the copy of that one; NULL: there is none. */
static const struct lane *
copy_of(const struct job *job, const struct lane *owner)
{
    const struct lane_host *host = host_of_copy(job, owner);

    return host == NULL ? NULL : host->lane;
}

/* A sparse table: rows, state, counters, what buckets remember, and the version before. */
static bool
same_rows(const struct chunk *a, const struct chunk *b)
{
    struct store *one = a->table->store;
    struct store *other = b->table->store;
    struct store_walk walk = {0};
    struct store_walk again = {0};
    bool same = true;

    while (same && !walk.is_done && !again.is_done) {
        static uint8_t piece[ROWS_BYTES];
        static uint8_t copied[ROWS_BYTES];
        const size_t bytes = one->ops->piece(one, &walk, piece, sizeof(piece));

        same = bytes == other->ops->piece(other, &again, copied, sizeof(copied)) &&
               memcmp(piece, copied, bytes) == 0;
    }
    return same && walk.is_done == again.is_done;
}

static bool
same_parts(const struct chunk *a, const struct chunk *b)
{
    if (psi_spec_is_sparse(&a->table->spec)) {
        return same_rows(a, b);
    }
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        const struct store_piece one = chunk_part(a, part);
        const struct store_piece other = chunk_part(b, part);

        if (one.bytes != other.bytes ||
            (one.bytes > 0 && memcmp(one.base, other.base, one.bytes) != 0)) {
            return false;
        }
    }
    return true;
}

/* A replacement may ask for the version before. There is one when a round has closed here. */
static bool
same_last_value(const struct job *job, const struct chunk *a, const struct chunk *b)
{
    const struct store_piece one = chunk_last_value(a);
    const struct store_piece other = chunk_last_value(b);

    return one.bytes == other.bytes &&
           (one.bytes == 0 || a->clock.version <= a->table->first_step ||
            a->clock.version <= job->plan.load_step ||
            memcmp(one.base, other.base, one.bytes) == 0);
}

/* What anybody may have heard of the chunk is in the copy; and what is the same change is the same
 * bytes. */
static void
check_chunk(struct job *job, const struct lane *owner, const struct chunk *chunk,
            const struct chunk *copied)
{
    const char *table = chunk->table->spec.name;

    if (chunk->copy.load != 0) {
        return; /* nobody was told of that */
    }
    if (copied == NULL) {
        if (chunk->clock.committed > chunk->table->first_step) {
            sim_fail(job->sim, "server %u lane %u: its copy has nothing of table %s",
                     owner->config.server, owner->config.lane, table);
        }
        return;
    }
    if (copied->clock.version < chunk->clock.committed) {
        sim_fail(job->sim, "table %s chunk %u: version %llu may have been told, its copy has %llu",
                 table, chunk->index, (unsigned long long)chunk->clock.committed,
                 (unsigned long long)copied->clock.version);
    }
    if (copied->clock.version == chunk->clock.version && copied->updates == chunk->updates &&
        chunk->ready == copied->ready &&
        (!same_parts(chunk, copied) || !same_last_value(job, chunk, copied))) {
        sim_fail(job->sim, "table %s chunk %u version %llu: its copy has other bytes", table,
                 chunk->index, (unsigned long long)chunk->clock.version);
    }
}

/* What was pushed, so that a repetition is known. Where there are rounds, those that are closed tell. */
static bool
same_marks(const struct lane *owner, const struct chunk *a, const struct chunk *b)
{
    for (uint32_t rank = 0; rank < owner->rows && !psi_spec_synchronous(&a->table->spec); rank++) {
        if (a->marks != NULL ? a->marks[rank].incarnation != b->marks[rank].incarnation ||
                                   a->marks[rank].sequence != b->marks[rank].sequence
                             : a->clock.next[rank] != b->clock.next[rank]) {
            return false;
        }
    }
    return true;
}

static void
check_last(struct job *job, const struct lane *owner, const struct chunk *chunk,
           const struct chunk *copied)
{
    if (copied->clock.version < chunk->clock.version) {
        sim_fail(job->sim, "table %s chunk %u: its copy lacks the last version",
                 chunk->table->spec.name, chunk->index);
    } else if (!same_marks(owner, chunk, copied)) {
        sim_fail(job->sim, "table %s chunk %u: its copy does not know the last pushes",
                 chunk->table->spec.name, chunk->index);
    }
}

static void
check_lane(struct job *job, const struct lane *owner, const struct lane *copy, bool is_end)
{
    for (const struct table *table = owner->tables; table != NULL; table = table->next) {
        const struct table *copied = table_find(copy, table->id);

        for (uint64_t i = 0; pair_has_table(table) && table->prepared == table->chunk_count &&
                             i < table->chunk_count && !job->sim->failed;
             i++) {
            const struct chunk *chunk = &table->chunks[i];

            check_chunk(job, owner, chunk,
                        copied == NULL ? NULL : &copied->chunks[copied->local[chunk->index]]);
            if (is_end && copied != NULL) {
                check_last(job, owner, chunk, &copied->chunks[copied->local[chunk->index]]);
            }
        }
    }
}

static bool
has_place(const struct lane *lane)
{
    return lane != NULL && !lane->config.is_standby && lane->joined;
}

bool
copies_has_given(const struct lane *lane)
{
    return lane->pair != NULL && lane->pair->has_given;
}

bool
copies_was_let_in(const struct lane *lane, const struct master *master)
{
    return peek_was_given(master, lane->life);
}

/* Alive, and in reach of the master? */
static bool
is_alive(const struct job *job, uint64_t life)
{
    for (unsigned i = 0; i < job->lanes; i++) {
        if (job->lane[i].lane != NULL && job->lane[i].lane->life == life) {
            return job->lane[i].node->exiled_until_ns == 0;
        }
    }
    return false;
}

/* It is all that is left of what a dead server had. */
static bool
is_last(const struct job *job, const struct lane *lane)
{
    return (lane->mirror != NULL && !is_alive(job, lane->mirror->owner.life)) ||
           (lane->promoted != 0 && !lane->joined);
}

/* A copy dies with nothing that it is a copy of. Counts jobs whose load is shared. */
static void
check_spread(struct job *job, uint32_t server)
{
    uint32_t first = SERVERS_MAX;
    bool is_shared = false;

    for (unsigned i = 0; i < job->lanes; i++) {
        const struct lane *owner = job->lane[i].server == server ? job->lane[i].lane : NULL;
        const struct lane_host *host = has_place(owner) ? host_of_copy(job, owner) : NULL;

        if (host == NULL) {
            continue;
        }
        if (host->server == server && host->life == job->lane[i].life) {
            sim_fail(job->sim, "server %u lane %u: its copy is in its own process",
                     owner->config.server, owner->config.lane);
        }
        is_shared = is_shared || (first != SERVERS_MAX && first != host->server);
        first = host->server;
    }
    job->sim->counters.shared_kills += is_shared;
}

bool
copies_check_kill(struct job *job, uint32_t server)
{
    bool whole = true;

    check_spread(job, server);

    for (unsigned i = 0; i < job->lanes && !job->sim->failed; i++) {
        const struct lane *owner = job->lane[i].lane;
        const struct lane *copy;

        if (job->lane[i].server != server || owner == NULL) {
            continue;
        }
        if (is_last(job, owner)) {
            whole = false;
        }
        if (!has_place(owner)) {
            continue;
        }
        if (job->master->master == NULL ||
            !peek_is_whole(job->master->master, owner->config.server, owner->config.lane)) {
            whole = false;
            continue;
        }
        copy = copy_of(job, owner);
        if (copy != NULL) {
            check_lane(job, owner, copy, false);
        }
        whole = whole && copy != NULL && is_alive(job, copy->life);
    }
    return whole;
}

void
copies_check_end(struct job *job)
{
    for (unsigned i = 0; i < job->lanes && !job->sim->failed; i++) {
        const struct lane *owner = job->lane[i].lane;
        const struct lane *copy = has_place(owner) ? copy_of(job, owner) : NULL;

        if (copy != NULL && owner->pair->is_eligible && !owner->pair->is_broken &&
            owner->pair->first == NULL) {
            check_lane(job, owner, copy, true);
            job->sim->counters.copies_equal++;
        }
    }
}
