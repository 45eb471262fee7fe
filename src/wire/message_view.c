/*
 * message_view.c - membership: VIEW_PROPOSE, VIEW_ACK, VIEW_COMMIT, and CLOSE's set of ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "wire/pack.h"

enum { RANK_WORDS = PSI_RANKS_MAX / 64 };

static bool
is_about_a_worker(const struct psi_view *view)
{
    return view->change == PSI_VIEW_WORKER_LEFT || view->change == PSI_VIEW_WORKER_REPLACED ||
           view->change == PSI_VIEW_WORKER_JOINED;
}

static void
pack_change(struct psi_pack *pack, const struct psi_view *view)
{
    const uint32_t tables = is_about_a_worker(view) ? view->tables : 0;

    psi_pack_u8(pack, (uint8_t)view->change);
    psi_pack_u32(pack, view->change == PSI_VIEW_FIRST ? 0 : view->who);
    psi_pack_u32(pack, tables);
    for (uint32_t i = 0; i < tables; i++) {
        psi_pack_u32(pack, view->table[i].id);
        psi_pack_u64(pack, view->table[i].left_at);
        psi_pack_bool(pack, view->table[i].drop);
    }
}

void
psi_view_encode(struct psi_pack *pack, const struct psi_view *view)
{
    psi_pack_u32(pack, view->id);
    psi_pack_u32(pack, view->workers);
    for (uint32_t i = 0; i < view->workers; i++) {
        psi_pack_u32(pack, view->worker[i].incarnation);
        psi_pack_bool(pack, view->worker[i].member);
        psi_pack_u64(pack, view->worker[i].host);
        psi_pack_string(pack, view->worker[i].address, sizeof(view->worker[i].address));
    }
    psi_pack_u32(pack, view->places);
    for (uint32_t i = 0; i < view->places; i++) {
        const struct psi_view_place *place = &view->place[i];

        psi_pack_u32(pack, place->server);
        psi_pack_u32(pack, place->lane);
        psi_pack_u32(pack, place->incarnation);
        psi_pack_string(pack, place->address, sizeof(place->address));
    }
    pack_change(pack, view);
    for (uint32_t i = 0; i < view->places; i++) {
        psi_pack_u64(pack, view->place[i].process);
    }
    psi_pack_u32(pack, view->changes);
    for (uint32_t i = 0; i < view->workers; i++) {
        psi_pack_u64(pack, view->worker[i].counts_from);
        psi_pack_u64(pack, view->worker[i].counts_until);
    }
}

static void
unpack_members(struct psi_unpack *unpack, struct psi_view *view)
{
    view->workers = psi_unpack_u32(unpack, "workers", 0, PSI_RANKS_MAX);
    for (uint32_t i = 0; i < view->workers && unpack->status == PSD_OK; i++) {
        struct psi_view_worker *worker = &view->worker[i];

        worker->incarnation = psi_unpack_u32(unpack, "worker.incarnation", 0, UINT16_MAX);
        worker->member = psi_unpack_bool(unpack, "worker.member");
        worker->host = psi_unpack_u64(unpack, "worker.host");
        psi_unpack_string(unpack, "worker.address", worker->address, sizeof(worker->address));
    }
    view->places = psi_unpack_u32(unpack, "places", 0, PSI_PLACES_MAX);
    for (uint32_t i = 0; i < view->places && unpack->status == PSD_OK; i++) {
        struct psi_view_place *place = &view->place[i];

        place->server = psi_unpack_u32(unpack, "place.server", 0, PSI_SERVERS_MAX - 1);
        place->lane = psi_unpack_u32(unpack, "place.lane", 0, PSI_LANES_MAX - 1);
        place->incarnation = psi_unpack_u32(unpack, "place.incarnation", 0, UINT16_MAX);
        psi_unpack_string(unpack, "place.address", place->address, sizeof(place->address));
    }
}

/* Whom a change may be about. */
static uint32_t
who_max(const struct psi_view *view)
{
    if (is_about_a_worker(view)) {
        return view->workers > 0 ? view->workers - 1 : 0;
    }
    return view->change == PSI_VIEW_SERVER_BACK ? PSI_SERVERS_MAX - 1 : 0;
}

static void
unpack_change(struct psi_unpack *unpack, struct psi_view *view)
{
    view->change = psi_unpack_u8(unpack, "change", 0, PSI_VIEW_CHANGES - 1);
    view->who = psi_unpack_u32(unpack, "who", 0, who_max(view));
    view->tables =
        psi_unpack_u32(unpack, "tables", 0, is_about_a_worker(view) ? PSI_TABLES_MAX : 0);
    for (uint32_t i = 0; i < view->tables && unpack->status == PSD_OK; i++) {
        view->table[i].id = psi_unpack_u32(unpack, "table.id", 0, UINT32_MAX);
        view->table[i].left_at = psi_unpack_u64(unpack, "table.left_at");
        view->table[i].drop = psi_unpack_bool(unpack, "table.drop");
    }
}

