/*
 * fuzz_lane.c - a lane of a server among workers, and under a master, that say anything at all.
 *
 * The lane has joined a job of three workers when the input begins: connection 0 is the master's,
 * who has sent a view and two tables, or three. The first byte of the input chooses what these are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/fail.h"
#include "fuzz.h"
#include "happenings.h"
#include "server/lane.h"
#include "server/state.h"

enum {
    WORKERS = 3,
    TABLE_SMALL = 1, /* one chunk, optimizer state */
    TABLE_LARGE = 2, /* a whole chunk and four elements, master values */
    TABLE_ROWS = 3,  /* sums of rows, in a job that goes on when a server dies */
    LARGE_COUNT = PSD_CHUNK_ELEMENTS + 4,
    MEMORY_MAX = 4 << 20,
    POOL_BYTES = 1 << 20,
};

/* In a round a rank has one gradient at most. */
static void
check_rounds(const struct lane *lane)
{
    for (const struct round *round = lane->open; round != NULL; round = round->next) {
        struct psi_ranks seen = {{0}};

        psi_assert(round->slots != NULL);
        for (const struct slot *slot = round->slots; slot != NULL; slot = slot->next) {
            for (uint32_t rank = slot->rank; rank < slot->end; rank++) {
                psi_assert(!psi_ranks_has(&seen, rank));
                psi_ranks_add(&seen, rank);
            }
        }
    }
}

static void
lane_core_tick(void *core)
{
    lane_tick(core);
    check_rounds(core);
}

static uint64_t
lane_core_next_ns(const void *core)
{
    return lane_next_ns(core);
}

static bool
lane_core_over(const void *core)
{
    const char *text;
    int exit_code;

    return lane_finished(core, &exit_code, &text);
}

static void
lane_core_own(void *core, const uint8_t args[WORLD_OWN_BYTES])
{
    if (args[0] == UINT8_MAX) {
        lane_stop(core, args[1], "told to stop");
    }
}

/* A VALUE is one part of one chunk that is here, and nothing beside it. */
static void
lane_core_sent(void *core, const struct psi_frame *frame, const struct psi_outgoing *outgoing)
{
    const struct table *table;
    const struct chunk *chunk;
    size_t elements;
    bool is_part = false;

    if (frame->type != PSI_FRAME_VALUE) {
        return;
    }
    table = table_find(core, frame->table);
    psi_assert(table != NULL);
    chunk = table_chunk(table, frame->chunk);
    psi_assert(chunk != NULL);
    psi_assert(chunk->ready);
    psi_assert(outgoing->buffer_count == 1);
    elements = psi_chunk_elements(table->spec.count, chunk->index);
    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        is_part = is_part ||
                  outgoing->buffers[0].bytes == elements * psi_spec_part_bytes(&table->spec, part);
    }
    is_part =
        is_part || outgoing->buffers[0].bytes == elements * psi_spec_all_parts_bytes(&table->spec);
    psi_assert(is_part);
}

static const struct world_core lane_core = {
    .tick = lane_core_tick,
    .next_ns = lane_core_next_ns,
    .sent = lane_core_sent,
};

static const struct world_script lane_script = {.over = lane_core_over, .own = lane_core_own};

/* Bits 0 and 1 both: the job goes on when a server dies. */
static bool
survives(uint8_t choice)
{
    return (choice & 3) == 3;
}

static void
say_open(struct world *world, struct psi_table_info *info)
{
    static const uint32_t lanes[1] = {1};
    const struct psi_frame frame = {.type = PSI_FRAME_TABLE_OPEN};

    psi_loads_init(&info->loads, 1, lanes);
    WORLD_SAY(world, world->conn[0], &frame, table_info, info);
}

static void
open_table(struct world *world, uint32_t id, const struct psd_table_args *args, bool again)
{
    struct psi_table_info info = {.id = id, .again = again};

    psi_assert(psi_spec_init(&info.spec, args, WORKERS, NULL) == PSD_OK);
    say_open(world, &info);
}

