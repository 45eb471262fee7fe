/*
 * lane_bed.c - a small world for a lane's tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/lane_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "store/apply.h"

enum { JOB = 7, BODY_BYTES = 65536 };

/* ---- connections --------------------------------------------------------------------------- */

static psd_status
fake_send(struct psi_conn *conn, const struct psi_outgoing *outgoing)
{
    struct peer *peer = (struct peer *)conn;
    struct heard *heard = &peer->frame[peer->frames];
    size_t used = 0;

    assert_false(peer->closed);
    assert_true(peer->frames < LANE_BED_FRAMES_MAX);
    assert_int_equal(psi_frame_decode(outgoing->head, &heard->frame, NULL), PSD_OK);
    heard->body = malloc(heard->frame.payload_bytes + 1);
    assert_non_null(heard->body);
    for (unsigned i = 0; i < outgoing->buffer_count; i++) {
        memcpy(heard->body + used, outgoing->buffers[i].base, outgoing->buffers[i].bytes);
        used += outgoing->buffers[i].bytes;
    }
    assert_int_equal(used, heard->frame.payload_bytes);
    peer->frames++;
    if (outgoing->release != NULL) {
        outgoing->release(outgoing->release_owner, outgoing->release_cookie);
    }
    return PSD_OK;
}

static psd_status
fake_unshare(struct psi_conn *conn, const void *base, size_t bytes)
{
    (void)conn;
    (void)base;
    (void)bytes; /* everything is copied when it is sent */
    return PSD_OK;
}

static void
fake_close(struct psi_conn *conn)
{
    struct peer *peer = (struct peer *)conn;

    assert_false(peer->closed);
    peer->closed = true;
}

static void
fake_close_after_send(struct psi_conn *conn, uint32_t linger_ms)
{
    (void)linger_ms;
    fake_close(conn);
}

static const struct psi_conn_ops conn_ops = {
    .send = fake_send,
    .unshare = fake_unshare,
    .close = fake_close,
    .close_after_send = fake_close_after_send,
};

static struct peer *
peer_create(struct lane_bed *bed)
{
    struct peer *peer = calloc(1, sizeof(*peer));

    assert_non_null(peer);
    assert_true(bed->peers < LANE_BED_PEERS_MAX);
    peer->conn.ops = &conn_ops;
    snprintf(peer->conn.peer, sizeof(peer->conn.peer), "test://%u", bed->peers);
    bed->peer[bed->peers++] = peer;
    return peer;
}

/* ---- the world ----------------------------------------------------------------------------- */

static uint64_t
fake_now(struct psi_env *env)
{
    return ((struct lane_bed *)env)->now_ns;
}

static uint64_t
fake_random(struct psi_env *env)
{
    return ++((struct lane_bed *)env)->drawn;
}

static psd_status
fake_connect(struct psi_env *env, const char *address, const char *identity,
             const struct psi_conn_events *events, void *owner, struct psi_conn **conn_p,
             struct psd_error *err)
{
    struct lane_bed *bed = (struct lane_bed *)env;

    (void)address;
    (void)identity;
    (void)err;
    assert_null(bed->master);
    bed->master = peer_create(bed);
    bed->master->conn.events = events;
    bed->master->conn.owner = owner;
    *conn_p = &bed->master->conn;
    return PSD_OK;
}

static psd_status
fake_listen(struct psi_env *env, const char *address, const struct psi_listener_events *events,
            void *owner, struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
            struct psd_error *err)
{
    struct lane_bed *bed = (struct lane_bed *)env;

    (void)err;
    bed->listener_events = events;
    bed->listener_owner = owner;
    *listener_p = NULL;
    snprintf(bound_p, PSI_ADDRESS_BYTES, "%s", address);
    return PSD_OK;
}

static void
fake_unlisten(struct psi_env *env, struct psi_listener *listener)
{
    (void)env;
    (void)listener;
}

static const struct psi_env_ops env_ops = {
    .now_ns = fake_now,
    .random = fake_random,
    .connect = fake_connect,
    .listen = fake_listen,
    .unlisten = fake_unlisten,
};

static void
keep_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct lane_bed *bed = sink;
    const size_t used = strlen(bed->warnings);

    if (level == PSI_LOG_WARN) {
        snprintf(bed->warnings + used, sizeof(bed->warnings) - used, "%s %s\n", id, text);
    }
}

/* ---- talking to it ------------------------------------------------------------------------- */

static void
hang_up(struct peer *peer, const struct psd_error *reason)
{
    peer->closed = true;
    peer->conn.events->on_close(peer->conn.owner, &peer->conn, reason);
}

