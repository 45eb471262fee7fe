/*
 * results.h - results that outlive a server: what this worker has of them, and what it says of them.
 * For src/client/core only.
 *
 * A server of sums has nothing that its workers could not make anew: until a worker has the result
 * of a step, it has its gradient. But a worker with the result has its gradient no more, and if the
 * server dies then, another may still lack that result. So whoever has it can show it until
 * everybody has. Either the worker keeps it (keep.c): memory of a server on this host outlives the
 * server, and so does the table's view. Or the operation does not end before everybody has the result (hold.c). Another life of
 * the server is told what there is (adopt.c).
 *
 * One step is enough: the result of step c + 1 needs everybody's gradient of it, and whoever gives
 * that has the result of c.
 *
 * Thread: guarded by the context's lock (the simulator: one thread).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_RESULTS_H
#define PSI_CLIENT_CORE_RESULTS_H

#include "client/core/state.h"

/* What this worker has of a chunk's last result. */
struct result {
    uint64_t base; /* `has` is true while this is the first step that it is not through with */
    enum psi_has has;
    uint64_t got;      /* behind the step that others hold, so that GOT was said; 0: none */
    uint64_t asked;    /* behind the step of which the server waits for our GOT; 0: none */
    uint64_t lacked;   /* behind the step whose result another life was told is not here; or 0 */
    struct psd_op *op; /* PSI_HAS_HELD: borrowed; it waits for RELEASE */
    const void *data;  /* PSI_HAS_KEPT: the result, ... */
    struct psi_loan *loan;  /* ... on loan; ... */
    void *copy;             /* ... or owned; else it is the view, or memory of the host's sums */
    struct place_sum *rows; /* PSI_HAS_KEPT, sums of rows: the result, shared with its operation */
};

/* ---- keep.c */

/* Only for a table that outlives a server; without memory it has none. */
psd_status psi_results_create(struct psd_table *table);
void psi_results_destroy(struct psd_table *table);

/* Does the result come into the table's view? Callers only read it, and nothing comes there before
 * the next one. (A caller that pushes from there does more than read.) */
static inline bool
psi_result_is_viewed(const struct lane_link *lane, const struct psd_op *op)
{
    return !lane->lends && op->transfer.to_view && !op->in_place;
}

/* Can the worker show what comes from there when its caller has gone on? Then pushes say so. Rows come into
 * memory of the library in any case. */
static inline bool
psi_result_is_kept(const struct lane_link *lane, const struct psd_op *op)
{
    return lane->lends || psi_result_is_viewed(lane, op) || op->transfer.rows != NULL;
}

/* A value is coming: where it goes, if not straight to its caller. PSD_ERR_NO_MEMORY: nowhere. */
psd_status psi_result_expect(struct lane_link *lane, struct request *request,
                             struct psi_sink *sink_p);

/* It is here. The request is over. */
void psi_result_arrived(struct lane_link *lane, struct request *request, const void *payload);

/* It lies in the memory of this host's sums, and stays there until the next one comes. */
void psi_result_is_own(const struct psd_op *op, uint32_t chunk, const void *value);

/* ---- hold.c */

void psi_result_hold(struct psd_op *op, uint32_t chunk);

/* The operation ends before its time: its caller has the memory back. How many chunks it held. */
uint64_t psi_results_unhold(const struct psd_op *op);

/* GOT, as one frame for all that comes in a turn; or later, when the rest of its operation has come,
 * too, which is to be soon. Said again when the connection is up again. */
void psi_got(struct lane_link *lane, const struct psi_result *result);
void psi_got_later(struct lane_link *lane, const struct psi_result *result);
void psi_got_tick(struct psi_client *client, uint64_t now_ns); /* what has waited long enough */
void psi_got_send(struct lane_link *lane);
void psi_got_lost(struct lane_link *lane); /* the connection is down */
void psi_got_again(struct lane_link *lane);

/* The server asks for GOT (a GOT of its own): somebody leaves who keeps the result. */
psd_status psi_got_asked(struct lane_link *lane, const void *payload, size_t bytes,
                         struct psd_error *err);

/* A chunk of the push has come further: this worker may have what it was asked for. */
void psi_got_look(const struct psd_op *op, uint32_t chunk);

/* Another life has heard of none of it, and hears from ADOPT what is held. */
void psi_got_forget(const struct lane_link *lane);

psd_status psi_release_arrived(struct lane_link *lane, const void *payload, size_t bytes,
                               struct psd_error *err);

/* ---- adopt.c */

/* Tells a lane that has nothing, because its server had an earlier life, what this worker has. */
void psi_adopt_lane(struct lane_link *lane);
void psi_adopt_table(const struct psd_table *table); /* by all such lanes that are up */

/* The result of the step has come by another way than from its lane: if that was told that it is not
 * here, it waits for word of it, perhaps for others' sake. */
void psi_adopt_came(const struct psd_table *table, uint32_t chunk, uint64_t step);

psd_status psi_give_arrived(struct lane_link *lane, struct psd_error *err);

/* Is the result of that step here, or is this worker through with it? */
bool psi_result_is_here(const struct psd_table *table, uint32_t chunk, uint64_t step);

/* ---- split.c */

/* A push by itself of a table that outlives its servers brings its sum along. PSD_ERR_NO_MEMORY. */
psd_status psi_split_push(struct psd_op *op, struct psd_error *err);
void psi_split_came(const struct psd_op *op, uint32_t chunk); /* the sum of such a push is here */

/* Is the pull answered from those sums? Then psi_split_look() ends it, if they are here. */
bool psi_split_pull(struct psd_op *op);
void psi_split_look(struct psd_op *op);
void psi_split_destroy(struct psd_table *table);

/* ---- leave.c */

/* OP_BYE is pending: it is sent when no server has to be waited for any more. */
void psi_leave_begin(struct psi_client *client);
void psi_leave_lane(struct lane_link *lane);   /* the connection is up */
void psi_leave_agreed(struct lane_link *lane); /* the server says that we may go */
void psi_leave_describe(struct psd_op *op);

#endif
