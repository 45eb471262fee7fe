/*
 * secret.c - the job's secret, on its way to the job's processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/secret.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/spawn.h"
#include "secure/secret.h"

/* Our children learn of the descriptor. Returns it, or -1. */
static int
announce(int fd, struct psd_error *err)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", fd);
    if (fd < 0 || setenv("PSD_SECRET_FD", number, 1) != 0 || unsetenv("PSD_SECRET_FILE") != 0 ||
        unsetenv("PSD_INSECURE") != 0) {
        psi_fail_errno(err, PSD_ERR_NO_MEMORY, "hand on the job's secret");
        return -1;
    }
    return fd;
}

int
launch_secret_offer(const char *file, struct psd_error *err)
{
    const char *given = file != NULL ? file : psi_environment("PSD_SECRET_FILE");
    struct psi_secret *secret = NULL;
    int memory = -1;
    int fd;

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
    return announce(fd, err);
}

/* A sealed descriptor of these bytes that children inherit, or -1. */
static int
seal(const void *bytes)
{
    const unsigned seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const int memory = memfd_create("psd_secret", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    int fd = -1;

    if (memory >= 0 && write(memory, bytes, PSI_SECRET_BYTES) == PSI_SECRET_BYTES &&
        fcntl(memory, F_ADD_SEALS, seals) == 0) {
        fd = fcntl(memory, F_DUPFD, SPAWN_EXTRA_FD + 1); /* above what children lay out */
    }
    if (memory >= 0) {
        close(memory);
    }
    return fd;
}

int
launch_secret_adopt(const uint8_t secret[PSI_SECRET_BYTES], struct psd_error *err)
{
    return announce(seal(secret), err);
}

psd_status
launch_secret_send(int fd, struct link *link, struct psd_error *err)
{
    uint8_t bytes[PSI_SECRET_BYTES];

    if (pread(fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return psi_fail_errno(err, PSD_ERR_IO, "read the job's secret");
    }
    link_send(link, LINK_SECRET, 0, 0, bytes, sizeof(bytes));
    explicit_bzero(bytes, sizeof(bytes));
    return PSD_OK;
}

int
launch_secret_take(const struct link_message *message, struct psd_error *err)
{
    const int fd = message->bytes == PSI_SECRET_BYTES ? seal(message->data) : -1;

    if (fd < 0) {
        psi_fail(err, PSD_ERR_INVALID, "the job's secret did not arrive");
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