/* As a transport hands a frame over: prefix, head, whole. */
static void
deliver(struct lane_bed *bed, struct peer *peer, const uint8_t *head, size_t head_bytes,
        const void *payload)
{
    const struct psi_conn_events *events = peer->conn.events;
    struct psi_frame_size size = {0};
    struct psi_sink sink = {0};
    struct psd_error err = {0};
    psd_status status;

    assert_false(peer->closed);
    status = events->on_prefix(peer->conn.owner, &peer->conn, head, &size, &err);
    if (status == PSD_OK && !peer->closed && size.payload_bytes > 0) {
        status = events->on_head(peer->conn.owner, &peer->conn, head, head_bytes, &sink, &err);
        if (status == PSD_OK && sink.into != NULL) {
            memcpy(sink.into, payload, size.payload_bytes);
        }
    }
    if (status == PSD_OK && !peer->closed) {
        status = events->on_frame(peer->conn.owner, &peer->conn, head, head_bytes, sink.into,
                                  size.payload_bytes, &err);
    }
    if (status != PSD_OK && !peer->closed) {
        err.status = status;
        hang_up(peer, &err);
    }
    lane_tick(bed->lane);
}

void
say_with(struct lane_bed *bed, struct peer *peer, struct psi_frame frame,
         const struct psi_meta *meta, const void *payload, size_t bytes)
{
    uint8_t head[PSI_FRAME_BYTES + PSI_META_ENCODED_MAX];

    frame.payload_bytes = (uint32_t)bytes;
    if (peer != bed->master) {
        frame.rank = (uint16_t)peer->rank;
        frame.incarnation = peer->incarnation;
    }
    frame.meta_bytes = meta == NULL ? 0 : (uint16_t)psi_meta_encode(meta, head + PSI_FRAME_BYTES);
    psi_frame_encode(&frame, head);
    deliver(bed, peer, head, PSI_FRAME_BYTES + frame.meta_bytes, payload);
}

void
say(struct lane_bed *bed, struct peer *peer, struct psi_frame frame, const void *payload,
    size_t bytes)
{
    say_with(bed, peer, frame, NULL, payload, bytes);
}

/* SAY(bed, peer, frame, hello, &hello): a frame with a message as its body. */
#define SAY(bed, peer, frame_type, name, message)                                                  \
    do {                                                                                           \
        static uint8_t bytes_[BODY_BYTES];                                                         \
        struct psi_pack pack_;                                                                     \
        psi_pack_init(&pack_, bytes_, sizeof(bytes_));                                             \
        psi_##name##_encode(&pack_, message);                                                      \
        assert_false(pack_.overflow);                                                              \
        say(bed, peer, (struct psi_frame){.type = frame_type}, bytes_, pack_.used);                \
    } while (0)

const struct heard *
hear(struct peer *peer, uint8_t type)
{
    while (peer->read < peer->frames) {
        const struct heard *heard = &peer->frame[peer->read++];

        if (heard->frame.type == type) {
            return heard;
        }
    }
    return NULL;
}

struct psi_verdict
hear_verdict(struct peer *peer, uint8_t type)
{
    const struct heard *heard = hear(peer, type);
    struct psi_verdict verdict = {0};

    assert_non_null(heard);
    assert_int_equal(psi_verdict_decode(heard->body, heard->frame.payload_bytes, &verdict, NULL),
                     PSD_OK);
    return verdict;
}

struct peer *
meet(struct lane_bed *bed, uint32_t rank, uint16_t incarnation)
{
    const struct psi_hello hello = {.role = PSI_ROLE_WORKER,
                                    .rank = rank,
                                    .incarnation = incarnation,
                                    .life = 100 * rank + incarnation,
                                    .job = JOB};
    struct peer *peer = peer_create(bed);

    assert_int_equal(bed->listener_events->on_accept(bed->listener_owner, &peer->conn,
                                                     &peer->conn.events, &peer->conn.owner),
                     PSD_OK);
    peer->rank = rank;
    peer->incarnation = incarnation;
    SAY(bed, peer, PSI_FRAME_HELLO, hello, &hello);
    return peer;
}

/* ---- the master ---------------------------------------------------------------------------- */

void
open_table(struct lane_bed *bed, uint32_t id, const struct psd_table_args *args)
{
    static const uint32_t lanes[1] = {1};
    struct psi_table_info info = {.id = id};

    assert_int_equal(psi_spec_init(&info.spec, args, bed->workers, NULL), PSD_OK);
    psi_loads_init(&info.loads, 1, lanes);
    SAY(bed, bed->master, PSI_FRAME_TABLE_OPEN, table_info, &info);
    for (unsigned turn = 0; hear(bed->master, PSI_FRAME_ACK) == NULL; turn++) {
        assert_true(turn < 100); /* it prepares the memory piece by piece */
        lane_tick(bed->lane);
    }
}

