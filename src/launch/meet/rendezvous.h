/*
 * rendezvous.h - a directory that all machines see, where psd_run processes find each other when
 * nobody knows addresses in advance.
 *
 *     DIR/psd-RUN/            mode 0700, ours: a run has a directory of its own
 *         rank-3              rendezvous_file.h; its time is renewed every second while that rank
 * lives secret              mode 0600: the job's, unless --secret_file names another over the exit
 * code, when the job ended while somebody was away
 *
 * A file is written beside its place, brought to the disk, put there in one step and read back, so
 * nobody reads half of one. A rank is taken with a step that only one can make; who finds it taken
 * looks whether its time moves: then somebody lives there, else it was left behind by a process
 * that was killed, and is replaced. Times are compared with each other only, never with a clock of
 * ours.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RENDEZVOUS_H
#define LAUNCH_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/meet/joiner.h"

enum { RENDEZVOUS_STALE_MS = 5000 }; /* a file whose time has not moved for so long is nobody's */

struct rendezvous_config {
    const char *directory;
    const char *run; /* letters, digits, '-', '_', '.' */
    uint32_t rank;
    uint32_t size;
};

/* Thread: owned by the main thread of psd_run. */
struct rendezvous;

/* Takes the place of the rank. PSD_ERR_REFUSED: somebody lives there. Takes RENDEZVOUS_STALE_MS
 * where somebody was killed. */
psd_status rendezvous_open(const struct rendezvous_config *config, struct rendezvous **rendezvous_p,
                           struct psd_error *err);

/* Leaves: removes what is ours, and the run's directory if it was the last thing in it. */
void rendezvous_close(struct rendezvous *rendezvous);

/* Path of the job's secret, made now if nobody has; valid as long as the rendezvous. */
psd_status rendezvous_secret(struct rendezvous *rendezvous, const char **path_p,
                             struct psd_error *err);

/* Rank 0: tells the others where it listens. advertised: NULL: all addresses of this machine, IPv6
 * or IPv4. */
psd_status rendezvous_publish(struct rendezvous *rendezvous, const char *advertised, bool v6,
                              uint16_t port, struct psd_error *err);

/* Renews the time. PSD_ERR_REFUSED: another psd_run has taken the place. */
psd_status rendezvous_beat(struct rendezvous *rendezvous, struct psd_error *err);

uint64_t rendezvous_incarnation(const struct rendezvous *rendezvous);

/* Files of older tools in the directory, which are left alone: how many, and one of them. */
uint32_t rendezvous_old_files(const struct rendezvous *rendezvous, char *text_p, size_t size);

/* Rank 0: the job is over for good, with this code. all_know: nobody will come back and ask, or who
 * does may be of the next job. */
void rendezvous_over(struct rendezvous *rendezvous, int code, bool all_know);

/* Other ranks: where rank 0 is, as joiner_find() says. */
psd_status rendezvous_find(struct rendezvous *rendezvous, char address_p[JOINER_ADDRESS_BYTES],
                           int *code_p, struct psd_error *err);

#endif
