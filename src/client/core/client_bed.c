/*
 * client_bed.c - a worker's core for tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/client_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECONNECT_MS = 2000 };

#define SENDER_ADDRESS "test://near"

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
lane_address(const struct client_bed *bed, uint32_t lane, char text[PSI_ADDRESS_BYTES])
{
    snprintf(text, PSI_ADDRESS_BYTES, "test://lane%u.%u", lane, bed->life[lane]);
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

    lane_address(bed, lane, address);
    return world_to(&bed->world, address);
}

struct world_conn *
bed_sender(struct client_bed *bed)
{
    return world_to(&bed->world, SENDER_ADDRESS);
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
lane_welcomes(struct client_bed *bed, uint32_t lane)
{
    bed_lane(bed, lane)->conn.lends = bed->near;
    say_welcome(bed, bed_lane(bed, lane));
}

void
bed_tell_view(struct client_bed *bed)
{
    const struct psi_view_worker worker = {.incarnation = 1, .member = true, .host = bed->host};
    struct psi_view_worker workers[BED_WORKERS_MAX] = {worker, worker, worker};
    struct psi_view_place places[BED_LANES_MAX] = {{0}};
    const struct psi_view view = {.id = ++bed->view,
                                  .workers = bed->welcome.workers,
                                  .worker = workers,
                                  .places = bed->lanes,
                                  .place = places};
    const struct psi_frame frame = {.type = PSI_FRAME_VIEW_COMMIT};

    snprintf(workers[0].address, sizeof(workers[0].address), SENDER_ADDRESS);
    for (uint32_t i = 0; i < bed->lanes; i++) {
        places[i].server = i;
        places[i].incarnation = bed->life[i];
        lane_address(bed, i, places[i].address);
    }
    WORLD_SAY(&bed->world, bed_master(bed), &frame, view, &view);
}

void
bed_begin_life(struct client_bed *bed, uint32_t lane)
{
    bed->life[lane]++;
    bed_tell_view(bed);
}

static void
join(struct client_bed *bed)
{
    world_settle(&bed->world); /* it connects ... */
    world_settle(&bed->world); /* ... and says HELLO */
    say_welcome(bed, bed_master(bed));
    bed_tell_view(bed);
    world_settle(&bed->world); /* it connects to all lanes */
    for (uint32_t i = 0; i < bed->lanes; i++) {
        lane_welcomes(bed, i);
    }
    if (bed->host != 0 && bed->welcome.rank != 0) {
        world_settle(&bed->world); /* it connects to who sends for its host */
        say_welcome(bed, bed_sender(bed));
    }
    assert_int_equal(psi_client_state(bed->client), PSI_CLIENT_RUNNING);
}

/* Not in the job yet. */
static struct client_bed *
prepare(uint32_t lanes, enum psi_death_policy policy, uint32_t window_bytes, uint64_t host)
{
    const struct psi_client_config config = {
        .master_address = "test://master",
        .open_timeout_ms = 5000,
        .op_timeout_ms = BED_TIMEOUT_MS,
        .window_bytes = window_bytes,
        .host = host,
        .host_address = "test://host",
    };
    struct client_bed *bed = calloc(1, sizeof(*bed));

    assert_non_null(bed);
    world_init(&bed->world, &core);
    bed->world.records = true;
    bed->lanes = lanes;
    bed->host = host;
    bed->welcome = (struct psi_welcome){.incarnation = 1,
                                        .workers = 2,
                                        .servers = lanes,
                                        .heartbeat_ms = 250,
                                        .dead_ms = 60000,
                                        .policy = (uint8_t)policy,
                                        .job = 7,
                                        .window_bytes = window_bytes};
    bed->gradient = malloc((size_t)BED_LONE_CHUNKS_MAX * BED_CHUNK_BYTES);
    bed->values = malloc((size_t)BED_LONE_CHUNKS_MAX * BED_CHUNK_BYTES);
    assert_true(bed->gradient != NULL && bed->values != NULL);
    for (size_t i = 0; i < (size_t)BED_LONE_CHUNKS_MAX * PSD_CHUNK_ELEMENTS; i++) {
        bed->gradient[i] = (float)i;
        bed->values[i] = -1;
    }
    assert_int_equal(psi_client_create(&bed->world.env, &config, &bed->client, NULL), PSD_OK);
    bed->world.object = bed;
    return bed;
}

struct client_bed *
client_bed_start(uint32_t lanes, enum psi_death_policy policy, uint32_t window_bytes)
{
    struct client_bed *bed = prepare(lanes, policy, window_bytes, 0);

    join(bed);
    return bed;
}

struct client_bed *
client_bed_start_surviving(uint32_t lanes, bool near, uint32_t window_bytes)
{
    struct client_bed *bed = prepare(lanes, PSI_DEATH_FAIL, window_bytes, 0);

    bed->welcome.survives = true;
    bed->near = near;
    join(bed);
    return bed;
}

struct client_bed *
client_bed_start_lone(const struct psi_welcome *job)
{
    struct client_bed *bed = prepare(1, (enum psi_death_policy)job->policy, BED_CHUNK_BYTES, 0);

    bed->client->config.lone_sums = true;
    bed->welcome.workers = job->workers;
    bed->welcome.elastic = job->elastic;
    bed->welcome.survives = job->survives;
    join(bed);
    return bed;
}

