/*
 * loop_state.h - the inside of a loop, for the files of this folder: descriptors, timers, counts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_LOOP_LOOP_STATE_H
#define PSI_TRANSPORT_LOOP_LOOP_STATE_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "base/monotonic.h"
#include "base/segment.h"
#include "transport/loop/admission.h"
#include "transport/loop/loop_config.h"
#include "transport/shm/lending.h"
#include "transport/shm/shm_meet.h"

struct psi_bell;
struct psi_crew;
struct psi_ring;
struct psi_shm;
struct psi_stream;

/*
 * Something with a descriptor in the epoll set.
 *
 * Thread: owned by the loop.
 */
struct psi_source {
    void (*ready)(void *object, uint32_t events); /* runs in dispatch */
    void (*prepare)(void *object,
                    uint32_t events); /* (optional) before any is ready: a crew may help */
    void (*close)(void *object);      /* the loop ends: without events */
    void *object;                     /* free()d after psi_loop_retire() */
    int fd;                           /* -1: in no epoll set */
    uint32_t slot;
    uint32_t events;
    TAILQ_ENTRY(psi_source) link;
};

/*
 * Runs fire once, in the first dispatch at or after at_ns.
 *
 * Thread: owned by the loop.
 */
struct psi_timer {
    void (*fire)(void *object);
    void (*prepare)(void *object); /* (optional) as that of a source */
    void *object;
    uint64_t at_ns;
    bool armed;
    TAILQ_ENTRY(psi_timer) link;
};

struct psi_slot {
    struct psi_source *source; /* NULL: free */
    uint32_t generation;       /* grows when the slot is emptied */
    uint32_t next_free;
};

enum psi_owed_bell { PSI_NO_BELL, PSI_PATIENT_BELL, PSI_URGENT_BELL };

/*
 * A ring that is polled along with the epoll set.
 *
 * Thread: owned by the loop; `ring` may be looked at by any thread in psi_loop_wait().
 */
struct psi_loop_ring {
    const struct psi_ring *ring;
    const struct psi_bell *neighbour; /* the peer's */
    void (*ready)(void *object);      /* runs in dispatch */
    void *object;
    void (*ring_bell)(struct psi_shm *shm); /* wakes the peer, if it sleeps */
    struct psi_shm *shm;
    enum psi_owed_bell owes; /* while the loop holds bells back */
    uint32_t index;          /* in loop->rings */
};

/* Something that a thread in psi_loop_wait() may still look at; freed when none does. */
struct psi_deferred_free {
    struct psi_deferred_free *next;
    void (*destroy)(void *object);
    void *object;
};

TAILQ_HEAD(psi_source_list, psi_source);
TAILQ_HEAD(psi_timer_list, psi_timer);
TAILQ_HEAD(psi_stream_list, psi_stream);

/*
 * Thread: epoll_fd and wake_fd are immutable and for any thread; the rest is owned by the loop's
 * owner (loop.h).
 */
struct psi_loop {
    struct psi_env env; /* first */
    struct psi_loop_config config;
    int epoll_fd;
    int wake_fd;
    int spare_fd; /* closed to accept, and refuse, when no descriptor is left; or -1 */

    struct psi_slot *slots;
    uint32_t slot_count;
    uint32_t free_slot; /* slot_count: none */

    struct psi_source_list sources;
    struct psi_source_list retired; /* freed when dispatch ends */
    struct psi_timer_list timers;   /* soonest first */
    bool dispatching;

    struct psi_env_counts counts;
    uint32_t conn_count;
    uint32_t stranger_count;
    struct psi_stream_list strangers; /* oldest first */
    struct psi_admission admission;   /* how many of them, from where, how fast */

    struct psi_lending lending;
    struct psi_shm_meet meet; /* where peers on this host introduce themselves */
    struct psi_segment bell;  /* a struct psi_bell: whether somebody sleeps in psi_loop_wait() */
    struct psi_deferred_free *deferred; /* freed when nobody looks */
    _Atomic uint32_t lookers; /* any thread: in psi_loop_wait(), perhaps looking at rings */
    _Atomic uint32_t ring_count;
    _Atomic(struct psi_loop_ring *) *rings; /* conns_max of them; the first ring_count are used */
    _Atomic uint32_t misses;                /* any thread: looks in a row that found nothing */
    bool sleeps_at_once;                    /* psi_loop_look_first() */
    struct psi_lookup *lookups;             /* names that are being looked up */
    bool holds_bells;                       /* psi_loop_hold_bells() */
    bool owes_bells;                        /* and a connection may have one to ring */

    bool corked;        /* frames behind the first to a peer may wait (psi_loop_cork()) ... */
    uint64_t cork_turn; /* ... until this turn is over */
    struct psi_stream_list corked_streams; /* that have some */

    struct psi_crew *crew;         /* helps with large copies; NULL: nobody does. Its owner's */
    void *copies;                  /* owned; stream/carrier_shm_copies.c: those under way */
    struct psi_stream_list queued; /* to be flushed when bells are rung */
    void (*flush_queued)(struct psi_loop *loop); /* NULL: nothing ever was */
    void (*show_copies)(
        struct psi_loop *loop); /* frames whose copies are done are shown; NULL: none */
    void (*hear_copies)(struct psi_loop *loop); /* likewise heard: in dispatch */
};

/* What psi_loop_env() offers: world/world.c. A table, so that a loop need not know what is above. */
extern const struct psi_env_ops psi_world_ops;

/* Rings that psi_loop_wait() looks at and psi_loop_dispatch() hears. */
void psi_loop_watch_ring(struct psi_loop *loop, struct psi_loop_ring *ring);
void psi_loop_unwatch_ring(struct psi_loop *loop, struct psi_loop_ring *ring);
void psi_loop_hear_rings(struct psi_loop *loop);

/* Shows neighbours which core this thread is at work on, and says it (as in psi_bell). */
uint32_t psi_loop_say_core(struct psi_loop *loop);

/* Frees object by destroy() as soon as no other thread can be looking at it. */
void psi_loop_free_later(struct psi_loop *loop, void (*destroy)(void *object), void *object);
void psi_loop_free_deferred(struct psi_loop *loop);

/* The source gets another descriptor; the old one stays open. */
psd_status psi_loop_swap(struct psi_loop *loop, struct psi_source *source, int fd, uint32_t events,
                         struct psd_error *err);

/* Enters source into the epoll set. On an error it is not entered. */
psd_status psi_loop_add(struct psi_loop *loop, struct psi_source *source, uint32_t events,
                        struct psd_error *err);

/* What to wait for from now on. */
void psi_loop_change(struct psi_loop *loop, struct psi_source *source, uint32_t events);

/* Takes source out; its object is freed, at once or when the dispatch in progress ends. The
 * descriptor stays open. */
void psi_loop_retire(struct psi_loop *loop, struct psi_source *source);

void psi_timer_arm(struct psi_loop *loop, struct psi_timer *timer, uint64_t at_ns);
void psi_timer_disarm(struct psi_loop *loop, struct psi_timer *timer);

#endif
