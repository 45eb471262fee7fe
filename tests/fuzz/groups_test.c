/*
 * groups_test.c - a lane among workers that push for others: sums that are none cost their sender
 * the connection and change nothing. And rounds with backup workers that nobody is in.
 *
 * The world of the fuzz targets, with words chosen by hand. A job of six workers: the nodes of its
 * tree are [0, 2), [2, 4), [4, 6), [0, 4) and [0, 6). Connection 0 is the master's, 1 the sender's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/lane.h"
#include "server/state.h"
#include "world/world.h"

enum {
    WORKERS = 6,
    SENDER = 2,
    COUNT = 4, /* elements of every table */
    PLAIN = 0, /* f32, bulk-synchronous */
    HALF,      /* bf16 */
    STALE,     /* staleness 1 */
    BACKUP,    /* one backup worker */
    TABLES,
    BYTES = COUNT * 4, /* of a sum */
};

/* What a push says of itself, and how much it brings. */
struct group {
    uint32_t table;
    uint8_t level;
    bool is_own; /* it names no node */
    uint16_t first;
    uint16_t leaves;
    bool empty;
    psd_dtype dtype; /* 0: f32 */
    uint32_t bytes;  /* 0: as many as a sum has, if it is not empty */
};

/* ---- a job --------------------------------------------------------------------------------- */

struct job {
    struct world world; /* first */
    struct lane *lane;
    uint32_t request;
    psd_status answer; /* of the last ACK */
    uint32_t answered; /* its request */
};

static void
tick(void *core)
{
    lane_tick(((struct job *)core)->lane);
}

static uint64_t
next_ns(const void *core)
{
    return lane_next_ns(((const struct job *)core)->lane);
}

static void
sent(void *core, const struct psi_frame *frame, const struct psi_outgoing *outgoing)
{
    struct job *job = core;

    (void)outgoing;
    if (frame->type == PSI_FRAME_ACK) {
        job->answer = frame->status;
        job->answered = frame->request;
    }
}

static const struct world_core core = {.tick = tick, .next_ns = next_ns, .sent = sent};

static void
open_table(struct job *job, uint32_t id, const char *name, psd_dtype dtype, uint32_t staleness,
           uint32_t backup_workers)
{
    static const uint32_t lanes[1] = {1};
    const struct psi_frame frame = {.type = PSI_FRAME_TABLE_OPEN};
    const struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = name,
        .dtype = dtype,
        .dims = 1,
        .shape = {COUNT},
        .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                        .rule = PSD_RULE_ADD},
        .staleness = staleness,
        .backup_workers = backup_workers,
        .reduce = PSD_REDUCE_SUM,
    };
    struct psi_table_info info = {.id = 1 + id};

    assert_int_equal(psi_spec_init(&info.spec, &args, WORKERS, NULL), PSD_OK);
    psi_loads_init(&info.loads, 1, lanes);
    WORLD_SAY(&job->world, job->world.conn[0], &frame, table_info, &info);
}

static void
join(struct job *job, enum psi_death_policy policy)
{
    struct psi_view_worker workers[WORKERS];
    struct psi_view_place place = {.address = "test://lane"};
    const struct psi_welcome welcome = {
        .incarnation = 1,
        .workers = WORKERS,
        .servers = 1,
        .heartbeat_ms = 250,
        .dead_ms = 60000,
        .policy = (uint8_t)policy,
        .job = 7,
    };
    const struct psi_view view = {
        .id = 1, .workers = WORKERS, .worker = workers, .places = 1, .place = &place};
    const struct psi_frame welcome_frame = {.type = PSI_FRAME_WELCOME};
    const struct psi_frame view_frame = {.type = PSI_FRAME_VIEW_COMMIT};

    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        workers[rank] = (struct psi_view_worker){.incarnation = 1, .member = true};
    }
    world_settle(&job->world); /* it connects ... */
    world_settle(&job->world); /* ... and says HELLO */
    WORLD_SAY(&job->world, job->world.conn[0], &welcome_frame, welcome, &welcome);
    WORLD_SAY(&job->world, job->world.conn[0], &view_frame, view, &view);
}

static void
meet(struct job *job, unsigned conn, uint32_t rank)
{
    const struct psi_frame frame = {.type = PSI_FRAME_HELLO};
    const struct psi_hello hello = {
        .role = PSI_ROLE_WORKER, .rank = rank, .incarnation = 1, .life = rank + 1, .job = 7};

    (void)world_accept(&job->world);
    WORLD_SAY(&job->world, job->world.conn[conn], &frame, hello, &hello);
    assert_non_null(job->world.conn[conn]);
}