void
propose(struct lane_bed *bed, uint32_t rank, bool leaves)
{
    const struct psi_propose proposal = {.id = bed->view + 1, .rank = rank, .leaves = leaves};

    SAY(bed, bed->master, PSI_FRAME_VIEW_PROPOSE, propose, &proposal);
    assert_non_null(hear(bed->master, PSI_FRAME_VIEW_ACK));
}

static void
commit_view(struct lane_bed *bed, struct psi_view view)
{
    struct psi_view_place place = {.address = "test://lane"};

    view.id = ++bed->view;
    view.workers = bed->workers;
    view.worker = bed->member;
    view.places = 1;
    view.place = &place;
    SAY(bed, bed->master, PSI_FRAME_VIEW_COMMIT, view, &view);
    assert_non_null(hear(bed->master, PSI_FRAME_VIEW_ACK));
}

void
commit(struct lane_bed *bed, const struct psi_view_table *left, uint32_t rank, bool leaves)
{
    struct psi_view_table table = left == NULL ? (struct psi_view_table){0} : *left;

    if (leaves) {
        bed->member[rank].member = false;
    } else {
        bed->member[rank].incarnation++;
    }
    commit_view(bed, (struct psi_view){.change = true,
                                       .rank = rank,
                                       .leaves = leaves,
                                       .tables = left != NULL,
                                       .table = &table});
}

void
close_round(struct lane_bed *bed, uint32_t table, uint64_t step, uint32_t rank_bits)
{
    struct psi_ranks ranks = {{0}};
    uint8_t bytes[BODY_BYTES];
    struct psi_pack pack;

    for (uint32_t rank = 0; rank < bed->workers; rank++) {
        if ((rank_bits >> rank & 1) != 0) {
            psi_ranks_add(&ranks, rank);
        }
    }
    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_ranks_encode(&pack, &ranks);
    say(bed, bed->master, (struct psi_frame){.type = PSI_FRAME_CLOSE, .table = table, .step = step},
        bytes, pack.used);
}

static void
join(struct lane_bed *bed, enum psi_death_policy policy)
{
    const struct psi_welcome welcome = {
        .incarnation = 1,
        .workers = bed->workers,
        .servers = 1,
        .heartbeat_ms = 250,
        .dead_ms = 60000,
        .policy = (uint8_t)policy,
        .job = JOB,
    };

    lane_tick(bed->lane); /* it connects ... */
    assert_non_null(bed->master);
    bed->master->conn.events->on_open(bed->master->conn.owner, &bed->master->conn);
    assert_non_null(hear(bed->master, PSI_FRAME_HELLO)); /* ... and says HELLO */
    SAY(bed, bed->master, PSI_FRAME_WELCOME, welcome, &welcome);
    commit_view(bed, (struct psi_view){0});
}

struct lane_bed *
lane_bed_start(uint32_t workers, enum psi_death_policy policy)
{
    const struct lane_config config = {
        .lanes = 1,
        .master_address = "test://master",
        .listen_address = "test://lane",
        .memory_max = 64 << 20,
        .pool_bytes = 8 << 20,
        .start_timeout_ms = 1000,
        .kernel = psi_kernel_level_best(),
    };
    struct lane_bed *bed = calloc(1, sizeof(*bed));

    assert_non_null(bed);
    assert_true(workers <= LANE_BED_WORKERS_MAX);
    bed->env.ops = &env_ops;
    bed->now_ns = UINT64_C(1000000000);
    bed->workers = workers;
    for (uint32_t rank = 0; rank < workers; rank++) {
        bed->member[rank] = (struct psi_view_worker){.incarnation = 1, .member = true};
    }

    const struct psi_log log = {.write = keep_line, .sink = bed, .level = PSI_LOG_DEBUG};

    assert_int_equal(lane_create(&bed->env, &config, &log, &bed->lane, NULL), PSD_OK);
    join(bed, policy);
    for (uint32_t rank = 0; rank < workers; rank++) {
        bed->worker[rank] = meet(bed, rank, 1);
        assert_non_null(hear(bed->worker[rank], PSI_FRAME_WELCOME));
    }
    return bed;
}

void
lane_bed_stop(struct lane_bed *bed)
{
    lane_destroy(bed->lane);
    for (unsigned i = 0; i < bed->peers; i++) {
        assert_true(bed->peer[i]->closed); /* it leaves no connection behind */
        for (unsigned j = 0; j < bed->peer[i]->frames; j++) {
            free(bed->peer[i]->frame[j].body);
        }
        free(bed->peer[i]);
    }
    free(bed);
}
