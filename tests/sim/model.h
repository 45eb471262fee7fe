/*
 * model.h - the oracle: what a job must hold, computed apart from it.
 *
 * Bulk-synchronous tables: whenever a lane closes a round, the model takes note of who was in it
 * (and whether anybody may have been missing), adds the gradients along the tree, applies the rule
 * in plain C, and compares the lane's memory with the result, bit by bit. What workers pull is
 * compared with the same versions. Tables of slots: no slot is ever counted twice; what was
 * acknowledged is there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include "plan.h"

struct lane;
struct model;

struct model *model_create(struct sim *sim, const struct plan *plan);
void model_destroy(struct model *model);

/* After every event of a lane. */
void model_observe(struct model *model, const struct lane *lane);

/* The lane is about to go: everything acknowledged must be in it, but for the global step if it may lack
 * that. */
void model_final(struct model *model, const struct lane *lane, bool may_lack);

/* After all lanes are gone. */
void model_end(struct model *model);

/* The rank died or was given up: from now on it may be missing where the policy allows it. */
void model_rank_lost(struct model *model, uint32_t rank);

/* The rank has done its part, and leaves: nobody can ask it for anything. */
void model_rank_left(struct model *model, uint32_t rank);

/* The rank has been told with which step of the table it begins. */
void model_joined(struct model *model, unsigned table, uint32_t rank, uint64_t step);

/* Has nobody begun with that rank yet? */
bool model_awaits(const struct model *model, unsigned table, uint32_t rank);

/* All who knew how far the job was are gone, and so is their server: one that joined begins anew. */
bool model_is_forgotten(const struct model *model);

/* The master's line: the rank counted in `ahead` of the `chunks` chunks of a step. */
void model_note_partial(struct model *model, uint32_t rank, const char *table, uint64_t ahead,
                        uint64_t chunks, uint64_t step);

/* A copy that has a place says of a rank that left that it is missing from so many chunks of that step; or
 * that more ranks are than it names. */
void model_note_lost_part(struct model *model, uint32_t rank, const char *table, uint64_t chunks,
                          uint64_t step);
void model_note_lost_more(struct model *model, const char *table);

/* No version is as high as that. */
uint64_t model_versions_max(const struct plan *plan);

/* The versions of a chunk: step `version`; NULL: no such round has closed. */
const void *model_version(const struct model *model, unsigned table, uint64_t chunk,
                          uint64_t version);

/* A round of the only worker, of which no lane hears (plan_is_lone). */
void model_kept(struct model *model, unsigned table, uint64_t chunk, uint64_t version);

/* A worker has been given that version. */
void model_told(struct model *model, unsigned table, uint64_t chunk, uint64_t version,
                uint32_t rank);

/* KIND_LEDGER: how push `number` of the rank ended. */
enum ledger_entry { LEDGER_NEVER, LEDGER_UNKNOWN, LEDGER_DONE, LEDGER_NOT_APPLIED };
void model_ledger(struct model *model, unsigned table, uint32_t rank, uint64_t number,
                  enum ledger_entry entry);

/* KIND_SLOTS: the rank's push of the step was acknowledged. */
void model_slot_done(struct model *model, unsigned table, uint32_t rank, uint64_t step);

/* Checks what a worker pulled at `step` from a table of slots or a ledger. Of its own rank's pushes
 * it must see all below `own` that were acknowledged. */
void model_check_slots(struct model *model, unsigned table, uint32_t rank, uint64_t own,
                       uint64_t step, const void *values);

/* What a worker saved, before it pushed `step`: chunk by chunk, all parts of it. */
struct model_saved {
    const uint8_t *parts;
    uint64_t step;
    uint64_t updates; /* applied so far, as the servers said */
    uint32_t rank;
    uint64_t own; /* as for model_check_slots() */
};

void model_check_saved(struct model *model, unsigned table, const struct model_saved *saved);

/* Global step: an addition was asked for; it was answered with that number. */
void model_step_asked(struct model *model, uint64_t addend);
void model_step_done(struct model *model, uint64_t addend, uint64_t value);
uint64_t model_steps(const struct model *model); /* all that were answered */

/* The master closed a round without a worker that it had chosen for the step. */
void model_note_late(struct model *model, const char *table, uint64_t step);

uint64_t model_rounds(const struct model *model);

#endif
