/*
 * emit.h - what other systems need to run a job: --emit sbatch, condor, k8s, ports. Printed, not
 * done.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_EMIT_H
#define LAUNCH_EMIT_H

#include <stdio.h>

#include "launch/plan/personality.h"
#include "launch/prepare/options.h"
#include "launch/text/words.h"

enum { EMIT_PORT = 7070 }; /* of the coordinator, where a fixed one is needed */

/* What is the same for all of them. */
struct emit {
    const struct launch_options *options;
    uint32_t size;
    uint32_t servers;
    unsigned personality;   /* a set */
    struct words handed_on; /* options of the command line that psd_run gets there, too */
    struct words command;   /* the workers' */
};

/* Prints to file. argv: psd_run's own, which was parsed into options. PSD_ERR_INVALID: something is
 * missing on the command line. */
psd_status emit_job(const struct launch_options *options, char *const *argv, FILE *file,
                    struct psd_error *err);

/* The counts in words, for the head of a file. `first` is how the system calls rank 0. */
void emit_print_counts(const struct emit *emit, const char *first, FILE *file);

/* One for each system. */
psd_status emit_condor(const struct emit *emit, FILE *file, struct psd_error *err);
psd_status emit_k8s(const struct emit *emit, FILE *file, struct psd_error *err);

#endif
