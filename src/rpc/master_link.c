/*
 * master_link.c - a member's connection to its master.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/master_link.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/identity.h"
#include "rpc/post.h"

#define MS_NS UINT64_C(1000000)

static uint64_t
earlier(uint64_t one_ns, uint64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

/* How long the master may be silent: on a connection that is up, and before it is given up. */
static uint32_t
limit_ms(const struct psi_master_link *link)
{
    return psi_master_link_is_up(link) || link->grace_ms < link->dead_ms ? link->dead_ms
                                                                         : link->grace_ms;
}

static uint64_t
patience_ns(const struct psi_master_link *link)
{
    if (!link->welcomed) {
        return UINT64_MAX;
    }
    return link->doubt_ns != 0 ? link->doubt_ns : link->heard_ns + limit_ms(link) * MS_NS;
}

uint64_t
psi_master_link_due_ns(const struct psi_master_link *link)
{
    const uint64_t next_ns = earlier(psi_peer_next_ns(&link->peer), patience_ns(link));

    return earlier(next_ns, psi_master_link_is_up(link) ? earlier(link->beat_ns, link->tell_ns)
                                                        : link->find_ns);
}

/* A sign of life: there is less to look for, and later. */
static void
heard(struct psi_master_link *link)
{
    link->heard_ns = psi_now_ns(link->peer.env);
    link->doubt_ns = 0;
    link->look_ns = psi_master_link_due_ns(link);
}

/* ---- events of the peer -------------------------------------------------------------------- */

static void
hello(void *owner, struct psi_peer *peer, struct psi_hello *hello_p)
{
    const struct psi_master_link *link = owner;

    (void)peer;
    link->events->hello(link->owner, hello_p);
    hello_p->term = link->term;
    hello_p->tells = link->events->tell != NULL;
    hello_p->recalls = link->events->recall != NULL;
}

static uint32_t
last_term(const struct psi_master_link *link)
{
    return link->told_term > link->term ? link->told_term : link->term;
}

/* It will learn from our HELLO that it is not the master any more. */
static void
turn_away(struct psi_master_link *link, uint32_t term)
{
    struct psd_error reason;

    psi_fail(&reason, PSD_ERR_FENCED, "%s: an earlier life of the master (term %u, now %u)",
             link->peer.address, term, last_term(link));
    psi_peer_reset(&link->peer, &reason);
}

/* every_ns 0: nobody watches. */
static void
tell_every(struct psi_master_link *link, uint64_t every_ns)
{
    link->tell_every_ns = every_ns;
    link->tell_ns = every_ns > 0 ? psi_now_ns(link->peer.env) : UINT64_MAX;
    if (every_ns == 0 && link->events->hush != NULL) {
        link->events->hush(link->owner);
    }
}

static void
on_up(void *owner, struct psi_peer *peer, const struct psi_welcome *welcome)
{
    struct psi_master_link *link = owner;

    if (welcome->term < last_term(link)) {
        turn_away(link, welcome->term);
        return;
    }
    link->welcomed = true;
    link->term = welcome->term;
    link->heartbeat_ms = welcome->heartbeat_ms;
    link->dead_ms = welcome->dead_ms;
    link->grace_ms = welcome->master_grace_ms;
    link->asked = 0;
    link->beat_ns = link->heartbeat_ms > 0 ? psi_now_ns(peer->env) : UINT64_MAX;
    tell_every(link, 0); /* it says so again */
    heard(link);
    link->events->on_up(link->owner, welcome);
}

static void
on_down(void *owner, struct psi_peer *peer, const struct psd_error *reason)
{
    struct psi_master_link *link = owner;

    (void)peer;
    link->doubt_ns = 0;
    if (link->events->on_down != NULL) {
        link->events->on_down(link->owner, reason);
    }
}

static void
on_refused(void *owner, struct psi_peer *peer, const struct psi_verdict *verdict)
{
    const struct psi_master_link *link = owner;

    (void)peer;
    link->events->on_refused(link->owner, verdict);
}

/* Somebody watches the job, or nobody does any more. */
static psd_status
subscribed(struct psi_master_link *link, const void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_subscribe asked;
    const psd_status status = psi_subscribe_decode(payload, bytes, &asked, err);

    if (status == PSD_OK && link->events->tell != NULL) {
        tell_every(link, asked.every_ms * MS_NS);
        link->look_ns = psi_master_link_due_ns(link);
    }
    return status;
}

/* An answer may have lain in our socket while we were stopped. That the PING had left before it is
 * certain. */
static void
ponged(struct psi_master_link *link, uint32_t request)
{
    if (request != 0 && request == link->asked) {
        link->proved_ns = link->asked_ns;
        link->asked = 0;
    }
}

static psd_status
on_frame(void *owner, struct psi_peer *peer, void *payload, size_t bytes, struct psd_error *err)
{
    struct psi_master_link *link = owner;

    heard(link);
    if (peer->inbox.frame.type == PSI_FRAME_PONG) {
        ponged(link, peer->inbox.frame.request);
        return PSD_OK;
    }
    if (peer->inbox.frame.type == PSI_FRAME_SUBSCRIBE) {
        return subscribed(link, payload, bytes, err);
    }
    return link->events->on_frame(link->owner, payload, bytes, err);
}

