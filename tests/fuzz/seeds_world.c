/*
 * seeds_world.c - the first inputs of the stateful targets: short stories that a job could live.
 *
 * The fuzzer takes them apart and puts the pieces together in other ways.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "happenings.h"
#include "seeds.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/rows.h"

enum {
    STORY_BYTES_MAX = 8192,
    LANE_SMALL_BYTES = 128,               /* of the small table's chunk */
    CHUNK_BYTES = PSD_CHUNK_ELEMENTS * 2, /* of the large one's first, and of its last: */
    LAST_BYTES = 8,
    CLIENT_SMALL_BYTES = 64,
};

/* An input in the making. */
struct story {
    uint8_t bytes[STORY_BYTES_MAX];
    size_t used;
    bool half; /* frames are said by half */
};

static void
put(struct story *story, const void *bytes, size_t size)
{
    psi_assert(size <= sizeof(story->bytes) - story->used);
    memcpy(story->bytes + story->used, bytes, size);
    story->used += size;
}

static void
put_byte(struct story *story, unsigned byte)
{
    const uint8_t value = (uint8_t)byte;

    put(story, &value, 1);
}

static void
begin(struct story *story, unsigned choice)
{
    story->used = 0;
    story->half = false;
    put_byte(story, choice);
}

static void
happen(struct story *story, enum world_happening what, unsigned which)
{
    put_byte(story, what);
    put_byte(story, which);
}

static void
flow(struct story *story, unsigned conn, enum world_flow how)
{
    happen(story, WORLD_FLOW, conn);
    put_byte(story, how);
}

static void
own(struct story *story, unsigned a, unsigned b, unsigned c, unsigned d)
{
    happen(story, WORLD_OWN, 0);
    put_byte(story, a);
    put_byte(story, b);
    put_byte(story, c);
    put_byte(story, d);
}

/* A frame without a payload, or (bytes > 0) with one of equal bytes. */
static void
say(struct story *story, unsigned conn, struct world_frame frame, size_t bytes, unsigned fill)
{
    happen(story, story->half ? WORLD_HALF : WORLD_FRAME, conn);
    frame.body = bytes > 0 ? WORLD_FILL : WORLD_EMPTY;
    put(story, &frame, sizeof(frame));
    if ((frame.twist & WORLD_PART) != 0) {
        put_byte(story, frame.seq); /* of the frames here that have a part, nobody reads seq */
    }
    if (bytes > 0) {
        put_byte(story, bytes & 0xff);
        put_byte(story, bytes >> 8 & 0xff);
        put_byte(story, (unsigned)(bytes >> 16));
        put_byte(story, fill);
    }
}

/* A gradient of another rank, or (level) the sum of several. */
static void
say_node(struct story *story, unsigned conn, struct world_frame frame, unsigned level,
         const struct psi_meta *meta, size_t bytes)
{
    uint8_t options[PSI_META_ENCODED_MAX];
    const size_t option_bytes = psi_meta_encode(meta, options);

    happen(story, story->half ? WORLD_HALF : WORLD_FRAME, conn);
    frame.twist = WORLD_LEVEL | WORLD_META;
    frame.body = bytes > 0 ? WORLD_FILL : WORLD_EMPTY;
    put(story, &frame, sizeof(frame));
    put_byte(story, level);
    put_byte(story, (unsigned)option_bytes);
    put(story, options, option_bytes);
    if (bytes > 0) {
        put_byte(story, bytes & 0xff);
        put_byte(story, bytes >> 8 & 0xff);
        put_byte(story, (unsigned)(bytes >> 16));
        put_byte(story, 0);
    }
}

static void
say_pack(struct story *story, unsigned conn, struct world_frame frame, const struct psi_pack *pack)
{
    psi_assert(!pack->overflow);
    happen(story, story->half ? WORLD_HALF : WORLD_FRAME, conn);
    frame.body = WORLD_BYTES;
    put(story, &frame, sizeof(frame));
    put_byte(story, pack->used & 0xff);
    put_byte(story, (unsigned)(pack->used >> 8));
    put(story, pack->bytes, pack->used);
}

#define SAY(story, conn, frame, name, message)                                                     \
    do {                                                                                           \
        uint8_t bytes_[WORLD_BODY_BYTES_MAX];                                                      \
        struct psi_pack pack_;                                                                     \
                                                                                                   \
        psi_pack_init(&pack_, bytes_, sizeof(bytes_));                                             \
        psi_##name##_encode(&pack_, message);                                                      \
        say_pack(story, conn, frame, &pack_);                                                      \
    } while (0)

static struct world_frame
type(unsigned code)
{
    return (struct world_frame){.type = (uint8_t)code};
}

/* --------------------------------------------------------------------------------- lane --- */

static struct world_frame
worker_frame(unsigned code, unsigned rank, unsigned table, unsigned step)
{
    return (struct world_frame){
        .type = (uint8_t)code,
        .dtype = table == 1   ? PSD_F64
                 : table == 2 ? PSD_BF16
                              : PSD_F32,
        .table = (uint8_t)table,
        .step = (uint8_t)step,
        .seq = (uint8_t)(step + 1),
        .view = 1,
        .request = (uint8_t)(10 + step),
        .rank = (uint8_t)rank,
        .incarnation = 1,
    };
}

static void
workers_join(struct story *story, unsigned count)
{
    for (unsigned rank = 0; rank < count; rank++) {
        const struct psi_hello hello = {
            .role = PSI_ROLE_WORKER, .rank = rank, .incarnation = 1, .life = rank + 1, .job = 7};

        happen(story, WORLD_ACCEPT, 0);
        SAY(story, 1 + rank, type(PSI_FRAME_HELLO), hello, &hello);
    }
}

static void
push_small(struct story *story, unsigned code, unsigned workers, unsigned step)
{
    for (unsigned rank = 0; rank < workers; rank++) {
        say(story, 1 + rank, worker_frame(code, rank, 1, step), LANE_SMALL_BYTES, 0);
    }
}

static void
push_large(struct story *story, unsigned code, unsigned workers, unsigned step)
{
    for (unsigned rank = 0; rank < workers; rank++) {
        struct world_frame frame = worker_frame(code, rank, 2, step);

        say(story, 1 + rank, frame, CHUNK_BYTES, 0);
        frame.chunk = 1;
        frame.request++;
        say(story, 1 + rank, frame, LAST_BYTES, 0x3f);
    }
}

