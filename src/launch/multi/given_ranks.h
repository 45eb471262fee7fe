/*
 * given_ranks.h - who is who where --rank and --size say it, or a batch system does by a number.
 *
 * The rule of roles: ranks 0 to S-1 are the servers (--servers S), the others the workers, in order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_GIVEN_RANKS_H
#define LAUNCH_GIVEN_RANKS_H

#include "launch/multi/multi_start.h"

/* Sets rank, size and servers. PSD_ERR_INVALID: not said, or it does not go with other options. */
psd_status given_ranks_find(struct multi_start *multi, struct psd_error *err);

#endif
