/*
 * fuzz_master.c - the master of a job, among servers, workers and strangers that say anything.
 *
 * The first byte of the input chooses the death policy and how far the job has come when the input
 * begins: nobody there, or two servers (connections 0 and 1) and two workers (2 and 3), a view and
 * a table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "base/fail.h"
#include "fuzz.h"
#include "happenings.h"
#include "master/master.h"

enum { SERVERS = 2, WORKERS = 2 };

static void
master_core_tick(void *core)
{
    master_tick(core);
}

static uint64_t
master_core_next_ns(const void *core)
{
    return master_next_ns(core);
}

static bool
master_core_over(const void *core)
{
    const char *text;
    int exit_code;

    return master_finished(core, &exit_code, &text);
}

static void
master_core_own(void *core, const uint8_t args[WORLD_OWN_BYTES])
{
    if (args[0] == UINT8_MAX) {
        master_stop(core, args[1], "told to stop");
    }
}

static const struct world_core master_core = {
    .tick = master_core_tick,
    .next_ns = master_core_next_ns,
};

static const struct world_script master_script = {.over = master_core_over, .own = master_core_own};

static void
join(struct world *world, uint32_t index)
{
    const struct psi_frame frame = {.type = PSI_FRAME_HELLO};
    const bool server = index < SERVERS;
    struct psi_hello hello = {
        .role = server ? PSI_ROLE_SERVER : PSI_ROLE_WORKER,
        .rank = server ? index : index - SERVERS,
        .lanes = server ? 1 : 0,
        .life = 100 + index,
        .kernel_revision = PSI_KERNEL_REVISION,
    };

    if (server) {
        snprintf(hello.address, sizeof(hello.address), "test://lane%u", index);
    }
    (void)world_accept(world);
    WORLD_SAY(world, world->conn[index], &frame, hello, &hello);
}

static void
open_table(struct world *world, const char *name, bool backup)
{
    const struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = name,
        .dtype = PSD_F32,
        .dims = 1,
        .shape = {100},
        .backup_workers = backup ? 1 : 0,
    };
    const struct psi_frame frame = {.type = PSI_FRAME_TABLE_OPEN, .request = 1};
    const struct psi_frame ack = {.type = PSI_FRAME_ACK};
    struct psi_table_info info = {0};

    psi_assert(psi_spec_init(&info.spec, &args, WORKERS, NULL) == PSD_OK);
    WORLD_SAY(world, world->conn[SERVERS], &frame, table_info, &info);
    for (uint32_t i = 0; i < SERVERS; i++) {
        world_say(world, world->conn[i], &ack, NULL);
    }
}

/* Bit 3: backup workers. 4: two tables, which are a group then. */
static void
start(struct world *world, uint8_t choice)
{
    const struct psi_frame frame = {.type = PSI_FRAME_VIEW_ACK, .view = 1};
    const struct psi_view_ack ack = {.id = 1};

    for (uint32_t i = 0; i < SERVERS + WORKERS; i++) {
        join(world, i);
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        WORLD_SAY(world, world->conn[i], &frame, view_ack, &ack);
    }
    open_table(world, "w", (choice & 8) != 0);
    if ((choice & 16) != 0) {
        open_table(world, "v", (choice & 8) != 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct master_config config = {
        .workers = WORKERS,
        .servers = SERVERS,
        .heartbeat_ms = 250,
        .dead_heartbeats = 8,
        .lost_grace_ms = 500,
        .server_grace_ms = 500,
        .start_timeout_ms = 5000,
        .replacement_timeout_ms = 3000,
        .listen_address = "test://master",
    };
    struct psd_error err;
    struct world world;
    struct master *master;

    if (size == 0) {
        return 0;
    }
    config.policy = (data[0] & 3) % 3;
    if ((data[0] & 4) != 0 && (data[0] & 64) != 0) { /* others may join */
        config.start_workers = WORKERS;
        config.workers = WORKERS + 2;
        config.min_workers = WORKERS;
    }
    if ((data[0] & 4) == 0 && (data[0] & 32) != 0) { /* it returns, and hears from lanes */
        config.term = 2;
        config.master_grace_ms = 1000;
        config.server_wait_ms = (data[0] & 64) != 0 ? 1000 : 0;
    }
    world_init(&world, &master_core);
    world.conns_max = WORLD_CONNS;
    psi_assert(master_create(&world.env, &config, &world.log, &master, &err) == PSD_OK);
    world.object = master;
    if ((data[0] & 4) != 0) {
        start(&world, data[0]);
    }
    world_run(&world, &master_script, data + 1, size - 1);
    master_destroy(master);
    world_fini(&world);
    return 0;
}
