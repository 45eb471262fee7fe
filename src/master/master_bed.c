/*
 * master_bed.c - a small world for the master's tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/master_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "rpc/post.h"
#include "table/spec.h"

static psd_status
fake_send(struct psi_conn *conn, const struct psi_outgoing *outgoing)
{
    struct peer *peer = (struct peer *)conn;
    struct record *record = &peer->frame[peer->frames];
    size_t used = 0;

    assert_false(peer->closed);
    assert_true(peer->frames < FRAMES_MAX);
    assert_int_equal(psi_frame_decode(outgoing->head, &record->frame, NULL), PSD_OK);
    record->body = malloc(record->frame.payload_bytes + 1);
    for (unsigned i = 0; i < outgoing->buffer_count; i++) {
        memcpy(record->body + used, outgoing->buffers[i].base, outgoing->buffers[i].bytes);
        used += outgoing->buffers[i].bytes;
    }
    assert_int_equal(used, record->frame.payload_bytes);
    peer->frames++;
    if (outgoing->release != NULL) {
        outgoing->release(outgoing->release_owner, outgoing->release_cookie);
    }
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

static size_t
fake_queued_bytes(const struct psi_conn *conn)
{
    return ((const struct peer *)conn)->queued;
}

static const struct psi_conn_ops fake_conn_ops = {
    .send = fake_send,
    .queued_bytes = fake_queued_bytes,
    .close = fake_close,
    .close_after_send = fake_close_after_send,
};

static uint64_t
fake_now(struct psi_env *env)
{
    return ((struct world *)env)->now_ns;
}

static uint64_t
fake_random(struct psi_env *env)
{
    return ((struct world *)env)->drawn++; /* the first is 0, which is no number for a job */
}

static psd_status
fake_listen(struct psi_env *env, const char *address, const struct psi_listener_events *events,
            void *owner, struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
            struct psd_error *err)
{
    struct world *world = (struct world *)env;

    (void)err;
    world->listener_events = events;
    world->listener_owner = owner;
    *listener_p = NULL;
    snprintf(bound_p, PSI_ADDRESS_BYTES, "%s", address);
    return PSD_OK;
}

static const struct psi_env_ops fake_env_ops = {
    .now_ns = fake_now,
    .random = fake_random,
    .listen = fake_listen,
};

static void
keep_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct world *world = sink;
    const size_t used = strlen(world->log_text);

    (void)level;
    snprintf(world->log_text + used, LOG_BYTES - used, "%s %s\n", id, text);
}

static void
keep_news(void *context, const struct psi_tiding *tiding)
{
    struct world *world = context;
    const size_t used = strlen(world->told);
    char line[PSI_TIDING_LINE];

    psi_tiding_format(tiding, line);
    snprintf(world->told + used, sizeof(world->told) - used, "%s", line);
}

static struct world *
create(uint32_t workers, uint32_t servers, enum psi_death_policy policy, bool late_workers)
{
    struct world *world = calloc(1, sizeof(*world));
    const struct master_config config = {
        .workers = workers,
        .servers = servers,
        .heartbeat_ms = 250,
        .dead_heartbeats = 8,
        .lost_grace_ms = 500,
        .start_timeout_ms = 60000,
        .late_workers = late_workers,
        .replacement_timeout_ms = 30000,
        .policy = policy,
        .listen_address = "test://master",
        .tell = keep_news,
        .tell_context = world,
    };

    world->env.ops = &fake_env_ops;
    world->now_ns = 1000 * MS_NS;
    world->workers = workers;
    world->servers = servers;
    world->log = (struct psi_log){.write = keep_line, .sink = world, .level = PSI_LOG_DEBUG};
    assert_int_equal(master_create(&world->env, &config, &world->log, &world->master, NULL),
                     PSD_OK);
    assert_string_equal(master_address(world->master), "test://master");
    return world;
}

struct world *
world_create(uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    return create(workers, servers, policy, false);
}

