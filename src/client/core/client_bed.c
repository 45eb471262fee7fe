/*
 * client_bed.c - a worker's core for tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/client_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 2, RECONNECT_MS = 2000 };

static void
tick(void *core)
{
    psi_client_tick(((struct client_bed *)core)->client);
}

static uint64_t
next_ns(const void *core)
{
    return psi_client_next_ns(((const struct client_bed *)core)->client);
}

static const struct world_core core = {.tick = tick, .next_ns = next_ns};

/* ---- its job ------------------------------------------------------------------------------- */

static void
lane_address(uint32_t lane, char text[PSI_ADDRESS_BYTES])
{
    snprintf(text, PSI_ADDRESS_BYTES, "test://lane%u", lane);
}

struct world_conn *
bed_master(struct client_bed *bed)
{
    return world_to(&bed->world, "test://master");
}

struct world_conn *
bed_lane(struct client_bed *bed, uint32_t lane)
{
    char address[PSI_ADDRESS_BYTES];

    lane_address(lane, address);
    return world_to(&bed->world, address);
}

static void
say_welcome(struct client_bed *bed, struct world_conn *conn)
{
    const struct psi_frame frame = {.type = PSI_FRAME_WELCOME};

    assert_non_null(conn);
    assert_non_null(world_hear(conn, PSI_FRAME_HELLO));
    WORLD_SAY(&bed->world, conn, &frame, welcome, &bed->welcome);
}

static void
join(struct client_bed *bed)
{
    struct psi_view_worker workers[WORKERS] = {{.incarnation = 1, .member = true},
                                               {.incarnation = 1, .member = true}};
    struct psi_view_place places[BED_LANES_MAX] = {{0}};
    const struct psi_view view = {
        .id = 1, .workers = WORKERS, .worker = workers, .places = bed->lanes, .place = places};
    const struct psi_frame frame = {.type = PSI_FRAME_VIEW_COMMIT};

    world_settle(&bed->world); /* it connects ... */
    world_settle(&bed->world); /* ... and says HELLO */
    say_welcome(bed, bed_master(bed));
    for (uint32_t i = 0; i < bed->lanes; i++) {
        places[i].server = i;
        lane_address(i, places[i].address);
    }
    WORLD_SAY(&bed->world, bed_master(bed), &frame, view, &view);
    world_settle(&bed->world); /* it connects to all lanes */
    for (uint32_t i = 0; i < bed->lanes; i++) {
        say_welcome(bed, bed_lane(bed, i));
    }
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING);
}

struct client_bed *
client_bed_start(uint32_t lanes, enum psi_death_policy policy, uint32_t window_bytes)
{
    const struct psi_client_config config = {
        .master_address = "test://master",
        .open_timeout_ms = 5000,
        .op_timeout_ms = BED_TIMEOUT_MS,
        .window_bytes = window_bytes,
    };
    struct client_bed *bed = calloc(1, sizeof(*bed));

    assert_non_null(bed);
    world_init(&bed->world, &core);
    bed->world.records = true;
    bed->lanes = lanes;
    bed->welcome = (struct psi_welcome){.incarnation = 1,
                                        .workers = WORKERS,
                                        .servers = lanes,
                                        .heartbeat_ms = 250,
                                        .dead_ms = 60000,
                                        .policy = (uint8_t)policy,
                                        .job = 7,
                                        .window_bytes = window_bytes};
    bed->gradient = malloc((size_t)BED_CHUNKS_MAX * BED_CHUNK_BYTES);
    bed->values = malloc((size_t)BED_CHUNKS_MAX * BED_CHUNK_BYTES);
    assert_true(bed->gradient != NULL && bed->values != NULL);
    for (size_t i = 0; i < (size_t)BED_CHUNKS_MAX * PSD_CHUNK_ELEMENTS; i++) {
        bed->gradient[i] = (float)i;
        bed->values[i] = -1;
    }
    assert_int_equal(psi_client_create(&bed->world.env, &config, &bed->client, NULL), PSD_OK);
    bed->world.object = bed;
    join(bed);
    return bed;
}

void
client_bed_stop(struct client_bed *bed)
{
    psi_client_destroy(bed->client);
    world_fini(&bed->world);
    free(bed->gradient);
    free(bed->values);
    free(bed);
}

void
bed_cut(struct client_bed *bed, uint32_t lane)
{
    world_hang_up(bed_lane(bed, lane), "cut");
    world_settle(&bed->world);
}

void
bed_come_back(struct client_bed *bed, uint32_t lane)
{
    for (unsigned turn = 0; bed_lane(bed, lane) == NULL; turn++) {
        assert_true(turn < RECONNECT_MS); /* it tries again, later and later */
        world_wait(&bed->world, 1);
    }
    world_settle(&bed->world);
    say_welcome(bed, bed_lane(bed, lane));
}

