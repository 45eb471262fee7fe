/*
 * watch_scale.h - servers that come while a job runs, and servers that leave it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_SCALE_H
#define LAUNCH_WATCH_SCALE_H

#include <stddef.h>

#include "launch/rules/watch_state.h"
#include "launch/rules/watch_workers.h"

/* Slots behind those of the servers from the start are empty at first. */
void watch_scale_init(struct watch *watch);

/* No process of that server is wanted: it has not come, or it has left. */
bool watch_server_is_out(const struct watch *watch, uint32_t slot);

/* It is to leave, and has something of the job yet. */
bool watch_server_is_leaving(const struct watch *watch, uint32_t slot);

/* Servers that run, or are on their way, and are not to leave. */
uint32_t watch_servers_present(const struct watch *watch);

/* False: it is not possible, and the text says why. */
bool watch_servers_plan(const struct watch *watch, const struct watch_workers_ask *ask,
                        struct watch_workers_change *change_p, char *text_p, size_t size);

/* The slot that the next one gets; it is started there. */
uint32_t watch_servers_next(const struct watch *watch);
void watch_server_add(struct watch *watch, uint32_t slot);

/* The one with the highest number is to leave: the master moves its places first. Returns its slot. */
uint32_t watch_server_remove(struct watch *watch);

/* It has nothing any more: it is ended. */
void watch_server_drained(struct watch *watch, uint32_t slot, uint64_t life, uint64_t now_ms);

/* It ended before it was in the job, or could not be started: the job goes on as it was. */
void watch_server_not_come(struct watch *watch, uint32_t slot);

/* A master, or a process of a server, is another one than before: it is said again that this one is to leave. */
void watch_server_remind(struct watch *watch, uint32_t slot);

#endif
