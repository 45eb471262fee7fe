/*
 * seeds.c - writes the first inputs of targets that read our own encodings: seeds DIRECTORY
 *
 * DIRECTORY/frame, message, rows, pieces, handshake, shm, lane, master and client must exist. The seeds of other
 * targets are files that people wrote.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/rows.h"

enum { SEED_BYTES_MAX = 8192 };

void
write_seed(const char *directory, const char *target, const char *name, const uint8_t *bytes,
           size_t size)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s/seed-%s", directory, target, name);
    file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
}

/* Behind the four bytes that fuzz_rows.c reads: rows of two numbers, one place, 2^10 buckets. */
static void
write_rows_of(const char *directory, const char *name, uint32_t pushed, uint32_t asked)
{
    enum { HEAD = 4, ROW_BYTES = 4 };
    uint8_t bytes[SEED_BYTES_MAX] = {1, 0, 0, 0};
    const struct psi_rows counts = {.pushed = pushed, .asked = asked, .gradients = pushed > 0};
    const struct psi_rows_room room = psi_rows_encode(bytes + HEAD, ROW_BYTES, &counts);
    uint64_t ids[16];

    for (uint64_t i = 0; i < 16; i++) {
        uint64_t to = i;

        for (; to > 0 && psi_bucket_before(i, ids[to - 1]); to--) {
            ids[to] = ids[to - 1];
        }
        ids[to] = i;
    }
    for (uint32_t i = 0; i < 16; i++) {
        if (i < pushed) {
            psi_store_u64(room.ids + 8 * i, ids[i]);
            memset(room.rows + ROW_BYTES * i, (int)i, ROW_BYTES);
        }
        if (i < asked) {
            psi_store_u64(room.asked_ids + 8 * i, ids[i]);
        }
    }
    write_seed(directory, "rows", name, bytes, HEAD + psi_rows_bytes(ROW_BYTES, pushed, asked));
}

static void
write_rows(const char *directory)
{
    write_rows_of(directory, "nothing", 0, 0);
    write_rows_of(directory, "push", 3, 0);
    write_rows_of(directory, "lookup", 0, 5);
    write_rows_of(directory, "both", 16, 16);
}

/* One header per type, reserved ones too, with more and more options behind it. */
static void
write_frames(const char *directory)
{
    static const struct {
        uint8_t type;
        const char *name;
    } types[] = {
#define TYPE(name, code, traits, text) {code, #name},
        PSI_FRAME_MAP(TYPE)
#undef TYPE
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const struct psi_meta meta = {
            .has_part = (i & 1) != 0,
            .part = 1,
            .has_deadline = (i & 2) != 0,
            .deadline_ms = 1000,
            .has_weight = (i & 4) != 0,
            .weight = 1.0f,
            .has_trace = (i & 8) != 0,
            .trace = i,
            .has_node = (i & 16) != 0,
            .node_first = 2,
            .node_leaves = 1,
        };
        uint8_t bytes[PSI_FRAME_BYTES + PSI_FRAME_META_MAX];
        const size_t meta_bytes = psi_meta_encode(&meta, bytes + PSI_FRAME_BYTES);
        const struct psi_frame frame = {
            .type = types[i].type,
            .flags = PSI_FLAG_CHECKSUM,
            .payload_bytes = 64,
            .meta_bytes = (uint16_t)meta_bytes,
            .dtype = PSD_F32,
            .seq = i,
            .step = 7,
            .view = 1,
            .request = 9,
        };

        psi_frame_encode(&frame, bytes);
        write_seed(directory, "frame", types[i].name, bytes, PSI_FRAME_BYTES + meta_bytes);
    }
}

/* The selector byte of fuzz_message.c. */
enum selector {
#define SELECTOR(name, type) SELECT_##name,
    PSI_MESSAGE_MAP(SELECTOR)
#undef SELECTOR
};

