/*
 * peers.h - what users would take instead: OpenMPI, Gloo and torch.distributed.rpc.
 *
 * They run at their defaults. Those over tcp also run with the congestion control that Poseidon
 * chooses on loopback, because a default that paces (bbr) halves what they reach.
 */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include "entrants.h"
#include "troupe.h"

/* Why a peer cannot take part here; NULL: it can. */
const char *peer_missing(enum entrant peer);

/* End it with troupe_end() or, after a failure, troupe_abandon(). */
psd_status peer_start(enum entrant peer, uint32_t workers, struct troupe *troupe_p,
                      struct psd_error *err);

#endif
