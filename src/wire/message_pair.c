/*
 * message_pair.c - copies of lanes: PAIR, REPLICATE, SNAPSHOT, STEP_STATE.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "wire/pack.h"

enum {
    RANK_WORDS = PSI_RANKS_MAX / 64,
    NUMBERS_ALIGN = 64, /* numbers behind a body begin at a multiple of it */
    CHANGE_FIELDS = 52, /* bytes of a change beside its ranks */
    SNAPSHOT_FIELDS = 26,
};

_Static_assert(CHANGE_FIELDS + 8 * RANK_WORDS <= PSI_CHANGE_BYTES, "a change has room");

void
psi_pair_encode(struct psi_pack *pack, const struct psi_pair *pair)
{
    psi_pack_u32(pack, pair->server);
    psi_pack_u32(pack, pair->lane);
    psi_pack_u32(pack, pair->lanes);
    psi_pack_u64(pack, pair->life);
    psi_pack_string(pack, pair->address, sizeof(pair->address));
}

psd_status
psi_pair_decode(const uint8_t *bytes, size_t size, struct psi_pair *pair_p, struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "PAIR", bytes, size, err);
    pair_p->server = psi_unpack_u32(&unpack, "server", 0, PSI_SERVERS_MAX - 1);
    pair_p->lane = psi_unpack_u32(&unpack, "lane", 0, PSI_LANES_MAX - 1);
    pair_p->lanes = psi_unpack_u32(&unpack, "lanes", 1, PSI_LANES_MAX);
    pair_p->life = psi_unpack_u64(&unpack, "life");
    psi_unpack_string(&unpack, "address", pair_p->address, sizeof(pair_p->address));
    return unpack.status;
}

void
psi_change_encode(struct psi_pack *pack, const struct psi_change *change)
{
    psi_pack_u64(pack, change->version);
    psi_pack_u64(pack, change->updates);
    psi_pack_u64(pack, change->step);
    psi_pack_u32(pack, change->gradients);
    psi_pack_bool(pack, change->is_empty);
    psi_pack_bool(pack, change->is_real);
    psi_pack_u32(pack, change->rank);
    psi_pack_u32(pack, change->incarnation);
    psi_pack_u64(pack, change->sequence);
    for (unsigned i = 0; i < RANK_WORDS; i++) {
        psi_pack_u64(pack, change->in.word[i]);
    }
    psi_pack_u32(pack, change->rows);
    psi_pack_bool(pack, change->goes_on);
    psi_pack_bool(pack, change->in_parts);
}

psd_status
psi_change_decode(const uint8_t *bytes, size_t size, struct psi_change *change_p,
                  struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "REPLICATE", bytes, size, err);
    change_p->version = psi_unpack_u64(&unpack, "version");
    change_p->updates = psi_unpack_u64(&unpack, "updates");
    change_p->step = psi_unpack_u64(&unpack, "step");
    change_p->gradients = psi_unpack_u32(&unpack, "gradients", 0, PSI_RANKS_MAX);
    change_p->is_empty = psi_unpack_bool(&unpack, "is_empty");
    change_p->is_real = psi_unpack_bool(&unpack, "is_real");
    change_p->rank = psi_unpack_u32(&unpack, "rank", 0, PSI_RANKS_MAX - 1);
    change_p->incarnation = psi_unpack_u32(&unpack, "incarnation", 0, UINT16_MAX);
    change_p->sequence = psi_unpack_u64(&unpack, "sequence");
    for (unsigned i = 0; i < RANK_WORDS; i++) {
        change_p->in.word[i] = psi_unpack_u64(&unpack, "in");
    }
    change_p->rows = psi_unpack_u32(&unpack, "rows", 0, UINT32_MAX);
    change_p->goes_on = psi_unpack_bool(&unpack, "goes_on");
    change_p->in_parts = psi_unpack_bool(&unpack, "in_parts");
    return unpack.status;
}

