/*
 * options.h - ps_server's command line, environment and cluster.json, as plain numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_OPTIONS_H
#define SERVER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "daemon/security.h"
#include "store/level.h"

struct server_options {
    bool answered; /* -h or --version was given and answered: leave */
    uint32_t index;
    uint32_t lanes;
    uint32_t standby_lanes;
    bool moves;          /* places may come and go while the job runs */
    uint64_t memory_max; /* bytes, of the whole process */
    uint64_t pool_bytes; /* likewise */
    uint32_t start_timeout_ms;
    enum kernel_level kernel;
    bool checksum;
    bool lends;       /* shares memory with workers on this host */
    uint32_t spin_us; /* looks so long before it sleeps */
    char name[24];    /* "server0": for the log */
    char master_address[PSI_ADDRESS_BYTES];
    const char *master_file; /* says where it is, when it is elsewhere; NULL: nobody does */
    uint32_t replicas; /* copies of what this server holds, in others, and the other way round */
    const char *checkpoint; /* directory; NULL: none. Borrowed from argv, as is the next */
    const char *resume;     /* directory of a checkpoint that the job goes on from; NULL: none */
    uint32_t generation;    /* of it; 0: the newest intact one */
    const char *cold; /* directory for rows of sparse tables that memory does not hold; borrowed */
    bool harden;
    struct daemon_security security; /* the caller's to destroy */
};

/* Reads them, makes `log` write to stderr as the settings say, and logs the settings. */
psd_status server_options_read(int argc, char *const *argv, struct server_options *options_p,
                               struct psi_log *log, struct psd_error *err);

#endif
