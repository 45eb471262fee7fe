/*
 * fuzz_message.c - the bodies of control frames. The first byte chooses the message, in the order
 * of PSI_MESSAGE_MAP; the rest is the body.
 *
 * A body has one encoding only, so encoding what was decoded must give back the same bytes (less
 * what followed the last field), and these must decode again. Lists land in heap blocks of exactly
 * the room that message.h promises.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "fuzz.h"
#include "wire/message.h"

enum { LISTS_MAX = 3 };

/* A message of any kind, and the arrays its lists point to. */
struct message {
    union {
#define MEMBER(name, type) type name;
        PSI_MESSAGE_MAP(MEMBER)
#undef MEMBER
    } body;
    void *list[LISTS_MAX];
};

static void *
make_list(struct message *message, size_t count, size_t bytes)
{
    void *list = calloc(count, bytes);
    size_t i = 0;

    psi_assert(list != NULL);
    while (message->list[i] != NULL) {
        i++;
    }
    message->list[i] = list;
    return list;
}

static void
make_no_lists(struct message *message)
{
    (void)message;
}

static void
make_view_lists(struct message *message)
{
    struct psi_view *view = &message->body.view;

    view->worker = make_list(message, PSI_RANKS_MAX, sizeof(*view->worker));
    view->place = make_list(message, PSI_PLACES_MAX, sizeof(*view->place));
    view->table = make_list(message, PSI_TABLES_MAX, sizeof(*view->table));
}

static void
make_view_ack_lists(struct message *message)
{
    struct psi_view_ack *ack = &message->body.view_ack;

    ack->given = make_list(message, PSI_TABLES_MAX, sizeof(*ack->given));
}

static void
make_nodes_lists(struct message *message)
{
    struct psi_nodes *nodes = &message->body.nodes;

    nodes->node = make_list(message, PSI_RANKS_MAX + PSI_SERVERS_MAX + 1, sizeof(*nodes->node));
}

static void
make_adopt_lists(struct message *message)
{
    struct psi_adopt *adopt = &message->body.adopt;

    adopt->run = make_list(message, PSI_ADOPT_RUNS_MAX, sizeof(*adopt->run));
}

static void
make_results_lists(struct message *message)
{
    struct psi_results *results = &message->body.results;

    results->result = make_list(message, PSI_RESULTS_MAX, sizeof(*results->result));
}

static void
make_snapshot_lists(struct message *message)
{
    struct psi_snapshot *snapshot = &message->body.snapshot;

    snapshot->next = make_list(message, PSI_RANKS_MAX, sizeof(*snapshot->next));
    snapshot->marks = make_list(message, PSI_RANKS_MAX, sizeof(*snapshot->marks));
}

static void
make_order_lists(struct message *message)
{
    struct psi_order *order = &message->body.order;

    order->table = make_list(message, PSI_TABLES_MAX, sizeof(*order->table));
}

static void
make_written_lists(struct message *message)
{
    struct psi_written *written = &message->body.written;

    written->table = make_list(message, PSI_TABLES_MAX, sizeof(*written->table));
}

static void
make_blocks_lists(struct message *message)
{
    struct psi_blocks *blocks = &message->body.blocks;

    blocks->checksum = make_list(message, PSI_BLOCKS_MAX, sizeof(*blocks->checksum));
}

static void
make_refers_lists(struct message *message)
{
    struct psi_refers *refers = &message->body.refers;

    refers->bytes = make_list(message, PSI_EARLIER_MAX, sizeof(*refers->bytes));
}

static void
make_rows_saved_lists(struct message *message)
{
    struct psi_rows_saved *saved = &message->body.rows_saved;

    saved->file = make_list(message, PSI_ROWS_SAVED_MAX, sizeof(*saved->file));
}

#define CALLS(name, type)                                                                          \
    static void name##_encode(struct psi_pack *pack, const struct message *message)                \
    {                                                                                              \
        psi_##name##_encode(pack, &message->body.name);                                            \
    }                                                                                              \
    static psd_status name##_decode(const uint8_t *bytes, size_t size, struct message *message,    \
                                    struct psd_error *err)                                         \
    {                                                                                              \
        return psi_##name##_decode(bytes, size, &message->body.name, err);                         \
    }
PSI_MESSAGE_MAP(CALLS)
#undef CALLS

#define make_hello_lists        make_no_lists
#define make_welcome_lists      make_no_lists
#define make_verdict_lists      make_no_lists
#define make_ping_lists         make_no_lists
#define make_propose_lists      make_no_lists
#define make_table_info_lists   make_no_lists
#define make_share_lists        make_no_lists
#define make_ranks_lists        make_no_lists
#define make_subscribe_lists    make_no_lists
#define make_lane_state_lists   make_no_lists
#define make_worker_state_lists make_no_lists
#define make_telling_lists      make_no_lists
#define make_pair_lists         make_no_lists
#define make_change_lists       make_no_lists
#define make_step_state_lists   make_no_lists
#define make_done_lists         make_no_lists
#define make_part_lists         make_no_lists

static const struct {
    void (*make_lists)(struct message *message);
    void (*encode)(struct psi_pack *pack, const struct message *message);
    psd_status (*decode)(const uint8_t *bytes, size_t size, struct message *message,
                         struct psd_error *err);
} kinds[] = {
#define KIND(name, type) {make_##name##_lists, name##_encode, name##_decode},
    PSI_MESSAGE_MAP(KIND)
#undef KIND
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* The message says no more than its bytes did, and in the same bytes; but for what was appended later
 * (psi_unpack_tail; the ends of steps in METRICS), which may be missing, and reads as 0 then. */
static void
check_same_bytes(unsigned kind, struct message *message, const uint8_t *bytes, size_t size)
{
    enum { TAIL_BYTES = 4 + 8 * PSI_STEPS_MAX };
    uint8_t *again = malloc(size + TAIL_BYTES);
    struct psd_error err;
    struct psi_pack pack;

    psi_assert(again != NULL);
    psi_pack_init(&pack, again, size + TAIL_BYTES);
    kinds[kind].encode(&pack, message);
    psi_assert(!pack.overflow);
    psi_assert(memcmp(again, bytes, pack.used < size ? pack.used : size) == 0);
    psi_assert(pack.used <= size || again[pack.used - 1] == 0);
    psi_assert(kinds[kind].decode(again, pack.used, message, &err) == PSD_OK);
    psi_pack_init(&pack, again, pack.used - 1); /* one byte too few */
    kinds[kind].encode(&pack, message);
    psi_assert(pack.overflow);
    free(again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct message message;
    struct psd_error err;
    unsigned kind;

    if (size == 0) {
        return 0;
    }
    memset(&message, 0, sizeof(message));
    kind = data[0] % KINDS;
    kinds[kind].make_lists(&message);
    if (kinds[kind].decode(data + 1, size - 1, &message, &err) == PSD_OK) {
        check_same_bytes(kind, &message, data + 1, size - 1);
    } else {
        psi_assert(err.status == PSD_ERR_PROTOCOL);
        psi_assert(err.text[0] != '\0');
    }
    for (size_t i = 0; i < LISTS_MAX; i++) {
        free(message.list[i]);
    }
    return 0;
}
