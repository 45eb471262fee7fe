/*
 * secret.c - the job's secret, on its way to the job's processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/secret.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/spawn.h"
#include "secure/secret.h"

int
launch_secret_offer(const char *file, struct psd_error *err)
{
    const char *given = file != NULL ? file : psi_environment("PSD_SECRET_FILE");
    struct psi_secret *secret = NULL;
    char number[16];
    int memory = -1;
    int fd = -1;

    if ((given != NULL ? psi_secret_from_file(given, &secret, err)
                       : psi_secret_create(&secret, err)) == PSD_OK) {
        memory = psi_secret_to_fd(secret, err);
    }
    psi_secret_destroy(secret);
    if (memory < 0) {
        return -1;
    }
    fd = fcntl(memory, F_DUPFD, SPAWN_EXTRA_FD + 1); /* above what children lay out */
    close(memory);
    snprintf(number, sizeof(number), "%d", fd);
    if (fd < 0 || setenv("PSD_SECRET_FD", number, 1) != 0 || unsetenv("PSD_SECRET_FILE") != 0 ||
        unsetenv("PSD_INSECURE") != 0) {
        psi_fail_errno(err, PSD_ERR_NO_MEMORY, "hand on the job's secret");
        return -1;
    }
    return fd;
}

psd_status
launch_secret_make(const char *file, struct psd_error *err)
{
    struct psi_secret *secret;
    psd_status status = psi_secret_create(&secret, err);

    if (status == PSD_OK) {
        status = psi_secret_to_file(secret, file, err);
        psi_secret_destroy(secret);
    }
    return status;
}
