/*
 * options.h - ps_master's command line, environment and cluster.json, as plain numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_OPTIONS_H
#define MASTER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/status.h>

#include "config/every.h"
#include "daemon/security.h"

struct master_options {
    bool answered; /* -h or --version was given and answered: leave */
    uint32_t workers;
    uint32_t max_workers; /* ranks that there may be, at least `workers` */
    uint32_t min_workers; /* enough to begin; 0: all */
    uint32_t servers;
    uint32_t heartbeat_ms;
    uint32_t dead_heartbeats;
    uint32_t lost_grace_ms;
    uint32_t server_grace_ms;
    uint32_t server_silence_ms; /* 0: as dead_heartbeats says */
    uint32_t server_wait_ms;    /* 0: not at all */
    uint32_t server_return_ms;
    uint32_t term;
    const char *journal;      /* a file that counts lives; NULL: none. Borrowed from argv */
    bool any_port;            /* the system chooses one, or the last life did */
    uint32_t master_grace_ms; /* likewise */
    uint32_t start_timeout_ms;
    bool late_workers;
    uint32_t replacement_timeout_ms;
    uint32_t policy; /* a value of enum psi_death_policy */
    int ready_fd;    /* -1: nobody waits to hear the address */
    bool tell_joins; /* there, too, who has joined */
    bool heed_stdin; /* on stdin stands which servers have ended */
    uint32_t replicas;
    uint32_t max_servers; /* 0: they do not come and go */
    uint64_t move_bytes_per_s;
    const char *checkpoint; /* directory; NULL: none. Borrowed from argv, as is the next */
    const char *resume;     /* directory of a checkpoint that the job goes on from; NULL: none */
    struct psi_every every;
    uint32_t kept;       /* generations */
    uint32_t generation; /* of what is resumed */
    bool harden;
    struct daemon_security security; /* the caller's to destroy */
};

/* Reads them, makes `log` write to stderr as the settings say, and logs the settings.
 * PSD_ERR_INVALID: the user is wrong. Anything else: a file could not be read. */
psd_status master_options_read(int argc, char *const *argv, struct master_options *options_p,
                               struct psi_log *log, struct psd_error *err);

#endif
