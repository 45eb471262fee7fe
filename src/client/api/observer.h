/*
 * observer.h - watches a job from outside, over one connection that is kept up.
 *
 * The master tells of the nodes again and again (SUBSCRIBE in docs/protocol.md). After a cut the
 * observer connects again by itself, for as long as somebody waits in psi_observer_next().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_API_OBSERVER_H
#define PSI_CLIENT_API_OBSERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/psd.h>

#include "client/core/watcher.h"

/* Thread: any thread may make any call but create and destroy, at any time; one at most waits in
 * psi_observer_next(). */
struct psi_observer;

/* Does not wait for the master, only looks whether the address and the job's secret make sense.
 * answer_ms is for psi_observer_ask(). watcher hears of metrics and tables, in
 * whatever thread makes a call or in one of the observer's own; NULL: nobody wants them. */
psd_status psi_observer_create(const char *master_address, uint32_t every_ms, uint32_t answer_ms,
                               const struct psi_watcher *watcher, struct psi_observer **observer_p,
                               struct psd_error *err);
void psi_observer_destroy(struct psi_observer *observer); /* NULL is allowed */

/* From now on the master tells that often. */
void psi_observer_pace(struct psi_observer *observer, uint32_t every_ms);

/*
 * Waits for a table that no call before has returned: at most `capacity` nodes of it and the full
 * number of them. PSD_ERR_TIMEOUT: none came in that time. Anything else is final: PSD_ERR_CLOSED
 * after psi_observer_stop(), or the master's refusal.
 */
psd_status psi_observer_next(struct psi_observer *observer, uint32_t timeout_ms,
                             struct psd_node *nodes, size_t capacity, size_t *count_p,
                             struct psd_error *err);

/* Asks for a table now, and waits for it. */
psd_status psi_observer_ask(struct psi_observer *observer, struct psd_node *nodes, size_t capacity,
                            size_t *count_p, struct psd_error *err);

/* How many readers the job had, by the last table that psi_observer_next() or psi_observer_ask()
 * returned. */
uint32_t psi_observer_readers(struct psi_observer *observer);

/* Is the master there? When it has hung up, all that it said before has been heard. */
bool psi_observer_is_up(struct psi_observer *observer);

/* Whoever waits, or comes to wait, is sent away. */
void psi_observer_stop(struct psi_observer *observer);

#endif
