/*
 * fuzz_client.c - a worker whose master and servers say anything at all.
 *
 * The first byte chooses whether the worker has joined when the input begins: then connection 0 is
 * the master's, 1 and 2 are those of two lanes, and two tables are open. It also chooses whether
 * the other worker is on the same host: then ours sends for both, and the other may connect; or the
 * other sends, and is connection 3. What the program around
 * the worker does (WORLD_OWN) belongs to the input, too. It gives memory of exactly the size of the
 * tables it asked for, and takes it back as soon as an operation has ended.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/core.h"
#include "client/core/state.h"
#include "fuzz.h"
#include "happenings.h"

enum {
    WORKERS = 2,
    LANES = 2,
    TABLES = 2,
    BUFFERS = 16,
    SMALL_COUNT = 16,
    LARGE_COUNT = PSD_CHUNK_ELEMENTS + 4,
    SHARE_BYTES = 64,
    HOST = 9,
    CHOICE_HOST = 32,        /* both workers are on one */
    CHOICE_OTHER_SENDS = 64, /* ... and the other one sends for it */
    CHOICE_OBSERVER = 0xc0,
};

/* The program around the worker. */
struct program {
    struct psi_client *client;
    struct {
        struct psd_op *op;
        uint8_t *from;
        uint8_t *to;
    } buffer[BUFFERS];
    uint8_t state[SHARE_BYTES];
};

/* ------------------------------------------------------------------- what the program does --- */

static struct psi_spec
table_spec(unsigned index)
{
    const struct psd_table_args small = {
        .struct_size = sizeof(small),
        .name = "small",
        .dtype = PSD_F32,
        .dims = 1,
        .shape = {SMALL_COUNT},
        .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                        .rule = PSD_RULE_ADAM,
                                        .learning_rate = 0.5},
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
    };
    struct psi_spec spec;

    psi_assert(psi_spec_init(&spec, index % TABLES == 0 ? &small : &large, WORKERS, NULL) ==
               PSD_OK);
    return spec;
}

/* Keeps the memory of an operation until it has ended. */
static void
keep(struct program *program, struct psd_op *op, uint8_t *from, uint8_t *to)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        if (program->buffer[i].op == NULL) {
            program->buffer[i].op = op;
            program->buffer[i].from = from;
            program->buffer[i].to = to;
            return;
        }
    }
    psi_assert(false);
}

static bool
has_room(const struct program *program)
{
    return psi_client_pending(program->client) < BUFFERS && program->buffer[BUFFERS - 1].op == NULL;
}

/* Who hears PSD_OK has what it asked for. */
static void
check_ended(const struct psd_op *op)
{
    const bool done = psi_op_status(op) == PSD_OK;

    psi_assert(psi_op_ended(op));
    psi_assert(psi_op_status(op) <= 0);
    psi_assert(!done || op->kind != OP_TABLE_OPEN || psi_op_table(op) != NULL);
    psi_assert(!done || op->kind != OP_NODES || psi_op_nodes(op)->node != NULL);
}

/* Takes what has ended. */
static void
reap(struct program *program)
{
    struct psd_op *op;

    while ((op = psi_client_next_done(program->client)) != NULL) {
        check_ended(op);
        for (unsigned i = 0; i < BUFFERS; i++) {
            if (program->buffer[i].op == op) {
                free(program->buffer[i].from);
                free(program->buffer[i].to);
                program->buffer[i].op = NULL;
            }
        }
        psi_op_free(op);
    }
}

/* Elements of what was asked for under that name, never of what came back. */
static uint64_t
asked_count(const struct psd_table *table)
{
    return strcmp(psi_table_spec(table)->name, "small") == 0 ? SMALL_COUNT : LARGE_COUNT;
}

/* Enough for any transfer of one. */
static size_t
element_bytes(const struct psd_table *table)
{
    const struct psi_spec spec = table_spec(asked_count(table) == SMALL_COUNT ? 0 : 1);

    return psi_spec_all_parts_bytes(&spec);
}

