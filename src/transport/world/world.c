/*
 * world.c - the real world as a core sees it: struct psi_env over a loop.
 *
 * An address says by its first word which transport it is of (transport/transports.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/fail.h"
#include "base/master_file.h"
#include "transport/address.h"
#include "transport/loop/loop_state.h"
#include "transport/stream/carrier_shm.h"
#include "transport/transports.h"

static const struct psi_transport *const transports[PSI_SCHEME_COUNT] = {
#define TRANSPORT(id, word, rest) [PSI_SCHEME_##id] = &psi_transport_##word,
    PSI_TRANSPORT_MAP(TRANSPORT)
#undef TRANSPORT
};

static uint64_t
env_now_ns(struct psi_env *env)
{
    (void)env;
    return psi_monotonic_ns();
}

static const struct psi_env_counts *
env_counts(const struct psi_env *env)
{
    return &((const struct psi_loop *)env)->counts;
}

static uint64_t
env_random(struct psi_env *env)
{
    uint64_t value;
    ssize_t got;

    (void)env;
    do {
        got = getrandom(&value, sizeof(value), 0);
    } while (got < 0 && errno == EINTR);
    psi_assert(got == sizeof(value));
    return value;
}

static psd_status
env_connect(struct psi_env *env, const char *address, const char *identity,
            const struct psi_conn_events *events, void *owner, struct psi_conn **conn_p,
            struct psd_error *err)
{
    struct psi_loop *loop = (struct psi_loop *)env;
    struct psi_address parts;
    const psd_status status = psi_address_parse(address, &parts, err);

    if (status != PSD_OK) {
        return status;
    }
    return transports[parts.scheme]->connect(transports[parts.scheme], loop, &parts,
                                             &(struct psi_conn_owner){events, owner, identity},
                                             conn_p, err);
}

static psd_status
env_listen(struct psi_env *env, const char *address, const struct psi_listener_events *events,
           void *owner, struct psi_listener **listener_p, char bound_p[PSI_ADDRESS_BYTES],
           struct psd_error *err)
{
    struct psi_loop *loop = (struct psi_loop *)env;
    struct psi_address parts;
    const psd_status status = psi_address_parse(address, &parts, err);

    if (status != PSD_OK) {
        return status;
    }
    return transports[parts.scheme]->listen(transports[parts.scheme], loop, &parts,
                                            &(struct psi_listener_owner){events, owner}, listener_p,
                                            bound_p, err);
}

static void
env_unlisten(struct psi_env *env, struct psi_listener *listener)
{
    const struct psi_transport *transport;

    (void)env;
    memcpy(&transport, listener, sizeof(transport)); /* it begins with it */
    transport->unlisten(listener);
}

static void
env_lend(struct psi_env *env, const struct psi_segment *segment)
{
    psi_lending_add(&((struct psi_loop *)env)->lending, segment);
}

static void
env_take_back(struct psi_env *env, const struct psi_segment *segment)
{
    struct psi_loop *loop = (struct psi_loop *)env;
    const uint32_t id = psi_lending_remove(&loop->lending, segment);
    const uint32_t count = atomic_load_explicit(&loop->ring_count, memory_order_relaxed);

    for (uint32_t i = 0; id != UINT32_MAX && i < count; i++) {
        psi_shm_take_back(atomic_load_explicit(&loop->rings[i], memory_order_relaxed)->shm, id);
    }
}

static_assert((int)PSI_MASTER_FILE_ADDRESS == PSI_ADDRESS_BYTES,
              "the file has room for any address");

/* Where nobody proves anything, nobody is followed to another machine. */
static psd_status
env_find_master(struct psi_env *env, struct psi_master_told *told_p, struct psd_error *err)
{
    const struct psi_loop_config *config = &((struct psi_loop *)env)->config;
    struct psi_master_told told = {0};
    struct psi_address address;
    psd_status status = PSD_OK;

    if (config->master_file != NULL) {
        status = psi_master_file_read(config->master_file, &told, err);
    }
    if (status != PSD_OK || told.term == 0) {
        return status;
    }
    status = psi_address_parse(told.address, &address, err);
    if (status == PSD_OK && config->auth == NULL && !psi_address_is_loopback(&address)) {
        status =
            psi_fail(err, PSD_ERR_REFUSED,
                     "%s (PSD_MASTER_FILE): %s is not a loopback address, and this process has "
                     "no secret",
                     config->master_file, told.address);
    }
    if (status == PSD_OK) {
        *told_p = told;
    }
    return status;
}

const struct psi_env_ops psi_world_ops = {
    .now_ns = env_now_ns,
    .random = env_random,
    .connect = env_connect,
    .listen = env_listen,
    .unlisten = env_unlisten,
    .lend = env_lend,
    .take_back = env_take_back,
    .find_master = env_find_master,
    .counts = env_counts,
};
