/*
 * master_link.h - a member's connection to its master: kept up, beaten, and given up when the
 * master stays silent.
 *
 * Every heartbeat_ms a PING leaves, and whatever comes is a sign of life. A connection on which
 * nothing has come for dead_ms is made anew; a master of which nothing was heard for
 * master_grace_ms is lost (for dead_ms, if that is longer; all three are from WELCOME). Whoever
 * answers within that time is the master, or another life of it: never an earlier one than the last
 * that was met, or that it was sent to.
 *
 * Another life may be elsewhere. While it is looked for, the world is asked where that is said to be
 * (find_master in transport.h), several times a second, and a later life is tried there at once. No
 * attempt at the old address is waited for: it may take long to fail.
 *
 * Two things are not the master's silence. Time in which we looked late, because this process was
 * stopped or starved, is forgiven: as much of it as we missed and no more, or a process that is
 * late again and again would never see that its master is gone. And what waits in our own sockets
 * is read first: between the end of patience and the verdict lies a moment (PSI_DOUBT_MS).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_RPC_MASTER_LINK_H
#define PSI_RPC_MASTER_LINK_H

#include "rpc/peer.h"

enum {
    PSI_DOUBT_MS = 50,
    PSI_FIND_MS = 100, /* between two looks at where the master is said to be */
};

/* Required, but for on_down, recall, tell and hush. They run where the connection's events run. */
struct psi_master_events {
    /* Fills in the HELLO of this attempt; as in struct psi_peer_events, like the next three. */
    void (*hello)(void *owner, struct psi_hello *hello_p);
    void (*on_up)(void *owner, const struct psi_welcome *welcome);
    void (*on_down)(void *owner, const struct psd_error *reason);
    void (*on_refused)(void *owner, const struct psi_verdict *verdict);

    /* A whole frame, in peer.inbox. PONG is not handed on. */
    psd_status (*on_frame)(void *owner, const void *payload, size_t bytes, struct psd_error *err);

    /* The master does not know the job, and no server can tell it: tells what there is to tell, before
     * WELCOME (optional). */
    psd_status (*recall)(void *owner, struct psd_error *err);

    /* Fills in the next PING. */
    void (*ping)(void *owner, struct psi_ping *ping_p);

    /* Somebody watches: METRICS are due (optional). Those of a connection that has not taken the
     * last ones are left out. */
    void (*tell)(void *owner);

    /* Nobody watches any more, or it is not known whether somebody does (optional). */
    void (*hush)(void *owner);
};

/* Thread: as the peer's. */
struct psi_master_link {
    struct psi_peer peer;
    const struct psi_master_events *events;
    void *owner;
    bool welcomed;      /* once; until then patience is the owner's business */
    uint32_t term;      /* of the last master that was met; 0: none yet */
    uint32_t told_term; /* ... or that it was sent to, whether or not it was met */
    uint32_t heartbeat_ms;
    uint32_t dead_ms;
    uint32_t grace_ms;
    uint64_t heard_ns;      /* the last sign of life, later by what was forgiven */
    uint64_t tell_every_ns; /* the master wants METRICS that often; 0: it does not */
    uint64_t tell_ns;       /* UP: when the next are due; UINT64_MAX: none are */
    uint64_t
        proved_ns;     /* the last PING of which we know that it was answered left then: so long ago
                           we were what the master takes us for; 0: no PING was answered yet */
    uint32_t pings;    /* sent so far: the number of the last one */
    uint32_t asked;    /* the one whose answer is awaited; 0: none ... */
    uint64_t asked_ns; /* ... and when it left */
    uint64_t beat_ns;  /* UP: when the next PING is due; UINT64_MAX: it wants none */
    uint64_t look_ns;  /* when we meant to look again; 0: not yet */
    uint64_t find_ns;  /* not UP: when to ask next where it is said to be */
    struct psd_error doubted; /* why what was said is not believed; PSD_OK: it is */
    uint64_t doubt_ns;        /* patience is over: the verdict then; 0: it is not */
};

/* Starts the first attempt at the next tick. address is copied. */
void psi_master_link_start(struct psi_master_link *link, struct psi_env *env, const char *address,
                           const struct psi_master_events *events, void *owner);

/* A PING now, not with the next heartbeat. */
void psi_master_link_ping(struct psi_master_link *link);

/* METRICS now, if anybody watches, whatever waits in the queue: a last time before we leave. */
void psi_master_link_tell(struct psi_master_link *link);

/* After the master was lost, tries with a new connection and new patience. */
void psi_master_link_again(struct psi_master_link *link);

static inline bool
psi_master_link_is_up(const struct psi_master_link *link)
{
    return link->peer.state == PSI_PEER_UP;
}

/* What the two below do when something is due, or the connection is not up. */
bool psi_master_link_look(struct psi_master_link *link, uint64_t now_ns);
uint64_t psi_master_link_due_ns(const struct psi_master_link *link);

/* Connects and beats as is due. True: the master is lost. Asked with every turn of a loop: while the
 * connection is up, only a frame changes look_ns. */
static inline bool
psi_master_link_tick(struct psi_master_link *link, uint64_t now_ns)
{
    const bool idle = psi_master_link_is_up(link) && now_ns < link->look_ns;

    return !idle && psi_master_link_look(link, now_ns);
}

/* UINT64_MAX: nothing is due. */
static inline uint64_t
psi_master_link_next_ns(const struct psi_master_link *link)
{
    return psi_master_link_is_up(link) ? link->look_ns : psi_master_link_due_ns(link);
}

/* "master tcp://h:1 lost: silent for 2000 ms: Connection refused" */
void psi_master_link_lost_text(const struct psi_master_link *link, char *text_p, size_t size);

#endif