struct world *
world_create_patient(uint32_t workers, uint32_t servers)
{
    return create(workers, servers, PSI_DEATH_FAIL, true);
}

void
world_destroy(struct world *world)
{
    master_destroy(world->master);
    for (unsigned i = 0; i < world->peers; i++) {
        assert_true(world->peer[i]->closed); /* the master leaves no connection behind */
        for (unsigned j = 0; j < world->peer[i]->frames; j++) {
            free(world->peer[i]->frame[j].body);
        }
        free(world->peer[i]);
    }
    free(world);
}

bool
logged(const struct world *world, const char *text)
{
    return strstr(world->log_text, text) != NULL;
}

/* ------------------------------------------------------------------------ talking to it --- */

struct peer *
dial(struct world *world)
{
    struct peer *peer = calloc(1, sizeof(*peer));

    assert_true(world->peers < PEERS_MAX);
    peer->conn.ops = &fake_conn_ops;
    snprintf(peer->conn.peer, sizeof(peer->conn.peer), "test://%u", world->peers);
    world->peer[world->peers++] = peer;
    assert_int_equal(world->listener_events->on_accept(world->listener_owner, &peer->conn,
                                                       &peer->conn.events, &peer->conn.owner),
                     PSD_OK);
    return peer;
}

void
hang_up(struct peer *peer, const char *text)
{
    struct psd_error reason;

    psi_fail(&reason, PSD_ERR_CLOSED, "%s", text);
    peer->closed = true;
    peer->conn.events->on_close(peer->conn.owner, &peer->conn, &reason);
}

void
deliver(struct world *world, struct peer *peer, const uint8_t head[PSI_FRAME_BYTES],
        const void *body)
{
    const struct psi_conn_events *events = peer->conn.events;
    struct psi_frame_size size = {0};
    struct psi_sink sink = {0};
    struct psd_error err = {0};
    psd_status status;

    assert_false(peer->closed);
    status = events->on_prefix(peer->conn.owner, &peer->conn, head, &size, &err);
    if (status == PSD_OK && !peer->closed && size.payload_bytes > 0) {
        status = events->on_head(peer->conn.owner, &peer->conn, head, PSI_FRAME_BYTES, &sink, &err);
        if (status == PSD_OK) {
            memcpy(sink.into, body, size.payload_bytes);
        }
    }
    if (status == PSD_OK && !peer->closed) {
        status = events->on_frame(peer->conn.owner, &peer->conn, head, PSI_FRAME_BYTES, sink.into,
                                  size.payload_bytes, &err);
    }
    if (status != PSD_OK && !peer->closed) {
        hang_up(peer, err.text);
    }
    master_tick(world->master);
}

void
say(struct world *world, struct peer *peer, struct psi_frame frame, const struct psi_pack *body)
{
    uint8_t head[PSI_FRAME_BYTES];

    frame.payload_bytes = body != NULL ? (uint32_t)body->used : 0;
    psi_frame_encode(&frame, head);
    deliver(world, peer, head, body != NULL ? body->bytes : NULL);
}

/* say_hello(world, peer, frame, &hello) and so on. */
#define DEFINE_SAY(name, type)                                                                     \
    void say_##name(struct world *world, struct peer *peer, struct psi_frame frame,                \
                    const type *message)                                                           \
    {                                                                                              \
        static uint8_t bytes[65536];                                                               \
        struct psi_pack pack;                                                                      \
        psi_pack_init(&pack, bytes, sizeof(bytes));                                                \
        psi_##name##_encode(&pack, message);                                                       \
        assert_false(pack.overflow);                                                               \
        say(world, peer, frame, &pack);                                                            \
    }
DEFINE_SAY(hello, struct psi_hello)
DEFINE_SAY(subscribe, struct psi_subscribe)
DEFINE_SAY(verdict, struct psi_verdict)
DEFINE_SAY(ping, struct psi_ping)
DEFINE_SAY(view_ack, struct psi_view_ack)
DEFINE_SAY(table_info, struct psi_table_info)

