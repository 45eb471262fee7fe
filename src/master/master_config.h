/*
 * master_config.h - what a job's master is told when it is created.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_MASTER_CONFIG_H
#define MASTER_MASTER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tidings.h"
#include "clock/clock.h"

struct master_disk;
struct psi_checkpoint;
struct psi_resident;

struct master_config {
    uint32_t term;            /* which life of the job's master this is, from 1; later ones rebuild
                                 what they know. 0: there is no other */
    uint32_t master_grace_ms; /* how long members wait for the next; 0: not at all */
    uint32_t workers;         /* ranks that there may be: 1..PSI_RANKS_MAX */
    uint32_t start_workers;   /* the job begins with so many, and others join; 0: with all */
    uint32_t min_workers;     /* after a death it waits for others to join below that; 0: never */
    uint32_t size;            /* with how many it was planned; 0: with all */
    uint32_t servers;         /* 1..PSI_SERVERS_MAX */
    uint32_t heartbeat_ms;    /* members send a PING that often */
    uint32_t dead_heartbeats; /* silent for that many: dead */
    uint32_t lost_grace_ms;   /* a member whose connection ended may take that long to come back */
    uint32_t server_grace_ms; /* ... a server of a running job */
    uint32_t server_silence_ms; /* servers may be silent for so long; 0: dead_heartbeats */
    uint32_t server_wait_ms; /* how long the job waits for another life of a server, or for a silent
                                one that it cannot do without; 0: not at all */
    uint32_t server_return_ms; /* ... before another server takes its places */
    uint32_t replicas;         /* copies of what servers hold: 0 or 1 */
    uint32_t max_servers; /* servers may come and go, up to so many at a time; 0: they do not */
    uint64_t move_bytes_per_s; /* ... and places move with so many; 0: with any number */
    uint32_t start_timeout_ms;
    bool late_workers; /* that is for servers: who started the workers sees whether they live */
    uint32_t replacement_timeout_ms; /* PSI_DEATH_WAIT */
    enum psi_death_policy policy;
    const char *listen_address; /* "tcp://127.0.0.1:0"; borrowed until master_create() returns */
    /* (optional) What whoever started the master may want to know: called at once, from inside an
     * event. */
    void (*tell)(void *context, const struct psi_tiding *tiding);
    void *tell_context;
    const struct master_disk
        *disk;                   /* (optional) for checkpoints; outlives the master. One begins */
    uint64_t checkpoint_ms;      /* ... so long after the last began; or */
    uint64_t checkpoint_steps;   /* ... at every so many-th step; or */
    bool checkpoint_epochs;      /* ... at the end of each epoch; the others are 0 */
    const char *checkpoint_path; /* for workers; outlives the master */
    const struct psi_checkpoint *resumed; /* (optional) the job goes on from; outlives the master */
    bool heeds;               /* ... and whoever it is says PSI_WORD_ALL to a later life */
    uint64_t (*cpu_ns)(void); /* what this process has used (optional): metrics */
    const struct psi_resident *resident; /* (optional) likewise; outlives the master */
};

#endif
