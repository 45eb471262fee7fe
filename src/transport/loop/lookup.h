/*
 * lookup.h - the number of a host by its name, without making the loop's owner wait.
 *
 * A system's resolver blocks, for half a minute if the network is bad, and the owner may hold a
 * lock. So a thread of its own asks it, and the loop watches an event that tells of the answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_LOOP_LOOKUP_H
#define PSI_TRANSPORT_LOOP_LOOKUP_H

#include "transport/address.h"

struct psi_lookup;
struct psi_loop;

/*
 * Begins to look up the host of `address`, or goes on with a question that was left. *fd_p, the
 * caller's to close, becomes readable when the answer is there.
 */
psd_status psi_lookup_begin(struct psi_loop *loop, const struct psi_address *address,
                            struct psi_lookup **lookup_p, int *fd_p, struct psd_error *err);

/* The answer is there: takes it, and ends the lookup. */
psd_status psi_lookup_end(struct psi_loop *loop, struct psi_lookup *lookup,
                          struct psi_address *numeric_p, struct psd_error *err);

/* Nobody waits for it now. It stays, for the next who asks the same. */
void psi_lookup_leave(struct psi_lookup *lookup);

/* Forgets all of a loop. Threads that still wait for the resolver end by themselves. */
void psi_lookups_fini(struct psi_loop *loop);

#endif
