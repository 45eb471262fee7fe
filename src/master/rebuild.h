/*
 * rebuild.h - another life of the master: what its files ask of each other, and others of them.
 *
 * Apart from state.h, because a job whose master never dies needs none of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_REBUILD_H
#define MASTER_REBUILD_H

#include "master/state.h"

/* What a lane has told a master that rebuilds. */
struct report {
    uint64_t pair;         /* number of its copy; 0: none ... */
    bool is_eligible;      /* ... which has all that was told */
    struct psi_view view;  /* owned; id 0: it has none */
    struct psi_ranks done; /* who has said BYE, as far as this lane knows */
    bool frozen;
    bool is_whole;
};

/* ------------------------------------------------------------------------------ rebuild.c --- */

void master_rebuild_tick(struct master *master, uint64_t now_ns);

/* Until when members may take to find this life of the master. */
uint64_t master_rebuild_patience_ns(const struct master *master);

/* A member that may have given up waiting for this master a moment ago: it is given the time to find it again. */
void master_rebuild_spare(const struct master *master, struct member *member);

/* Until when copies may come that lanes have told of. Without them the job goes on, and others are
 * made. */
uint64_t master_rebuild_copies_ns(const struct master *master);

/* All workers are done: ends the job, but not before those who may not know that they are. */
void master_rebuild_end_well(struct master *master);

/* There is no way on: the job is over. */
void master_rebuild_give_up(struct master *master, int exit_code, psd_status status,
                            const char *text);

/* A member that the last master knew: its life is not known yet, and it says which it is. */
bool master_rebuild_knows(const struct master *master, const struct member *member,
                          const struct psi_hello *hello);

/* A replacement that the last master let in, and no view has yet. */
bool master_rebuild_replaces(const struct master *master, const struct member *member,
                             const struct psi_hello *hello);

/* Where the others are, from where a replacement goes on, is not known yet. */
bool master_rebuild_awaits_state(const struct master *master);

/* The job gathers because no lane has a view, and a member has one: the lanes that knew are dead,
 * and the job is over. */
bool master_rebuild_is_contradicted(struct session *session);

/* ------------------------------------------------------------------------ rebuild_truth.c --- */

/* The highest view that a lane tells of, or a copy, whose owner may have acted on it and died; NULL: no
 * lane has any. */
const struct psi_view *master_truth_find(const struct master *master);

/* A master that had not met this or that life has given its place to another: what it tells does not
 * count. */
void master_truth_dismiss(struct master *master, const struct psi_view *view);

/* Have all told who have a place? */
bool master_truth_is_told(const struct master *master, const struct psi_view *view);

/* Had the last master given up the lane's life that the view has, and all of its server that was in its
 * process? Then a lane of a later one is here. */
bool master_truth_gave_up(const struct master *master, const struct psi_view *view,
                          const struct member *lane);

/* The process that has the place in the view has ended, and no later life of it is here: nothing is to be
 * heard of it. */
bool master_truth_is_gone(const struct master *master, const struct psi_view *view,
                          const struct member *lane);

/* A BYE is no decision: whoever knows of one, it was said. */
bool master_truth_all_done(const struct psi_ranks *done, const struct psi_view *view);

/* Does every lane that has told know that all workers are done? If one does not, no master has said
 * END yet, and who is not here did not leave of that. */
bool master_truth_is_over(const struct master *master, const struct psi_view *view);

/* Is anybody here who knows all tables? */
bool master_truth_is_enough(const struct master *master, const struct psi_view *view);

/* ----------------------------------------------------------------------- rebuild_gather.c --- */

/* Nobody has told of a view: the job begins anew when all servers are here. */
void master_rebuild_gather(struct master *master, uint64_t now_ns);

/* Servers of which not every lane is here without a view, by name. */
void master_rebuild_absent(const struct master *master, struct names *missing);

/* ----------------------------------------------------------------------- rebuild_recall.c --- */

/* No lane has told: asks the workers that wait, if that is due. */
void master_recall_ask(struct master *master, uint64_t now_ns);

/* What one of them says. */
psd_status master_on_recalled(struct session *session, const void *body, size_t bytes,
                              struct psd_error *err);

/* Has every worker told that the job has, and whoever started this master? */
bool master_recall_has_all(const struct master *master);

/* Workers that have not told are lost. */
void master_recall_lose_the_rest(struct master *master);
void master_recall_free(struct master *master);

/* ------------------------------------------------------------------------ rebuild_pairs.c --- */

/* Are copies still expected that lanes have told of? */
bool master_pairs_are_missing(const struct master *master);

/* Is a whole copy of the lane here, or one that was told to take its place? */
bool master_pair_claims(const struct master *master, const struct member *lane);

/* Does a copy that the last master had promoted wait for the place? An empty lane may, too: its copy
 * may have been let in already, and not be back. */
bool master_promoted_knocks(const struct master *master, const struct member *lane);

/* Takes up those that are here; the others are crossed out. */
void master_pairs_restore(struct master *master);

/* Was any number crossed out, as far as lanes have told? */
bool master_pairs_were_crossed(const struct master *master);

/* ---------------------------------------------------------------------- rebuild_reports.c --- */

/* Which job is this? A lane knows. False: it is not known yet whether that is meant. */
bool master_rebuild_learns(struct master *master, const struct psi_hello *hello);

/* A HELLO while it is not known who is in the job. */
void master_rebuild_admit(struct session *session);

/* What a lane has told so far; NULL: it is not asked any more. */
struct report *master_report_of(const struct session *session);
void master_report_free(struct member *lane);

/* Has the lane told another life of the master all that it keeps in mind? */
bool master_lane_has_told(const struct member *lane);

/* A view of the last life, as somebody tells of it. Numbers the places, if that was not done yet. */
psd_status master_report_take_view(struct master *master, const void *body, size_t bytes,
                                   struct psi_view *view_p, struct psd_error *err);

psd_status master_on_known_view(struct session *session, const void *body, size_t bytes,
                                struct psd_error *err);
/* ... and a copy: its owner may be dead, and have acted on it. */
psd_status master_on_copied_view(struct session *session, const void *body, size_t bytes,
                                 struct psd_error *err);
psd_status master_on_lane_state(struct session *session, const void *body, size_t bytes,
                                struct psd_error *err);

/* ----------------------------------------------------------------------- rebuild_tables.c --- */

psd_status master_on_known_table(struct session *session, const void *body, size_t bytes,
                                 struct psd_error *err);
psd_status master_on_known_drop(struct session *session, const void *body, size_t bytes,
                                struct psd_error *err);
psd_status master_on_known_resume(struct session *session, const void *body, size_t bytes,
                                  struct psd_error *err);

/* A table that a worker has opened. */
psd_status master_recall_table(struct master *master, const void *body, size_t bytes,
                               struct psd_error *err);

/* Is there a table among those that workers could not make anew? */
bool master_known_are_frail(const struct master *master);

/* All lanes have told: which tables are open? */
psd_status master_tables_settle(struct master *master);

#endif