static void
transfer(struct program *program, uint8_t kind, uint8_t which, uint8_t step)
{
    static const uint8_t types[] = {PSI_FRAME_PUSH, PSI_FRAME_PULL,       PSI_FRAME_PUSH_PULL,
                                    PSI_FRAME_INIT, PSI_FRAME_STATE_PULL, PSI_FRAME_STATE_PUSH};
    struct psd_table *table = psi_client_table(program->client, (which & 1) + (which >> 6 & 2));
    struct psi_transfer args = {.type = types[kind % sizeof(types)],
                                .step = world_number(step),
                                .priority = which >> 4 & 7,
                                .timeout_ms = 1000,
                                .empty = (which & 8) != 0};
    struct psd_error err = {0};
    struct psd_op *op = NULL;
    uint8_t *from;
    uint8_t *to;
    size_t bytes;

    if (table == NULL || !has_room(program)) {
        return;
    }
    if (args.type == PSI_FRAME_STATE_PUSH) {
        args.part = which >> 1 & 3;
    }
    bytes = asked_count(table) * element_bytes(table);
    from = calloc(1, bytes);
    to = calloc(1, bytes);
    psi_assert(from != NULL && to != NULL);
    args.from = from;
    args.to = to;
    if (psi_client_transfer(program->client, table, &args, &op, &err) == PSD_OK) {
        psi_assert(op != NULL);
        keep(program, op, from, to);
    } else {
        psi_assert(err.status < 0);
        free(from);
        free(to);
    }
}

static void
share_pull(struct program *program)
{
    const struct psi_share share = {
        .from = 1, .step = 1, .total = SHARE_BYTES, .bytes = SHARE_BYTES, .name = "state"};
    uint8_t *to = malloc(SHARE_BYTES);
    struct psd_error err;
    struct psd_op *op;

    psi_assert(to != NULL);
    if (has_room(program) &&
        psi_client_share_pull(program->client, &share, to, &op, &err) == PSD_OK) {
        keep(program, op, NULL, to);
    } else {
        free(to);
    }
}

static void
publish(struct program *program, uint8_t step)
{
    const struct psd_state state = {.name = "state", .data = program->state, .bytes = SHARE_BYTES};
    struct psd_error err;

    psi_assert(psi_client_publish(program->client, world_number(step), &state, step != 0, &err) ==
               PSD_OK);
}

/* Requests to the master and the global step. */
static void
ask(struct program *program, uint8_t what, uint8_t number)
{
    struct psi_client *client = program->client;
    const struct psi_spec spec = table_spec(number);
    struct psd_error err;
    struct psd_op *op;

    if (!has_room(program)) {
        return;
    }
    switch (what % 5) {
    case 0:
        (void)psi_client_table_open(client, &spec, number, &op, &err);
        break;
    case 1:
        (void)psi_client_barrier(client, number, &op, &err);
        break;
    case 2:
        if ((number & 1) != 0) {
            (void)psi_client_subscribe(client, number, &op, &err);
        } else {
            (void)psi_client_nodes(client, &op, &err);
        }
        break;
    case 3:
        (void)psi_client_step_add(client, number, &op, &err);
        break;
    default:
        (void)psi_client_bye(client, &op, &err);
        break;
    }
}

static void
client_core_own(void *core, const uint8_t args[WORLD_OWN_BYTES])
{
    struct program *program = core;

    switch (args[0] % 6) {
    case 0:
    case 1:
        transfer(program, args[1], args[2], args[3]);
        break;
    case 2:
        ask(program, args[1], args[2]);
        break;
    case 3:
        share_pull(program);
        break;
    case 4:
        publish(program, args[1]);
        break;
    default:
        (void)psi_client_report(program->client, args[1], "loss", args[2], NULL);
        break;
    }
}

static void
client_core_tick(void *core)
{
    struct program *program = core;

    psi_client_tick(program->client);
    reap(program);
}

static uint64_t
client_core_next_ns(const void *core)
{
    return psi_client_next_ns(((const struct program *)core)->client);
}

static const struct world_core client_core = {
    .tick = client_core_tick,
    .next_ns = client_core_next_ns,
};

static const struct world_script client_script = {.own = client_core_own};

/* -------------------------------------------------------------------- how the job began --- */