static void
lane_trains(const char *directory)
{
    struct story story;

    for (unsigned choice = 0; choice < 16; choice += 5) {
        char name[32];

        begin(&story, choice | 128);
        workers_join(&story, 3);
        push_small(&story, PSI_FRAME_PUSH_PULL, 3, 0);
        push_small(&story, PSI_FRAME_PUSH, 3, 1);
        push_large(&story, PSI_FRAME_PUSH_PULL, 3, 0);
        say(&story, 1, worker_frame(PSI_FRAME_PULL, 0, 1, 2), 0, 0);
        snprintf(name, sizeof(name), "train-%u", choice);
        write_seed(directory, "lane", name, story.bytes, story.used);
    }
}

/* Values are on their way while the next round closes. */
static void
lane_is_slow(const char *directory)
{
    struct story story;

    begin(&story, 2);
    workers_join(&story, 3);
    flow(&story, 1, WORLD_FLOW_SLOW);
    flow(&story, 2, WORLD_FLOW_FULL);
    say(&story, 1, worker_frame(PSI_FRAME_PULL, 0, 1, 0), 0, 0);
    push_small(&story, PSI_FRAME_PUSH_PULL, 3, 0);
    push_small(&story, PSI_FRAME_PUSH_PULL, 3, 1);
    flow(&story, 1, WORLD_FLOW_FAST);
    happen(&story, WORLD_WAIT, 5);
    happen(&story, WORLD_HANG_UP, 1);
    write_seed(directory, "lane", "slow", story.bytes, story.used);
}

static void
lane_loads(const char *directory)
{
    struct world_frame frame = worker_frame(PSI_FRAME_STATE_PUSH, 0, 1, 5);
    struct story story;

    begin(&story, 32);
    workers_join(&story, 2);
    say(&story, 1, worker_frame(PSI_FRAME_INIT, 0, 1, 0), LANE_SMALL_BYTES, 0);
    say(&story, 1, frame, LANE_SMALL_BYTES, 0x3f);
    frame.twist = WORLD_PART;
    frame.seq = 2;
    say(&story, 1, frame, LANE_SMALL_BYTES, 0x3f);
    frame.twist = 0;
    frame.type = PSI_FRAME_STATE_PULL;
    say(&story, 2, frame, 0, 0); /* as worker 0: refused */
    say(&story, 1, frame, 0, 0);
    write_seed(directory, "lane", "load", story.bytes, story.used);
}

/* A table that only adds has nothing to load but its step. */
static void
lane_loads_step(const char *directory)
{
    struct world_frame frame = worker_frame(PSI_FRAME_STATE_PUSH, 0, 1, 5);
    struct story story;

    begin(&story, 128);
    workers_join(&story, 3);
    frame.flags = PSI_FLAG_EMPTY;
    say(&story, 1, frame, 0, 0);
    push_small(&story, PSI_FRAME_PUSH_PULL, 3, 5);
    say(&story, 1, frame, 0, 0); /* after the first push: refused */
    write_seed(directory, "lane", "load-step", story.bytes, story.used);
}

static void
lane_is_asked(const char *directory)
{
    const struct psi_share share = {.from = 1, .step = 3, .total = 64, .bytes = 32, .name = "w"};
    const struct psi_verdict verdict = {.status = PSD_ERR_MISMATCH, .text = "not that"};
    struct world_frame data = worker_frame(PSI_FRAME_SHARE_DATA, 1, 0, 3);
    struct story story;

    data.twist = WORLD_ECHO;
    begin(&story, 0);
    workers_join(&story, 2);
    SAY(&story, 1, worker_frame(PSI_FRAME_SHARE_PULL, 0, 0, 3), share, &share);
    say(&story, 2, data, 32, 1);
    SAY(&story, 1, worker_frame(PSI_FRAME_SHARE_PULL, 0, 0, 3), share, &share);
    data.type = PSI_FRAME_ACK;
    data.status = -1;
    SAY(&story, 2, data, verdict, &verdict);
    SAY(&story, 1, worker_frame(PSI_FRAME_SHARE_PULL, 0, 0, 3), share, &share);
    happen(&story, WORLD_HANG_UP, 2);
    say(&story, 1, worker_frame(PSI_FRAME_STEP_ADD, 0, 0, 3), 0, 0);
    say(&story, 1, worker_frame(PSI_FRAME_WHY, 0, 1, 1), 0, 0);
    write_seed(directory, "lane", "asked", story.bytes, story.used);
}

static void
lane_changes_view(const char *directory)
{
    const struct psi_propose propose = {.id = 2, .rank = 2, .leaves = true};
    struct psi_view_worker workers[3] = {{1, true}, {1, true}, {1, false}};
    struct psi_view_table tables[2] = {{.id = 1, .left_at = 0, .drop = true}, {.id = 2}};
    struct psi_view_place place = {.address = "test://lane"};
    const struct psi_view view = {
        .id = 2,
        .workers = 3,
        .worker = workers,
        .places = 1,
        .place = &place,
        .change = PSI_VIEW_WORKER_LEFT,
        .who = 2,
        .tables = 2,
        .table = tables,
    };
    struct story story;

    begin(&story, 1);
    workers_join(&story, 3);
    push_small(&story, PSI_FRAME_PUSH_PULL, 2, 0);
    say(&story, 3, worker_frame(PSI_FRAME_PUSH, 2, 2, 0), CHUNK_BYTES, 0);
    SAY(&story, 0, type(PSI_FRAME_VIEW_PROPOSE), propose, &propose);
    SAY(&story, 0, type(PSI_FRAME_VIEW_COMMIT), view, &view);
    write_seed(directory, "lane", "view", story.bytes, story.used);
}

static void
say_got(struct story *story, unsigned rank, unsigned step)
{
    struct psi_result result = {.table = 1, .step = step};
    const struct psi_results results = {.count = 1, .result = &result};

    SAY(story, 1 + rank, worker_frame(PSI_FRAME_GOT, rank, 0, 0), results, &results);
}

/* Results that are held until everybody has said that they are here. */
static void
lane_holds(const char *directory)
{
    struct story story;

    begin(&story, 3 | 128);
    workers_join(&story, 3);
    push_small(&story, PSI_FRAME_PUSH_PULL, 3, 0);
    say_got(&story, 0, 0);
    say_got(&story, 1, 0);
    say_got(&story, 2, 0);
    push_small(&story, PSI_FRAME_PUSH_PULL, 3, 1);
    say_got(&story, 1, 1);
    say_got(&story, 1, 0); /* once more, of the step before */
    say(&story, 1, worker_frame(PSI_FRAME_WHY, 0, 1, 2), 0, 0);
    happen(&story, WORLD_HANG_UP, 2);
    write_seed(directory, "lane", "hold", story.bytes, story.used);
}

