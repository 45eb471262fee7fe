/*
 * master_file.c - where the job's master listens, in a file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/master_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

enum {
    LINE_BYTES = PSI_MASTER_FILE_ADDRESS + 16,
    PATH_BYTES = 4096,
    DIGITS_MAX = 9,
    FORBIDDEN_MODE = 077, /* nobody but its owner */
};

/* Others could send a member to where it waits in vain, if no further. */
static psd_status
check_owner(int fd, const char *path, struct psd_error *err)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return psi_fail_errno(err, PSD_ERR_REFUSED, "%s (PSD_MASTER_FILE)", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return psi_fail(err, PSD_ERR_REFUSED, "%s (PSD_MASTER_FILE): not a plain file", path);
    }
    if (info.st_uid != geteuid()) {
        return psi_fail(err, PSD_ERR_REFUSED, "%s (PSD_MASTER_FILE): it belongs to user %u, not %u",
                        path, (unsigned)info.st_uid, (unsigned)geteuid());
    }
    if ((info.st_mode & FORBIDDEN_MODE) != 0) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "%s (PSD_MASTER_FILE): mode %04o lets others at it; run: chmod 600 %s",
                        path, (unsigned)info.st_mode & 07777, path);
    }
    return PSD_OK;
}

/* One whole line, as psi_master_file_write() writes it, and nothing else. */
static bool
parse(const char *line, size_t bytes, struct psi_master_told *told_p)
{
    const size_t digits = strspn(line, "0123456789");
    const char *address = line + digits + 1;

    if (bytes == 0 || strlen(line) != bytes || line[bytes - 1] != '\n' || line[0] == '0' ||
        digits == 0 || digits > DIGITS_MAX || line[digits] != ' ') {
        return false;
    }
    bytes -= digits + 2; /* of the address alone */
    if (bytes == 0 || bytes >= sizeof(told_p->address)) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (address[i] <= ' ' || address[i] > '~') {
            return false;
        }
    }
    told_p->term = (uint32_t)strtoul(line, NULL, 10);
    memcpy(told_p->address, address, bytes); /* the rest is zero */
    return true;
}

psd_status
psi_master_file_read(const char *path, struct psi_master_told *told_p, struct psd_error *err)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char line[LINE_BYTES + 1] = "";
    psd_status status;
    ssize_t bytes;

    *told_p = (struct psi_master_told){0};
    if (fd < 0 && errno == ENOENT) {
        return PSD_OK;
    }
    if (fd < 0 && errno == ELOOP) {
        return psi_fail(err, PSD_ERR_REFUSED, "%s (PSD_MASTER_FILE): it is a link", path);
    }
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_REFUSED, "%s (PSD_MASTER_FILE)", path);
    }
    status = check_owner(fd, path, err);
    bytes = status == PSD_OK ? read(fd, line, LINE_BYTES) : 0;
    close(fd);
    if (status == PSD_OK && (bytes < 0 || !parse(line, (size_t)bytes, told_p))) {
        status = psi_fail(err, PSD_ERR_REFUSED,
                          "%s (PSD_MASTER_FILE): not a line like \"2 tcp://HOST:PORT\"", path);
    }
    return status;
}

psd_status
psi_master_file_write(const char *path, const struct psi_master_told *told, struct psd_error *err)
{
    char line[LINE_BYTES];
    char next[PATH_BYTES];
    const int bytes = snprintf(line, sizeof(line), "%u %s\n", told->term, told->address);
    bool well;
    int fd;

    if (snprintf(next, sizeof(next), "%s.next", path) >= (int)sizeof(next)) {
        return psi_fail(err, PSD_ERR_INVALID, "%s: its name is too long", path);
    }
    (void)unlink(next); /* of a writer that died in the middle */
    fd = open(next, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    well = fd >= 0;
    if (well) {
        errno = EIO; /* of a short write */
        well = write(fd, line, (size_t)bytes) == bytes;
        well = close(fd) == 0 && well;
    }
    if (!well || rename(next, path) != 0) {
        psi_fail_errno(err, PSD_ERR_IO, "write %s", path);
        (void)unlink(next);
        (void)unlink(path); /* what it says is over: better nothing than that */
        return PSD_ERR_IO;
    }
    return PSD_OK;
}