static void
open_rows(struct world *world, bool again)
{
    const struct psd_sparse_args args = {.struct_size = sizeof(args),
                                         .name = "rows",
                                         .dtype = PSD_F32,
                                         .width = 1,
                                         .use = PSD_USE_SUM};
    struct psi_table_info info = {.id = TABLE_ROWS, .again = again};

    psi_assert(psi_spec_init_sparse(&info.spec, &args, WORKERS, NULL) == PSD_OK);
    say_open(world, &info);
}

/* Bits 2 and 3: how the large table is synchronized. 4: backup workers. 5: initial values. 6: NaN.
 * 7: the small table only adds; then 5: in a job that goes on, an earlier life of the server had
 * it, and the sums of rows. */
static void
open_tables(struct world *world, uint8_t choice)
{
    static const uint32_t staleness[4] = {0, PSD_STALENESS_UNBOUNDED, 2, 0};
    struct psd_table_args small = {
        .struct_size = sizeof(small),
        .name = "small",
        .dtype = PSD_F64,
        .dims = 2,
        .shape = {4, 4},
        .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                        .rule = PSD_RULE_ADAM,
                                        .learning_rate = 0.5},
        .backup_workers = (choice & 16) != 0 ? 1 : 0,
        .init = (choice & 32) != 0 ? PSD_INIT_RANK0 : PSD_INIT_ZERO,
    };
    const struct psd_table_args large = {
        .struct_size = sizeof(large),
        .name = "large",
        .dtype = PSD_BF16,
        .dims = 1,
        .shape = {LARGE_COUNT},
        .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                        .rule = PSD_RULE_MOMENTUM,
                                        .learning_rate = 0.5,
                                        .momentum = 0.5},
        .staleness = staleness[choice >> 2 & 3],
        .nan_policy = (choice & 64) != 0 ? PSD_NAN_ALLOW : PSD_NAN_REJECT,
    };

    const bool again =
        survives(choice) && (choice & 128) != 0 && (choice & 32) != 0 && (choice & 16) == 0;

    if ((choice & 128) != 0) {
        small.use = PSD_USE_SUM;
        small.rule = NULL;
        small.init = PSD_INIT_ZERO;
    }
    open_table(world, TABLE_SMALL, &small, again);
    open_table(world, TABLE_LARGE, &large, false);
    if (survives(choice)) {
        open_rows(world, again);
    }
}

/* Bits 0 and 1: the death policy. */
static void
join(struct world *world, uint8_t choice)
{
    struct psi_view_worker workers[WORKERS] = {{1, true}, {1, true}, {1, true}};
    struct psi_view_place place = {.incarnation = 1, .address = "test://lane"};
    const struct psi_welcome welcome = {
        .incarnation = 1,
        .workers = WORKERS,
        .servers = 1,
        .heartbeat_ms = 250,
        .dead_ms = 60000,
        .policy = (uint8_t)((choice & 3) % 3),
        .survives = survives(choice),
        .job = 7,
    };
    const struct psi_view view = {
        .id = 1, .workers = WORKERS, .worker = workers, .places = 1, .place = &place};
    const struct psi_frame welcome_frame = {.type = PSI_FRAME_WELCOME};
    const struct psi_frame view_frame = {.type = PSI_FRAME_VIEW_COMMIT};

    world_settle(world); /* it connects ... */
    world_settle(world); /* ... and says HELLO */
    WORLD_SAY(world, world->conn[0], &welcome_frame, welcome, &welcome);
    WORLD_SAY(world, world->conn[0], &view_frame, view, &view);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct lane_config config = {
        .lanes = 1,
        .master_address = "test://master",
        .listen_address = "test://lane",
        .memory_max = MEMORY_MAX,
        .pool_bytes = POOL_BYTES,
        .start_timeout_ms = 1000,
        .kernel = KERNEL_SCALAR,
        .checksum = size > 0 && (data[0] & 128) != 0,
    };
    struct psd_error err;
    struct world world;
    struct lane *lane;

    if (size == 0) {
        return 0;
    }
    world_init(&world, &lane_core);
    world.conns_max = WORLD_CONNS;
    psi_assert(lane_create(&world.env, &config, &world.log, &lane, &err) == PSD_OK);
    world.object = lane;
    join(&world, data[0]);
    open_tables(&world, data[0]);
    world_run(&world, &lane_script, data + 1, size - 1);
    lane_destroy(lane);
    world_fini(&world);
    return 0;
}