static void
say_adopt_of(struct story *story, unsigned rank, unsigned table, unsigned base, enum psi_has has)
{
    struct psi_adopt_run run = {.count = 1, .base = base, .has = has};
    const struct psi_adopt adopt = {.runs = 1, .run = &run};

    SAY(story, 1 + rank, worker_frame(PSI_FRAME_ADOPT, rank, table, 0), adopt, &adopt);
}

static void
say_adopt(struct story *story, unsigned rank, unsigned base, enum psi_has has)
{
    say_adopt_of(story, rank, 1, base, has);
}

/* One row, of this id. */
static void
say_row(struct story *story, unsigned rank, struct world_frame frame, uint64_t id)
{
    const struct psi_rows counts = {.pushed = 1, .gradients = 1};
    uint8_t bytes[64];
    struct psi_pack pack = {.bytes = bytes, .used = psi_rows_bytes(sizeof(float), 1, 0)};
    const struct psi_rows_room room = psi_rows_encode(bytes, sizeof(float), &counts);

    psi_store_u64(room.ids, id);
    memset(room.rows, 0x3f, sizeof(float));
    say_pack(story, 1 + rank, frame, &pack);
}

/* The same with a sum of rows, which comes in two parts. */
static void
lane_adopts_rows(const char *directory)
{
    const bool in_order = psi_bucket_before(7, 8);
    struct world_frame result = worker_frame(PSI_FRAME_SPARSE_PUSH, 0, 3, 5);
    struct story story;

    begin(&story, 3 | 32 | 128);
    workers_join(&story, 3);
    say_adopt_of(&story, 0, 3, 6, PSI_HAS_KEPT);
    say_adopt_of(&story, 1, 3, 5, PSI_HAS_KEPT);
    say_adopt_of(&story, 2, 3, 6, PSI_HAS_KEPT);
    say_row(&story, 1, worker_frame(PSI_FRAME_SPARSE_PUSH_PULL, 1, 3, 5), 7);
    result.flags = PSI_FLAG_RESULT | PSI_FLAG_MORE;
    result.request = 0;
    say_row(&story, 0, result, in_order ? 7 : 8);
    result.flags = PSI_FLAG_RESULT;
    result.request = 1;
    say_row(&story, 0, result, in_order ? 8 : 7);
    say_row(&story, 1, worker_frame(PSI_FRAME_SPARSE_PUSH_PULL, 1, 3, 5), 7);
    write_seed(directory, "lane", "adopt-rows", story.bytes, story.used);
}

/* Another life of the server: workers tell where they are, one shows a result. */
static void
lane_adopts(const char *directory)
{
    struct world_frame result = worker_frame(PSI_FRAME_PUSH, 0, 1, 5);
    struct story story;

    result.flags = PSI_FLAG_RESULT;
    begin(&story, 3 | 32 | 128);
    workers_join(&story, 3);
    say_adopt(&story, 0, 5, PSI_HAS_HELD);
    say_adopt(&story, 1, 5, PSI_HAS_PASSED);
    say(&story, 2, worker_frame(PSI_FRAME_PUSH_PULL, 1, 1, 5), LANE_SMALL_BYTES, 0);
    say(&story, 2, worker_frame(PSI_FRAME_WHY, 1, 1, 6), 0, 0);
    say_adopt(&story, 2, 6, PSI_HAS_KEPT);
    say(&story, 1, result, LANE_SMALL_BYTES, 0x3f);
    say(&story, 2, worker_frame(PSI_FRAME_PUSH_PULL, 1, 1, 5), LANE_SMALL_BYTES, 0);
    say_got(&story, 1, 5);
    push_small(&story, PSI_FRAME_PUSH_PULL, 3, 6);
    write_seed(directory, "lane", "adopt", story.bytes, story.used);
    begin(&story, 3 | 32 | 128);
    workers_join(&story, 3);
    say_adopt(&story, 0, 5, PSI_HAS_HELD);
    say_adopt(&story, 1, 6, PSI_HAS_PASSED);
    SAY(&story, 0, type(PSI_FRAME_VIEW_PROPOSE), propose,
        &((struct psi_propose){.id = 2, .rank = 2, .leaves = true}));
    say(&story, 0, type(PSI_FRAME_VIEW_ABORT), 0, 0);
    say_adopt(&story, 2, 6, PSI_HAS_NOTHING);
    say(&story, 1, worker_frame(PSI_FRAME_PULL, 0, 1, 6), 0, 0);
    write_seed(directory, "lane", "adopt-all", story.bytes, story.used);
}

static void
lane_closes(const char *directory)
{
    const struct psi_ranks ranks = {.word = {3}};
    const struct psi_verdict verdict = {.text = "all workers are done"};
    struct world_frame close = type(PSI_FRAME_CLOSE);
    struct story story;

    close.table = 1;
    begin(&story, 16);
    workers_join(&story, 3);
    push_small(&story, PSI_FRAME_PUSH_PULL, 3, 0);
    SAY(&story, 0, close, ranks, &ranks);
    close.type = PSI_FRAME_TABLE_DROP;
    say(&story, 0, close, 0, 0);
    happen(&story, WORLD_HANG_UP, 0);
    happen(&story, WORLD_WAIT, 30);
    SAY(&story, 0, type(PSI_FRAME_END), verdict, &verdict);
    write_seed(directory, "lane", "close", story.bytes, story.used);
}

/* A member begins to speak another version while a value is on its way to it. */
static void
lane_meets_version(const char *directory)
{
    struct world_frame frame = worker_frame(PSI_FRAME_PULL, 0, 1, 0);
    struct story story;

    begin(&story, 0);
    workers_join(&story, 3);
    flow(&story, 1, WORLD_FLOW_SLOW);
    say(&story, 1, frame, 0, 0);
    frame.twist = WORLD_VERSION;
    say(&story, 1, frame, 0, 0);
    push_small(&story, PSI_FRAME_PUSH, 3, 0);
    workers_join(&story, 1);
    push_small(&story, PSI_FRAME_PUSH, 1, 0);
    write_seed(directory, "lane", "version", story.bytes, story.used);
}

/* The table goes while a part of it comes in. */
static void
lane_drops_midway(const char *directory)
{
    struct world_frame drop = type(PSI_FRAME_TABLE_DROP);
    struct story story;

    drop.table = 1;
    begin(&story, 0);
    workers_join(&story, 1);
    story.half = true;
    say(&story, 1, worker_frame(PSI_FRAME_STATE_PUSH, 0, 1, 5), LANE_SMALL_BYTES, 0);
    story.half = false;
    say(&story, 0, drop, 0, 0);
    happen(&story, WORLD_REST, 1);
    write_seed(directory, "lane", "drop-midway", story.bytes, story.used);
}

