/*
 * source.c - where a process finds the job's secret, and what it may do without one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "secure/source.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fail.h"
#include "transport/address.h"

psd_status
psi_secret_find(const struct psi_secret_source *source, struct psi_secret **secret_p,
                struct psd_error *err)
{
    char *end;
    long fd;

    *secret_p = NULL;
    if (source->file == NULL && source->fd == NULL) {
        return PSD_OK;
    }
    if (source->insecure != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "%s and %s contradict each other: without a secret everybody on this "
                        "machine may join, with one only members; leave one of the two out",
                        source->insecure,
                        source->file != NULL ? source->file_key : "PSD_SECRET_FD");
    }
    if (source->file != NULL) {
        return psi_secret_from_file(source->file, secret_p, err);
    }
    errno = 0;
    fd = strtol(source->fd, &end, 10);
    if (errno != 0 || end == source->fd || *end != '\0' || fd < 0 || fd > 1 << 20) {
        return psi_fail(err, PSD_ERR_INVALID, "PSD_SECRET_FD=%s: not a descriptor", source->fd);
    }
    return psi_secret_from_fd((int)fd, secret_p, err);
}

psd_status
psi_insecure_connect(const char *insecure, const char *address, struct psd_error *err)
{
    struct psi_address to;
    psd_status status = psi_address_parse(address, &to, err);

    if (status == PSD_OK && !psi_address_is_loopback(&to)) {
        status = psi_fail(err, PSD_ERR_INVALID,
                          "%s: %s is not a loopback address; set PSD_SECRET_FILE to the job's "
                          "secret file",
                          insecure, address);
    }
    return status;
}
