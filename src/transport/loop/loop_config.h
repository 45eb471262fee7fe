/*
 * loop_config.h - what a loop is made with, and what it finds to do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TRANSPORT_LOOP_LOOP_CONFIG_H
#define PSI_TRANSPORT_LOOP_LOOP_CONFIG_H

#include "transport/transport.h"

enum { PSI_LOOP_EVENTS = 64 };

/* Loops of one process that look before they sleep: each takes a core from whoever would compute on it.
 * Thread: atomic; most is immutable. */
struct psi_lookers {
    _Atomic uint32_t now;
    uint32_t most;
};

struct psi_loop_config {
    const struct psi_auth_ops *auth; /* (optional) */
    void *credentials;
    uint32_t conns_max;     /* connections of this loop, accepted ones included; 0: 4096 */
    uint32_t strangers_max; /* accepted connections without a whole frame yet; 0: 256. The oldest of
                               those who have shown nothing gives way to a new one; are there none,
                               it waits. */
    uint32_t strangers_from_one; /* ... of one address, loopback excepted; 0: 16 */
    uint32_t stranger_ms;        /* ... and how long it may take in all until then; 0: 5000 */
    bool lends;                  /* shares memory with peers on this host: asks for it, offers it */
    uint32_t spin_us;            /* how long to look before sleeping; 0: not at all */
    struct psi_lookers *lookers; /* (optional) look no more at once; outlives the loop */
    uint32_t give_up_ms; /* how long a peer's kernel may acknowledge nothing; 0: 2000. More for who
                            judges silence by itself */
    uint32_t auth_ms;    /* connecting: until it is open, authentication included; 0: 5000 */
    const char *master_file; /* (optional) says where the job's master is; outlives the loop */
};

/* Events that psi_loop_wait() found and psi_loop_dispatch() will handle. */
struct psi_loop_ready {
    int count; /* of events; what is in a ring needs none */
    struct {
        uint64_t id; /* slot and generation: a connection closed meanwhile is recognised */
        uint32_t events;
    } event[PSI_LOOP_EVENTS];
};

#endif