/* Appended within the version. */
static void
unpack_processes(struct psi_unpack *unpack, struct psi_view *view)
{
    const bool is_told = unpack->left > 0;

    for (uint32_t i = 0; i < view->places && unpack->status == PSD_OK; i++) {
        view->place[i].process = is_told ? psi_unpack_u64(unpack, "place.process") : 0;
    }
}

/* Likewise. */
static void
unpack_counts(struct psi_unpack *unpack, struct psi_view *view)
{
    const bool is_told = unpack->left > 0;

    view->changes = is_told ? psi_unpack_u32(unpack, "changes", 0, UINT32_MAX) : 0;
    for (uint32_t i = 0; i < view->workers && unpack->status == PSD_OK; i++) {
        view->worker[i].counts_from = is_told ? psi_unpack_u64(unpack, "worker.counts_from") : 0;
        view->worker[i].counts_until = is_told ? psi_unpack_u64(unpack, "worker.counts_until") : 0;
    }
}

psd_status
psi_view_decode(const uint8_t *bytes, size_t size, struct psi_view *view_p, struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "VIEW_COMMIT", bytes, size, err);
    view_p->id = psi_unpack_u32(&unpack, "id", 0, UINT32_MAX);
    unpack_members(&unpack, view_p);
    unpack_change(&unpack, view_p);
    unpack_processes(&unpack, view_p);
    unpack_counts(&unpack, view_p);
    return unpack.status;
}

psd_status
psi_view_decode_new(const uint8_t *bytes, size_t size, struct psi_view *view_p,
                    struct psd_error *err)
{
    psd_status status;

    *view_p = (struct psi_view){
        .worker = calloc(PSI_RANKS_MAX, sizeof(*view_p->worker)),
        .place = calloc(PSI_PLACES_MAX, sizeof(*view_p->place)),
        .table = calloc(PSI_TABLES_MAX, sizeof(*view_p->table)),
    };
    if (view_p->worker == NULL || view_p->place == NULL || view_p->table == NULL) {
        status = psi_fail(err, PSD_ERR_NO_MEMORY, "VIEW_COMMIT: no memory");
    } else {
        status = psi_view_decode(bytes, size, view_p, err);
    }
    if (status != PSD_OK) {
        psi_view_fini(view_p);
    }
    return status;
}

void
psi_propose_encode(struct psi_pack *pack, const struct psi_propose *propose)
{
    psi_pack_u32(pack, propose->id);
    psi_pack_u32(pack, propose->rank);
    psi_pack_bool(pack, propose->leaves);
    psi_pack_tail(pack, propose->joins);
}

psd_status
psi_propose_decode(const uint8_t *bytes, size_t size, struct psi_propose *propose_p,
                   struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "VIEW_PROPOSE", bytes, size, err);
    propose_p->id = psi_unpack_u32(&unpack, "id", 0, UINT32_MAX);
    propose_p->rank = psi_unpack_u32(&unpack, "rank", 0, PSI_RANKS_MAX - 1);
    propose_p->leaves = psi_unpack_bool(&unpack, "leaves");
    propose_p->joins = psi_unpack_tail(&unpack, "joins");
    if (propose_p->leaves && propose_p->joins) {
        psi_unpack_refuse(&unpack, "joins", "and leaves");
    }
    return unpack.status;
}

void
psi_view_ack_encode(struct psi_pack *pack, const struct psi_view_ack *ack)
{
    psi_pack_u32(pack, ack->id);
    psi_pack_u32(pack, ack->tables);
    for (uint32_t i = 0; i < ack->tables; i++) {
        const struct psi_given *given = &ack->given[i];

        psi_pack_u32(pack, given->table);
        psi_pack_u64(pack, given->chunks);
        psi_pack_u64(pack, given->next_min);
        psi_pack_u64(pack, given->next_max);
        psi_pack_u64(pack, given->ahead);
        psi_pack_u64(pack, given->closed);
    }
}

static void
unpack_given(struct psi_unpack *unpack, struct psi_given *given)
{
    given->table = psi_unpack_u32(unpack, "given.table", 0, UINT32_MAX);
    given->chunks = psi_unpack_u64(unpack, "given.chunks");
    given->next_min = psi_unpack_u64(unpack, "given.next_min");
    given->next_max = psi_unpack_u64(unpack, "given.next_max");
    given->ahead = psi_unpack_u64(unpack, "given.ahead");
    given->closed = psi_unpack_u64(unpack, "given.closed");
}

