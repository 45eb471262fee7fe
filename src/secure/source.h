/*
 * source.h - where a process finds the job's secret, and what it may do without one.
 */
#ifndef PSI_SECURE_SOURCE_H
#define PSI_SECURE_SOURCE_H

#include <stdbool.h>

#include "secure/secret.h"
#include "secure/tls.h"

/* What the environment and the command line say; NULL: nothing. */
struct psi_secret_source {
    const char *fd;   /* PSD_SECRET_FD */
    const char *file; /* --secret_file, PSD_SECRET_FILE */
};

/*
 * Reads it. No source at all: PSD_OK and *secret_p is NULL. The file wins over the descriptor.
 */
psd_status psi_secret_find(const struct psi_secret_source *source, struct psi_secret **secret_p,
                           struct psd_error *err);

#endif
