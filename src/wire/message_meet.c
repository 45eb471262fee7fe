/*
 * message_meet.c - meeting and parting: HELLO, WELCOME, PING, and the verdict that REFUSE, END,
 * BECAUSE and a failed ACK carry.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "wire/pack.h"

enum {
    EXIT_CODE_MAX = 255,
    STATUS_MAX = 19, /* codes above 0 that are no errors end there: psd/status.h */
};

void
psi_hello_encode(struct psi_pack *pack, const struct psi_hello *hello)
{
    psi_pack_u8(pack, hello->role);
    psi_pack_u32(pack, hello->rank);
    psi_pack_u32(pack, hello->lane);
    psi_pack_u32(pack, hello->lanes);
    psi_pack_u32(pack, hello->incarnation);
    psi_pack_u64(pack, hello->life);
    psi_pack_u32(pack, hello->kernel_revision);
    psi_pack_u64(pack, hello->job);
    psi_pack_string(pack, hello->address, sizeof(hello->address));
    psi_pack_string(pack, hello->build, sizeof(hello->build));
    psi_pack_u64(pack, hello->host);
    psi_pack_u32(pack, hello->term);
    psi_pack_u32(pack, hello->view);
    psi_pack_tail(pack, hello->tells);
    psi_pack_u64(pack, hello->pair);
    psi_pack_tail(pack, hello->recalls);
    psi_pack_tail(pack, hello->in_time);
    psi_pack_u64(pack, hello->join_step);
}

/* A server is one of so many, and a lane one of the server's; nobody else has an own place. */
static void
check_hello(struct psi_unpack *unpack, const struct psi_hello *hello)
{
    const bool in_server = hello->role == PSI_ROLE_SERVER || hello->role == PSI_ROLE_STANDBY;
    const uint32_t ranks = in_server ? PSI_SERVERS_MAX : PSI_RANKS_MAX;
    const bool automatic = !in_server && hello->rank == PSI_RANK_AUTO;

    if (hello->rank >= ranks && !automatic) {
        psi_unpack_refuse(unpack, "rank", "%u, expected 0..%u", hello->rank, ranks - 1);
    }
    if (in_server && hello->lane >= hello->lanes) {
        psi_unpack_refuse(unpack, "lane", "%u of %u", hello->lane, hello->lanes);
    }
}

psd_status
psi_hello_decode(const uint8_t *bytes, size_t size, struct psi_hello *hello_p,
                 struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "HELLO", bytes, size, err);
    hello_p->role = psi_unpack_u8(&unpack, "role", PSI_ROLE_SERVER, PSI_ROLE_READER);
    hello_p->rank = psi_unpack_u32(&unpack, "rank", 0, UINT32_MAX);
    hello_p->lane = psi_unpack_u32(&unpack, "lane", 0, PSI_LANES_MAX - 1);
    hello_p->lanes = psi_unpack_u32(&unpack, "lanes", 0, PSI_LANES_MAX);
    hello_p->incarnation = psi_unpack_u32(&unpack, "incarnation", 0, UINT16_MAX);
    hello_p->life = psi_unpack_u64(&unpack, "life");
    hello_p->kernel_revision = psi_unpack_u32(&unpack, "kernel_revision", 0, UINT32_MAX);
    hello_p->job = psi_unpack_u64(&unpack, "job");
    psi_unpack_string(&unpack, "address", hello_p->address, sizeof(hello_p->address));
    psi_unpack_string(&unpack, "build", hello_p->build, sizeof(hello_p->build));
    hello_p->host = psi_unpack_u64(&unpack, "host");
    hello_p->term = psi_unpack_u32(&unpack, "term", 0, PSI_TERM_MAX);
    hello_p->view = psi_unpack_u32(&unpack, "view", 0, UINT32_MAX);
    hello_p->tells = psi_unpack_tail(&unpack, "tells");
    hello_p->pair = unpack.left > 0 ? psi_unpack_u64(&unpack, "pair") : 0;
    hello_p->recalls = psi_unpack_tail(&unpack, "recalls");
    hello_p->in_time = psi_unpack_tail(&unpack, "in_time");
    hello_p->join_step = unpack.left > 0 ? psi_unpack_u64(&unpack, "join_step") : 0;
    check_hello(&unpack, hello_p);
    return unpack.status;
}

