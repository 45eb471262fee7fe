/*
 * fuzz_reader.c - a reader among a master and lanes that say anything at all.
 *
 * It has been welcomed when the input begins: connection 0 is the master's, who has sent a view of two lanes and two
 * tables, one of which is sparse. What the target does by itself is to begin readings, and to end them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/read/reader.h"
#include "fuzz.h"
#include "happenings.h"
#include "table/spec.h"
#include "wire/message.h"

enum { WORKERS = 2, PLACES = 2, WIDTH = 3, IDS = 40, ELEMENTS = PSD_CHUNK_ELEMENTS + 4 };

/* A reader, and memory of just the size that it may write to. */
struct target {
    struct psi_reader *reader;
    bool is_reading;
    uint64_t ids[IDS];
    uint64_t *steps; /* owned */
    float *values;   /* owned */
};

static void
end_reading(struct target *target)
{
    if (target->is_reading) {
        psi_reader_end(target->reader);
        target->is_reading = false;
    }
    free(target->values);
    free(target->steps);
    target->values = NULL;
    target->steps = NULL;
}

static void
begin_reading(struct target *target, const char *name, uint32_t count)
{
    struct psi_read_args args = {.table = psi_reader_find(target->reader, name)};
    const bool sparse = args.table != NULL && args.table->spec.width > 0;
    struct psd_error err;

    end_reading(target);
    if (args.table == NULL) {
        return;
    }
    target->values =
        malloc((sparse ? count * (size_t)args.table->spec.width : args.table->spec.count) *
               psi_dtype_bytes(args.table->spec.dtype));
    args.values = target->values;
    if (sparse) {
        target->steps = malloc(count * sizeof(uint64_t));
        args.count = count;
        args.ids = target->ids;
        args.steps = target->steps;
    }
    target->is_reading = psi_reader_begin(target->reader, &args, &err) == PSD_OK;
}

static void
core_tick(void *core)
{
    struct target *target = core;
    struct psi_read_answer answer;
    struct psd_error err;

    psi_reader_tick(target->reader);
    if (target->is_reading && psi_reader_progress(target->reader, &answer, &err) != PSD_PENDING) {
        end_reading(target);
    }
}

static uint64_t
core_next_ns(const void *core)
{
    return psi_reader_next_ns(((const struct target *)core)->reader);
}

static bool
core_over(const void *core)
{
    const struct target *target = core;
    struct psd_error err;
    const psd_status state = psi_reader_state(target->reader, &err);

    return state != PSD_OK && state != PSD_PENDING;
}

static void
core_own(void *core, const uint8_t args[WORLD_OWN_BYTES])
{
    struct target *target = core;

    if (args[0] % 4 == 3) {
        end_reading(target);
    } else {
        begin_reading(target, args[0] % 4 == 2 ? "dense" : "rows", args[1] % (IDS + 1));
    }
}

static const struct world_core core_functions = {.tick = core_tick, .next_ns = core_next_ns};
static const struct world_script script = {.over = core_over, .own = core_own};

static void
tell_table(struct world *world, const struct psi_table_info *told)
{
    static const uint32_t lanes[1] = {PLACES};
    const struct psi_frame frame = {.type = PSI_FRAME_TABLE_INFO};
    struct psi_table_info info = *told;

    psi_loads_init(&info.loads, 1, lanes);
    WORLD_SAY(world, world->conn[0], &frame, table_info, &info);
}

/* Bit 0: there are tables. */
static void
meet(struct world *world, uint8_t choice)
{
    struct psi_view_worker workers[WORKERS] = {{1, true}, {1, true}};
    struct psi_view_place places[PLACES] = {
        {.incarnation = 1, .address = "test://lane0"},
        {.lane = 1, .incarnation = 1, .address = "test://lane1"}};
    const struct psi_welcome welcome = {
        .workers = WORKERS, .servers = 1, .heartbeat_ms = 250, .dead_ms = 60000, .job = 7};
    const struct psi_view view = {
        .id = 1, .workers = WORKERS, .worker = workers, .places = PLACES, .place = places};
    const struct psi_frame welcome_frame = {.type = PSI_FRAME_WELCOME};
    const struct psi_frame view_frame = {.type = PSI_FRAME_VIEW_COMMIT};
    const struct psd_sparse_args rows = {
        .struct_size = sizeof(rows), .name = "rows", .dtype = PSD_F32, .width = WIDTH};
    const struct psd_table_args dense = {.struct_size = sizeof(dense),
                                         .name = "dense",
                                         .dtype = PSD_BF16,
                                         .dims = 1,
                                         .shape = {ELEMENTS}};
    struct psi_table_info info = {.id = 1};

    world_settle(world); /* it connects ... */
    world_settle(world); /* ... and says HELLO */
    WORLD_SAY(world, world->conn[0], &welcome_frame, welcome, &welcome);
    WORLD_SAY(world, world->conn[0], &view_frame, view, &view);
    if ((choice & 1) != 0) {
        psi_assert(psi_spec_init_sparse(&info.spec, &rows, WORKERS, NULL) == PSD_OK);
        tell_table(world, &info);
        info.id = 2;
        psi_assert(psi_spec_init(&info.spec, &dense, WORKERS, NULL) == PSD_OK);
        tell_table(world, &info);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct target target = {0};
    struct world world;
    struct psd_error err;

    if (size == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < IDS; i++) { /* some of them twice */
        target.ids[i] = i * i % 31;
    }
    world_init(&world, &core_functions);
    world.conns_max = WORLD_CONNS;
    psi_assert(psi_reader_create(&world.env, "test://master", &target.reader, &err) == PSD_OK);
    world.object = &target;
    meet(&world, data[0]);
    world_run(&world, &script, data + 1, size - 1);
    end_reading(&target);
    psi_reader_destroy(target.reader);
    world_fini(&world);
    return 0;
}
