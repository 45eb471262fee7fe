/*
 * peer.c - an outgoing connection that is kept up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/peer.h"

#include <stdio.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "rpc/identity.h"
#include "rpc/post.h"

#define MS_NS UINT64_C(1000000)

static const uint64_t backoff_min_ns = 10 * MS_NS;
static const uint64_t backoff_max_ns = 500 * MS_NS;
static const uint64_t attempt_max_ns = 5000 * MS_NS;

/* So often, or for so long, a failed authentication may still be somebody else's passing trouble:
 * another job that is just leaving the port, say. */
enum { REFUSALS_MAX = 3 };
static const uint64_t refused_max_ns = 1000 * MS_NS;
static const uint64_t refused_backoff_ns = 250 * MS_NS;

/* Half the back-off and a random part of the other half:
 * peers cut together do not return together. */
static void
wait_for_next_attempt(struct psi_peer *peer)
{
    const uint64_t half = peer->backoff_ns / 2;

    peer->state = PSI_PEER_WAITING;
    peer->conn = NULL;
    peer->due_ns = psi_now_ns(peer->env) + half + peer->env->ops->random(peer->env) % (half + 1);
    peer->backoff_ns *= 2;
    if (peer->backoff_ns > backoff_max_ns) {
        peer->backoff_ns = backoff_max_ns;
    }
    peer->failures++;
}

static void
peer_down(struct psi_peer *peer, const struct psd_error *reason)
{
    const bool was_up = peer->state == PSI_PEER_UP;

    peer->reason = *reason;
    wait_for_next_attempt(peer);
    if (was_up) {
        peer->events->on_down(peer->owner, peer, reason);
    }
}

/* Counts failed authentications. A listener that has had enough of us closes without a word, so
 * what follows the first refusal counts by its time. Returns whether the matter is settled. */
static bool
is_unproved(struct psi_peer *peer, const struct psd_error *reason)
{
    const uint64_t now_ns = psi_now_ns(peer->env);

    if (reason->status == PSD_ERR_REFUSED) {
        if (peer->refusals++ == 0) {
            peer->refused_ns = now_ns;
        }
        peer->refusal = *reason;
        if (peer->backoff_ns < refused_backoff_ns) {
            peer->backoff_ns = refused_backoff_ns;
        }
    }
    return !peer->is_listed &&
           (peer->refusals >= REFUSALS_MAX ||
            (peer->refusals > 0 && now_ns - peer->refused_ns >= refused_max_ns));
}

static void
give_up_unproved(struct psi_peer *peer)
{
    struct psi_verdict verdict = {.status = PSD_ERR_REFUSED};

    peer->unproved = true;
    peer->state = PSI_PEER_OFF;
    peer->conn = NULL;
    snprintf(verdict.text, sizeof(verdict.text), "%.*s", PSI_TEXT_MAX - 1, peer->refusal.text);
    peer->events->on_refused(peer->owner, peer, &verdict);
}

static void
on_open(void *owner, struct psi_conn *conn)
{
    struct psi_peer *peer = owner;
    const struct psi_frame frame = {.type = PSI_FRAME_HELLO};
    struct psi_hello hello = {0};

    peer->events->hello(peer->owner, peer, &hello);
    snprintf(hello.build, sizeof(hello.build), "%s", PSD_VERSION);
    (void)psi_post_hello(conn, &frame, &hello); /* a failure comes back as on_close */
}

static psd_status
on_prefix(void *owner, struct psi_conn *conn, const uint8_t *prefix, struct psi_frame_size *size_p,
          struct psd_error *err)
{
    struct psi_peer *peer = owner;

    (void)conn;
    return psi_inbox_prefix(&peer->inbox, prefix, PSI_FRAME_CHUNK_MAX, size_p, err);
}

/* Bodies of meeting and control frames; everything else is the owner's to place. */
static bool
is_data(uint8_t type)
{
    return type == PSI_FRAME_VALUE || type == PSI_FRAME_SPARSE_VALUE ||
           type == PSI_FRAME_SHARE_DATA;
}

static psd_status
on_head(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes,
        struct psi_sink *sink_p, struct psd_error *err)
{
    struct psi_peer *peer = owner;
    const psd_status status = psi_inbox_meta(&peer->inbox, head, head_bytes, err);

    (void)conn;
    if (status != PSD_OK) {
        return status;
    }
    if (!is_data(peer->inbox.frame.type)) {
        return psi_inbox_body(&peer->inbox, sink_p, err);
    }
    if (peer->state != PSI_PEER_UP || peer->events->on_head == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from %s: not expected here",
                        psi_frame_type_name(peer->inbox.frame.type), peer->address);
    }
    return peer->events->on_head(peer->owner, peer, sink_p, err);
}

static psd_status
meet(struct psi_peer *peer, const void *payload, size_t bytes, struct psd_error *err)
{
    psd_status status;

    if (peer->inbox.frame.type == PSI_FRAME_REFUSE) {
        struct psi_verdict verdict;
        struct psi_conn *conn = peer->conn;

        status = psi_verdict_decode(payload, bytes, &verdict, err);
        if (status == PSD_OK) {
            peer->unproved = verdict.exit_code == PSI_EXIT_AUTH;
            peer->state = PSI_PEER_OFF;
            peer->conn = NULL;
            conn->ops->close(conn);
            peer->events->on_refused(peer->owner, peer, &verdict);
        }
        return status;
    }
    if (peer->inbox.frame.type == PSI_FRAME_WELCOME && peer->state == PSI_PEER_CONNECTING) {
        struct psi_welcome welcome;

        status = psi_welcome_decode(payload, bytes, &welcome, err);
        if (status == PSD_OK) {
            peer->state = PSI_PEER_UP;
            peer->backoff_ns = backoff_min_ns;
            peer->failures = 0;
            peer->refusals = 0;
            peer->events->on_up(peer->owner, peer, &welcome);
        }
        return status;
    }
    if (peer->events->on_early != NULL && bytes == 0) {
        return peer->events->on_early(peer->owner, peer, err);
    }
    return psi_fail(err, PSD_ERR_PROTOCOL, "%s from %s before WELCOME",
                    psi_frame_type_name(peer->inbox.frame.type), peer->address);
}