psd_status
psi_view_ack_decode(const uint8_t *bytes, size_t size, struct psi_view_ack *ack_p,
                    struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "VIEW_ACK", bytes, size, err);
    ack_p->id = psi_unpack_u32(&unpack, "id", 0, UINT32_MAX);
    ack_p->tables = psi_unpack_u32(&unpack, "tables", 0, PSI_TABLES_MAX);
    for (uint32_t i = 0; i < ack_p->tables && unpack.status == PSD_OK; i++) {
        unpack_given(&unpack, &ack_p->given[i]);
    }
    return unpack.status;
}

/* As many words as it takes: a job of 64 workers sends one. */
void
psi_ranks_encode(struct psi_pack *pack, const struct psi_ranks *ranks)
{
    uint32_t words = RANK_WORDS;

    while (words > 0 && ranks->word[words - 1] == 0) {
        words--;
    }
    psi_pack_u32(pack, words);
    for (uint32_t i = 0; i < words; i++) {
        psi_pack_u64(pack, ranks->word[i]);
    }
}

static void
unpack_ranks(struct psi_unpack *unpack, struct psi_ranks *ranks)
{
    const uint32_t words = psi_unpack_u32(unpack, "words", 0, RANK_WORDS);

    memset(ranks, 0, sizeof(*ranks));
    for (uint32_t i = 0; i < words; i++) {
        ranks->word[i] = psi_unpack_u64(unpack, "word");
    }
    if (words > 0 && ranks->word[words - 1] == 0) {
        psi_unpack_refuse(unpack, "words", "the last of %u is empty", words);
    }
}

psd_status
psi_ranks_decode(const uint8_t *bytes, size_t size, struct psi_ranks *ranks_p,
                 struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "ranks", bytes, size, err);
    unpack_ranks(&unpack, ranks_p);
    return unpack.status;
}

static void
pack_crossed(struct psi_pack *pack, const struct psi_crossed *crossed)
{
    psi_pack_u32(pack, crossed->places);
    for (uint32_t i = 0; i < crossed->places; i++) {
        psi_pack_u64(pack, crossed->number[i]);
    }
}

static void
unpack_crossed(struct psi_unpack *unpack, struct psi_crossed *crossed)
{
    crossed->places = psi_unpack_u32(unpack, "crossed", 0, PSI_PLACES_MAX);
    for (uint32_t i = 0; i < crossed->places && unpack->status == PSD_OK; i++) {
        crossed->number[i] = psi_unpack_u64(unpack, "crossed.number");
    }
}

void
psi_lane_state_encode(struct psi_pack *pack, const struct psi_lane_state *state)
{
    psi_pack_bool(pack, state->frozen);
    psi_pack_u64(pack, state->load_barriers);
    psi_ranks_encode(pack, &state->done);
    psi_pack_u64(pack, state->pair);
    psi_pack_bool(pack, state->is_eligible);
    pack_crossed(pack, &state->crossed);
}

psd_status
psi_lane_state_decode(const uint8_t *bytes, size_t size, struct psi_lane_state *state_p,
                      struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "LANE_STATE", bytes, size, err);
    state_p->frozen = psi_unpack_bool(&unpack, "frozen");
    state_p->load_barriers = psi_unpack_u64(&unpack, "load_barriers");
    unpack_ranks(&unpack, &state_p->done);
    state_p->pair = psi_unpack_u64(&unpack, "pair");
    state_p->is_eligible = psi_unpack_bool(&unpack, "is_eligible");
    unpack_crossed(&unpack, &state_p->crossed);
    return unpack.status;
}

void
psi_done_encode(struct psi_pack *pack, const struct psi_done *done)
{
    psi_ranks_encode(pack, &done->ranks);
    pack_crossed(pack, &done->crossed);
}

psd_status
psi_done_decode(const uint8_t *bytes, size_t size, struct psi_done *done_p, struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "DONE", bytes, size, err);
    unpack_ranks(&unpack, &done_p->ranks);
    unpack_crossed(&unpack, &done_p->crossed);
    return unpack.status;
}

void
psi_worker_state_encode(struct psi_pack *pack, const struct psi_worker_state *state)
{
    psi_pack_u64(pack, state->before);
    for (unsigned kind = 0; kind < PSI_BARRIER_KINDS; kind++) {
        psi_pack_u64(pack, state->come[kind]);
        psi_pack_u64(pack, state->passed[kind]);
    }
}

psd_status
psi_worker_state_decode(const uint8_t *bytes, size_t size, struct psi_worker_state *state_p,
                        struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "WORKER_STATE", bytes, size, err);
    state_p->before = psi_unpack_u64(&unpack, "before");
    for (unsigned kind = 0; kind < PSI_BARRIER_KINDS; kind++) {
        state_p->come[kind] = psi_unpack_u64(&unpack, "come");
        state_p->passed[kind] = psi_unpack_u64(&unpack, "passed");
        if (state_p->passed[kind] > state_p->come[kind]) {
            psi_unpack_refuse(&unpack, "passed", "more than it has come to");
        }
    }
    return unpack.status;
}
