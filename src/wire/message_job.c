/*
 * message_job.c - the job as a whole: NODES_INFO and SUBSCRIBE, and SHARE_PULL, by which a
 * replacement asks a live worker for its published state.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <psd/psd.h>

#include "wire/frame.h"
#include "wire/pack.h"

enum { NODES_MAX = PSI_RANKS_MAX + PSI_SERVERS_MAX + 1 };

static void
pack_node(struct psi_pack *pack, const struct psd_node *node)
{
    psi_pack_u8(pack, (uint8_t)node->role);
    psi_pack_u32(pack, node->rank);
    psi_pack_u8(pack, (uint8_t)node->state);
    psi_pack_u32(pack, node->incarnation);
    psi_pack_u64(pack, node->step);
    psi_pack_f64(pack, node->steps_per_s);
    psi_pack_f64(pack, node->value);
    psi_pack_string(pack, node->value_name, sizeof(node->value_name));
    psi_pack_string(pack, node->address, sizeof(node->address));
}

void
psi_nodes_encode(struct psi_pack *pack, const struct psi_nodes *nodes)
{
    psi_pack_u32(pack, nodes->count);
    for (uint32_t i = 0; i < nodes->count; i++) {
        pack_node(pack, &nodes->node[i]);
    }
    psi_pack_u32(pack, nodes->readers);
}

static void
unpack_node(struct psi_unpack *unpack, struct psd_node *node)
{
    node->role = psi_unpack_u8(unpack, "node.role", PSD_ROLE_MASTER, PSD_ROLE_WORKER);
    node->rank = psi_unpack_u32(unpack, "node.rank", 0, PSI_RANKS_MAX - 1);
    node->state = psi_unpack_u8(unpack, "node.state", PSD_NODE_MISSING, PSD_NODE_LOST);
    node->incarnation = psi_unpack_u32(unpack, "node.incarnation", 0, UINT16_MAX);
    node->step = psi_unpack_u64(unpack, "node.step");
    node->steps_per_s = psi_unpack_f64(unpack, "node.steps_per_s");
    node->value = psi_unpack_f64(unpack, "node.value");
    psi_unpack_string(unpack, "node.value_name", node->value_name, sizeof(node->value_name));
    psi_unpack_string(unpack, "node.address", node->address, sizeof(node->address));
}

psd_status
psi_nodes_decode(const uint8_t *bytes, size_t size, struct psi_nodes *nodes_p,
                 struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "NODES_INFO", bytes, size, err);
    nodes_p->count = psi_unpack_u32(&unpack, "count", 0, NODES_MAX);
    for (uint32_t i = 0; i < nodes_p->count && unpack.status == PSD_OK; i++) {
        unpack_node(&unpack, &nodes_p->node[i]);
    }
    nodes_p->readers = unpack.left > 0 ? psi_unpack_u32(&unpack, "readers", 0, UINT32_MAX) : 0;
    return unpack.status;
}

void
psi_subscribe_encode(struct psi_pack *pack, const struct psi_subscribe *subscribe)
{
    psi_pack_u32(pack, subscribe->every_ms);
    psi_pack_tail(pack, subscribe->metrics);
}

psd_status
psi_subscribe_decode(const uint8_t *bytes, size_t size, struct psi_subscribe *subscribe_p,
                     struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "SUBSCRIBE", bytes, size, err);
    subscribe_p->every_ms = psi_unpack_u32(&unpack, "every_ms", 0, UINT32_MAX);
    subscribe_p->metrics = psi_unpack_tail(&unpack, "metrics");
    return unpack.status;
}

void
psi_share_encode(struct psi_pack *pack, const struct psi_share *share)
{
    psi_pack_u32(pack, share->from);
    psi_pack_u64(pack, share->step);
    psi_pack_u64(pack, share->offset);
    psi_pack_u64(pack, share->total);
    psi_pack_u32(pack, share->bytes);
    psi_pack_string(pack, share->name, sizeof(share->name));
}

psd_status
psi_share_decode(const uint8_t *bytes, size_t size, struct psi_share *share_p,
                 struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "SHARE_PULL", bytes, size, err);
    share_p->from = psi_unpack_u32(&unpack, "from", 0, PSI_RANKS_MAX - 1);
    share_p->step = psi_unpack_u64(&unpack, "step");
    share_p->offset = psi_unpack_u64(&unpack, "offset");
    share_p->total = psi_unpack_u64(&unpack, "total");
    share_p->bytes = psi_unpack_u32(&unpack, "bytes", 0, PSI_FRAME_CHUNK_MAX);
    psi_unpack_string(&unpack, "name", share_p->name, sizeof(share_p->name));
    if (share_p->offset > share_p->total || share_p->bytes > share_p->total - share_p->offset) {
        psi_unpack_refuse(&unpack, "offset", "the piece ends behind the state");
    }
    return unpack.status;
}
