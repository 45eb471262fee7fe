/*
 * watch_servers.h - servers that die while the job can do without what they had.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_SERVERS_H
#define LAUNCH_WATCH_SERVERS_H

#include "launch/rules/watch_state.h"

/* A process ended. If it was a server that failed, this tells the master at once. */
void watch_server_gone(struct watch *watch, uint32_t slot);

/* A server ended, and not well. True: the master knows whether the job can go on, and is to say so. */
bool watch_server_exited(struct watch *watch, uint32_t slot, uint64_t now_ms);

/* A server ended well while workers run. True: it had no part, and may have been told so by anybody: another
 * life of it is started. */
bool watch_server_left_idle(struct watch *watch, uint32_t slot, uint64_t now_ms);

/* The master waits for another life of it. */
void watch_server_awaited(struct watch *watch, uint32_t slot, uint64_t now_ms);

/* Another server has taken its part: the job does without this one. */
void watch_server_hosted(struct watch *watch, uint32_t slot, uint64_t now_ms);

/* Its copy has. */
void watch_server_copied(struct watch *watch, uint32_t slot, uint64_t now_ms);

/* Has the job ended well without it? It was lost, and its other life was not needed any more. */
bool watch_server_is_spare(const struct watch_slot *server);

/* What it means that the master's word has not come. */
void watch_late_words(struct watch *watch, uint64_t now_ms);

/* What the master tells of its part, beyond its being here. */
void watch_server_told(struct watch *watch, const struct psi_tiding *tiding, uint32_t slot,
                       uint64_t now_ms);

#endif
