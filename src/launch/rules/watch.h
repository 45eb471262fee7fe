/*
 * watch.h - the rules by which a job starts, goes on and ends.
 *
 * A pure state machine: events and the time go in, orders (start, signal, end) come out through a
 * table of hooks. No processes here; run.c feeds it and carries the orders out, tests feed it
 * lists.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_H
#define LAUNCH_WATCH_H

#include "launch/rules/watch_state.h"

/* Returns false without memory. */
bool watch_init(struct watch *watch, const struct watch_config *config, const struct watch_ops *ops,
                void *context);
void watch_fini(struct watch *watch);

/* Waits for WATCH_GATHERED. */
void watch_begin(struct watch *watch, uint64_t now_ms);

/* Machines get files, however long that takes: the time for the others begins anew. */
void watch_files_move(struct watch *watch, uint64_t now_ms);
void watch_event(struct watch *watch, const struct watch_event *event, uint64_t now_ms);

/* What the master tells. */
void watch_told(struct watch *watch, const struct psi_tiding *tiding, uint64_t now_ms);

/* To be called when watch_deadline() has come; harmless at any time. */
void watch_tick(struct watch *watch, uint64_t now_ms);
uint64_t watch_deadline(const struct watch *watch); /* UINT64_MAX: none */

/* Whether the job ended well although no worker ever joined it: they were plain programs. */
bool watch_was_plain(const struct watch *watch);

/* The exit code of psd_run, final in WATCH_ENDED. */
int watch_exit_code(const struct watch *watch);

#endif