static void
begin(struct job *job, enum psi_death_policy policy)
{
    const struct lane_config config = {
        .lanes = 1,
        .master_address = "test://master",
        .listen_address = "test://lane",
        .memory_max = 4 << 20,
        .pool_bytes = 1 << 20,
        .start_timeout_ms = 1000,
        .kernel = KERNEL_SCALAR,
    };

    *job = (struct job){0};
    world_init(&job->world, &core);
    assert_int_equal(lane_create(&job->world.env, &config, &job->world.log, &job->lane, NULL),
                     PSD_OK);
    job->world.object = job;
    join(job, policy);
    open_table(job, PLAIN, "plain", PSD_F32, 0, 0);
    open_table(job, HALF, "half", PSD_BF16, 0, 0);
    open_table(job, STALE, "stale", PSD_F32, 1, 0);
    open_table(job, BACKUP, "backup", PSD_F32, 0, 1);
}

static void
end(struct job *job)
{
    lane_destroy(job->lane);
    world_fini(&job->world);
}

/* Whether the sender is still connected when it has said it. */
static bool
push(struct job *job, unsigned conn, uint32_t rank, const struct group *group, float value)
{
    const uint32_t some_bytes = group->bytes != 0 ? group->bytes : BYTES;
    const uint32_t bytes = group->empty ? 0 : some_bytes;
    const struct psi_frame frame = {
        .type = PSI_FRAME_PUSH,
        .flags = group->empty ? PSI_FLAG_EMPTY : 0,
        .dtype = (uint8_t)(group->dtype != 0 ? group->dtype : PSD_F32),
        .level = group->level,
        .seq = 1,
        .view = 1,
        .request = ++job->request,
        .table = 1 + group->table,
        .rank = (uint16_t)rank,
        .incarnation = 1,
    };
    const struct psi_meta meta = {
        .has_node = !group->is_own, .node_first = group->first, .node_leaves = group->leaves};
    float values[2 * COUNT];

    for (size_t i = 0; i < 2 * COUNT; i++) {
        values[i] = value;
    }
    world_say_bytes(&job->world, job->world.conn[conn], &frame, &meta, values, bytes);
    return job->world.conn[conn] != NULL;
}

/* ---- what it must leave as it was ---------------------------------------------------------- */

struct picture {
    struct {
        uint64_t version;
        uint64_t updates;
        uint64_t next[WORKERS];
        uint8_t values[BYTES];
        unsigned slots;
    } table[TABLES];
    uint64_t used[WORKERS];
};

static struct picture
look(const struct job *job)
{
    struct picture picture;

    memset(&picture, 0, sizeof(picture)); /* the gaps too: it is compared as bytes */
    for (uint32_t id = PLAIN; id < TABLES; id++) {
        const struct table *table = table_find(job->lane, 1 + id);
        const struct chunk *chunk = table_chunk(table, 0);

        picture.table[id].version = chunk->clock.version;
        picture.table[id].updates = chunk->updates;
        memcpy(picture.table[id].next, chunk->clock.next, sizeof(picture.table[id].next));
        memcpy(picture.table[id].values,
               table->store->ops->read(table->store, chunk->place, chunk->current).base,
               COUNT * psi_dtype_bytes(table->spec.dtype));
        for (const struct slot *slot = chunk->round.slots; slot != NULL; slot = slot->next) {
            picture.table[id].slots++;
        }
    }
    memcpy(picture.used, job->lane->used, sizeof(picture.used));
    return picture;
}

/* Says it to the lane, and expects to be thrown out with nothing changed. */
static void
expect_refused(struct job *job, const struct group *group, const char *what)
{
    const struct picture before = look(job);
    struct picture after;

    meet(job, 1, SENDER);
    if (push(job, 1, SENDER, group, 1)) {
        fail_msg("%s: the sender keeps its connection", what);
    }
    after = look(job);
    if (memcmp(&before, &after, sizeof(before)) != 0) {
        fail_msg("%s: it has left its mark", what);
    }
}

/* ---- the tests ----------------------------------------------------------------------------- */