const struct record *
hear(struct peer *peer, uint8_t type)
{
    while (peer->read < peer->frames) {
        const struct record *record = &peer->frame[peer->read++];

        if (record->frame.type == type) {
            return record;
        }
    }
    return NULL;
}

struct psi_verdict
hear_verdict(struct peer *peer, uint8_t type)
{
    const struct record *record = hear(peer, type);
    struct psi_verdict verdict = {0};

    assert_non_null(record);
    assert_int_equal(psi_verdict_decode(record->body, record->frame.payload_bytes, &verdict, NULL),
                     PSD_OK);
    return verdict;
}

void
assert_refused(struct peer *peer, psd_status status, const char *text)
{
    const struct psi_verdict verdict = hear_verdict(peer, PSI_FRAME_REFUSE);

    assert_true(peer->closed);
    assert_int_equal(verdict.status, status);
    if (strstr(verdict.text, text) == NULL) {
        fail_msg("refused with \"%s\", expected \"%s\"", verdict.text, text);
    }
}

struct psi_welcome
hear_welcome(struct peer *peer)
{
    const struct record *record = hear(peer, PSI_FRAME_WELCOME);
    struct psi_welcome welcome = {0};

    assert_non_null(record);
    assert_int_equal(psi_welcome_decode(record->body, record->frame.payload_bytes, &welcome, NULL),
                     PSD_OK);
    return welcome;
}

