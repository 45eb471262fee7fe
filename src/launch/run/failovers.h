/*
 * failovers.h - servers, and the master, that died while the job went on: what people and programs are told of it.
 */
#ifndef LAUNCH_FAILOVERS_H
#define LAUNCH_FAILOVERS_H

#include <jansson.h>

#include "launch/run/run_state.h"

/* Another life of the server follows; watch_slot says when. It is dead, or is about to be. */
void failovers_begin(struct run *run, uint32_t slot);

/* ... and is on this machine. */
void failovers_move(struct run *run, uint32_t slot, const struct host *to);

/* Another server takes its part. */
void failovers_hosted(struct run *run, uint32_t slot);

/* Its copy in another server has its part: that is all that matters of it. */
void failovers_copied(struct run *run, uint32_t slot);

/* It, or whoever has its part, is in the job again. Nothing, if it had not been lost. */
void failovers_end(struct run *run, uint32_t slot);

/* "server1 died and was back after 0.8 s", or how often servers did; "": none did. */
void failovers_text(const struct run *run, char *text_p, size_t size);

/* For result.json: a list. */
json_t *failovers_json(const struct run *run);

#endif
