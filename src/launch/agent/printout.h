/*
 * printout.h - what a child of an agent prints: read from its two pipes, sent to psd_run and kept
 * in this machine's own log, if it has one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PRINTOUT_H
#define LAUNCH_PRINTOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/agent/merge.h"
#include "launch/link/link.h"

/* Thread: owned by the agent. */
struct printout {
    uint32_t slot;
    int fds[LINK_STREAMS]; /* read ends, -1 when closed */
    struct merge merge;
    uint64_t read_ms; /* when something was read last; 0: never */
    int log;          /* this machine's own log of it, -1: none */
    int log_error;    /* why it could not be opened, until that is told */
};

void printout_init(struct printout *printout, uint32_t slot);
void printout_fini(struct printout *printout);

/* A new life: two pipes, whose write ends the caller closes, and a log in a directory (-1: none).
 * Returns 0 or an errno. */
int printout_begin(struct printout *printout, int log_directory, const char *log_name,
                   int write_ends_p[LINK_STREAMS]);

/* Whether somebody may still write: no stream has ended, or only one. */
bool printout_is_open(const struct printout *printout);

/* Reads a stream once and hands it on. Returns false when there was nothing. */
bool printout_read(struct printout *printout, unsigned stream, struct link *link);

/* Hands on what has been unfinished for long. To be called at printout_deadline(). */
void printout_tick(struct printout *printout, struct link *link);
uint64_t printout_deadline(const struct printout *printout); /* UINT64_MAX: none */

/* Nobody is to be listened to any more. Hands on what is left, unfinished lines too. */
void printout_end(struct printout *printout, struct link *link);

#endif