struct peer *
join(struct world *world, uint8_t role, uint32_t rank, uint64_t life)
{
    struct peer *peer = dial(world);
    struct psi_hello hello = {.role = role,
                              .rank = rank,
                              .lanes = role == PSI_ROLE_SERVER ? 1 : 0,
                              .life = life,
                              .kernel_revision = PSI_KERNEL_REVISION};

    if (role == PSI_ROLE_SERVER) {
        snprintf(hello.address, sizeof(hello.address), "test://lane%u", rank);
    }
    peer->life = life;
    say_hello(world, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    return peer;
}

void
ack_view(struct world *world, uint32_t server, uint32_t id, uint32_t view,
         const struct psi_given *given)
{
    struct psi_given copy = given != NULL ? *given : (struct psi_given){0};
    const struct psi_view_ack ack = {.id = id, .tables = given != NULL ? 1 : 0, .given = &copy};

    say_view_ack(world, world->lane[server],
                 (struct psi_frame){.type = PSI_FRAME_VIEW_ACK, .view = view}, &ack);
}

struct world *
start_job(uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    struct world *world = world_create(workers, servers, policy);

    for (uint32_t i = 0; i < servers; i++) {
        world->lane[i] = join(world, PSI_ROLE_SERVER, i, 100 + i);
    }
    for (uint32_t i = 0; i < workers; i++) {
        world->worker[i] = join(world, PSI_ROLE_WORKER, i, 200 + i);
    }
    for (uint32_t i = 0; i < servers; i++) {
        assert_non_null(hear(world->lane[i], PSI_FRAME_VIEW_COMMIT));
        ack_view(world, i, 1, 1, NULL);
    }
    for (uint32_t i = 0; i < workers; i++) {
        assert_non_null(hear(world->worker[i], PSI_FRAME_VIEW_COMMIT));
    }
    return world;
}

/* Sends a PING and takes the PONG out of the record, so that long tests do not fill it. */
static void
ping_quietly(struct world *world, struct peer *peer)
{
    const unsigned before = peer->frames;

    say_ping(world, peer, (struct psi_frame){.type = PSI_FRAME_PING}, &(struct psi_ping){0});
    if (peer->frames > before && peer->frame[before].frame.type == PSI_FRAME_PONG) {
        free(peer->frame[before].body);
        peer->frames--;
        memmove(&peer->frame[before], &peer->frame[before + 1],
                (peer->frames - before) * sizeof(peer->frame[0]));
    }
}

void
pass_ms(struct world *world, uint64_t ms, const struct peer *silent)
{
    for (uint64_t passed = 0; passed < ms; passed += 100) {
        world->now_ns += 100 * MS_NS;
        for (uint32_t i = 0; i < 4; i++) {
            struct peer *both[2] = {world->lane[i], world->worker[i]};

            for (unsigned j = 0; j < 2; j++) {
                if (both[j] != NULL && both[j] != silent && !both[j]->closed) {
                    ping_quietly(world, both[j]);
                }
            }
        }
        master_tick(world->master);
    }
}

void
assert_over(struct world *world, int exit_code, const char *text)
{
    const char *reason = NULL;
    int code = -1;

    world->now_ns += 1000 * MS_NS; /* nobody hangs up in these tests: the linger passes */
    master_tick(world->master);
    assert_true(master_finished(world->master, &code, &reason));
    assert_int_equal(code, exit_code);
    if (strstr(reason, text) == NULL) {
        fail_msg("ended with \"%s\", expected \"%s\"", reason, text);
    }
    assert_true(logged(world, "JOB-END"));
}

bool
is_over(const struct world *world)
{
    const char *text;
    int code;

    return master_finished(world->master, &code, &text);
}

struct psi_table_info
table_named(const char *name, uint64_t rows)
{
    struct psd_table_args args = {
        .struct_size = sizeof(args), .name = name, .dtype = PSD_F32, .dims = 1, .shape = {rows}};
    struct psi_table_info info = {0};

    assert_int_equal(psi_spec_init(&info.spec, &args, 4, NULL), PSD_OK);
    return info;
}

void
open_table(struct world *world, uint32_t rank, const struct psi_table_info *info, uint32_t request)
{
    say_table_info(world, world->worker[rank],
                   (struct psi_frame){.type = PSI_FRAME_TABLE_OPEN, .request = request}, info);
}

struct psi_table_info
hear_table(struct peer *peer, uint8_t type, uint32_t request)
{
    const struct record *record = hear(peer, type);
    struct psi_table_info info = {0};

    assert_non_null(record);
    assert_int_equal(record->frame.request, request);
    assert_int_equal(psi_table_info_decode(record->body, record->frame.payload_bytes, &info, NULL),
                     PSD_OK);
    return info;
}

void
ack_table(struct world *world, uint32_t id)
{
    for (uint32_t i = 0; i < world->servers; i++) {
        (void)hear_table(world->lane[i], PSI_FRAME_TABLE_OPEN, 0);
        say(world, world->lane[i], (struct psi_frame){.type = PSI_FRAME_ACK, .table = id}, NULL);
    }
}

void
bye(struct world *world, uint32_t rank)
{
    say(world, world->worker[rank], (struct psi_frame){.type = PSI_FRAME_BYE, .request = 77}, NULL);
    assert_int_equal(hear(world->worker[rank], PSI_FRAME_ACK)->frame.request, 77);
}

void
give_up(struct world *world, struct peer *peer, int exit_code, const char *text)
{
    struct psi_verdict verdict = {.status = PSD_ERR_NOT_FINITE, .exit_code = exit_code};

    snprintf(verdict.text, sizeof(verdict.text), "%s", text);
    say_verdict(world, peer, (struct psi_frame){.type = PSI_FRAME_END}, &verdict);
}

struct psi_view
hear_view(struct peer *peer, struct psi_view_table *tables)
{
    static struct psi_view_worker workers[PSI_RANKS_MAX];
    static struct psi_view_place places[PSI_PLACES_MAX];
    const struct record *record = hear(peer, PSI_FRAME_VIEW_COMMIT);
    struct psi_view view = {.worker = workers, .place = places, .table = tables};

    assert_non_null(record);
    assert_int_equal(psi_view_decode(record->body, record->frame.payload_bytes, &view, NULL),
                     PSD_OK);
    return view;
}
