/*
 * scale_servers.h - psd_run scale --servers: servers for a job that runs, or fewer of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SCALE_SERVERS_H
#define LAUNCH_SCALE_SERVERS_H

#include <jansson.h>

#include "launch/run/run_state.h"

/* The answer to "scale servers SIGN NUMBER HOST": "done", or "refused", and lines for people. The caller's to
 * free; NULL: no such line. */
char *scale_servers_answer(struct run *run, const char *line);

/* What the master tells of places that have moved, and of servers that have none any more. */
void scale_servers_told(struct run *run, const struct psi_tiding *tiding, uint32_t slot);

/* A server that was to leave has nothing more, and is ended. */
void scale_servers_drained(struct run *run, uint32_t slot);

/* A server that was started has not come. */
void scale_servers_not_come(struct run *run, uint32_t slot);

/* Places that have moved, for result.json. */
json_t *scale_servers_json(const struct run *run);

/* "1 server came, 2 left: 14 places moved, 4194304 bytes"; "": nothing of that. */
void scale_servers_text(const struct run *run, char *text_p, size_t size);

#endif
