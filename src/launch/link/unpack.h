/*
 * unpack.h - the agent's side of --sync: takes the archive and unpacks it, and never waits for the
 * disk.
 *
 * A disk may be slow: what came is kept until tar takes it, and psd_run sends no more than was
 * asked for. Only when nothing moves for UNPACK_STALL_MS it is given up. Files go into a directory
 * that nobody else could have prepared (trusted_directory.h), and a mark is believed there alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_UNPACK_H
#define LAUNCH_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>

#include "launch/link/link.h"
#include "launch/link/sync_mark.h"

enum {
    UNPACK_WINDOW_BYTES = 4 << 20, /* on the way or waiting for tar */
    UNPACK_STALL_MS = 120000,      /* a network disk that comes back takes a minute */
};

/* Thread: owned by the agent. */
struct unpack {
    char path[4096];
    int directory;                  /* -1: no archive is on its way */
    char digest[SYNC_DIGEST_BYTES]; /* that is to come out */
    pid_t pid;                      /* of tar; 0: none, or it ended */
    int status;                     /* how it ended */
    int fd;                         /* its input; -1: it has all */
    int said;                       /* its complaints */
    void *hash;                     /* of what came so far */
    char *bytes;                    /* what it has not taken yet: `count` of them from `first` on */
    size_t first;
    size_t count;
    size_t taken;      /* since psd_run was last asked for more */
    bool whole;        /* nothing more will come */
    bool failed;       /* given up, and said so: the rest is dropped */
    uint64_t stall_ms; /* UNPACK_STALL_MS; less in tests */
    uint64_t moved_ms; /* when tar last took something */
};

enum unpack_state {
    UNPACK_GOES_ON,
    UNPACK_WANTS_MORE, /* *more_p bytes */
    UNPACK_DONE,       /* the directory is what it should be */
    UNPACK_FAILED,     /* err says why */
};

void unpack_init(struct unpack *unpack);
void unpack_fini(struct unpack *unpack);

/* LINK_SYNC: strings DIRECTORY, DIGEST. How many bytes to send; 0: the files are here. */
psd_status unpack_begin(struct unpack *unpack, const struct words *words, uint32_t *wanted_p,
                        struct psd_error *err);

/* LINK_FILES: a part; of 0 bytes: the end. */
psd_status unpack_take(struct unpack *unpack, const struct link_message *message,
                       struct psd_error *err);

/* Where to wait until tar takes more; -1: nowhere. Until when: UINT64_MAX: for ever. */
int unpack_fd(const struct unpack *unpack);
uint64_t unpack_deadline_ms(const struct unpack *unpack);

/* A child died. */
void unpack_died(struct unpack *unpack, pid_t pid, int status);

/* Moves on as far as it goes without waiting. */
enum unpack_state unpack_step(struct unpack *unpack, uint32_t *more_p, struct psd_error *err);

#endif
