/*
 * lane_bed.c - a small world for a lane's tests.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/lane_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/level.h"

enum { JOB = 7, BODY_BYTES = 65536 };

static void
tick(void *core)
{
    lane_tick(((struct lane_bed *)core)->lane);
}

static uint64_t
next_ns(const void *core)
{
    return lane_next_ns(((const struct lane_bed *)core)->lane);
}

static const struct world_core core = {.tick = tick, .next_ns = next_ns};

static void
add_line(char *lines, size_t size, const char *id, const char *text)
{
    const size_t used = strlen(lines);

    snprintf(lines + used, size - used, "%s %s\n", id, text);
}

static void
keep_line(void *sink, enum psi_log_level level, const char *id, const char *text)
{
    struct lane_bed *bed = sink;

    if (level == PSI_LOG_WARN) {
        add_line(bed->warnings, sizeof(bed->warnings), id, text);
    } else if (level == PSI_LOG_INFO) {
        add_line(bed->notes, sizeof(bed->notes), id, text);
    }
}

/* ---- talking to it ------------------------------------------------------------------------- */

static struct peer *
peer_create(struct lane_bed *bed, struct world_conn *line)
{
    struct peer *peer = &bed->peer[bed->peers++];

    assert_true(bed->peers <= LANE_BED_PEERS_MAX);
    assert_non_null(line);
    peer->line = line;
    return peer;
}

bool
is_gone(const struct peer *peer)
{
    return world_is_closed(peer->line);
}

