/*
 * loop.h - the real world: one epoll set, its connections, and the clock.
 *
 * A lane or a daemon runs its loop on one thread: psi_loop_run_once() until done. The client lets
 * several threads wait on one loop: psi_loop_wait() without its lock, psi_loop_dispatch() with it.
 *
 * Thread: a loop and its connections are owned by one thread at a time (the client: by the holder
 * of its lock). Only psi_loop_wait() and psi_loop_wake() may run while the owner does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_LOOP_LOOP_H
#define PSI_TRANSPORT_LOOP_LOOP_H

#include "transport/loop/loop_config.h"
#include "transport/transport.h"

struct psi_crew;
struct psi_loop;

psd_status psi_loop_create(const struct psi_loop_config *config, struct psi_loop **loop_p,
                           struct psd_error *err);
void psi_loop_destroy(struct psi_loop *loop); /* closes what is left, without events */

/* The seam: hand it to a core. */
struct psi_env *psi_loop_env(struct psi_loop *loop);

/* Waits at most timeout_ms (-1: for ever) for events. Any thread, several at once. */
psd_status psi_loop_wait(struct psi_loop *loop, int timeout_ms, struct psi_loop_ready *ready,
                         struct psd_error *err);

/* The same for a thread that works behind others, which want its core: it never looks before it sleeps. */
psd_status psi_loop_sleep(struct psi_loop *loop, int timeout_ms, struct psi_loop_ready *ready,
                          struct psd_error *err);

/* Handles them, and what the loop itself has due (auth deadlines, lingering closes). One thread at
 * a time. */
void psi_loop_dispatch(struct psi_loop *loop, const struct psi_loop_ready *ready);

/* Both. */
psd_status psi_loop_run_once(struct psi_loop *loop, int timeout_ms, struct psd_error *err);

/* When psi_loop_dispatch() wants to run next even without events; UINT64_MAX: never. */
uint64_t psi_loop_next_ns(const struct psi_loop *loop);

/* Readable when psi_loop_run_once() has something to do, for whoever waits for other things, too.
 * What is due by the clock, psi_loop_next_ns() tells. */
int psi_loop_fd(const struct psi_loop *loop);

/* Makes a psi_loop_wait() in progress return. Any thread; async-signal-safe. */
void psi_loop_wake(struct psi_loop *loop);

/* From now on neighbours are not woken by frames that need no copy, those on our core by none;
 * ring_bells() makes up for it, the others first: one that is woken on our core may take it from us
 * at once, and they would wait until it is done. The owner only; does not nest. */
void psi_loop_hold_bells(struct psi_loop *loop);
void psi_loop_ring_bells(struct psi_loop *loop);

/* Whether it looks for what comes next (spin_us) before it sleeps; at first it does. The owner only. */
void psi_loop_look_first(struct psi_loop *loop, bool looks);

/* From now on small frames behind the first one to each peer wait, and leave in one call when
 * uncork() is called, or enough have gathered. For peers that do not share memory with us. The owner
 * only; does not nest. */
void psi_loop_cork(struct psi_loop *loop);
void psi_loop_uncork(struct psi_loop *loop);

/* From now on large copies to and from peers on this host are made with this crew's help. It outlives
 * the loop's connections. The owner only. */
void psi_loop_take_crew(struct psi_loop *loop, struct psi_crew *crew);

/* Connections whose peers are on this host, and share memory with us. The owner only. */
uint32_t psi_loop_neighbours(const struct psi_loop *loop);

/* Also report a foreign descriptor (signalfd) when it is readable: handler runs in dispatch. The
 * descriptor must outlive the loop. */
psd_status psi_loop_watch(struct psi_loop *loop, int fd, void (*handler)(void *owner), void *owner,
                          struct psd_error *err);

#endif
