/*
 * lane.h - one lane of a server: a thread's worth of chunks, and the workers' connections to it.
 *
 * A lane is a node of the job by itself: it registers with the master, listens for workers and owns
 * its chunks. Lanes share nothing, so the path of a push takes no lock. The core is pure: it knows
 * the world as a struct psi_env; ps_server runs one lane per thread, the simulator any number in
 * one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_LANE_H
#define SERVER_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "server/lane_config.h"
#include "transport/transport.h"

struct lane;

struct psi_metrics;

/* config is copied; the strings it points to need to live only for the call. */
psd_status lane_create(struct psi_env *env, const struct lane_config *config,
                       const struct psi_log *log, struct lane **lane_p, struct psd_error *err);
void lane_destroy(struct lane *lane);

void lane_tick(struct lane *lane);
uint64_t lane_next_ns(const struct lane *lane);

/* Is the lane's part over? Then why, as an exit code and a line. */
bool lane_finished(const struct lane *lane, int *exit_code_p, const char **text_p);

/* What it has counted so far; any thread may read it while the lane exists. */
const struct psi_metrics *lane_metrics(const struct lane *lane);

/* A lane that stood by has been given a place: which, for those who connect to it. Once. */
bool lane_took_place(struct lane *lane, uint32_t *server_p, uint32_t *lane_p);

/* It had a place, and stands by now: under which name, likewise. Once. */
bool lane_stands_by_now(struct lane *lane, uint32_t *server_p, uint32_t *lane_p);

/* Does it stand by, and is it nobody's copy? The job does not miss it then. */
bool lane_has_nothing(const struct lane *lane);

/* Has it ever been a member of the job? */
bool lane_has_joined(const struct lane *lane);

/* Has it ended because the job has ended well? Told to it in its place. */
bool lane_saw_it_through(const struct lane *lane);

/* It had a place of another server's, and has ended: has its process lost nothing by that? `is_over`: another lane of
 * the process has seen the job through. */
bool lane_guest_is_no_loss(const struct lane *lane, bool is_over);

/* It has finished, and is not destroyed yet: nobody is to find it any more. */
void lane_hang_up(struct lane *lane);

/* From now on, no core is left for lanes alone. A copy that was told of each change at once would take our core
 * from us for each: it is told of many together. */
void lane_share_cores(struct lane *lane);

/* It has a copy, or is one, and in the last round that one had so much to do that nothing came soon. */
bool lane_waits_long(const struct lane *lane);

/* Tells the master, and ends. */
void lane_stop(struct lane *lane, int exit_code, const char *reason);

/* A signal: the same with the next turn, or when it has heard that its place is another's now. The reason is borrowed
 * until it has finished. Whoever asks again changes nothing. */
void lane_leave(struct lane *lane, int exit_code, const char *reason);

/* Has it ended because it was asked to, and had nothing of the job then? */
bool lane_left_with_nothing(const struct lane *lane);

/* Does it stand by because the master has said so? Then the job has begun. */
bool lane_was_not_needed(const struct lane *lane);

#endif
