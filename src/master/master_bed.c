/*
 * master_bed.c - a master for tests.
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

static void
tick(void *core)
{
    master_tick(((struct master_bed *)core)->master);
}

static uint64_t
next_ns(const void *core)
{
    return master_next_ns(((const struct master_bed *)core)->master);
}

static const struct world_core core = {.tick = tick, .next_ns = next_ns};

static void
keep_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct master_bed *bed = sink;
    const size_t used = strlen(bed->log_text);

    (void)level;
    snprintf(bed->log_text + used, LOG_BYTES - used, "%s %s\n", id, text);
}

static void
keep_news(void *context, const struct psi_tiding *tiding)
{
    struct master_bed *bed = context;
    const size_t used = strlen(bed->told);
    char line[PSI_TIDING_LINE];

    psi_tiding_format(tiding, line);
    snprintf(bed->told + used, sizeof(bed->told) - used, "%s", line);
}

static struct master_bed *
create(const struct master_config *wanted)
{
    struct master_bed *bed = calloc(1, sizeof(*bed));
    const uint32_t workers = wanted->workers;
    const uint32_t servers = wanted->servers;
    struct master_config config = *wanted;

    config.heartbeat_ms = 250;
    config.dead_heartbeats = 8;
    config.lost_grace_ms = 500;
    config.server_grace_ms = 200;
    config.start_timeout_ms = 60000;
    config.replacement_timeout_ms = 30000;
    config.listen_address = "test://master";
    config.tell = keep_news;
    config.tell_context = bed;
    world_init(&bed->world, &core);
    bed->world.records = true;
    bed->world.drawn = UINT64_MAX; /* the first number is 0, which no job has */
    bed->workers = workers;
    bed->servers = servers;
    bed->lanes = 1;
    bed->log = (struct psi_log){.write = keep_line, .sink = bed, .level = PSI_LOG_DEBUG};
    assert_int_equal(master_create(&bed->world.env, &config, &bed->log, &bed->master, NULL),
                     PSD_OK);
    assert_string_equal(master_address(bed->master), "test://master");
    bed->world.object = bed;
    return bed;
}

struct master_bed *
master_bed_start(uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    return create(
        &(struct master_config){.workers = workers, .servers = servers, .policy = policy});
}

struct master_bed *
master_bed_start_patient(uint32_t workers, uint32_t servers)
{
    return create(
        &(struct master_config){.workers = workers, .servers = servers, .late_workers = true});
}

void
master_bed_stop(struct master_bed *bed)
{
    master_destroy(bed->master);
    world_fini(&bed->world);
    free(bed);
}

bool
logged(const struct master_bed *bed, const char *text)
{
    return strstr(bed->log_text, text) != NULL;
}

/* ------------------------------------------------------------------------ talking to it --- */

struct peer *
dial(struct master_bed *bed)
{
    struct peer *peer = &bed->peer[bed->peers++];

    assert_true(bed->peers <= PEERS_MAX);
    peer->line = world_accept(&bed->world);
    assert_non_null(peer->line);
    assert_false(is_gone(peer));
    return peer;
}

bool
is_gone(const struct peer *peer)
{
    return world_is_closed(peer->line);
}

void
hang_up(struct peer *peer, const char *text)
{
    world_hang_up(peer->line, text);
}

void
deliver(struct master_bed *bed, struct peer *peer, const uint8_t head[PSI_FRAME_BYTES])
{
    assert_false(is_gone(peer));
    world_feed(peer->line, head, PSI_FRAME_BYTES);
    world_settle(&bed->world);
}

void
say(struct master_bed *bed, struct peer *peer, struct psi_frame frame, const struct psi_pack *body)
{
    world_say(&bed->world, peer->line, &frame, body);
}

/* say_hello(bed, peer, frame, &hello) and so on. */
#define DEFINE_SAY(name, type)                                                                     \
    void say_##name(struct master_bed *bed, struct peer *peer, struct psi_frame frame,             \
                    const type *message)                                                           \
    {                                                                                              \
        static uint8_t bytes[65536];                                                               \
        struct psi_pack pack;                                                                      \
        psi_pack_init(&pack, bytes, sizeof(bytes));                                                \
        psi_##name##_encode(&pack, message);                                                       \
        assert_false(pack.overflow);                                                               \
        say(bed, peer, frame, &pack);                                                              \
    }