/* If this fails, a worker that breaks the rules for sums is believed. */
static void
test_what_is_no_node(void **state)
{
    const struct {
        const char *what;
        struct group group;
    } cases[] = {
        {"a level without a node", {.level = 1, .is_own = true}},
        {"a node that begins amid another", {.level = 1, .first = 1, .leaves = 2}},
        {"the same, two levels up", {.level = 2, .first = 2, .leaves = 4}},
        {"a rank that is none", {.first = 6, .leaves = 1}},
        {"a node behind the last worker", {.level = 1, .first = 6, .leaves = 1}},
        {"the same, two levels up", {.level = 2, .first = 8, .leaves = 1}},
        {"the last rank there can be", {.first = PSI_RANKS_MAX - 1, .leaves = 1}},
        {"two gradients of one rank", {.first = 3, .leaves = 2}},
        {"three of two", {.level = 1, .first = 0, .leaves = 3}},
        {"three of the two that there are", {.level = 2, .first = 4, .leaves = 3}},
        {"more than workers", {.level = 3, .first = 0, .leaves = 7}},
        {"none, with numbers", {.level = 1, .first = 0}},
        {"some, without numbers", {.level = 1, .first = 0, .leaves = 1, .empty = true}},
        {"a level above the root of any tree", {.level = SUM_TREE_DEPTH, .leaves = 6}},
        {"a level that no shift can make", {.level = 255, .leaves = 6}},
        {"half a sum", {.level = 1, .leaves = 2, .bytes = 8}},
        {"twice a sum", {.level = 1, .leaves = 2, .bytes = 32}},
        {"a sum in f64", {.level = 1, .leaves = 2, .dtype = PSD_F64, .bytes = 32}},
        {"a sum in the narrow type of its table",
         {.table = HALF, .level = 1, .leaves = 2, .dtype = PSD_BF16, .bytes = 8}},
        {"a gradient in f32 to a narrow table", {.table = HALF, .first = 3, .leaves = 1}},
        {"a sum to a table with staleness", {.table = STALE, .level = 1, .leaves = 2}},
        {"a sum to a table with backup workers", {.table = BACKUP, .level = 1, .leaves = 2}},
        {"a sum to a table that is none", {.table = TABLES, .level = 1, .leaves = 2}},
    };
    struct job job;

    (void)state;
    begin(&job, PSI_DEATH_FAIL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_refused(&job, &cases[i].group, cases[i].what);
    }
    end(&job);
}

/* If this fails, a gradient is taken back together with others, or others with it. */
static void
test_only_where_nobody_is_taken_back(void **state)
{
    static const enum psi_death_policy policies[] = {PSI_DEATH_CONTINUE, PSI_DEATH_WAIT};

    (void)state;
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        struct job job;

        begin(&job, policies[i]);
        expect_refused(&job, &(struct group){.level = 1, .first = 2, .leaves = 2}, "a sum");
        expect_refused(&job, &(struct group){.first = 3, .leaves = 1}, "a gradient of another");
        end(&job);
    }
}

/* If this fails, a gradient counts twice: in two sums, or alone and in one. The sender is told and
 * keeps its connection: others of its host may have lost theirs to it and pushed for themselves. */
static void
test_sums_that_overlap(void **state)
{
    static const struct group inside = {.level = 1, .first = 2, .leaves = 2};
    const struct group around[] = {
        {.level = 2, .first = 0, .leaves = 4},
        {.level = 3, .first = 0, .leaves = 6},
        {.level = 2, .first = 0, .leaves = 2},
        {.level = 2, .first = 0, .empty = true},
    };
    struct picture before;
    struct picture after;
    struct job job;

    (void)state;
    begin(&job, PSI_DEATH_FAIL);
    meet(&job, 1, SENDER);
    meet(&job, 2, 0);
    assert_true(push(&job, 1, SENDER, &inside, 1));
    before = look(&job);
    assert_int_equal(before.table[PLAIN].slots, 1);
    for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
        assert_true(push(&job, 2, 0, &around[i], 1));
        assert_int_equal(job.answered, job.request);
        assert_int_equal(job.answer, PSD_ERR_STATE);
        after = look(&job);
        assert_memory_equal(&before, &after, sizeof(before));
    }
    end(&job);
}