/* Others read and push while a value is being loaded. */
static void
lane_loads_midway(const char *directory)
{
    struct story story;

    begin(&story, 0);
    workers_join(&story, 3);
    flow(&story, 2, WORLD_FLOW_SLOW);
    story.half = true;
    say(&story, 1, worker_frame(PSI_FRAME_STATE_PUSH, 0, 1, 0), LANE_SMALL_BYTES, 0x3f);
    story.half = false;
    say(&story, 2, worker_frame(PSI_FRAME_PULL, 1, 1, 0), 0, 0);
    say(&story, 3, worker_frame(PSI_FRAME_PUSH, 2, 1, 0), LANE_SMALL_BYTES, 0);
    happen(&story, WORLD_REST, 1);
    say(&story, 3, worker_frame(PSI_FRAME_PUSH, 2, 1, 0), LANE_SMALL_BYTES, 0);
    flow(&story, 2, WORLD_FLOW_FAST);
    write_seed(directory, "lane", "load-midway", story.bytes, story.used);
}

/* Options and checksums where they make no sense. */
static void
lane_is_fooled(const char *directory)
{
    const struct psi_share share = {.from = 1, .step = 3, .total = 64, .bytes = 32, .name = "w"};
    struct world_frame frame = worker_frame(PSI_FRAME_PUSH_PULL, 0, 2, 0);
    uint8_t bytes[WORLD_BODY_BYTES_MAX] = {0};
    struct psi_pack pack;
    struct story story;

    begin(&story, 4);
    workers_join(&story, 2);
    frame.twist = WORLD_PART;
    frame.chunk = 1;
    frame.seq = 200;
    say(&story, 1, frame, LAST_BYTES, 0);
    write_seed(directory, "lane", "part", story.bytes, story.used);
    begin(&story, 0);
    workers_join(&story, 2);
    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_share_encode(&pack, &share);
    pack.used++; /* a field of a later version, under the checksum */
    frame = worker_frame(PSI_FRAME_SHARE_PULL, 0, 0, 3);
    frame.flags = PSI_FLAG_CHECKSUM;
    say_pack(&story, 1, frame, &pack);
    write_seed(directory, "lane", "share-checksum", story.bytes, story.used);
}

/* One worker pushes for all three: two as a sum, which counts once, and one alone. */
static void
lane_hears_of_hosts(const char *directory)
{
    const struct psi_meta two = {.has_node = true, .node_first = 0, .node_leaves = 2};
    const struct psi_meta third = {.has_node = true, .node_first = 2, .node_leaves = 1};
    const struct psi_meta none = {.has_node = true, .node_first = 0};
    struct world_frame frame = worker_frame(PSI_FRAME_PUSH_PULL, 0, 1, 0);
    struct world_frame large = worker_frame(PSI_FRAME_PUSH, 0, 2, 0);
    struct world_frame empty = worker_frame(PSI_FRAME_PUSH, 0, 1, 1);
    struct story story;

    begin(&story, 0);
    workers_join(&story, 3);
    say_node(&story, 1, frame, 1, &two, LANE_SMALL_BYTES);
    say_node(&story, 1, frame, 1, &two, LANE_SMALL_BYTES);
    say_node(&story, 1, frame, 0, &third, LANE_SMALL_BYTES);
    large.chunk = 1;
    large.dtype = PSD_F32;
    say_node(&story, 1, large, 1, &two, 2 * LAST_BYTES);
    large.dtype = PSD_BF16;
    say_node(&story, 1, large, 0, &third, LAST_BYTES);
    empty.flags = PSI_FLAG_EMPTY;
    say_node(&story, 1, empty, 2, &none, 0);
    write_seed(directory, "lane", "hosts", story.bytes, story.used);
    begin(&story, 0);
    workers_join(&story, 3);
    push_small(&story, PSI_FRAME_PUSH, 2, 0);
    say_node(&story, 3, worker_frame(PSI_FRAME_PUSH, 2, 1, 0), 2, &two, LANE_SMALL_BYTES);
    say_node(&story, 3, worker_frame(PSI_FRAME_PUSH, 2, 1, 0), 1, &third, LANE_SMALL_BYTES);
    write_seed(directory, "lane", "hosts-mixed", story.bytes, story.used);
}

/* A table that no machine holds. */
static void
lane_opens_huge(const char *directory)
{
    static const uint32_t lanes[1] = {1};
    const struct psd_table_args args = {.struct_size = sizeof(args),
                                        .name = "huge",
                                        .dtype = PSD_F32,
                                        .dims = 1,
                                        .shape = {UINT64_C(1) << 46}};
    struct psi_table_info info = {.id = 5};
    struct story story;

    psi_assert(psi_spec_init(&info.spec, &args, 3, NULL) == PSD_OK);
    psi_loads_init(&info.loads, 1, lanes);
    begin(&story, 0);
    SAY(&story, 0, type(PSI_FRAME_TABLE_OPEN), table_info, &info);
    write_seed(directory, "lane", "huge", story.bytes, story.used);
    begin(&story, 4);
    SAY(&story, 2, type(PSI_FRAME_TABLE_OPEN), table_info, &info);
    write_seed(directory, "master", "huge", story.bytes, story.used);
}

void
write_lane_seeds(const char *directory)
{
    lane_meets_version(directory);
    lane_drops_midway(directory);
    lane_loads_midway(directory);
    lane_is_fooled(directory);
    lane_hears_of_hosts(directory);
    lane_opens_huge(directory);
    lane_trains(directory);
    lane_is_slow(directory);
    lane_loads(directory);
    lane_loads_step(directory);
    lane_is_asked(directory);
    lane_changes_view(directory);
    lane_holds(directory);
    lane_adopts(directory);
    lane_adopts_rows(directory);
    lane_closes(directory);
}

/* ------------------------------------------------------------------------------- master --- */

static void
meet(struct story *story, unsigned conn, unsigned role, unsigned rank, unsigned life)
{
    struct psi_hello hello = {.role = (uint8_t)role,
                              .tells = true,
                              .rank = rank,
                              .lanes = role == PSI_ROLE_SERVER ? 1 : 0,
                              .life = life,
                              .kernel_revision = PSI_KERNEL_REVISION};

    snprintf(hello.address, sizeof(hello.address), "%s", role == PSI_ROLE_SERVER ? "test://l" : "");
    happen(story, WORLD_ACCEPT, 0);
    SAY(story, conn, type(PSI_FRAME_HELLO), hello, &hello);
}

