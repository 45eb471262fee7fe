/*
 * join_member.h - a psd_run of a job of several (join.h), as it is known to the coordinator.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_JOIN_MEMBER_H
#define LAUNCH_JOIN_MEMBER_H

#include <stdint.h>

enum { JOIN_SIZE_MAX = 1280, JOIN_ADDRESS_BYTES = 64 };

#define JOIN_COORDINATOR "coordinator" /* the name it proves; others are "rank:3" */

struct join_config {
    uint32_t size;       /* of the job: ranks 0 to size - 1, rank 0 being this one */
    const char *address; /* to listen on; NULL: all of this machine */
    uint16_t first_port; /* the first that is free of these; 0: any */
    uint16_t last_port;
    int secret_fd;
};

/* What a psd_run says of itself when it joins. */
struct join_member {
    uint32_t rank;
    uint64_t incarnation; /* grows from one life of the rank to the next */
    int pid;
    char host[256];
    char address[JOIN_ADDRESS_BYTES];    /* of its end of the connection */
    char seen[JOIN_ADDRESS_BYTES];       /* of ours, as it connected to it */
    char advertised[JOIN_ADDRESS_BYTES]; /* under which it wants to be reached; "": not said */
};

#endif