/* If this fails, the tests above refuse everything. */
static void
test_nodes_are_taken(void **state)
{
    const struct {
        struct group group;
        float value;
    } parts[] = {
        {{.level = 1, .first = 4, .leaves = 1}, 8}, /* one of the two adds nothing */
        {{.first = 3, .leaves = 1}, 1},
        {{.first = 2, .leaves = 1}, 2},
        {{.level = 1, .first = 0, .empty = true}, 0},
    };
    float values[COUNT];
    struct job job;

    (void)state;
    begin(&job, PSI_DEATH_FAIL);
    meet(&job, 1, SENDER);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const struct picture before = look(&job);

        assert_int_equal(before.table[PLAIN].slots, i);
        assert_int_equal(before.table[PLAIN].version, 0);
        assert_true(push(&job, 1, SENDER, &parts[i].group, parts[i].value));
    }
    assert_int_equal(look(&job).table[PLAIN].version, 1);
    assert_int_equal(job.answer, PSD_OK);
    memcpy(values, look(&job).table[PLAIN].values, sizeof(values));
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(values[i] == 11);
    }
    end(&job);
}

/* Backup workers: the master says who is in a round. */
static void
decide(struct job *job, uint64_t step, uint32_t rank)
{
    const struct psi_frame frame = {.type = PSI_FRAME_CLOSE, .table = 1 + BACKUP, .step = step};
    struct psi_ranks ranks = {{0}};

    psi_ranks_add(&ranks, rank);
    WORLD_SAY(&job->world, job->world.conn[0], &frame, ranks, &ranks);
}

static void
leave(struct job *job, uint32_t rank)
{
    struct psi_view_worker workers[WORKERS];
    struct psi_view_place place = {.address = "test://lane"};
    struct psi_view_table table = {.id = 1 + BACKUP};
    const struct psi_view view = {
        .id = 2,
        .workers = WORKERS,
        .worker = workers,
        .places = 1,
        .place = &place,
        .change = PSI_VIEW_WORKER_LEFT,
        .who = rank,
        .tables = 1,
        .table = &table,
    };
    const struct psi_frame frame = {.type = PSI_FRAME_VIEW_COMMIT, .view = 2};

    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct psi_view_worker){.incarnation = 1, .member = i != rank};
    }
    WORLD_SAY(&job->world, job->world.conn[0], &frame, view, &view);
}

/* If this fails, momentum and decay go on in a round that nobody took part in,
 * or it never closes. */
static void
test_round_of_the_departed_is_no_update(void **state)
{
    struct picture before;
    struct picture after;
    struct job job;

    (void)state;
    begin(&job, PSI_DEATH_CONTINUE);
    meet(&job, 1, SENDER);
    assert_true(push(&job, 1, SENDER, &(struct group){.table = BACKUP, .is_own = true}, 1));
    before = look(&job);
    assert_int_equal(before.table[BACKUP].slots, 1);
    decide(&job, 0, 5);
    assert_int_equal(look(&job).table[BACKUP].version, 0);
    leave(&job, 5);
    after = look(&job);
    assert_int_equal(after.table[BACKUP].version, 1);
    assert_int_equal(after.table[BACKUP].updates, 0);
    assert_int_equal(after.table[BACKUP].slots, 0);
    assert_memory_equal(before.table[BACKUP].values, after.table[BACKUP].values, BYTES);
    assert_int_equal(job.answered, job.request);
    assert_int_equal(job.answer, PSD_ERR_DROPPED);
    end(&job);
}

/* If this fails, a table that was loaded at an earlier step than the others of its group hangs. */
static void
test_rounds_that_nobody_decided(void **state)
{
    struct job job;

    (void)state;
    begin(&job, PSI_DEATH_FAIL);
    meet(&job, 1, SENDER);
    assert_true(push(&job, 1, SENDER, &(struct group){.table = BACKUP, .is_own = true}, 1));
    decide(&job, 3, SENDER);
    assert_int_equal(look(&job).table[BACKUP].version, 3);
    assert_int_equal(look(&job).table[BACKUP].updates, 0);
    assert_int_equal(job.answer, PSD_ERR_DROPPED);
    decide(&job, 3 + 2 * CLOSINGS_KEPT, SENDER);
    decide(&job, 3, SENDER); /* said again, long after it was of use */
    decide(&job, 4 + 2 * CLOSINGS_KEPT, SENDER);
    assert_int_equal(look(&job).table[BACKUP].version, 3 + 2 * CLOSINGS_KEPT);
    end(&job);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_node),
        cmocka_unit_test(test_only_where_nobody_is_taken_back),
        cmocka_unit_test(test_sums_that_overlap),
        cmocka_unit_test(test_nodes_are_taken),
        cmocka_unit_test(test_round_of_the_departed_is_no_update),
        cmocka_unit_test(test_rounds_that_nobody_decided),
    };

    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