static void
master_gathers(const char *directory)
{
    const struct psi_ping ping = {.step = 3, .value = 0.5, .name = "loss"};
    const struct psi_subscribe subscribe = {.every_ms = 100, .metrics = true};
    const struct psi_telling telling = {
        .metrics = 1, .metric = {{.metric = 1, .value = 5}}, .names = 1, .name = {"loss"}};
    const struct psi_view_ack ack = {.id = 1};
    struct world_frame frame = type(PSI_FRAME_VIEW_ACK);
    struct story story;

    frame.view = 1;
    begin(&story, 0);
    meet(&story, 0, PSI_ROLE_SERVER, 0, 1);
    meet(&story, 1, PSI_ROLE_SERVER, 1, 2);
    meet(&story, 2, PSI_ROLE_WORKER, 0, 3);
    meet(&story, 3, PSI_ROLE_WORKER, 1, 4);
    SAY(&story, 0, frame, view_ack, &ack);
    SAY(&story, 1, frame, view_ack, &ack);
    SAY(&story, 2, type(PSI_FRAME_PING), ping, &ping);
    meet(&story, 4, PSI_ROLE_OBSERVER, 0, 5);
    say(&story, 4, type(PSI_FRAME_NODES), 0, 0);
    SAY(&story, 4, type(PSI_FRAME_SUBSCRIBE), subscribe, &subscribe);
    SAY(&story, 2, type(PSI_FRAME_METRICS), telling, &telling);
    happen(&story, WORLD_WAIT, 20);
    say(&story, 2, type(PSI_FRAME_BYE), 0, 0);
    say(&story, 3, type(PSI_FRAME_BYE), 0, 0);
    write_seed(directory, "master", "gather", story.bytes, story.used);
    begin(&story, 0);
    meet(&story, 0, PSI_ROLE_WORKER, UINT8_MAX, 1);
    happen(&story, WORLD_HANG_UP, 0);
    meet(&story, 1, PSI_ROLE_WORKER, 0, 2);
    happen(&story, WORLD_WAIT, UINT8_MAX);
    write_seed(directory, "master", "late", story.bytes, story.used);
}

static void
master_opens(const char *directory)
{
    struct psd_table_args args = {
        .struct_size = sizeof(args), .name = "w", .dtype = PSD_F32, .dims = 1, .shape = {100}};
    const struct psi_verdict verdict = {.status = PSD_ERR_TOO_BIG, .text = "no room"};
    struct psi_table_info info = {0};
    struct world_frame ack = type(PSI_FRAME_ACK);
    struct story story;

    begin(&story, 4);
    psi_assert(psi_spec_init(&info.spec, &args, 2, NULL) == PSD_OK);
    SAY(&story, 3, type(PSI_FRAME_TABLE_OPEN), table_info, &info);
    args.shape[0] = 200;
    psi_assert(psi_spec_init(&info.spec, &args, 2, NULL) == PSD_OK);
    SAY(&story, 3, type(PSI_FRAME_TABLE_OPEN), table_info, &info);
    args.name = "v";
    psi_assert(psi_spec_init(&info.spec, &args, 2, NULL) == PSD_OK);
    SAY(&story, 3, type(PSI_FRAME_TABLE_OPEN), table_info, &info);
    ack.table = 1;
    say(&story, 0, ack, 0, 0);
    ack.status = -1;
    SAY(&story, 1, ack, verdict, &verdict);
    write_seed(directory, "master", "open", story.bytes, story.used);
}

/* A worker dies, lanes report, and (replaced) another takes its place. */
static void
master_loses(const char *directory, bool replaced)
{
    struct psi_given given[1] = {{.chunks = 1, .next_min = 3, .next_max = 3}};
    const struct psi_view_ack report = {.id = 2, .tables = 1, .given = given};
    const struct psi_view_ack done = {.id = 2};
    struct world_frame frame = type(PSI_FRAME_VIEW_ACK);
    struct story story;

    begin(&story, 4 | (replaced ? PSI_DEATH_WAIT : PSI_DEATH_CONTINUE));
    happen(&story, WORLD_HANG_UP, 3);
    happen(&story, WORLD_WAIT, 30);
    if (replaced) {
        meet(&story, 3, PSI_ROLE_WORKER, 1, 9);
    }
    frame.view = 1;
    SAY(&story, 0, frame, view_ack, &report);
    SAY(&story, 1, frame, view_ack, &report);
    frame.view = 2;
    SAY(&story, 0, frame, view_ack, &done);
    SAY(&story, 1, frame, view_ack, &done);
    write_seed(directory, "master", replaced ? "replace" : "continue", story.bytes, story.used);
}

/* A worker joins, and dies; then one of those that were there. */
static void
master_is_joined(const char *directory)
{
    struct psi_given given[1] = {{.chunks = 1, .next_min = 3, .next_max = 3}};
    const struct psi_view_ack report = {.id = 2, .tables = 1, .given = given};
    const struct psi_view_ack done = {.id = 2};
    const struct psi_ping ping = {0};
    struct world_frame frame = type(PSI_FRAME_VIEW_ACK);
    struct story story;

    begin(&story, 4 | 64 | PSI_DEATH_CONTINUE);
    meet(&story, 4, PSI_ROLE_WORKER, PSI_RANK_AUTO, 9);
    SAY(&story, 4, type(PSI_FRAME_PING), ping, &ping);
    frame.view = 1;
    SAY(&story, 0, frame, view_ack, &report);
    SAY(&story, 1, frame, view_ack, &report);
    frame.view = 2;
    SAY(&story, 0, frame, view_ack, &done);
    SAY(&story, 1, frame, view_ack, &done);
    happen(&story, WORLD_HANG_UP, 4);
    happen(&story, WORLD_WAIT, 30);
    happen(&story, WORLD_HANG_UP, 3);
    happen(&story, WORLD_WAIT, 30);
    write_seed(directory, "master", "join", story.bytes, story.used);
}

static void
master_coordinates(const char *directory)
{
    const struct psi_verdict verdict = {.status = PSD_ERR_NOT_FINITE, .text = "not finite"};
    struct world_frame frame = type(PSI_FRAME_BARRIER);
    struct story story;

    begin(&story, 4 | 8);
    flow(&story, 1, WORLD_FLOW_SLOW);
    frame.seq = 1;
    say(&story, 2, frame, 0, 0);
    frame.type = PSI_FRAME_WHY;
    say(&story, 2, frame, 0, 0);
    frame.type = PSI_FRAME_BARRIER;
    say(&story, 3, frame, 0, 0);
    frame.type = PSI_FRAME_HAVE;
    say(&story, 2, frame, 0, 0);
    say(&story, 3, frame, 0, 0);
    SAY(&story, 0, type(PSI_FRAME_END), verdict, &verdict);
    happen(&story, WORLD_WAIT, 100);
    write_seed(directory, "master", "coordinate", story.bytes, story.used);
}