struct psd_table *
bed_open(struct client_bed *bed, unsigned chunks, uint32_t staleness, uint32_t backup_workers)
{
    static const uint32_t lanes[BED_LANES_MAX] = {1, 1};
    const struct psi_frame frame = {.type = PSI_FRAME_TABLE_INFO};
    char name[2] = {(char)('a' + bed->tables), '\0'};
    const struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = name,
        .dtype = PSD_F32,
        .dims = 1,
        .shape = {(uint64_t)chunks * PSD_CHUNK_ELEMENTS},
        .staleness = staleness,
        .backup_workers = backup_workers,
    };
    struct psi_table_info info = {.id = bed->tables + 1};
    struct psd_op *op = NULL;
    struct psi_frame answer = frame;

    assert_true(chunks <= BED_CHUNKS_MAX && bed->tables < BED_TABLES_MAX);
    assert_int_equal(psi_spec_init(&info.spec, &args, WORKERS, NULL), PSD_OK);
    psi_loads_init(&info.loads, bed->lanes, lanes);
    assert_int_equal(psi_client_table_open(bed->client, &info.spec, 0, &op, NULL), PSD_OK);
    answer.request = world_hear(bed_master(bed), PSI_FRAME_TABLE_OPEN)->frame.request;
    WORLD_SAY(&bed->world, bed_master(bed), &answer, table_info, &info);
    bed->table[bed->tables] = psi_op_table(op);
    bed_end_well(bed, op);
    return bed->table[bed->tables++];
}

/* ---- its operations ------------------------------------------------------------------------ */

struct psd_op *
bed_begin(struct client_bed *bed, struct psd_table *table, const struct psi_transfer *transfer)
{
    struct psi_transfer args = *transfer;
    struct psd_error err = {0};
    struct psd_op *op = NULL;

    args.from = psi_frame_has_gradient(args.type) ? bed->gradient : NULL;
    args.to = psi_frame_wants_value(args.type) ? bed->values : NULL;
    if (psi_client_transfer(bed->client, table, &args, &op, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    psi_client_send(bed->client);
    return op;
}

struct psd_op *
bed_push(struct client_bed *bed, struct psd_table *table, uint64_t step)
{
    return bed_begin(bed, table, &(struct psi_transfer){.type = PSI_FRAME_PUSH, .step = step});
}

struct psd_op *
bed_pull(struct client_bed *bed, struct psd_table *table, uint64_t step)
{
    return bed_begin(bed, table, &(struct psi_transfer){.type = PSI_FRAME_PULL, .step = step});
}

struct psd_error
bed_end(struct client_bed *bed, struct psd_op *op, psd_outcome *outcome_p)
{
    struct psd_error error;

    (void)bed;
    assert_true(psi_op_ended(op));
    error = op->error;
    if (outcome_p != NULL) {
        *outcome_p = op->outcome;
    }
    psi_op_free(op);
    return error;
}

void
bed_end_well(struct client_bed *bed, struct psd_op *op)
{
    const struct psd_error error = bed_end(bed, op, NULL);

    if (error.status != PSD_OK) {
        fail_msg("%s", error.text);
    }
}

/* ---- the lanes ----------------------------------------------------------------------------- */

const struct psi_frame *
bed_sent(struct client_bed *bed, uint32_t lane)
{
    struct world_conn *conn = bed_lane(bed, lane);

    while (conn->heard_read < conn->heard_count) {
        const struct psi_frame *frame = &conn->heard[conn->heard_read++]->frame;

        if (psi_frame_has_gradient(frame->type) || psi_frame_wants_value(frame->type)) {
            return frame;
        }
    }
    return NULL;
}

unsigned
bed_sent_count(struct client_bed *bed, uint32_t lane)
{
    unsigned count = 0;

    while (bed_sent(bed, lane) != NULL) {
        count++;
    }
    return count;
}

void
bed_ack(struct client_bed *bed, uint32_t lane, const struct psi_frame *request)
{
    const struct psi_frame frame = {.type = PSI_FRAME_ACK,
                                    .request = request->request,
                                    .table = request->table,
                                    .chunk = request->chunk,
                                    .step = request->step};

    world_say(&bed->world, bed_lane(bed, lane), &frame, NULL);
}

void
bed_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request, float value)
{
    const struct psi_frame frame = {.type = PSI_FRAME_VALUE,
                                    .dtype = PSD_F32,
                                    .request = request->request,
                                    .table = request->table,
                                    .chunk = request->chunk,
                                    .step = request->step};
    float *values = malloc(BED_CHUNK_BYTES);

    assert_non_null(values);
    for (size_t i = 0; i < PSD_CHUNK_ELEMENTS; i++) {
        values[i] = value;
    }
    world_say_bytes(&bed->world, bed_lane(bed, lane), &frame, NULL, values, BED_CHUNK_BYTES);
    free(values);
}

void
bed_tell(struct client_bed *bed, uint32_t lane, uint8_t type, const struct psd_table *table,
         uint32_t chunk, uint64_t step)
{
    const struct psi_frame frame = {
        .type = type, .table = table->id, .chunk = chunk, .step = step, .rank = 0};

    world_say(&bed->world, bed_lane(bed, lane), &frame, NULL);
}
