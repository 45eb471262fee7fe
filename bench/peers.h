/*
 * peers.h - what users would take instead: OpenMPI, Gloo and torch.distributed.rpc.
 *
 * They run at their defaults. Those over tcp also run with the congestion control that Poseidon
 * chooses on loopback, because a default that paces (bbr) halves what they reach.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include <limits.h>
#include <stdbool.h>

#include "group.h"
#include "subjects.h"

/* Why a peer cannot take part here; NULL: it can. */
const char *peer_missing(enum subject peer);

/* A file that was built beside this program. */
void peer_beside(const char *name, char path[PATH_MAX]);

bool peer_is_on_path(const char *program);

/* End it with group_end() or, after a failure, group_abandon(). */
psd_status peer_start(enum subject peer, uint32_t workers, struct group *group_p,
                      struct psd_error *err);

#endif