DEFINE_SAY(hello, struct psi_hello)
DEFINE_SAY(subscribe, struct psi_subscribe)
DEFINE_SAY(verdict, struct psi_verdict)
DEFINE_SAY(ping, struct psi_ping)
DEFINE_SAY(view_ack, struct psi_view_ack)
DEFINE_SAY(table_info, struct psi_table_info)
DEFINE_SAY(view, struct psi_view)
DEFINE_SAY(lane_state, struct psi_lane_state)
DEFINE_SAY(worker_state, struct psi_worker_state)
DEFINE_SAY(telling, struct psi_telling)

const struct world_heard *
hear(struct peer *peer, uint8_t type)
{
    return world_hear(peer->line, type);
}

struct psi_verdict
hear_verdict(struct peer *peer, uint8_t type)
{
    const struct world_heard *record = hear(peer, type);
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

    assert_true(is_gone(peer));
    assert_int_equal(verdict.status, status);
    if (strstr(verdict.text, text) == NULL) {
        fail_msg("refused with \"%s\", expected \"%s\"", verdict.text, text);
    }
}

struct psi_welcome
hear_welcome(struct peer *peer)
{
    const struct world_heard *record = hear(peer, PSI_FRAME_WELCOME);
    struct psi_welcome welcome = {0};

    assert_non_null(record);
    assert_int_equal(psi_welcome_decode(record->body, record->frame.payload_bytes, &welcome, NULL),
                     PSD_OK);
    return welcome;
}

struct peer *
join(struct master_bed *bed, uint8_t role, uint32_t rank, uint64_t life)
{
    return join_as(bed, role, rank, 0, rank, life);
}

struct peer *
join_as(struct master_bed *bed, uint8_t role, uint32_t rank, uint32_t lane, uint32_t process,
        uint64_t life)
{
    struct peer *peer = dial(bed);
    const bool in_server = role == PSI_ROLE_SERVER || role == PSI_ROLE_STANDBY;
    struct psi_hello hello = {.role = role,
                              .rank = rank,
                              .lane = lane,
                              .lanes = in_server ? bed->lanes : 0,
                              .life = life,
                              .kernel_revision = PSI_KERNEL_REVISION,
                              .tells = role == PSI_ROLE_SERVER || role == PSI_ROLE_WORKER};

    if (in_server) {
        snprintf(hello.address, sizeof(hello.address), "test://lane%u", rank);
        /* A life of its own, from 900 on; those before are of one process with all of its lanes, and so
         * are those of a second one, from SECOND_LIFE on. */
        const uint64_t number = life < 900 ? 1 : life < SECOND_LIFE ? life : SECOND_LIFE;

        hello.host = number << PSI_PROCESS_INDEX_BITS | process;
    }
    peer->life = life;
    say_hello(bed, peer, (struct psi_frame){.type = PSI_FRAME_HELLO}, &hello);
    return peer;
}

void
ack_view(struct master_bed *bed, uint32_t server, uint32_t id, uint32_t view,
         const struct psi_given *given)
{
    struct psi_given copy = given != NULL ? *given : (struct psi_given){0};
    const struct psi_view_ack ack = {.id = id, .tables = given != NULL ? 1 : 0, .given = &copy};

    say_view_ack(bed, bed->lane[server],
                 (struct psi_frame){.type = PSI_FRAME_VIEW_ACK, .view = view}, &ack);
}

static struct master_bed *
begin(struct master_bed *bed)
{
    const uint32_t places = bed->servers * bed->lanes;
    const uint32_t workers = bed->workers;

    for (uint32_t i = 0; i < places; i++) {
        const uint32_t server = i / bed->lanes;

        bed->lane[i] = join_as(bed, PSI_ROLE_SERVER, server, i % bed->lanes, server, 100 + i);
    }
    for (uint32_t i = 0; i < workers; i++) {
        bed->worker[i] = join(bed, PSI_ROLE_WORKER, i, 200 + i);
    }
    for (uint32_t i = 0; i < places || i < workers; i++) {
        struct peer *both[2] = {i < places ? bed->lane[i] : NULL,
                                i < workers ? bed->worker[i] : NULL};

        for (unsigned j = 0; j < 2; j++) {
            if (both[j] != NULL) {
                say_ping(bed, both[j], (struct psi_frame){.type = PSI_FRAME_PING},
                         &(struct psi_ping){0});
            }
        }
    }
    for (uint32_t i = 0; i < places; i++) {
        assert_non_null(hear(bed->lane[i], PSI_FRAME_VIEW_COMMIT));
        ack_view(bed, i, 1, 1, NULL);
    }
    for (uint32_t i = 0; i < workers; i++) {
        assert_non_null(hear(bed->worker[i], PSI_FRAME_VIEW_COMMIT));
    }
    return bed;
}