static void
open_tables(struct world *world, struct program *program)
{
    static const uint32_t lanes[1] = {LANES};

    for (uint32_t i = 0; i < TABLES; i++) {
        struct psi_table_info info = {.id = i, .spec = table_spec(i)};
        const struct psi_frame frame = {.type = PSI_FRAME_TABLE_INFO,
                                        .request = (uint32_t)world_number((uint8_t)(248 + i))};

        psi_loads_init(&info.loads, 1, lanes);
        ask(program, 0, (uint8_t)i);
        WORLD_SAY(world, world->conn[0], &frame, table_info, &info);
        psi_assert(psi_client_table(program->client, i) != NULL);
    }
}

static bool
other_sends(uint8_t choice)
{
    return (choice & CHOICE_HOST) != 0 && (choice & CHOICE_OTHER_SENDS) != 0;
}

static void
join(struct world *world, uint8_t choice)
{
    const uint64_t host = (choice & CHOICE_HOST) != 0 ? HOST : 0;
    struct psi_view_worker workers[WORKERS] = {{1, true, host, "test://near"},
                                               {1, true, host, "test://near"}};
    struct psi_view_place places[LANES] = {{.address = "test://a"},
                                           {.lane = 1, .address = "test://b"}};
    const struct psi_welcome welcome = {
        .rank = other_sends(choice) ? 1 : 0,
        .incarnation = 1,
        .workers = WORKERS,
        .servers = 1,
        .heartbeat_ms = 250,
        .dead_ms = 60000,
        .policy = (uint8_t)((choice & 3) % 3),
        .job = 7,
        .window_bytes = 1 << 20,
    };
    const struct psi_view view = {
        .id = 1, .workers = WORKERS, .worker = workers, .places = LANES, .place = places};
    const struct psi_frame welcome_frame = {.type = PSI_FRAME_WELCOME};
    const struct psi_frame view_frame = {.type = PSI_FRAME_VIEW_COMMIT};

    WORLD_SAY(world, world->conn[0], &welcome_frame, welcome, &welcome);
    WORLD_SAY(world, world->conn[0], &view_frame, view, &view);
    world_settle(world);
    for (unsigned i = 1; i <= LANES; i++) {
        WORLD_SAY(world, world->conn[i], &welcome_frame, welcome, &welcome);
    }
    if (other_sends(choice) && welcome.policy == PSI_DEATH_FAIL) {
        world_settle(world); /* it connects ... */
        world_settle(world); /* ... and says HELLO */
        WORLD_SAY(world, world->conn[1 + LANES], &welcome_frame, welcome, &welcome);
    }
}

static void
make_client(struct world *world, struct program *program, uint8_t choice)
{
    const struct psi_client_config config = {
        .master_address = "test://master",
        .rank = (choice & 16) != 0    ? PSI_RANK_AUTO
                : other_sends(choice) ? 1
                                      : 0,
        .open_timeout_ms = 5000,
        .op_timeout_ms = 1000,
        .window_bytes = 1 << 20,
        .checksum = (choice & 8) != 0,
        .observer = (choice & CHOICE_OBSERVER) == CHOICE_OBSERVER,
        .host = (choice & CHOICE_HOST) != 0 ? HOST : 0,
        .host_address = "test://door",
    };
    struct psd_error err;

    *program = (struct program){0};
    psi_assert(psi_client_create(&world->env, &config, &program->client, &err) == PSD_OK);
    world->object = program;
    world_settle(world); /* it connects ... */
    world_settle(world); /* ... and says HELLO */
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct program program;
    struct world world;

    if (size == 0) {
        return 0;
    }
    world_init(&world, &client_core);
    world.conns_max = WORLD_CONNS;
    world.near = true;
    make_client(&world, &program, data[0]);
    if ((data[0] & 4) == 0 && (data[0] & CHOICE_OBSERVER) != CHOICE_OBSERVER) {
        join(&world, data[0]);
        open_tables(&world, &program);
    }
    world_run(&world, &client_script, data + 1, size - 1);
    psi_client_destroy(program.client);
    for (unsigned i = 0; i < BUFFERS; i++) {
        if (program.buffer[i].op != NULL) {
            free(program.buffer[i].from);
            free(program.buffer[i].to);
        }
    }
    world_fini(&world);
    return 0;
}