struct client_bed *
client_bed_start_sender(uint32_t workers, uint32_t lanes, uint32_t window_bytes)
{
    struct client_bed *bed = prepare(lanes, PSI_DEATH_FAIL, window_bytes, 9);

    bed->welcome.survives = true;
    bed->welcome.workers = workers;
    bed->world.near = true;
    join(bed);
    return bed;
}

struct client_bed *
client_bed_start_neighbour(uint32_t lanes, uint32_t window_bytes)
{
    struct client_bed *bed = prepare(lanes, PSI_DEATH_FAIL, window_bytes, 9);

    bed->welcome.survives = true;
    bed->welcome.rank = 1;
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
    lane_welcomes(bed, lane);
}

static struct psd_table *
open_spec(struct client_bed *bed, const struct psi_spec *spec)
{
    static const uint32_t lanes[BED_LANES_MAX] = {1, 1};
    struct psi_table_info info = {.id = bed->tables + 1, .spec = *spec};
    struct psi_frame answer = {.type = PSI_FRAME_TABLE_INFO};
    struct psd_op *op = NULL;

    assert_true(bed->tables < BED_TABLES_MAX);
    psi_loads_init(&info.loads, bed->lanes, lanes);
    assert_int_equal(psi_client_table_open(bed->client, &info.spec, 0, &op, NULL), PSD_OK);
    answer.request = world_hear(bed_master(bed), PSI_FRAME_TABLE_OPEN)->frame.request;
    WORLD_SAY(&bed->world, bed_master(bed), &answer, table_info, &info);
    bed->table[bed->tables] = psi_op_table(op);
    bed_end_well(bed, op);
    return bed->table[bed->tables++];
}

static struct psd_table *
open_table(struct client_bed *bed, unsigned chunks, const struct psd_table_args *kind)
{
    char name[2] = {(char)('a' + bed->tables), '\0'};
    const struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = name,
        .dtype = PSD_F32,
        .dims = 1,
        .shape = {(uint64_t)chunks * PSD_CHUNK_ELEMENTS},
        .use = kind->use,
        .staleness = kind->staleness,
        .backup_workers = kind->backup_workers,
    };
    struct psi_spec spec;

    assert_true(chunks <= BED_LONE_CHUNKS_MAX);
    assert_int_equal(psi_spec_init(&spec, &args, bed->welcome.workers, NULL), PSD_OK);
    return open_spec(bed, &spec);
}

struct psd_table *
bed_open(struct client_bed *bed, unsigned chunks, uint32_t staleness, uint32_t backup_workers)
{
    return open_table(
        bed, chunks,
        &(struct psd_table_args){.staleness = staleness, .backup_workers = backup_workers});
}

struct psd_table *
bed_open_sum(struct client_bed *bed, unsigned chunks)
{
    return open_table(bed, chunks, &(struct psd_table_args){.use = PSD_USE_SUM});
}

struct psd_table *
bed_open_sum_of_rows(struct client_bed *bed)
{
    const struct psd_sparse_args args = {.struct_size = sizeof(args),
                                         .name = "rows",
                                         .dtype = PSD_F32,
                                         .width = 1,
                                         .use = PSD_USE_SUM};
    struct psi_spec spec;

    assert_int_equal(psi_spec_init_sparse(&spec, &args, bed->welcome.workers, NULL), PSD_OK);
    return open_spec(bed, &spec);
}

/* ---- its operations ------------------------------------------------------------------------ */

struct psd_op *
bed_begin(struct client_bed *bed, struct psd_table *table, const struct psi_transfer *transfer)
{
    struct psi_transfer args = *transfer;
    struct psd_error err = {0};
    struct psd_op *op = NULL;

    args.from = psi_frame_has_gradient(args.type) ? bed->gradient : NULL;
    if (!args.to_view) {
        args.to = !psi_frame_wants_value(args.type) ? NULL
                  : bed->in_place                   ? bed->gradient
                                                    : bed->values;
    }
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

struct psd_op *
bed_push_pull(struct client_bed *bed, struct psd_table *table, uint64_t step)
{
    return bed_begin(bed, table, &(struct psi_transfer){.type = PSI_FRAME_PUSH_PULL, .step = step});
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

static void
encode_value(const struct psi_frame *request, uint16_t flags, uint8_t head[PSI_FRAME_BYTES])
{
    const struct psi_frame frame = {.type = PSI_FRAME_VALUE,
                                    .flags = flags,
                                    .payload_bytes = BED_CHUNK_BYTES,
                                    .dtype = PSD_F32,
                                    .request = request->request,
                                    .table = request->table,
                                    .chunk = request->chunk,
                                    .step = request->step};

    psi_frame_encode(&frame, head);
}

static float *
make_values(float value)
{
    float *values = malloc(BED_CHUNK_BYTES);

    assert_non_null(values);
    for (size_t i = 0; i < PSD_CHUNK_ELEMENTS; i++) {
        values[i] = value;
    }
    return values;
}

void
bed_feed_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request, float value,
               uint16_t flags)
{
    float *values = make_values(value);
    uint8_t head[PSI_FRAME_BYTES];

    encode_value(request, flags, head);
    world_feed(bed_lane(bed, lane), head, sizeof(head));
    world_feed(bed_lane(bed, lane), (const uint8_t *)values, BED_CHUNK_BYTES);
    free(values);
}

void
bed_value_flagged(struct client_bed *bed, uint32_t lane, const struct psi_frame *request,
                  float value, uint16_t flags)
{
    bed_feed_value(bed, lane, request, value, flags);
    world_settle(&bed->world);
}

void
bed_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request, float value)
{
    bed_value_flagged(bed, lane, request, value, 0);
}