struct master_bed *
start_job(uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    return begin(master_bed_start(workers, servers, policy));
}

struct master_bed *
start_lasting_job(uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    return begin(create(&(struct master_config){.workers = workers,
                                                .servers = servers,
                                                .policy = policy,
                                                .server_wait_ms = 10000,
                                                .server_return_ms = 1000}));
}

struct master_bed *
start_copied_job(uint32_t workers, uint32_t servers)
{
    return begin(create(&(struct master_config){.workers = workers,
                                                .servers = servers,
                                                .policy = PSI_DEATH_FAIL,
                                                .server_wait_ms = 10000,
                                                .server_return_ms = 1000,
                                                .replicas = 1}));
}

struct master_bed *
start_wide_job(uint32_t replicas)
{
    struct master_bed *bed = create(&(struct master_config){.workers = 1,
                                                            .servers = 3,
                                                            .policy = PSI_DEATH_FAIL,
                                                            .server_wait_ms = 10000,
                                                            .server_return_ms = 1000,
                                                            .replicas = replicas});

    bed->lanes = 2;
    return begin(bed);
}

struct master_bed *
start_moving_job(void)
{
    struct master_bed *bed = create(&(struct master_config){.workers = 1,
                                                            .servers = 1,
                                                            .policy = PSI_DEATH_FAIL,
                                                            .server_wait_ms = 10000,
                                                            .server_return_ms = 1000,
                                                            .max_servers = 3,
                                                            .move_bytes_per_s = 1000});

    bed->lanes = 2;
    return begin(bed);
}

struct master_bed *
start_moving_second_life(void)
{
    struct master_bed *bed = create(&(struct master_config){.workers = 1,
                                                            .servers = 1,
                                                            .policy = PSI_DEATH_FAIL,
                                                            .server_wait_ms = 10000,
                                                            .server_return_ms = 1000,
                                                            .master_grace_ms = 30000,
                                                            .max_servers = 3,
                                                            .term = 2});

    bed->lanes = 2;
    return bed;
}

struct master_bed *
master_bed_start_lives(uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    return create(&(struct master_config){.workers = workers,
                                          .servers = servers,
                                          .policy = policy,
                                          .server_wait_ms = 10000,
                                          .server_return_ms = 1000,
                                          .master_grace_ms = 30000});
}

struct master_bed *
start_elastic_job(uint32_t ranks, uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    struct master_bed *bed = create(&(struct master_config){.workers = ranks,
                                                            .start_workers = workers,
                                                            .min_workers = workers,
                                                            .size = workers,
                                                            .servers = servers,
                                                            .server_wait_ms = 10000,
                                                            .policy = policy});

    bed->workers = workers;
    return begin(bed);
}

struct master_bed *
start_lives(uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    return begin(master_bed_start_lives(workers, servers, policy));
}

struct master_bed *
start_second_life(uint32_t workers, uint32_t servers, enum psi_death_policy policy)
{
    return create(&(struct master_config){.workers = workers,
                                          .servers = servers,
                                          .policy = policy,
                                          .server_wait_ms = 10000,
                                          .master_grace_ms = 30000,
                                          .term = 2});
}

struct master_bed *
start_copied_second_life(uint32_t workers, uint32_t servers)
{
    return create(&(struct master_config){.workers = workers,
                                          .servers = servers,
                                          .policy = PSI_DEATH_FAIL,
                                          .server_wait_ms = 10000,
                                          .master_grace_ms = 30000,
                                          .replicas = 1,
                                          .term = 2});
}

