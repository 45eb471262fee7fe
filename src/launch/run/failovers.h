/*
 * failovers.h - servers, and the master, that died while the job went on: what people and programs are told of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_FAILOVERS_H
#define LAUNCH_FAILOVERS_H

#include <jansson.h>

#include "launch/run/run_state.h"

/* The server is dead, or is about to be. Another life follows; watch_slot says when. */
void failovers_begin(struct run *run, uint32_t slot);

/* ... and is on this machine. */
void failovers_move(struct run *run, uint32_t slot, const struct host *to);

/* Another server takes its part. */
void failovers_hosted(struct run *run, uint32_t slot);

/* Its copy in another server has its part: that is all that matters of it. */
void failovers_copied(struct run *run, uint32_t slot);

/* It, or whoever has its part, is in the job again. Nothing, if it had not been lost. */
void failovers_end(struct run *run, uint32_t slot);

/* "40 ms", "2.1 s". */
void failovers_duration(uint64_t ms, char *text_p, size_t size);

/* "server1 died and was back after 800 ms", or how often servers did; "": none did. */
void failovers_text(const struct run *run, char *text_p, size_t size);

/* Pure: the same. The name is that of the process that took longest. */
void failovers_words(const struct failover *failovers, size_t count, const char *name_of_longest,
                     char *text_p, size_t size);

/* What the job has been through: "2 fail-overs and 1 lost worker"; "": nothing. */
void failovers_survived(const struct run *run, char *text_p, size_t size);

/* For result.json: a list. */
json_t *failovers_json(const struct run *run);

#endif