void
bed_begin_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request, float value)
{
    float *values = make_values(value);
    uint8_t head[PSI_FRAME_BYTES];

    encode_value(request, 0, head);
    world_feed(bed_lane(bed, lane), head, sizeof(head));
    world_feed(bed_lane(bed, lane), (const uint8_t *)values, BED_CHUNK_BYTES / 2);
    free(values);
}

void
bed_half_value(struct client_bed *bed, uint32_t lane, const struct psi_frame *request, float value)
{
    bed_begin_value(bed, lane, request, value);
    bed_cut(bed, lane);
}

/* As the carrier of shared memory does it. */
static struct psi_sink
lend_head(struct psi_conn *conn, const uint8_t head[PSI_FRAME_BYTES], const void *memory,
          struct psi_loan *loan)
{
    struct psi_sink sink = {.lent = memory, .loan = loan, .stays = true};
    struct psi_frame_size size;

    assert_int_equal(conn->events->on_prefix(conn->owner, conn, head, &size, NULL), PSD_OK);
    assert_int_equal(conn->events->on_head(conn->owner, conn, head, PSI_FRAME_BYTES, &sink, NULL),
                     PSD_OK);
    if (sink.into != NULL) {
        memcpy(sink.into, memory, BED_CHUNK_BYTES);
    }
    if (!sink.keep) {
        loan->give_back(loan);
    }
    return sink;
}

void
bed_lend_both(struct client_bed *bed, uint32_t lane, const struct psi_frame *requests[2],
              const void *const memory[2], struct psi_loan *const loans[2])
{
    struct psi_conn *conn = &bed_lane(bed, lane)->conn;
    uint8_t head[2][PSI_FRAME_BYTES];
    void *heard[2];

    for (int i = 0; i < 2; i++) {
        struct psi_sink sink;

        encode_value(requests[i], 0, head[i]);
        sink = lend_head(conn, head[i], memory[i], loans[i]);
        assert_true(sink.apart);
        heard[i] = sink.keep ? (void *)(uintptr_t)memory[i] : sink.into;
    }
    for (int i = 0; i < 2; i++) {
        struct psi_frame_size size;

        assert_int_equal(conn->events->on_prefix(conn->owner, conn, head[i], &size, NULL), PSD_OK);
        assert_int_equal(conn->events->on_frame(conn->owner, conn, head[i], sizeof(head[i]),
                                                heard[i], BED_CHUNK_BYTES, NULL),
                         PSD_OK);
    }
    world_settle(&bed->world);
}

void
bed_lend(struct client_bed *bed, uint32_t lane, const struct psi_frame *request, const void *memory,
         struct psi_loan *loan, uint16_t flags)
{
    struct psi_conn *conn = &bed_lane(bed, lane)->conn;
    uint8_t head[PSI_FRAME_BYTES];
    struct psi_sink sink;
    void *heard;

    encode_value(request, flags, head);
    sink = lend_head(conn, head, memory, loan);
    heard = sink.keep ? (void *)(uintptr_t)memory : sink.into;
    assert_int_equal(
        conn->events->on_frame(conn->owner, conn, head, sizeof(head), heard, BED_CHUNK_BYTES, NULL),
        PSD_OK);
    world_settle(&bed->world);
}

void
bed_lend_half(struct client_bed *bed, uint32_t lane, const struct psi_frame *request,
              const void *memory, struct psi_loan *loan, bool last)
{
    uint8_t head[PSI_FRAME_BYTES];

    encode_value(request, 0, head);
    (void)lend_head(&bed_lane(bed, lane)->conn, head, memory, loan);
    if (last) {
        bed_cut(bed, lane);
    }
}

void
bed_tell(struct client_bed *bed, uint32_t lane, uint8_t type, const struct psd_table *table,
         uint32_t chunk, uint64_t step)
{
    const struct psi_frame frame = {
        .type = type, .table = table->id, .chunk = chunk, .step = step, .rank = 0};

    world_say(&bed->world, bed_lane(bed, lane), &frame, NULL);
}

const struct psi_frame *
bed_expect(struct client_bed *bed, uint32_t lane, uint8_t type, uint32_t chunk)
{
    const struct psi_frame *frame = bed_sent(bed, lane);

    assert_non_null(frame);
    assert_int_equal(frame->type, type);
    assert_int_equal(frame->chunk, chunk);
    return frame;
}