void
pass_ms(struct master_bed *bed, uint64_t ms, const struct peer *silent)
{
    for (uint64_t passed = 0; passed < ms; passed += 100) {
        bed->world.now_ns += 100 * MS_NS;
        for (uint32_t i = 0; i < 8; i++) {
            struct peer *both[2] = {bed->lane[i], i < 4 ? bed->worker[i] : NULL};

            for (unsigned j = 0; j < 2; j++) {
                if (both[j] != NULL && both[j] != silent && !is_gone(both[j])) {
                    say_ping(bed, both[j], (struct psi_frame){.type = PSI_FRAME_PING},
                             &(struct psi_ping){0});
                }
            }
        }
        master_tick(bed->master);
    }
}

void
assert_over(struct master_bed *bed, int exit_code, const char *text)
{
    const char *reason = NULL;
    int code = -1;

    bed->world.now_ns += 1000 * MS_NS; /* nobody hangs up in these tests: the linger passes */
    master_tick(bed->master);
    assert_true(master_finished(bed->master, &code, &reason));
    assert_int_equal(code, exit_code);
    if (strstr(reason, text) == NULL) {
        fail_msg("ended with \"%s\", expected \"%s\"", reason, text);
    }
    assert_true(logged(bed, "JOB-END"));
}

bool
is_over(const struct master_bed *bed)
{
    const char *text;
    int code;

    return master_finished(bed->master, &code, &text);
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
open_table(struct master_bed *bed, uint32_t rank, const struct psi_table_info *info,
           uint32_t request)
{
    say_table_info(bed, bed->worker[rank],
                   (struct psi_frame){.type = PSI_FRAME_TABLE_OPEN, .request = request}, info);
}

struct psi_table_info
hear_table(struct peer *peer, uint8_t type, uint32_t request)
{
    const struct world_heard *record = hear(peer, type);
    struct psi_table_info info = {0};

    assert_non_null(record);
    assert_int_equal(record->frame.request, request);
    assert_int_equal(psi_table_info_decode(record->body, record->frame.payload_bytes, &info, NULL),
                     PSD_OK);
    return info;
}

void
ack_table(struct master_bed *bed, uint32_t id)
{
    for (uint32_t i = 0; i < bed->servers * bed->lanes; i++) {
        (void)hear_table(bed->lane[i], PSI_FRAME_TABLE_OPEN, 0);
        say(bed, bed->lane[i], (struct psi_frame){.type = PSI_FRAME_ACK, .table = id}, NULL);
    }
}

void
open_everywhere(struct master_bed *bed, const char *name, psd_use use)
{
    const struct psd_table_args args = {.struct_size = sizeof(args),
                                        .name = name,
                                        .dtype = PSD_F32,
                                        .use = use,
                                        .dims = 1,
                                        .shape = {65536 * 8}};
    struct psi_table_info want = {0};

    assert_int_equal(psi_spec_init(&want.spec, &args, bed->workers, NULL), PSD_OK);
    open_table(bed, 0, &want, 1);
    ack_table(bed, 0);
    (void)hear_table(bed->worker[0], PSI_FRAME_TABLE_INFO, 1);
}

void
bye(struct master_bed *bed, uint32_t rank)
{
    say(bed, bed->worker[rank], (struct psi_frame){.type = PSI_FRAME_BYE, .request = 77}, NULL);
    assert_int_equal(hear(bed->worker[rank], PSI_FRAME_ACK)->frame.request, 77);
}

void
give_up(struct master_bed *bed, struct peer *peer, int exit_code, const char *text)
{
    struct psi_verdict verdict = {.status = PSD_ERR_NOT_FINITE, .exit_code = exit_code};

    snprintf(verdict.text, sizeof(verdict.text), "%s", text);
    say_verdict(bed, peer, (struct psi_frame){.type = PSI_FRAME_END}, &verdict);
}

struct psi_view
hear_view(struct peer *peer, struct psi_view_table *tables)
{
    static struct psi_view_worker workers[PSI_RANKS_MAX];
    static struct psi_view_place places[PSI_PLACES_MAX];
    const struct world_heard *record = hear(peer, PSI_FRAME_VIEW_COMMIT);
    struct psi_view view = {.worker = workers, .place = places, .table = tables};

    assert_non_null(record);
    assert_int_equal(psi_view_decode(record->body, record->frame.payload_bytes, &view, NULL),
                     PSD_OK);
    return view;
}
