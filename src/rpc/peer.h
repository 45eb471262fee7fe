/*
 * peer.h - an outgoing connection that is kept up: connect, HELLO, WELCOME, and again after a cut.
 *
 * The owner sees frames, not connections. Between on_down and the next on_up nothing can be sent;
 * what was unanswered the owner sends again in on_up. Attempts back off (10 ms doubling to 500 ms,
 * with jitter) and go on until psi_peer_close(): deadlines are the owner's business. Two things are
 * final: REFUSE, and an authentication that failed again and again (a wrong secret stays wrong).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_RPC_PEER_H
#define PSI_RPC_PEER_H

#include "rpc/inbox.h"
#include "transport/transport.h"

struct psi_peer;

/* All but on_head and on_early are required. They run where the connection's events run. */
struct psi_peer_events {
    /* Fills in the HELLO of this attempt, which is also what the attempt proves. */
    void (*hello)(void *owner, struct psi_peer *peer, struct psi_hello *hello_p);

    void (*on_up)(void *owner, struct psi_peer *peer, const struct psi_welcome *welcome);

    /* The connection is gone; the next attempt is on its way. */
    void (*on_down)(void *owner, struct psi_peer *peer, const struct psd_error *reason);

    /* REFUSE, or authentication failed (then peer->unproved):
     * final, the peer does not try again. */
    void (*on_refused)(void *owner, struct psi_peer *peer, const struct psi_verdict *verdict);

    /* (optional) Where the payload of inbox.frame goes. Absent: control bodies only. */
    psd_status (*on_head)(void *owner, struct psi_peer *peer, struct psi_sink *sink_p,
                          struct psd_error *err);

    /* (optional) A frame without payload that comes before WELCOME, in inbox.frame: a question. */
    psd_status (*on_early)(void *owner, struct psi_peer *peer, struct psd_error *err);

    /* A whole frame, in inbox.frame and inbox.meta. */
    psd_status (*on_frame)(void *owner, struct psi_peer *peer, void *payload, size_t bytes,
                           struct psd_error *err);
};

enum psi_peer_state { PSI_PEER_OFF, PSI_PEER_WAITING, PSI_PEER_CONNECTING, PSI_PEER_UP };

/* Thread: owned by the loop thread (the client's: guarded by its lock). */
struct psi_peer {
    struct psi_env *env;
    const struct psi_peer_events *events;
    void *owner;
    uint32_t index; /* the owner's: which of its peers */
    char address[PSI_ADDRESS_BYTES];
    char
        name[PSI_IDENTITY_BYTES]; /* who must be there; the owner's to set, before the first tick */
    bool
        is_listed; /* ... too: who was there by the view may have moved, so a refused proof is not final */
    enum psi_peer_state state;
    struct psi_conn *conn; /* CONNECTING, UP */
    struct psi_inbox inbox;
    uint64_t due_ns; /* WAITING: next attempt; CONNECTING: give this one up */
    uint64_t backoff_ns;
    uint64_t failures;        /* attempts since it was last up */
    struct psd_error reason;  /* why the last attempt or connection ended */
    uint32_t refusals;        /* failed authentications since it was last up */
    uint64_t refused_ns;      /* when the first of them was */
    struct psd_error refusal; /* what the last of them said */
    bool unproved;            /* and it was the last */
};

/* Starts the first attempt at the next psi_peer_tick(). address is copied. */
void psi_peer_start(struct psi_peer *peer, struct psi_env *env, const char *address,
                    const struct psi_peer_events *events, void *owner, uint32_t index);

/* Ends it, without events. close_after_send waits for queued frames. */
void psi_peer_close(struct psi_peer *peer);
void psi_peer_close_after_send(struct psi_peer *peer, uint32_t linger_ms);

/* Breaks the connection as a cut would: on_down, then a new attempt. */
void psi_peer_reset(struct psi_peer *peer, const struct psd_error *reason);

/* Who is wanted is somewhere else, and is tried there at once. Not while it is up. */
void psi_peer_move(struct psi_peer *peer, const char *address);

void psi_peer_tick(struct psi_peer *peer, uint64_t now_ns);
uint64_t psi_peer_next_ns(const struct psi_peer *peer); /* UINT64_MAX: nothing due */

#endif
