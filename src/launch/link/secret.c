/*
 * secret.c - the job's secret, on its way to the job's processes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/secret.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>

#include "base/fail.h"
#include "config/settings.h"
#include "launch/link/munge.h"
#include "launch/system/close_fd.h"
#include "launch/system/spawn.h"
#include "secure/secret.h"

static const char file_mark[] = "file:"; /* stands before the name of a file */

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
    int memory = memfd_create("psd_secret", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    int fd = -1;

    if (memory >= 0 && write(memory, bytes, PSI_SECRET_BYTES) == PSI_SECRET_BYTES &&
        fcntl(memory, F_ADD_SEALS, seals) == 0) {
        fd = fcntl(memory, F_DUPFD, SPAWN_EXTRA_FD + 1); /* above what children lay out */
    }
    close_fd(&memory);
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

psd_status
launch_secret_send_sealed(int fd, const char *file, struct link *link, struct psd_error *err)
{
    uint8_t bytes[PSI_SECRET_BYTES];
    char *text = NULL;
    psd_status status = PSD_OK;

    if (munge_is_there()) {
        if (pread(fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
            return psi_fail_errno(err, PSD_ERR_IO, "read the job's secret");
        }
        status = munge_seal(NULL, bytes, &text, err);
        explicit_bzero(bytes, sizeof(bytes));
    } else if (file == NULL) {
        return psi_fail(err, PSD_ERR_IO,
                        "what goes over srun can be read on the network, and there is no MUNGE "
                        "(libmunge.so.2) to seal the job's secret: give a --secret_file that all "
                        "nodes have (psd_run secret FILE makes one)");
    } else if (asprintf(&text, "%s%s", file_mark, file) < 0) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for the job's secret");
    }
    if (status == PSD_OK) {
        link_send(link, LINK_SECRET, 0, 0, text, strlen(text));
    }
    free(text);
    return status;
}

/* A descriptor of the secret in a file that children inherit, or -1. */
static int
read_from_file(const char *path, struct psd_error *err)
{
    struct psi_secret *secret = NULL;
    int memory = -1;
    int fd = -1;

    if (psi_secret_from_file(path, &secret, err) == PSD_OK) {
        memory = psi_secret_to_fd(secret, err);
        psi_secret_destroy(secret);
    }
    if (memory >= 0) {
        fd = fcntl(memory, F_DUPFD, SPAWN_EXTRA_FD + 1); /* above what children lay out */
        close(memory);
    }
    return fd;
}

static int
read_sealed(const char *text, struct psd_error *err)
{
    uint8_t bytes[PSI_SECRET_BYTES];
    int fd = -1;

    if (strncmp(text, file_mark, sizeof(file_mark) - 1) == 0) {
        return read_from_file(text + sizeof(file_mark) - 1, err);
    }
    if (munge_unseal(NULL, text, bytes, err) == PSD_OK) {
        fd = seal(bytes);
        explicit_bzero(bytes, sizeof(bytes));
    }
    return fd;
}

int
launch_secret_take(const struct link_message *message, struct psd_error *err)
{
    char *text;
    int fd;

    if (message->bytes == PSI_SECRET_BYTES) {
        fd = seal(message->data);
    } else {
        text = strndup(message->data, message->bytes);
        fd = text != NULL ? read_sealed(text, err) : -1;
        free(text);
    }
    if (fd < 0 && err != NULL && err->status == PSD_OK) {
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

/* Takes the secret. */
static psd_status
write_reader_key(struct psi_secret *secret, const char *file, struct psd_error *err)
{
    struct psi_secret *key = NULL;
    psd_status status = psi_secret_for_readers(secret, &key, err);

    if (status == PSD_OK) {
        status = psi_secret_to_file(key, file, err);
    }
    psi_secret_destroy(key);
    psi_secret_destroy(secret);
    return status;
}

psd_status
launch_secret_reader_key(int fd, const char *file, struct psd_error *err)
{
    struct psi_secret *secret;
    const psd_status status = psi_secret_from_fd(fd, &secret, err);

    return status == PSD_OK ? write_reader_key(secret, file, err) : status;
}

psd_status
launch_secret_make_reader_key(const char *secret_file, const char *file, struct psd_error *err)
{
    struct psi_secret *secret;
    const psd_status status = psi_secret_from_file(secret_file, &secret, err);

    return status == PSD_OK ? write_reader_key(secret, file, err) : status;
}