/* Two tables of a group with backup workers: one worker stops between the two. */
static void
master_chooses(const char *directory)
{
    struct world_frame frame = type(PSI_FRAME_HAVE);
    struct story story;

    begin(&story, 4 | 8 | 16 | PSI_DEATH_CONTINUE);
    for (unsigned step = 0; step < 2; step++) {
        frame.step = (uint8_t)step;
        for (unsigned table = 0; table < 2; table++) {
            frame.table = (uint8_t)table;
            say(&story, 2, frame, 0, 0);
            if (step == 0 || table == 0) {
                say(&story, 3, frame, 0, 0);
            }
            happen(&story, WORLD_WAIT, 200);
        }
    }
    happen(&story, WORLD_HANG_UP, 3);
    happen(&story, WORLD_WAIT, 200);
    write_seed(directory, "master", "choose", story.bytes, story.used);
}

/* Several threads of a worker in barriers, two kinds of them, and one that does not exist. */
static void
master_meets_threads(const char *directory)
{
    struct world_frame frame = type(PSI_FRAME_BARRIER);
    struct story story;

    begin(&story, 4);
    for (unsigned seq = 1; seq < 4; seq++) {
        frame.seq = (uint8_t)seq;
        frame.request = (uint8_t)seq;
        say(&story, 2, frame, 0, 0);
    }
    say(&story, 3, frame, 0, 0);
    frame.table = PSI_BARRIER_LOAD;
    frame.seq = 1;
    say(&story, 2, frame, 0, 0);
    say(&story, 3, frame, 0, 0);
    frame.table = PSI_BARRIER_KINDS;
    say(&story, 2, frame, 0, 0);
    write_seed(directory, "master", "threads", story.bytes, story.used);
}

/* A member begins to speak another version, and others wait for it. */
static void
master_meets_version(const char *directory)
{
    struct world_frame frame = type(PSI_FRAME_BARRIER);
    struct story story;

    begin(&story, 4 | PSI_DEATH_CONTINUE);
    frame.seq = 1;
    say(&story, 2, frame, 0, 0);
    frame.twist = WORLD_VERSION;
    say(&story, 2, frame, 0, 0);
    frame.twist = 0;
    say(&story, 3, frame, 0, 0);
    happen(&story, WORLD_WAIT, 200);
    write_seed(directory, "master", "version", story.bytes, story.used);
}

void
write_master_seeds(const char *directory)
{
    master_meets_version(directory);
    master_gathers(directory);
    master_opens(directory);
    master_is_joined(directory);
    master_loses(directory, true);
    master_loses(directory, false);
    master_coordinates(directory);
    master_chooses(directory);
    master_meets_threads(directory);
}

/* ------------------------------------------------------------------------------- client --- */

enum { OWN_TRANSFER, OWN_ASK = 2, OWN_SHARE, OWN_PUBLISH, OWN_REPORT };
enum { DO_PUSH, DO_PULL, DO_PUSH_PULL, DO_INIT, DO_STATE_PULL, DO_STATE_PUSH };
enum { ASK_TABLE, ASK_BARRIER, ASK_NODES, ASK_STEP, ASK_BYE };

static struct world_frame
answer(unsigned code)
{
    return (struct world_frame){.type = (uint8_t)code, .twist = WORLD_ECHO};
}

/* The small table lives on the first lane, the large one's chunks on both. */
static void
client_trains(const char *directory)
{
    struct story story;

    begin(&story, 0);
    own(&story, OWN_TRANSFER, DO_PUSH, 0, 0);
    say(&story, 1, answer(PSI_FRAME_ACK), 0, 0);
    own(&story, OWN_TRANSFER, DO_PUSH_PULL, 0, 1);
    say(&story, 1, answer(PSI_FRAME_VALUE), CLIENT_SMALL_BYTES, 1);
    own(&story, OWN_TRANSFER, DO_PUSH_PULL, 1, 0);
    say(&story, 2, answer(PSI_FRAME_VALUE), CHUNK_BYTES, 1);
    say(&story, 1, answer(PSI_FRAME_VALUE), LAST_BYTES, 1);
    own(&story, OWN_TRANSFER, DO_STATE_PULL, 4, 2);
    say(&story, 1, answer(PSI_FRAME_VALUE), CLIENT_SMALL_BYTES, 1);
    own(&story, OWN_TRANSFER, DO_STATE_PUSH, 4, 2);
    say(&story, 1, answer(PSI_FRAME_ACK), 0, 0);
    write_seed(directory, "client", "train", story.bytes, story.used);
}

/* Nobody answers, a connection ends, deadlines pass. */
static void
client_waits(const char *directory)
{
    const struct psi_verdict verdict = {.status = PSD_PENDING, .text = "waits for worker 1"};
    struct story story;

    begin(&story, 2);
    flow(&story, 1, WORLD_FLOW_SLOW);
    own(&story, OWN_TRANSFER, DO_PUSH, 0, 0);
    own(&story, OWN_TRANSFER, DO_PUSH, 1, 0);
    own(&story, OWN_TRANSFER, DO_PUSH, 0, 1);
    happen(&story, WORLD_WAIT, 40);
    SAY(&story, 2, answer(PSI_FRAME_BECAUSE), verdict, &verdict);
    say(&story, 1, answer(PSI_FRAME_WANT), 0, 0);
    say(&story, 1, answer(PSI_FRAME_RESEND), 0, 0);
    happen(&story, WORLD_HANG_UP, 2);
    happen(&story, WORLD_WAIT, 20);
    happen(&story, WORLD_WAIT, 20);
    write_seed(directory, "client", "wait", story.bytes, story.used);
}