void
psi_welcome_encode(struct psi_pack *pack, const struct psi_welcome *welcome)
{
    psi_pack_u32(pack, welcome->rank);
    psi_pack_u32(pack, welcome->incarnation);
    psi_pack_u32(pack, welcome->workers);
    psi_pack_u32(pack, welcome->servers);
    psi_pack_u32(pack, welcome->heartbeat_ms);
    psi_pack_u32(pack, welcome->dead_ms);
    psi_pack_u8(pack, welcome->policy);
    psi_pack_u64(pack, welcome->job);
    psi_pack_u32(pack, welcome->window_bytes);
    psi_pack_u32(pack, welcome->view);
    psi_pack_u64(pack, welcome->load_barriers);
    psi_pack_bool(pack, welcome->survives);
    psi_pack_u32(pack, welcome->term);
    psi_pack_u32(pack, welcome->master_grace_ms);
    psi_pack_u64(pack, welcome->barriers);
    psi_pack_tail(pack, welcome->elastic);
    psi_pack_u32(pack, welcome->size);
}

psd_status
psi_welcome_decode(const uint8_t *bytes, size_t size, struct psi_welcome *welcome_p,
                   struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "WELCOME", bytes, size, err);
    welcome_p->rank = psi_unpack_u32(&unpack, "rank", 0, PSI_RANKS_MAX - 1);
    welcome_p->incarnation = psi_unpack_u32(&unpack, "incarnation", 0, UINT16_MAX);
    welcome_p->workers = psi_unpack_u32(&unpack, "workers", 0, PSI_RANKS_MAX);
    welcome_p->servers = psi_unpack_u32(&unpack, "servers", 0, PSI_SERVERS_MAX);
    welcome_p->heartbeat_ms = psi_unpack_u32(&unpack, "heartbeat_ms", 0, UINT32_MAX);
    welcome_p->dead_ms = psi_unpack_u32(&unpack, "dead_ms", 1, UINT32_MAX);
    welcome_p->policy = psi_unpack_u8(&unpack, "policy", PSI_DEATH_FAIL, PSI_DEATH_WAIT);
    welcome_p->job = psi_unpack_u64(&unpack, "job");
    welcome_p->window_bytes = psi_unpack_u32(&unpack, "window_bytes", 0, UINT32_MAX);
    welcome_p->view = psi_unpack_u32(&unpack, "view", 0, UINT32_MAX);
    welcome_p->load_barriers = psi_unpack_u64(&unpack, "load_barriers");
    welcome_p->survives = psi_unpack_bool(&unpack, "survives");
    welcome_p->term = psi_unpack_u32(&unpack, "term", 0, PSI_TERM_MAX);
    welcome_p->master_grace_ms = psi_unpack_u32(&unpack, "master_grace_ms", 0, UINT32_MAX);
    welcome_p->barriers = psi_unpack_u64(&unpack, "barriers");
    welcome_p->elastic = psi_unpack_tail(&unpack, "elastic");
    welcome_p->size =
        unpack.left > 0 ? psi_unpack_u32(&unpack, "size", 0, PSI_RANKS_MAX) : welcome_p->workers;
    return unpack.status;
}

void
psi_verdict_encode(struct psi_pack *pack, const struct psi_verdict *verdict)
{
    psi_pack_u32(pack, (uint32_t)verdict->status);
    psi_pack_u32(pack, (uint32_t)verdict->exit_code);
    psi_pack_string(pack, verdict->text, sizeof(verdict->text));
}

psd_status
psi_verdict_decode(const uint8_t *bytes, size_t size, struct psi_verdict *verdict_p,
                   struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "verdict", bytes, size, err);

    /* Codes are added over time: one we do not know yet still says "error", and its text why. */
    verdict_p->status = psi_unpack_i32(&unpack, "status", INT16_MIN, STATUS_MAX);
    verdict_p->exit_code = psi_unpack_i32(&unpack, "exit_code", 0, EXIT_CODE_MAX);
    psi_unpack_string(&unpack, "text", verdict_p->text, sizeof(verdict_p->text));
    return unpack.status;
}

void
psi_ping_encode(struct psi_pack *pack, const struct psi_ping *ping)
{
    psi_pack_u64(pack, ping->step);
    psi_pack_f64(pack, ping->value);
    psi_pack_string(pack, ping->name, sizeof(ping->name));
}

psd_status
psi_ping_decode(const uint8_t *bytes, size_t size, struct psi_ping *ping_p, struct psd_error *err)
{
    struct psi_unpack unpack;

    psi_unpack_init(&unpack, "PING", bytes, size, err);
    ping_p->step = psi_unpack_u64(&unpack, "step");
    ping_p->value = psi_unpack_f64(&unpack, "value"); /* a loss may well be NaN */
    psi_unpack_string(&unpack, "name", ping_p->name, sizeof(ping_p->name));
    return unpack.status;
}