void
say_with(struct lane_bed *bed, struct peer *peer, struct psi_frame frame,
         const struct psi_meta *meta, const void *payload, size_t bytes)
{
    if (peer != bed->master) {
        frame.rank = (uint16_t)peer->rank;
        frame.incarnation = peer->incarnation;
        frame.view = frame.view == 0 ? bed->view : frame.view;
    }
    world_say_bytes(&bed->world, peer->line, &frame, meta, payload, bytes);
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

const struct world_heard *
hear(struct peer *peer, uint8_t type)
{
    return world_hear(peer->line, type);
}

struct psi_verdict
hear_verdict(struct peer *peer, uint8_t type)
{
    const struct world_heard *heard = hear(peer, type);
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
    struct peer *peer = peer_create(bed, world_accept(&bed->world));

    peer->rank = rank;
    peer->incarnation = incarnation;
    SAY(bed, peer, PSI_FRAME_HELLO, hello, &hello);
    return peer;
}

struct peer *
meet_reader(struct lane_bed *bed, uint64_t life)
{
    const struct psi_hello hello = {
        .role = PSI_ROLE_READER, .rank = PSI_RANK_AUTO, .life = life, .job = JOB};
    struct peer *peer = peer_create(bed, world_accept(&bed->world));

    SAY(bed, peer, PSI_FRAME_HELLO, hello, &hello);
    return peer;
}

/* ---- the master ---------------------------------------------------------------------------- */

void
pong(struct lane_bed *bed)
{
    const struct world_heard *ping = hear(bed->master, PSI_FRAME_PING);
    struct psi_frame frame = {.type = PSI_FRAME_PONG, .request = 1};

    assert_non_null(ping);
    for (; frame.request <= ping->frame.request;
         frame.request++) { /* those that were passed over, too */
        say(bed, bed->master, frame, NULL, 0);
    }
}

static void
open_info(struct lane_bed *bed, struct psi_table_info info)
{
    static const uint32_t lanes[1] = {1};

    psi_loads_init(&info.loads, 1, lanes);
    SAY(bed, bed->master, PSI_FRAME_TABLE_OPEN, table_info, &info);
    for (unsigned turn = 0; hear(bed->master, PSI_FRAME_ACK) == NULL; turn++) {
        assert_true(turn < 100); /* it prepares the memory piece by piece */
        world_settle(&bed->world);
    }
}

void
open_table(struct lane_bed *bed, uint32_t id, const struct psd_table_args *args)
{
    struct psi_table_info info = {
        .id = id, .step = bed->first_step, .again = bed->life != bed->life_in_job};

    assert_int_equal(psi_spec_init(&info.spec, args, bed->workers, NULL), PSD_OK);
    open_info(bed, info);
}

void
open_table_again(struct lane_bed *bed, uint32_t id, const struct psi_spec *spec)
{
    static const uint32_t lanes[1] = {1};
    struct psi_table_info info = {.id = id, .step = bed->first_step, .spec = *spec};

    psi_loads_init(&info.loads, 1, lanes);
    SAY(bed, bed->master, PSI_FRAME_TABLE_OPEN, table_info, &info);
}

void
open_sparse(struct lane_bed *bed, uint32_t id, const struct psd_sparse_args *args)
{
    struct psi_table_info info = {
        .id = id, .step = bed->first_step, .again = bed->life != bed->life_in_job};

    assert_int_equal(psi_spec_init_sparse(&info.spec, args, bed->workers, NULL), PSD_OK);
    open_info(bed, info);
}

void
propose_only(struct lane_bed *bed, uint32_t rank, bool leaves)
{
    const struct psi_propose proposal = {.id = bed->view + 1, .rank = rank, .leaves = leaves};

    SAY(bed, bed->master, PSI_FRAME_VIEW_PROPOSE, propose, &proposal);
}

void
propose(struct lane_bed *bed, uint32_t rank, bool leaves)
{
    propose_only(bed, rank, leaves);
    assert_non_null(hear(bed->master, PSI_FRAME_VIEW_ACK));
}

static void
commit_view(struct lane_bed *bed, struct psi_view view)
{
    struct psi_view_place place = {.address = "test://lane", .incarnation = bed->life_in_job};

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
    commit_view(
        bed, (struct psi_view){.change = leaves ? PSI_VIEW_WORKER_LEFT : PSI_VIEW_WORKER_REPLACED,
                               .who = rank,
                               .tables = left != NULL,
                               .table = &table});
}

uint64_t
propose_join(struct lane_bed *bed, uint32_t rank)
{
    const struct psi_propose proposal = {.id = bed->view + 1, .rank = rank, .joins = true};
    struct psi_given given[1];
    struct psi_view_ack ack = {.given = given};
    const struct world_heard *heard;

    SAY(bed, bed->master, PSI_FRAME_VIEW_PROPOSE, propose, &proposal);
    heard = hear(bed->master, PSI_FRAME_VIEW_ACK);
    assert_non_null(heard);
    assert_int_equal(psi_view_ack_decode(heard->body, heard->frame.payload_bytes, &ack, NULL),
                     PSD_OK);
    assert_int_equal(ack.tables, 1);
    return given[0].next_max;
}

void
commit_join(struct lane_bed *bed, uint32_t rank, uint32_t table, uint64_t first_step)
{
    struct psi_view_table first = {.id = table, .left_at = first_step};

    bed->member[rank] = (struct psi_view_worker){.incarnation = 1, .member = true};
    commit_view(bed,
                (struct psi_view){
                    .change = PSI_VIEW_WORKER_JOINED, .who = rank, .tables = 1, .table = &first});
    bed->worker[rank] = meet(bed, rank, 1);
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

static struct psi_welcome
welcome_of(const struct lane_bed *bed)
{
    return (struct psi_welcome){
        .incarnation = bed->life,
        .survives = bed->survives,
        .workers = bed->workers,
        .servers = bed->survives ? 2 : 1,
        .heartbeat_ms = 250,
        .dead_ms = 60000,
        .job = JOB,
        .elastic = bed->elastic,
    };
}

struct psi_hello
meet_master(struct lane_bed *bed, uint32_t term)
{
    struct psi_welcome welcome = welcome_of(bed);
    const struct world_heard *heard;
    struct psi_hello hello;

    welcome.term = term;
    world_hang_up(bed->master->line, "the master died");
    world_wait(&bed->world, 20); /* it tries again after a moment */
    world_settle(&bed->world);
    bed->master = peer_create(bed, world_to(&bed->world, "test://master"));
    heard = hear(bed->master, PSI_FRAME_HELLO);
    assert_int_equal(psi_hello_decode(heard->body, heard->frame.payload_bytes, &hello, NULL),
                     PSD_OK);
    SAY(bed, bed->master, PSI_FRAME_WELCOME, welcome, &welcome);
    return hello;
}

static void
join(struct lane_bed *bed, enum psi_death_policy policy)
{
    struct psi_welcome welcome = welcome_of(bed);

    welcome.policy = (uint8_t)policy;
    world_settle(&bed->world); /* it connects ... */
    world_settle(&bed->world);
    bed->master = peer_create(bed, world_to(&bed->world, "test://master"));
    assert_non_null(hear(bed->master, PSI_FRAME_HELLO)); /* ... and says HELLO */
    SAY(bed, bed->master, PSI_FRAME_WELCOME, welcome, &welcome);
    commit_view(bed, (struct psi_view){0});
}

/* A lane that looks for its master. */
static struct lane_bed *
create(uint32_t workers, uint32_t life, bool is_standby)
{
    const struct lane_config config = {
        .server = is_standby ? 1 : 0,
        .lanes = 1,
        .is_standby = is_standby,
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
    world_init(&bed->world, &core);
    bed->world.records = true;
    bed->workers = workers;
    bed->life = life;
    bed->life_in_job = 1;
    for (uint32_t rank = 0; rank < workers; rank++) {
        bed->member[rank] = (struct psi_view_worker){.incarnation = 1, .member = true};
    }

    const struct psi_log log = {.write = keep_line, .sink = bed, .level = PSI_LOG_DEBUG};

    assert_int_equal(lane_create(&bed->world.env, &config, &log, &bed->lane, NULL), PSD_OK);
    bed->world.object = bed;
    return bed;
}

static void
meet_all(struct lane_bed *bed)
{
    for (uint32_t rank = 0; rank < bed->workers; rank++) {
        if (bed->member[rank].member) {
            bed->worker[rank] = meet(bed, rank, 1);
            assert_non_null(hear(bed->worker[rank], PSI_FRAME_WELCOME));
        }
    }
}

struct lane_bed *
lane_bed_start(uint32_t workers, enum psi_death_policy policy)
{
    struct lane_bed *bed = create(workers, 1, false);

    join(bed, policy);
    meet_all(bed);
    return bed;
}

struct lane_bed *
lane_bed_start_elastic(uint32_t ranks, uint32_t workers, enum psi_death_policy policy)
{
    struct lane_bed *bed = create(ranks, 1, false);

    bed->elastic = true;
    for (uint32_t rank = workers; rank < ranks; rank++) {
        bed->member[rank] = (struct psi_view_worker){.incarnation = 0};
    }
    join(bed, policy);
    meet_all(bed);
    return bed;
}

struct lane_bed *
lane_bed_start_surviving(uint32_t workers)
{
    struct lane_bed *bed = create(workers, 1, false);

    bed->survives = true;
    join(bed, PSI_DEATH_CONTINUE);
    meet_all(bed);
    return bed;
}

struct lane_bed *
lane_bed_start_again(uint32_t workers)
{
    struct lane_bed *bed = create(workers, 2, false);

    bed->survives = true;
    bed->view = 4; /* the job has come so far */
    join(bed, PSI_DEATH_CONTINUE);
    return bed;
}

struct lane_bed *
lane_bed_start_standby(uint32_t workers)
{
    struct lane_bed *bed = create(workers, 1, true);
    struct psi_welcome welcome;

    bed->survives = true;
    welcome = welcome_of(bed);
    world_settle(&bed->world);
    world_settle(&bed->world);
    bed->master = peer_create(bed, world_to(&bed->world, "test://master"));
    assert_non_null(hear(bed->master, PSI_FRAME_HELLO));
    SAY(bed, bed->master, PSI_FRAME_WELCOME, welcome, &welcome);
    return bed;
}

struct peer *
peer_at(struct lane_bed *bed, const char *address)
{
    return peer_create(bed, world_to(&bed->world, address));
}

void
server_back(struct lane_bed *bed)
{
    bed->life_in_job = bed->life;
    commit_view(bed, (struct psi_view){.change = PSI_VIEW_SERVER_BACK});
    meet_all(bed);
}

void
lane_bed_stop(struct lane_bed *bed)
{
    lane_destroy(bed->lane);
    world_fini(&bed->world);
    free(bed);
}
