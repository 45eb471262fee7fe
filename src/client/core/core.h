/*
 * core.h - the client core: a worker's part of the protocol, pure.
 *
 * It knows the world as a struct psi_env; api.c puts a lock and threads around it, the simulator
 * neither. Every call is made by one thread at a time.
 *
 * Everything a worker asks for is an operation (struct psd_op): transfers, which are cut into one
 * request per chunk and spread over the lanes, and control requests to the master. An operation
 * ends exactly once; psi_client_next_done() hands out the ended ones.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_CORE_CORE_H
#define PSI_CLIENT_CORE_CORE_H

#include <psd/psd.h>

#include "client/core/client_config.h"
#include "client/core/watcher.h"
#include "table/spec.h"
#include "transport/transport.h"
#include "view/roster.h"
#include "wire/message.h"

struct psi_client;

psd_status psi_client_create(struct psi_env *env, const struct psi_client_config *config,
                             struct psi_client **client_p, struct psd_error *err);

/* Ends every operation that has not ended (PSD_ERR_CLOSED), then frees everything. */
void psi_client_destroy(struct psi_client *client);

/* Timers, deadlines, and sending what became sendable. Call it after every batch of events. */
void psi_client_tick(struct psi_client *client);

/* Only the sending: enough after a transfer was queued. */
void psi_client_send(struct psi_client *client);
uint64_t psi_client_next_ns(const struct psi_client *client);

enum psi_client_state psi_client_state(const struct psi_client *client);
const struct psd_error *psi_client_error(const struct psi_client *client); /* OVER: why */

const struct psi_welcome *psi_client_job(const struct psi_client *client);

/* Workers that may be on this one's host, itself among them: as far as they can be told apart. */
uint32_t psi_client_workers_here(const struct psi_client *client);

/* The operations still under way. */
size_t psi_client_pending(const struct psi_client *client);

/* Does it have to be driven although no operation of its own is under way: for others? */
bool psi_client_serves(const struct psi_client *client);

/* The next ended operation nobody has taken yet, or NULL. Taken ones are remembered as taken. */
struct psd_op *psi_client_next_done(struct psi_client *client);

/* ----------------------------------------------------------------------------- operations --- */

/* How long an operation of that step may take that does not say so: op_timeout_ms; a day if the worker has
 * joined with that step because it asked for it, and the others have yet to come there: what they do has
 * deadlines. */
uint32_t psi_client_timeout_ms(const struct psi_client *client, uint64_t step);

/* Checks range and step, and queues it. */
psd_status psi_client_transfer(struct psi_client *client, struct psd_table *table,
                               const struct psi_transfer *transfer, struct psd_op **op_p,
                               struct psd_error *err);

/* Does an operation that has not ended push from, or pull into, that memory? */
bool psi_client_borrows(const struct psi_client *client, const void *base, size_t bytes);

/* Control requests. The result is in the operation when it has ended. */
psd_status psi_client_table_open(struct psi_client *client, const struct psi_spec *spec,
                                 uint8_t priority, struct psd_op **op_p, struct psd_error *err);
psd_status psi_client_barrier(struct psi_client *client, uint32_t timeout_ms, struct psd_op **op_p,
                              struct psd_error *err);
psd_status psi_client_load_barrier(struct psi_client *client, struct psd_op **op_p,
                                   struct psd_error *err);

/* Does a load move the table to the saved step? Not a sum table that is in use already. */
bool psi_table_is_loaded(const struct psd_table *table);

/* Did the others load what this worker is about to load before it came to the job? */
bool psi_client_load_is_over(const struct psi_client *client);
psd_status psi_client_nodes(struct psi_client *client, struct psd_op **op_p, struct psd_error *err);

/* Hears of metrics and tables, from the next subscribe on. Borrowed until the client ends. */
void psi_client_watch(struct psi_client *client, const struct psi_watcher *watcher);

/* The table of nodes, at once and then every so often (protocol.md). It ends with the client, or
 * when the master refuses; psi_op_value() counts the tables that came. */
psd_status psi_client_subscribe(struct psi_client *client, uint32_t every_ms, struct psd_op **op_p,
                                struct psd_error *err);
psd_status psi_client_step_add(struct psi_client *client, uint64_t add, struct psd_op **op_p,
                               struct psd_error *err);
psd_status psi_client_bye(struct psi_client *client, struct psd_op **op_p, struct psd_error *err);

/* Does it have every view by which a lane has answered it? Only then it knows who counts in the step
 * that it is at. */
bool psi_client_knows_roster(const struct psi_client *client);

/* Who counts in the step (view/roster.h). */
struct psi_roster psi_client_roster(const struct psi_client *client, uint64_t step, uint32_t *ranks,
                                    size_t capacity);

/* A worker whose bye has ended well is out: every call fails from now on. */
void psi_client_left(struct psi_client *client);

/* A piece of another worker's published state, into `to`. */
psd_status psi_client_share_pull(struct psi_client *client, const struct psi_share *share, void *to,
                                 struct psd_op **op_p, struct psd_error *err);

/* This worker's published state; states are borrowed (see psd_state_publish). */
psd_status psi_client_publish(struct psi_client *client, uint64_t step,
                              const struct psd_state *states, size_t count, struct psd_error *err);

/* PSD_ERR_INVALID: under too many names. */
psd_status psi_client_report(struct psi_client *client, uint64_t step, const char *name,
                             double value, struct psd_error *err);

/* What the program did from when to when, on the clock of this machine. */
psd_status psi_client_mark(struct psi_client *client, uint64_t step, const char *name,
                           uint64_t begin_ns, uint64_t end_ns, struct psd_error *err);

/* A worker's part of a checkpoint (part.c). At which step one is wanted, of a worker that is at `step`:
 * PSD_CHECKPOINT_NONE, PSD_CHECKPOINT_EPOCH or a step. From the first call on it can be asked. */
uint64_t psi_client_part_due(struct psi_client *client, uint64_t step);

/* It is being written: where to. PSD_ERR_STATE: nothing is wanted at this step. */
psd_status psi_client_part_take(struct psi_client *client, uint64_t step, struct psi_part *order_p,
                                uint64_t *number_p, struct psd_error *err);

/* What became of it. False: it is not wanted any more. */
bool psi_client_part_tell(struct psi_client *client, uint64_t number, uint64_t step,
                          const struct psi_part *part);

/* Tells the master the last report now, not with the next heartbeat. */
void psi_client_ping(struct psi_client *client);

/* It is about to leave: the last step, the last numbers that were reported. */
void psi_client_tell_last(struct psi_client *client);

bool psi_op_ended(const struct psd_op *op);
psd_status psi_op_status(const struct psd_op *op);
struct psd_table *psi_op_table(const struct psd_op *op);       /* of a table_open */
const struct psi_nodes *psi_op_nodes(const struct psd_op *op); /* of a nodes or a subscribe */
uint64_t psi_op_value(const struct psd_op *op);                /* of a step_add */
uint64_t psi_op_updates(const struct psd_op *op);              /* of a STATE_PULL */

/* Frees an ended operation. */
void psi_op_free(struct psd_op *op);

/* Tables, in order of opening. */
const struct psi_spec *psi_table_spec(const struct psd_table *table);
uint64_t psi_table_step(const struct psd_table *table); /* to be pushed next */
struct psd_table *psi_client_table(const struct psi_client *client, size_t index); /* NULL: end */

#endif
