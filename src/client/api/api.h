/*
 * api.h - what the public calls share. Each of the api_*.c checks arguments and calls the core
 * under the context's lock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CLIENT_API_API_H
#define PSI_CLIENT_API_API_H

#include "client/api/context.h"
#include "client/core/state.h"

static inline psd_context *
psi_context_of(const struct psi_client *client)
{
    return client->context;
}

/* What could never be connected to is an error at once, not after a timeout. */
psd_status psi_check_address(const char *text, struct psd_error *err);

/* Where the job's secret may be; file: NULL, or what the caller says. */
psd_status psi_secret_source(const char *file, struct psi_secret_source *source_p,
                             struct psd_error *err);

/* What this process has used: measure.c. */
void psi_measure_process(struct psi_metrics *metrics);

#endif
