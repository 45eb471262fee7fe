/*
 * snapshot_ahead.c - memory for the copies of a checkpoint, before its step is named.
 *
 * In the round after that step all chunks are copied, and training waits for it. It must not wait for the
 * kernel as well, which takes several times as long to find and clear the pages. So a lane that the
 * master asks how far it is answers when the disk's thread has made room, beside the rounds; or, if that
 * takes too long, without. The master names a step when all lanes have answered.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/snapshot_state.h"

enum {
    ROOM_BYTES_MIN = 64 << 20,
    WAIT_MS = 3000,  /* for room */
    KEEP_MS = 60000, /* room, for an order that does not come */
};

static uint64_t
less(uint64_t all, uint64_t used)
{
    return all > used ? all - used : 0;
}

/* Or a quarter of the memory that is free: to this lane, and to all of the process, which may have copies of others' lanes. */
uint64_t
snapshot_room(const struct lane *lane)
{
    const struct lane_budget *budget = lane->config.budget;
    const uint64_t here = less(lane->config.memory_max, lane->memory_used);
    const uint64_t share =
        budget == NULL ? here : less(budget->max, atomic_load(&budget->used)) / lane->config.lanes;
    const uint64_t room = (here < share ? here : share) / 4;

    if (lane->config.snapshot_bytes != 0) {
        return lane->config.snapshot_bytes;
    }
    return room < ROOM_BYTES_MIN ? ROOM_BYTES_MIN : room;
}

/* Rows make room for themselves. */
void
snapshot_add_to_load(const struct chunk *chunk, struct lane_disk_load *load)
{
    const struct psi_spec *spec = &chunk->table->spec;

    for (unsigned part = 0; part < PSI_PARTS_MAX && !psi_spec_is_sparse(spec); part++) {
        const size_t bytes =
            psi_chunk_elements(spec->count, chunk->index) * psi_spec_part_bytes(spec, part);

        load->bytes += bytes;
        load->piece_bytes = bytes > load->piece_bytes ? bytes : load->piece_bytes;
    }
}

uint64_t
snapshot_highest(const struct lane *lane)
{
    uint64_t step = 0;

    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->spec.use == PSD_USE_UPDATE &&
                             psi_spec_synchronous(&table->spec) && i < table->chunk_count;
             i++) {
            const uint64_t version = table->chunks[i].clock.version;

            step = version > step ? version : step;
        }
    }
    return step;
}

static bool
has_room(const struct lane *lane)
{
    struct lane_disk_news news = {0};

    if (!lane->ahead.is_made) {
        return true;
    }
    lane->config.disk->look(lane->config.disk->self, &news);
    return news.is_prepared || news.failed;
}

void
snapshot_asked(struct lane *lane, uint64_t number)
{
    const struct lane_disk *disk = lane->config.disk;
    const uint64_t now_ns = psi_now_ns(lane->env);
    struct lane_disk_load load = {.room = snapshot_room(lane)};

    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->spec.use == PSD_USE_UPDATE && i < table->chunk_count; i++) {
            snapshot_add_to_load(&table->chunks[i], &load);
        }
    }
    lane->ahead = (struct snapshot_ahead){.is_asked = true,
                                          .is_made = disk != NULL,
                                          .number = number,
                                          .until_ns = now_ns + WAIT_MS * 1000000ull};
    if (disk != NULL) {
        disk->prepare(disk->self, &load);
    }
    snapshot_ahead_tick(lane, now_ns);
}

void
snapshot_ahead_tick(struct lane *lane, uint64_t now_ns)
{
    struct snapshot_ahead *ahead = &lane->ahead;

    if (ahead->is_asked && (has_room(lane) || now_ns >= ahead->until_ns)) {
        ahead->is_asked = false;
        ahead->until_ns = now_ns + KEEP_MS * 1000000ull;
        snapshot_tell_reached(lane, ahead->number, PSI_WRITTEN_REACHED);
    } else if (ahead->is_made && now_ns >= ahead->until_ns) {
        snapshot_drop(lane);
    }
}

uint64_t
snapshot_ahead_next_ns(const struct lane *lane)
{
    const struct snapshot_ahead *ahead = &lane->ahead;

    if (ahead->is_asked && has_room(lane)) {
        return 0;
    }
    return ahead->is_asked || ahead->is_made ? ahead->until_ns : UINT64_MAX;
}