#define WRITE_SEED(directory, name, seed, message)                                                 \
    do {                                                                                           \
        uint8_t bytes_[SEED_BYTES_MAX] = {SELECT_##name};                                          \
        struct psi_pack pack_;                                                                     \
                                                                                                   \
        psi_pack_init(&pack_, bytes_ + 1, sizeof(bytes_) - 1);                                     \
        psi_##name##_encode(&pack_, message);                                                      \
        psi_assert(!pack_.overflow);                                                               \
        write_seed(directory, "message", seed, bytes_, 1 + pack_.used);                            \
    } while (0)

#define WRITE_MESSAGE(directory, name, message) WRITE_SEED(directory, name, #name, message)

static void
write_meeting(const char *directory)
{
    const struct psi_hello hello = {.role = PSI_ROLE_SERVER,
                                    .lane = 1,
                                    .lanes = 2,
                                    .address = "tcp://h:1",
                                    .build = "0.1.0",
                                    .tells = true,
                                    .in_time = true,
                                    .join_step = 700};
    const struct psi_welcome welcome = {.rank = 1,
                                        .incarnation = 1,
                                        .workers = 2,
                                        .servers = 2,
                                        .policy = PSI_DEATH_WAIT,
                                        .elastic = true,
                                        .size = 1};
    const struct psi_verdict verdict = {.status = PSD_ERR_REFUSED, .text = "rank 1 is taken"};
    const struct psi_ping ping = {.step = 3, .value = 0.5, .name = "loss"};
    const struct psi_share share = {.from = 1, .step = 3, .total = 64, .bytes = 32, .name = "w"};
    const struct psi_ranks ranks = {.word = {5, 1}};
    const struct psi_subscribe subscribe = {.every_ms = 500, .metrics = true};
    const struct psi_telling telling = {
        .step = 3,
        .metrics = 2,
        .metric = {{.metric = 1, .value = 5}, {.metric = 7, .value = 1000}},
        .names = 1,
        .name = {"loss"},
        .points = 1,
        .point = {{.step = 3, .value = 0.5}},
        .steps = 1,
        .times = {{.step = 2, .total_us = 900, .compute_us = 500, .server = 1}},
        .servers = 1,
        .server = {{.bytes_out = 64}},
        .tables = 1,
        .table = {{.id = 1, .bytes_in = 64}},
        .marks = 1,
        .mark = {"backward"},
        .spans = 2,
        .span = {{.kind = PSI_SPAN_PUSH, .what = 1, .step = 2, .begin_us = 7, .us = 5},
                 {.kind = PSI_SPAN_MARK, .step = 2, .begin_us = 8, .us = 2}},
        .waited = 1,
        .wait = {{.rank = 1, .ns = 64}},
    };

    WRITE_MESSAGE(directory, hello, &hello);
    WRITE_MESSAGE(directory, welcome, &welcome);
    WRITE_MESSAGE(directory, verdict, &verdict);
    WRITE_MESSAGE(directory, ping, &ping);
    WRITE_MESSAGE(directory, share, &share);
    WRITE_MESSAGE(directory, ranks, &ranks);
    WRITE_MESSAGE(directory, subscribe, &subscribe);
    WRITE_MESSAGE(directory, telling, &telling);
}

static void
write_views(const char *directory)
{
    struct psi_view_worker workers[2] = {{.incarnation = 1, .member = true}, {.incarnation = 2}};
    struct psi_view_place places[2] = {{.address = "tcp://h:1"}, {.lane = 1, .address = "tcp://h"}};
    struct psi_view_table tables[1] = {{.id = 1, .left_at = 4, .drop = true}};
    struct psi_given given[2] = {{.table = 1, .chunks = 3}, {.table = 2, .next_max = 1}};
    const struct psi_view view = {
        .id = 2,
        .workers = 2,
        .worker = workers,
        .places = 2,
        .place = places,
        .change = PSI_VIEW_WORKER_LEFT,
        .who = 1,
        .tables = 1,
        .table = tables,
    };
    const struct psi_propose propose = {.id = 2, .rank = 1, .joins = true};
    const struct psi_view_ack ack = {.id = 2, .tables = 2, .given = given};

    WRITE_MESSAGE(directory, view, &view);
    WRITE_MESSAGE(directory, propose, &propose);
    WRITE_MESSAGE(directory, view_ack, &ack);
}

/* More lanes than a job may have: no fuzzer gets there by chance. */
static void
write_too_many_places(const char *directory, struct psi_table_info info)
{
    info.loads.servers = PSI_PLACES_MAX / PSI_LANES_MAX + 1;
    info.loads.places = 0; /* their bytes are never looked at */
    for (uint32_t s = 0; s <= info.loads.servers; s++) {
        info.loads.first_place[s] = s * PSI_LANES_MAX;
    }
    WRITE_SEED(directory, table_info, "too-many-places", &info);
}

static void
write_table_and_nodes(const char *directory)
{
    const struct psd_table_args args = {
        .struct_size = sizeof(args),
        .name = "w",
        .dtype = PSD_F32,
        .dims = 2,
        .shape = {784, 10},
        .rule = &(struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args),
                                        .rule = PSD_RULE_ADAM},
    };
    struct psi_table_info info = {.id = 1, .loads = {.servers = 2, .places = 3}};
    struct psd_node workers[2] = {{.role = PSD_ROLE_MASTER, .state = PSD_NODE_RUNNING},
                                  {.role = PSD_ROLE_WORKER, .value_name = "loss"}};
    const struct psi_nodes nodes = {.count = 2, .node = workers};
    struct psd_error err;

    psi_assert(psi_spec_init(&info.spec, &args, 2, &err) == PSD_OK);
    info.loads.first_place[1] = 2;
    info.loads.first_place[2] = 3;
    WRITE_MESSAGE(directory, table_info, &info);
    write_too_many_places(directory, info);
    WRITE_MESSAGE(directory, nodes, &nodes);
}

