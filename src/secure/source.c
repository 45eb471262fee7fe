/*
 * source.c - where a process finds the job's secret.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/source.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fail.h"

psd_status
psi_secret_find(const struct psi_secret_source *source, struct psi_secret **secret_p,
                struct psd_error *err)
{
    char *end;
    long fd;

    *secret_p = NULL;
    if (source->file != NULL) {
        return psi_secret_from_file(source->file, secret_p, err);
    }
    if (source->fd == NULL) {
        return PSD_OK;
    }
    errno = 0;
    fd = strtol(source->fd, &end, 10);
    if (errno != 0 || end == source->fd || *end != '\0' || fd < 0 || fd > 1 << 20) {
        return psi_fail(err, PSD_ERR_INVALID, "PSD_SECRET_FD=%s: not a descriptor", source->fd);
    }
    return psi_secret_from_fd((int)fd, secret_p, err);
}
