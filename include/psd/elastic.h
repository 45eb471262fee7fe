/*
 * elastic.h - workers that come and go while the job runs: who counts now, and leaving.
 *
 * A part of psd.h, which includes it. docs/elastic.md tells how a job gets room for more workers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSD_ELASTIC_H
#define PSD_ELASTIC_H

#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct psd_context psd_context;

/* Who counts, whatever the step: as far as this worker has heard. */
#define PSD_STEP_NOW UINT64_MAX

/* This worker does not count in the step. */
#define PSD_NO_INDEX UINT32_MAX

/* The workers that count in a step. */
struct psd_members {
    size_t struct_size;
    uint64_t version; /* grows with every worker that joins or leaves; 0 at the start */
    uint64_t since;   /* the step since which it is this set */
    uint32_t count;   /* how many; their ranks may have gaps */
    uint32_t index;   /* this worker's place among them, 0..count-1, or PSD_NO_INDEX */
};

/*
 * psd_members - who counts in a step, and this worker's dense index among them: to deal the data out.
 *
 *   step       the step that this worker is about to push: it has the values of that step, that is,
 *              all its pushes of the step before have ended. PSD_STEP_NOW: who counts now.
 *   members_p  out; struct_size is set by the program.
 *   ranks      out: the first `capacity` ranks that count, in order. NULL if capacity is 0.
 *
 * For a bulk-synchronous table every worker that asks for a step gets the same answer, whenever it asks
 * (not with backup workers):
 *   - A worker that joins counts from the step on that psd_table_step() tells it. One that comes before
 *     anybody has pushed anything begins with the others, and is in the set from their second step on:
 *     in the first its index is PSD_NO_INDEX.
 *   - A worker that leaves or dies is in the set of the first step that it does not give, which may have
 *     begun, and in none behind it. So who is in the set of step c and not in that of step c + 1 has
 *     not given (all of) its gradient of step c, and everybody else has.
 *   - A replacement of a dead worker changes nothing: it has the same rank.
 * With staleness N a worker may hear of a change up to N steps late. The steps of asynchronous tables are
 * each worker's own: use PSD_STEP_NOW.
 *
 * It costs about as much as a lock: call it in every step, and look at `version`. It waits only while
 * a server has answered by a change that the master has not told this worker of yet, for the
 * context's op_timeout_ms at most.
 *
 * Returns PSD_OK, or PSD_ERR_INVALID, PSD_ERR_TIMEOUT, PSD_ERR_FORKED, or the reason why the context is
 * over.
 */
PSD_API psd_status psd_members(psd_context *context, uint64_t step, struct psd_members *members_p,
                               uint32_t *ranks, size_t capacity);

/*
 * psd_leave - leave the job while it goes on: planned, never taken for a death, whatever the job's policy.
 *
 * Waits for the operations in flight, so the step that this worker has pushed counts; then the others
 * go on without it, from the step that it did not push. Call it between two steps: of a step of which
 * only some tables were pushed, these count (docs/consistency.md). The same as the farewell of
 * psd_close(), which frees the context, too; psd_close() is still to be called, and says nothing twice.
 *
 * Afterwards the context is over: every call but psd_close(), psd_abandon(), psd_rank() and the like
 * returns PSD_ERR_CLOSED. Memory, tables and ended operations stay valid until psd_close(). Leaving
 * twice is PSD_OK.
 *
 * Returns PSD_OK, or the error that kept it from leaving: it may be called again.
 */
PSD_API psd_status psd_leave(psd_context *context);

#ifdef __cplusplus
}
#endif

#endif