static psd_status
on_frame(void *owner, struct psi_conn *conn, const uint8_t *head, size_t head_bytes, void *payload,
         size_t payload_bytes, struct psd_error *err)
{
    struct psi_peer *peer = owner;
    psd_status status = psi_inbox_meta(&peer->inbox, head, head_bytes, err);

    (void)conn;
    if (status == PSD_OK) {
        status = psi_inbox_verify(&peer->inbox, payload, payload_bytes, err);
    }
    if (status != PSD_OK) {
        return status;
    }
    if (peer->state != PSI_PEER_UP || peer->inbox.frame.type == PSI_FRAME_REFUSE) {
        return meet(peer, payload, payload_bytes, err);
    }
    return peer->events->on_frame(peer->owner, peer, payload, payload_bytes, err);
}

static void
on_close(void *owner, struct psi_conn *conn, const struct psd_error *reason)
{
    struct psi_peer *peer = owner;

    (void)conn;
    if (peer->state == PSI_PEER_CONNECTING && is_unproved(peer, reason)) {
        peer->reason = *reason;
        give_up_unproved(peer);
    } else {
        peer_down(peer, reason);
    }
}

static const struct psi_conn_events peer_conn_events = {
    .on_open = on_open,
    .on_prefix = on_prefix,
    .on_head = on_head,
    .on_frame = on_frame,
    .on_close = on_close,
};

void
psi_peer_start(struct psi_peer *peer, struct psi_env *env, const char *address,
               const struct psi_peer_events *events, void *owner, uint32_t index)
{
    memset(peer, 0, sizeof(*peer));
    peer->env = env;
    peer->events = events;
    peer->owner = owner;
    peer->index = index;
    snprintf(peer->address, sizeof(peer->address), "%s", address);
    peer->backoff_ns = backoff_min_ns;
    peer->state = PSI_PEER_WAITING;
    peer->due_ns = psi_now_ns(env);
}

void
psi_peer_close(struct psi_peer *peer)
{
    if (peer->conn != NULL) {
        peer->conn->ops->close(peer->conn);
        peer->conn = NULL;
    }
    peer->state = PSI_PEER_OFF;
    psi_inbox_fini(&peer->inbox);
}

void
psi_peer_close_after_send(struct psi_peer *peer, uint32_t linger_ms)
{
    if (peer->conn != NULL) {
        peer->conn->ops->close_after_send(peer->conn, linger_ms);
        peer->conn = NULL;
    }
    psi_peer_close(peer);
}

void
psi_peer_reset(struct psi_peer *peer, const struct psd_error *reason)
{
    if (peer->conn != NULL) {
        peer->conn->ops->close(peer->conn);
        peer_down(peer, reason);
    }
}

void
psi_peer_move(struct psi_peer *peer, const char *address)
{
    psi_assert(peer->state != PSI_PEER_UP);
    if (peer->state == PSI_PEER_OFF) {
        return;
    }
    if (peer->conn != NULL) {
        peer->conn->ops->close(peer->conn);
        peer->conn = NULL;
    }
    snprintf(peer->address, sizeof(peer->address), "%s", address);
    peer->state = PSI_PEER_WAITING;
    peer->due_ns = psi_now_ns(peer->env);
    peer->backoff_ns = backoff_min_ns;
    peer->refusals = 0; /* they were another's */
}

static void
attempt(struct psi_peer *peer, uint64_t now_ns)
{
    struct psi_hello hello = {0};
    char self[PSI_IDENTITY_BYTES];
    char pair[2 * PSI_IDENTITY_BYTES];
    struct psd_error err;

    peer->events->hello(peer->owner, peer, &hello);
    psi_identity_of(&hello, self);
    psi_identity_pair(pair, self, peer->name);
    peer->state = PSI_PEER_CONNECTING;
    peer->due_ns = now_ns + attempt_max_ns;
    if (peer->env->ops->connect(peer->env, peer->address, pair, &peer_conn_events, peer,
                                &peer->conn, &err) != PSD_OK) {
        peer_down(peer, &err);
    }
}

void
psi_peer_tick(struct psi_peer *peer, uint64_t now_ns)
{
    if (peer->state == PSI_PEER_WAITING && now_ns >= peer->due_ns) {
        attempt(peer, now_ns);
    } else if (peer->state == PSI_PEER_CONNECTING && now_ns >= peer->due_ns) {
        struct psd_error reason;

        psi_fail(&reason, PSD_ERR_TIMEOUT, "connect to %s: no answer in %llu ms", peer->address,
                 (unsigned long long)(attempt_max_ns / MS_NS));
        psi_peer_reset(peer, &reason);
    }
}

uint64_t
psi_peer_next_ns(const struct psi_peer *peer)
{
    if (peer->state == PSI_PEER_WAITING || peer->state == PSI_PEER_CONNECTING) {
        return peer->due_ns;
    }
    return UINT64_MAX;
}
