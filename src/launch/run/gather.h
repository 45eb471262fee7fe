/*
 * gather.h - brings the machines of a job in: login, agent, what is there, who reaches whom.
 *
 * Nothing of the job starts before every machine has answered. gather_step() is to be called when
 * something about a machine has changed, and when gather_deadline() has come.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_GATHER_H
#define LAUNCH_GATHER_H

#include "launch/run/gather_state.h"

enum gather_result {
    GATHER_WAIT,
    GATHER_READY,
    GATHER_FAILED, /* *host_p: whose fault it is; err says what it is */
};

/* Goes on as far as possible. new_call(context, host) is told of every call that was made. */
enum gather_result gather_step(struct gather *gather, uint64_t now_ms,
                               void (*new_call)(void *context, struct host *host), void *context,
                               uint32_t *host_p, struct psd_error *err);

/* The same for one machine that joins while the job runs: *host_p names it. */
enum gather_result gather_return(struct gather *gather, uint32_t machine, struct psd_error *err);

/* Whether files are on their way to a machine, which tells when they are there or cannot be. */
bool gather_files_move(const struct gather *gather);

/* When to call again without news; UINT64_MAX: never. */
uint64_t gather_deadline(const struct gather *gather);

/* A message of a machine that is not ready yet. */
psd_status gather_message(struct gather *gather, struct host *host,
                          const struct link_message *message, struct psd_error *err);

/* The line of a machine that was called has closed. PSD_OK: it is called again later, or its
 * problem is kept until those of others are known. */
psd_status gather_closed(struct gather *gather, struct host *host, uint64_t now_ms,
                         struct psd_error *err);

/* A machine cannot be used: the gathering fails when the problems of the others are known, too. */
void gather_refuse(struct gather *gather, struct host *host, const char *why, uint64_t now_ms);

/* Tells every problem of every machine, each with its machine's name where there are several.
 * Returns how many. */
size_t gather_tell_problems(const struct gather *gather,
                            void (*tell)(void *context, const char *problem), void *context);

/* "waiting for host2 (ssh ubuntu@host2), host3": who is not ready. */
void gather_missing(const struct gather *gather, char *text_p, size_t size);

#endif