size_t
psi_snapshot_bytes(uint32_t ranks, uint32_t marked)
{
    const size_t bytes = SNAPSHOT_FIELDS + 8 * (size_t)ranks + 12 * (size_t)marked;

    return (bytes + NUMBERS_ALIGN - 1) / NUMBERS_ALIGN * NUMBERS_ALIGN;
}

void
psi_snapshot_encode(struct psi_pack *pack, const struct psi_snapshot *snapshot)
{
    psi_pack_u64(pack, snapshot->version);
    psi_pack_u64(pack, snapshot->updates);
    psi_pack_bool(pack, snapshot->ready);
    psi_pack_bool(pack, snapshot->pushed);
    psi_pack_u32(pack, snapshot->ranks);
    for (uint32_t rank = 0; rank < snapshot->ranks; rank++) {
        psi_pack_u64(pack, snapshot->next[rank]);
    }
    psi_pack_u32(pack, snapshot->marked);
    for (uint32_t rank = 0; rank < snapshot->marked; rank++) {
        psi_pack_u32(pack, snapshot->marks[rank].incarnation);
        psi_pack_u64(pack, snapshot->marks[rank].sequence);
    }
}

psd_status
psi_snapshot_decode(const uint8_t *bytes, size_t size, struct psi_snapshot *snapshot_p,
                    struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "SNAPSHOT", bytes, size, err);
    snapshot_p->version = psi_unpack_u64(&unpack, "version");
    snapshot_p->updates = psi_unpack_u64(&unpack, "updates");
    snapshot_p->ready = psi_unpack_bool(&unpack, "ready");
    snapshot_p->pushed = psi_unpack_bool(&unpack, "pushed");
    snapshot_p->ranks = psi_unpack_u32(&unpack, "ranks", 0, PSI_RANKS_MAX);
    for (uint32_t rank = 0; rank < snapshot_p->ranks && unpack.status == PSD_OK; rank++) {
        snapshot_p->next[rank] = psi_unpack_u64(&unpack, "next");
    }
    snapshot_p->marked = psi_unpack_u32(&unpack, "marked", 0, PSI_RANKS_MAX);
    for (uint32_t rank = 0; rank < snapshot_p->marked && unpack.status == PSD_OK; rank++) {
        snapshot_p->marks[rank].incarnation =
            psi_unpack_u32(&unpack, "mark.incarnation", 0, UINT16_MAX);
        snapshot_p->marks[rank].sequence = psi_unpack_u64(&unpack, "mark.sequence");
    }
    return unpack.status;
}

void
psi_step_state_encode(struct psi_pack *pack, const struct psi_step_state *state)
{
    psi_pack_u64(pack, state->value);
    psi_pack_u32(pack, state->rank);
    psi_pack_u32(pack, state->count);
    for (uint32_t i = 0; i < state->count; i++) {
        psi_pack_u32(pack, state->add[i].incarnation);
        psi_pack_u64(pack, state->add[i].sequence);
        psi_pack_u64(pack, state->add[i].result);
    }
}

psd_status
psi_step_state_decode(const uint8_t *bytes, size_t size, struct psi_step_state *state_p,
                      struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "STEP_STATE", bytes, size, err);
    state_p->value = psi_unpack_u64(&unpack, "value");
    state_p->rank = psi_unpack_u32(&unpack, "rank", 0, PSI_RANKS_MAX - 1);
    state_p->count = psi_unpack_u32(&unpack, "count", 0, PSI_STEP_ADDS_MAX);
    for (uint32_t i = 0; i < state_p->count && unpack.status == PSD_OK; i++) {
        state_p->add[i].incarnation = psi_unpack_u32(&unpack, "add.incarnation", 0, UINT16_MAX);
        state_p->add[i].sequence = psi_unpack_u64(&unpack, "add.sequence");
        state_p->add[i].result = psi_unpack_u64(&unpack, "add.result");
    }
    return unpack.status;
}