static psd_status
on_early(void *owner, struct psi_peer *peer, struct psd_error *err)
{
    const struct psi_master_link *link = owner;

    if (peer->inbox.frame.type != PSI_FRAME_RECALL || link->events->recall == NULL) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "%s from %s before WELCOME",
                        psi_frame_type_name(peer->inbox.frame.type), peer->address);
    }
    return link->events->recall(link->owner, err);
}

static const struct psi_peer_events peer_events = {
    .hello = hello,
    .on_up = on_up,
    .on_down = on_down,
    .on_refused = on_refused,
    .on_early = on_early,
    .on_frame = on_frame,
};

/* ---- time ---------------------------------------------------------------------------------- */

void
psi_master_link_start(struct psi_master_link *link, struct psi_env *env, const char *address,
                      const struct psi_master_events *events, void *owner)
{
    memset(link, 0, sizeof(*link));
    link->events = events;
    link->owner = owner;
    psi_peer_start(&link->peer, env, address, &peer_events, link, 0);
    snprintf(link->peer.name, sizeof(link->peer.name), "%s", PSI_IDENTITY_MASTER);
}

void
psi_master_link_ping(struct psi_master_link *link)
{
    struct psi_frame frame = {.type = PSI_FRAME_PING};
    struct psi_ping ping = {0};

    if (psi_master_link_is_up(link)) {
        link->pings += link->pings == UINT32_MAX ? 2 : 1; /* 0 is none */
        frame.request = link->pings;
        if (link->asked == 0) {
            link->asked = link->pings;
            link->asked_ns = psi_now_ns(link->peer.env);
        }
        link->events->ping(link->owner, &ping);
        (void)psi_post_ping(link->peer.conn, &frame, &ping); /* a failure comes back as on_close */
    }
}

void
psi_master_link_tell(struct psi_master_link *link)
{
    if (psi_master_link_is_up(link) && link->tell_every_ns > 0) {
        link->events->tell(link->owner);
    }
}

/* A connection that is slower than we tell gets less of it, never a queue of it. */
static void
tell_if_taken(struct psi_master_link *link)
{
    if (link->peer.conn->ops->queued_bytes(link->peer.conn) == 0) {
        psi_master_link_tell(link);
    }
}

/* Nobody can have been heard in the time that we missed. */
static void
forgive(struct psi_master_link *link, uint64_t now_ns)
{
    if (link->look_ns != 0 && now_ns > link->look_ns) {
        link->heard_ns = earlier(link->heard_ns + (now_ns - link->look_ns), now_ns);
    }
}

/* Somebody may have said where another life of the master is: one that is later than the last. */
static void
find(struct psi_master_link *link, uint64_t now_ns)
{
    struct psi_master_told told;

    link->find_ns =
        link->peer.env->ops->find_master != NULL ? now_ns + PSI_FIND_MS * MS_NS : UINT64_MAX;
    link->doubted.status = PSD_OK;
    if (psi_env_find_master(link->peer.env, &told, &link->doubted) == PSD_OK &&
        told.term > last_term(link)) {
        link->told_term = told.term;
        if (strcmp(told.address, link->peer.address) != 0) {
            psi_peer_move(&link->peer, told.address);
        }
    }
}

/* A connection on which nothing comes: there may be another life of the master to be found. */
static void
connect_anew(struct psi_master_link *link)
{
    struct psd_error reason;

    psi_fail(&reason, PSD_ERR_PEER_LOST, "%s: silent for %u ms", link->peer.address, link->dead_ms);
    psi_peer_reset(&link->peer, &reason);
}

static bool
is_lost(struct psi_master_link *link, uint64_t now_ns)
{
    if (now_ns < patience_ns(link)) {
        return false;
    }
    if (link->doubt_ns == 0) {
        link->doubt_ns = now_ns + PSI_DOUBT_MS * MS_NS;
        return false;
    }
    if (psi_master_link_is_up(link) && link->grace_ms > link->dead_ms) {
        connect_anew(link);
        return false;
    }
    return true;
}

bool
psi_master_link_look(struct psi_master_link *link, uint64_t now_ns)
{
    bool lost;

    forgive(link, now_ns);
    if (!psi_master_link_is_up(link) && now_ns >= link->find_ns) {
        find(link, now_ns);
    }
    psi_peer_tick(&link->peer, now_ns);
    if (psi_master_link_is_up(link) && now_ns >= link->beat_ns) {
        psi_master_link_ping(link);
        link->beat_ns = now_ns + link->heartbeat_ms * MS_NS;
    }
    if (psi_master_link_is_up(link) && now_ns >= link->tell_ns) {
        tell_if_taken(link);
        link->tell_ns = now_ns + link->tell_every_ns;
    }
    lost = is_lost(link, now_ns);
    link->look_ns = psi_master_link_due_ns(link);
    return lost;
}

void
psi_master_link_again(struct psi_master_link *link)
{
    heard(link);
    connect_anew(link);
}

void
psi_master_link_lost_text(const struct psi_master_link *link, char *text_p, size_t size)
{
    const bool up = psi_master_link_is_up(link);
    const bool doubts = !up && link->doubted.status != PSD_OK;

    snprintf(text_p, size, "master %s lost: silent for %u ms%s%s%s%s", link->peer.address,
             limit_ms(link), up ? "" : ": ", up ? "" : link->peer.reason.text,
             doubts ? "; it may be elsewhere, but " : "", doubts ? link->doubted.text : "");
}
