/*
 * rebuild.h - another life of the master: what its three files ask of each other, and others of them.
 *
 * Apart from state.h, because a job whose master never dies needs none of it.
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

/* ------------------------------------------------------------------------ rebuild_pairs.c --- */

/* Are copies still expected that lanes have told of? */
bool master_pairs_are_missing(const struct master *master);

/* Does a copy that the last master had promoted wait for the place? An empty lane may, too: its copy
 * may have been let in already, and not be back. */
bool master_promoted_knocks(const struct master *master, const struct member *lane);

/* Takes up those that are here; the others are crossed out. PSD_ERR_NO_MEMORY. */
psd_status master_pairs_restore(struct master *master);

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

/* All lanes have told: which tables are open? */
psd_status master_tables_settle(struct master *master);

#endif
