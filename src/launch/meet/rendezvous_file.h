/*
 * rendezvous_file.h - what one psd_run tells the others in a shared directory: who it is, and, if
 * it coordinates, where. JSON, so that people can read it; files of other tools and of other times
 * lie beside it, so nothing in it is believed before it was checked.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RENDEZVOUS_FILE_H
#define LAUNCH_RENDEZVOUS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

enum {
    RENDEZVOUS_FILE_BYTES = 4096, /* of a whole file */
    RENDEZVOUS_ADDRESSES = 8,
    RENDEZVOUS_RUN_BYTES = 64, /* of a run's name, with its NUL */
};

struct rendezvous_entry {
    char run[RENDEZVOUS_RUN_BYTES];
    uint32_t rank;
    uint32_t size;
    uint64_t incarnation; /* grows from one life of the rank to the next */
    uint64_t token;       /* tells two that are alike apart */
    uint32_t pid;
    char host[256];
    char addresses[RENDEZVOUS_ADDRESSES][64];
    uint32_t address_count;
    uint16_t port; /* 0: does not coordinate */
};

/* The text of a file, with its NUL. */
psd_status rendezvous_write(const struct rendezvous_entry *entry,
                            char text_p[RENDEZVOUS_FILE_BYTES], struct psd_error *err);

/* PSD_ERR_INVALID: half of a file, or none of ours. */
psd_status rendezvous_read(const char *text, size_t bytes, struct rendezvous_entry *entry_p,
                           struct psd_error *err);

/* A file "<task>_<index>_<address>:<port>.tfcluster" of the scripts that came before psd_run, with
 * {"task", "worker_idx", "ip_address", "port"} in it. It says nothing about who is alive. */
struct rendezvous_old {
    char task[32];
    uint32_t index;
    char address[64];
    uint16_t port;
};

psd_status rendezvous_read_old(const char *text, size_t bytes, struct rendezvous_old *old_p,
                               struct psd_error *err);

#endif
