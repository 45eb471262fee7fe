/*
 * source.h - where a process finds the job's secret, and what it may do without one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_SECURE_SOURCE_H
#define PSI_SECURE_SOURCE_H

#include <stdbool.h>

#include "secure/secret.h"
#include "secure/tls.h"

/* What the environment and the command line say; NULL: nothing. */
struct psi_secret_source {
    const char *fd;       /* PSD_SECRET_FD */
    const char *file;     /* --secret_file, PSD_SECRET_FILE */
    const char *file_key; /* which of the two named the file, for messages */
    const char *insecure; /* what says to do without a secret: "--insecure", "PSD_INSECURE=1" */
};

/*
 * Reads it. No source at all: PSD_OK and *secret_p is NULL. The file wins over the descriptor. Both
 * a secret and the wish to do without one: PSD_ERR_INVALID, whichever was a mistake.
 */
psd_status psi_secret_find(const struct psi_secret_source *source, struct psi_secret **secret_p,
                           struct psd_error *err);

/* May a process that does without a secret connect to "tcp://HOST:PORT"? PSD_ERR_INVALID: no, since
 * others than this machine could be there. insecure: what said so, for the message. */
psd_status psi_insecure_connect(const char *insecure, const char *address, struct psd_error *err);

#endif
