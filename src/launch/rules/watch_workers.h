/*
 * watch_workers.h - workers that are added to a job that runs, or asked to leave it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_WORKERS_H
#define LAUNCH_WATCH_WORKERS_H

#include <stddef.h>

#include "launch/rules/watch_state.h"

/* What somebody wants: so many workers, or so many more or fewer. */
struct watch_workers_ask {
    char sign; /* '+', '-'; '=': that is how many there are to be */
    uint32_t number;
};

/* What that means; both 0: nothing. */
struct watch_workers_change {
    uint32_t more;
    uint32_t fewer;
};

/* Of all processes, with workers that may come yet. */
uint32_t watch_slots_max(const struct watch_config *config);

/* Workers that run, or are on their way, and were not asked to leave. */
uint32_t watch_workers_present(const struct watch *watch);

/* False: it is not possible, and the text says why. */
bool watch_workers_plan(const struct watch *watch, const struct watch_workers_ask *ask,
                        struct watch_workers_change *change_p, char *text_p, size_t size);

/* Starts them in slots behind all others; machine_of has these, too. False: no memory. */
bool watch_workers_add(struct watch *watch, uint32_t count, const uint32_t *machine_of);

/* Asks the one with the highest rank to leave, by SIGTERM, and kills it when its time is over. Returns its
 * slot. */
uint32_t watch_workers_remove(struct watch *watch, uint32_t grace_ms, uint64_t now_ms);

/* The job is over: those that wanted to join it have nothing to wait for. */
void watch_workers_drop_new(struct watch *watch, uint64_t now_ms);

/* Its end is no failure of the job: nobody has counted on it yet. */
bool watch_worker_is_new(const struct watch *watch, uint32_t slot);

#endif
