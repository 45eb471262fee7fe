/*
 * master.h - ps_master: who is in the job, which view of it holds, when it is over.
 *
 * The core is pure: it lives on struct psi_env alone (time, randomness, connections), so the daemon
 * and the simulator run the same code. Drive it like this: let events happen, call master_tick(),
 * and call it again at the latest at master_next_ns().
 *
 * Nothing a stranger sends costs more than the stranger's own connection.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_MASTER_H
#define MASTER_MASTER_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "base/log.h"
#include "master/master_config.h"
#include "transport/transport.h"

/*
 * One job's master.
 *
 * Thread: owned by the thread that runs its environment's events.
 */
struct master;

/* env and log are borrowed until master_destroy(). PSD_ERR_INVALID: counts out of range; otherwise
 * what listening or memory said. */
psd_status master_create(struct psi_env *env, const struct master_config *config,
                         const struct psi_log *log, struct master **master_p,
                         struct psd_error *err);
void master_destroy(struct master *master); /* NULL is allowed */

/* Where members reach it: "tcp://127.0.0.1:PORT". Valid as long as the master. */
const char *master_address(const struct master *master);

/* Does what is due. Never call it from inside an event. */
void master_tick(struct master *master);

/* When master_tick() wants to run next; UINT64_MAX: only after an event. */
uint64_t master_next_ns(const struct master *master);

/* True when the job is over and everybody knows, or had a second to hear it. The text, valid as
 * long as the master, says why. */
bool master_finished(const struct master *master, int *exit_code_p, const char **text_p);

/* What whoever started this master has seen, or has heard from its last life. Never from inside an event. */
void master_heed(struct master *master, const struct psi_word *word);

/* Which life of the master has taken over from this one; 0: none. */
uint32_t master_later_term(const struct master *master);

/* Ends the job for a reason from outside, such as a signal. A job that is ending already goes on
 * ending as it was. */
void master_stop(struct master *master, int exit_code, const char *reason);

#endif