static void
write_pairs(const char *directory)
{
    uint64_t next[2] = {3, 4};
    struct psi_mark marks[2] = {{1, 5}, {2, 6}};
    const struct psi_pair pair = {.server = 1, .lanes = 2, .life = 7, .address = "tcp://h:1"};
    const struct psi_change change = {
        .version = 3, .updates = 3, .gradients = 2, .in = {.word = {3}}, .in_parts = true};
    const struct psi_snapshot snapshot = {.version = 3,
                                          .updates = 3,
                                          .ready = true,
                                          .pushed = true,
                                          .ranks = 2,
                                          .next = next,
                                          .marked = 2,
                                          .marks = marks};
    struct psi_order_table order_table = {.id = 1, .begin = {128, 0, 256}};
    const struct psi_order order = {.token = 7,
                                    .bytes = {4096, 512},
                                    .tables = 1,
                                    .table = &order_table,
                                    .generation = 2,
                                    .after = 6};
    struct psi_written_table written_table = {.id = 1, .updates = 5};
    const struct psi_written written = {.news = PSI_WRITTEN_ALL,
                                        .bytes = {64, 64},
                                        .checksum = {1, 2},
                                        .tables = 1,
                                        .table = &written_table};
    const struct psi_written failed = {.news = PSI_WRITTEN_FAILED, .text = "disk full"};
    uint32_t sums[2] = {3, 4};
    const struct psi_blocks blocks = {.file = 1, .count = 2, .checksum = sums};
    const struct psi_part part = {.token = 7, .every = 1000, .text = "/shared/run7"};
    struct psi_earlier_bytes earlier[2] = {{1, 64, 128}, {2, 128, 256}};
    const struct psi_refers refers = {.file = 1, .count = 2, .bytes = earlier};
    struct psi_saved_file file = {.table = 1,
                                  .generation = 2,
                                  .number = 3,
                                  .end_bucket = 1024,
                                  .rows = 5,
                                  .bytes = 1000,
                                  .checksum = 7};
    const struct psi_rows_saved saved = {.place = 1, .count = 1, .file = &file};
    const struct psi_step_state state = {.value = 9, .rank = 1, .count = 1, .add = {{1, 4, 9}}};

    WRITE_MESSAGE(directory, pair, &pair);
    WRITE_MESSAGE(directory, change, &change);
    WRITE_MESSAGE(directory, snapshot, &snapshot);
    WRITE_MESSAGE(directory, step_state, &state);
    WRITE_MESSAGE(directory, order, &order);
    WRITE_MESSAGE(directory, written, &written);
    WRITE_SEED(directory, written, "written_failed", &failed);
    WRITE_MESSAGE(directory, blocks, &blocks);
    WRITE_MESSAGE(directory, part, &part);
    WRITE_MESSAGE(directory, refers, &refers);
    WRITE_MESSAGE(directory, rows_saved, &saved);
}

int
main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: seeds DIRECTORY\n");
        return EXIT_FAILURE;
    }
    write_frames(argv[1]);
    write_rows(argv[1]);
    write_meeting(argv[1]);
    write_views(argv[1]);
    write_table_and_nodes(argv[1]);
    write_pairs(argv[1]);
    write_pieces_seeds(argv[1]);
    write_handshake_seeds(argv[1]);
    write_shm_seeds(argv[1]);
    write_lane_seeds(argv[1]);
    write_master_seeds(argv[1]);
    write_client_seeds(argv[1]);
    return EXIT_SUCCESS;
}