static void
client_asks(const char *directory)
{
    struct psd_node node = {.role = PSD_ROLE_MASTER, .state = PSD_NODE_RUNNING};
    const struct psi_nodes nodes = {.count = 1, .node = &node};
    const struct psi_verdict verdict = {.status = PSD_ERR_STATE, .text = "not now"};
    const struct psi_share share = {.total = 64, .bytes = 32, .step = 1, .name = "state"};
    struct world_frame refusal = answer(PSI_FRAME_ACK);
    struct story story;

    refusal.status = -1;
    begin(&story, 1);
    own(&story, OWN_ASK, ASK_NODES, 0, 0);
    SAY(&story, 0, answer(PSI_FRAME_NODES_INFO), nodes, &nodes);
    own(&story, OWN_ASK, ASK_BARRIER, 0, 0);
    SAY(&story, 0, refusal, verdict, &verdict);
    own(&story, OWN_ASK, ASK_STEP, 1, 0);
    say(&story, 1, answer(PSI_FRAME_ACK), 0, 0);
    own(&story, OWN_SHARE, 0, 0, 0);
    say(&story, 1, answer(PSI_FRAME_SHARE_DATA), 64, 1);
    SAY(&story, 1, type(PSI_FRAME_SHARE_PULL), share, &share);
    own(&story, OWN_PUBLISH, 1, 0, 0);
    own(&story, OWN_REPORT, 1, 2, 0);
    own(&story, OWN_ASK, ASK_BYE, 0, 0);
    say(&story, 0, answer(PSI_FRAME_ACK), 0, 0);
    write_seed(directory, "client", "ask", story.bytes, story.used);
}

static void
client_joins(const char *directory)
{
    struct psi_view_worker workers[2] = {{1, true}, {1, true}};
    struct psi_view_place places[1] = {{.address = "test://a"}};
    const struct psi_view view = {
        .id = 1, .workers = 2, .worker = workers, .places = 1, .place = places};
    const struct psi_welcome welcome = {.incarnation = 1, .workers = 2, .servers = 1, .job = 7};
    const struct psi_verdict verdict = {.status = PSD_ERR_REFUSED, .text = "no"};
    struct psd_node node = {.role = PSD_ROLE_WORKER, .address = "test://a"};
    const struct psi_nodes nodes = {.count = 1, .node = &node};
    struct story story;

    begin(&story, 4);
    SAY(&story, 0, type(PSI_FRAME_WELCOME), welcome, &welcome);
    SAY(&story, 0, type(PSI_FRAME_VIEW_COMMIT), view, &view);
    happen(&story, WORLD_WAIT, 1);
    SAY(&story, 1, type(PSI_FRAME_WELCOME), welcome, &welcome);
    own(&story, OWN_ASK, ASK_TABLE, 0, 0);
    SAY(&story, 0, type(PSI_FRAME_END), verdict, &verdict);
    write_seed(directory, "client", "join", story.bytes, story.used);
    begin(&story, 4 | 16);
    SAY(&story, 0, type(PSI_FRAME_REFUSE), verdict, &verdict);
    write_seed(directory, "client", "refused", story.bytes, story.used);
    begin(&story, 0xc0);
    own(&story, OWN_ASK, ASK_NODES, 0, 0);
    SAY(&story, 0, type(PSI_FRAME_WELCOME), welcome, &welcome);
    happen(&story, WORLD_WAIT, 100);
    write_seed(directory, "client", "observer", story.bytes, story.used);
    begin(&story, 0xc0);
    own(&story, OWN_ASK, ASK_NODES, 1, 0); /* again and again */
    SAY(&story, 0, type(PSI_FRAME_WELCOME), welcome, &welcome);
    SAY(&story, 0, answer(PSI_FRAME_NODES_INFO), nodes, &nodes);
    SAY(&story, 0, answer(PSI_FRAME_NODES_INFO), nodes, &nodes);
    happen(&story, WORLD_HANG_UP, 0);
    happen(&story, WORLD_WAIT, 100);
    SAY(&story, 0, type(PSI_FRAME_WELCOME), welcome, &welcome);
    SAY(&story, 0, answer(PSI_FRAME_NODES_INFO), nodes, &nodes);
    write_seed(directory, "client", "subscriber", story.bytes, story.used);
}

/* A table that is not what was asked for. */
static void
client_opens(const char *directory)
{
    static const uint32_t lanes[1] = {2};
    const struct psd_table_args args = {
        .struct_size = sizeof(args), .name = "small", .dtype = PSD_F64, .dims = 1, .shape = {99}};
    struct psi_table_info info = {.id = 3};
    struct story story;

    psi_assert(psi_spec_init(&info.spec, &args, 2, NULL) == PSD_OK);
    psi_loads_init(&info.loads, 1, lanes);
    begin(&story, 0);
    own(&story, OWN_ASK, ASK_TABLE, 0, 0);
    SAY(&story, 0, answer(PSI_FRAME_TABLE_INFO), table_info, &info);
    own(&story, OWN_TRANSFER, DO_PULL, 128, 0);
    say(&story, 1, answer(PSI_FRAME_VALUE), 99 * 8, 1);
    write_seed(directory, "client", "open", story.bytes, story.used);
}

/* Deadlines pass while gradients and state still wait to leave. */
static void
client_gives_up(const char *directory)
{
    struct story story;

    begin(&story, 0);
    flow(&story, 1, WORLD_FLOW_SLOW);
    flow(&story, 2, WORLD_FLOW_SLOW);
    own(&story, OWN_TRANSFER, DO_STATE_PUSH, 1 | 2, 0);
    own(&story, OWN_TRANSFER, DO_PUSH, 1, 0);
    happen(&story, WORLD_WAIT, 60);
    flow(&story, 1, WORLD_FLOW_FAST);
    flow(&story, 2, WORLD_FLOW_FAST);
    write_seed(directory, "client", "give-up", story.bytes, story.used);
}

enum { CHOICE_HOST = 32, CHOICE_OTHER_SENDS = 64, OTHER = 3, BOTH_LANES = 3 };

static struct world_frame
neighbour_frame(unsigned code, unsigned step)
{
    return (struct world_frame){
        .type = (uint8_t)code,
        .dtype = PSD_F32,
        .step = (uint8_t)step,
        .seq = (uint8_t)(step + 1),
        .view = 1,
        .request = (uint8_t)(20 + step),
        .rank = 1,
        .incarnation = 1,
    };
}

static void
neighbour_joins(struct story *story, bool routes)
{
    const struct psi_hello hello = {
        .role = PSI_ROLE_WORKER, .rank = 1, .incarnation = 1, .life = 2, .job = 7};
    const struct psi_ranks lanes = {.word = {BOTH_LANES}};

    happen(story, WORLD_ACCEPT, 0);
    SAY(story, OTHER, type(PSI_FRAME_HELLO), hello, &hello);
    if (routes) {
        SAY(story, OTHER, neighbour_frame(PSI_FRAME_ROUTE, 0), ranks, &lanes);
    }
}

