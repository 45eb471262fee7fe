/*
 * lane_config.h - what a lane is told when it is created.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_LANE_CONFIG_H
#define SERVER_LANE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "store/level.h"

struct cold_place;
struct lane_disk;
struct lane_source;
struct psi_resident;

/* What the tables of all lanes of a process take, copies of other servers' included.
 *
 * Thread: any. */
struct lane_budget {
    _Atomic uint64_t used;
    uint64_t max; /* copies take no more than what is left of it */
};

struct lane_config {
    uint32_t server;  /* index of the server */
    uint32_t lane;    /* index of this lane in it */
    uint32_t lanes;   /* lanes of the server */
    bool is_standby;  /* has no place in the job: it takes that of a lost server's lane when the
                        master wants it to. lane, lanes: of those that stand by in the server */
    uint64_t process; /* a number that all lanes of the process have, and those of no other; its
                         last PSI_PROCESS_INDEX_BITS bits are the index that it was started with */
    const char *master_address;
    const char *listen_address; /* "tcp://127.0.0.1:0" */
    uint64_t memory_max;        /* bytes for tables */
    struct lane_budget *budget; /* (optional) outlives the lane */
    uint64_t pool_bytes;        /* bytes for gradients waiting for their round */
    uint64_t copy_bytes;       /* bytes for sums on their way to its copy, and by this all bounds of
                                     what is; 0: 8 MiB */
    uint32_t rows_part_bytes;  /* of a sum of rows in one answer; 0: as many as a frame holds */
    uint32_t start_timeout_ms; /* for the master to be found */
    enum kernel_level kernel;
    uint64_t (*cpu_ns)(void);            /* what its thread has used (optional): metrics */
    const struct psi_resident *resident; /* (optional) that of its process; outlives the lane */
    const struct lane_disk *disk;        /* (optional) for checkpoints; outlives the lane */
    struct cold_place *cold;          /* (optional) for rows of sparse tables that memory does not
                                            hold; the lane's own, and outlives it */
    const struct lane_source *source; /* (optional) of tables' first values; outlives the lane */
    uint64_t snapshot_bytes; /* for copies that the disk has not taken yet; 0: as is free */
    bool checksum;           /* payload checksums on values */
    bool lends;              /* workers on this host may read values where they are ... */
    bool lends_state;        /* ... and its copy, if it is here, what else tables have ... */
    uint32_t segments_max;   /* ... in so many segments; each takes a descriptor; 0: any number */
};

#endif
