/*
 * loop_state.h - the inside of a loop, for the files of this folder: descriptors, timers, counts.
 */
#ifndef PSI_TRANSPORT_LOOP_STATE_H
#define PSI_TRANSPORT_LOOP_STATE_H

#include <sys/queue.h>

#include "transport/door.h"
#include "transport/loop.h"

struct psi_stream;

/*
 * Something with a descriptor in the epoll set.
 *
 * Thread: owned by the loop.
 */
struct psi_source {
    void (*ready)(void *object, uint32_t events); /* runs in dispatch */
    void (*close)(void *object);                  /* the loop ends: without events */
    void *object;                                 /* free()d after psi_loop_retire() */
    int fd;                                       /* -1: in no epoll set */
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

    uint32_t conn_count;
    uint32_t stranger_count;
    struct psi_stream_list strangers; /* oldest first */
    struct psi_door door;             /* how many of them, from where, how fast */
};

uint64_t psi_loop_now_ns(void);

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