/* It pushes for its host: both give, and the value is for both; one asks, is late, and leaves. */
static void
client_sends_for_host(const char *directory)
{
    const struct psi_verdict verdict = {.status = PSD_PENDING, .text = "waits for worker 1"};
    struct world_frame empty = neighbour_frame(PSI_FRAME_PUSH, 1);
    struct story story;

    begin(&story, CHOICE_HOST);
    neighbour_joins(&story, true);
    own(&story, OWN_TRANSFER, DO_PUSH_PULL, 0, 0);
    happen(&story, WORLD_WAIT, 1);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_WHY, 0), 0, 0);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_PUSH_PULL, 0), CLIENT_SMALL_BYTES, 1);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_WANT, 0), 0, 0);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_WHY, 0), 0, 0);
    SAY(&story, 1, answer(PSI_FRAME_BECAUSE), verdict, &verdict);
    say(&story, 1, answer(PSI_FRAME_VALUE), CLIENT_SMALL_BYTES, 1);
    empty.flags = PSI_FLAG_EMPTY;
    say(&story, OTHER, empty, 0, 0);
    say(&story, OTHER, empty, 0, 0);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_PUSH, 2), CLIENT_SMALL_BYTES, 1);
    own(&story, OWN_TRANSFER, DO_PUSH, 0, 1);
    say(&story, 1, answer(PSI_FRAME_ACK), 0, 0);
    happen(&story, WORLD_HANG_UP, OTHER);
    own(&story, OWN_TRANSFER, DO_PUSH_PULL, 0, 2);
    happen(&story, WORLD_WAIT, 100);
    write_seed(directory, "client", "host", story.bytes, story.used);
    begin(&story, CHOICE_HOST);
    neighbour_joins(&story, true);
    own(&story, OWN_TRANSFER, DO_PUSH, 0, 0);
    happen(&story, WORLD_WAIT, 100); /* its own deadline passes */
    say(&story, OTHER, neighbour_frame(PSI_FRAME_PUSH_PULL, 0), CLIENT_SMALL_BYTES, 1);
    flow(&story, OTHER, WORLD_FLOW_FULL);
    say(&story, 1, answer(PSI_FRAME_VALUE), CLIENT_SMALL_BYTES, 1);
    write_seed(directory, "client", "host-late", story.bytes, story.used);
}

/* Neighbours that break the rules. */
static void
client_meets_neighbours(const char *directory)
{
    const struct psi_ranks lanes = {.word = {BOTH_LANES}};
    const struct psi_hello stranger = {
        .role = PSI_ROLE_WORKER, .rank = 0, .incarnation = 1, .life = 9, .job = 7};
    const struct psi_meta node = {.has_node = true, .node_first = 1, .node_leaves = 1};
    struct world_frame frame = neighbour_frame(PSI_FRAME_ROUTE, 0);
    struct story story;

    begin(&story, CHOICE_HOST);
    neighbour_joins(&story, false);
    frame.table = 7; /* was never offered */
    SAY(&story, OTHER, frame, ranks, &lanes);
    neighbour_joins(&story, false);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_ROUTE, 0), 3, 1);
    neighbour_joins(&story, true);
    say_node(&story, OTHER, neighbour_frame(PSI_FRAME_PUSH, 0), 0, &node, CLIENT_SMALL_BYTES);
    neighbour_joins(&story, true);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_PUSH, 0), CLIENT_SMALL_BYTES / 2, 1);
    neighbour_joins(&story, true);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_BARRIER, 0), 0, 0);
    neighbour_joins(&story, true);
    frame = neighbour_frame(PSI_FRAME_PUSH, 0);
    frame.rank = 0;
    say(&story, OTHER, frame, CLIENT_SMALL_BYTES, 1);
    happen(&story, WORLD_ACCEPT, 0);
    SAY(&story, OTHER, type(PSI_FRAME_HELLO), hello, &stranger);
    happen(&story, WORLD_ACCEPT, 0);
    say(&story, OTHER, neighbour_frame(PSI_FRAME_PUSH, 0), CLIENT_SMALL_BYTES, 1);
    write_seed(directory, "client", "neighbours", story.bytes, story.used);
}

/* It pushes through another worker, which asks for more, and leaves in the middle. */
static void
client_goes_through_host(const char *directory)
{
    const struct psi_ranks lanes = {.word = {BOTH_LANES}};
    struct world_frame want = answer(PSI_FRAME_WANT);
    struct world_frame later = type(PSI_FRAME_OFFER);
    struct story story;

    begin(&story, CHOICE_HOST | CHOICE_OTHER_SENDS);
    later.table = 5; /* not open yet */
    SAY(&story, OTHER, later, ranks, &lanes);
    SAY(&story, OTHER, type(PSI_FRAME_OFFER), ranks, &lanes);
    own(&story, OWN_TRANSFER, DO_PUSH_PULL, 0, 0);
    say(&story, 1, type(PSI_FRAME_WANT), 0, 0);
    say(&story, 1, type(PSI_FRAME_WANT), 0, 0);
    say(&story, OTHER, want, 0, 0);
    say(&story, OTHER, answer(PSI_FRAME_VALUE), CLIENT_SMALL_BYTES, 1);
    own(&story, OWN_TRANSFER, DO_PUSH, 0, 1);
    happen(&story, WORLD_WAIT, 20);
    happen(&story, WORLD_HANG_UP, OTHER);
    say(&story, 1, answer(PSI_FRAME_ACK), 0, 0);
    write_seed(directory, "client", "through-host", story.bytes, story.used);
    begin(&story, CHOICE_HOST | CHOICE_OTHER_SENDS);
    say(&story, OTHER, type(PSI_FRAME_OFFER), 3, 1);      /* damaged */
    SAY(&story, 1, type(PSI_FRAME_OFFER), ranks, &lanes); /* a server has none */
    write_seed(directory, "client", "bad-offer", story.bytes, story.used);
}

/* The same answer, damaged twice. */
static void
client_hears_nonsense(const char *directory)
{
    const struct psi_welcome welcome = {
        .incarnation = 1, .workers = 2, .servers = 1, .dead_ms = 60000, .job = 7};
    struct story story;

    begin(&story, 0);
    own(&story, OWN_ASK, ASK_NODES, 0, 0);
    say(&story, 0, answer(PSI_FRAME_NODES_INFO), 6, 1);
    happen(&story, WORLD_WAIT, 10);
    SAY(&story, 0, type(PSI_FRAME_WELCOME), welcome, &welcome);
    say(&story, 0, answer(PSI_FRAME_NODES_INFO), 6, 1);
    write_seed(directory, "client", "nonsense", story.bytes, story.used);
}

void
write_client_seeds(const char *directory)
{
    client_gives_up(directory);
    client_hears_nonsense(directory);
    client_trains(directory);
    client_waits(directory);
    client_asks(directory);
    client_joins(directory);
    client_opens(directory);
    client_sends_for_host(directory);
    client_meets_neighbours(directory);
    client_goes_through_host(directory);
}
