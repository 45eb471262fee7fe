/*
 * whole_file.c - writes a small file whole or not at all.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/random.h>

#include "base/fail.h"

enum { PATH_BYTES = 4200 };

static bool
write_all(int fd, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        const ssize_t written = write(fd, text, left);

        if (written < 0 && errno != EINTR) {
            return false;
        }
        text += written > 0 ? written : 0;
        left -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

psd_status
whole_file_write(int directory, const char *name, const char *text, struct psd_error *err)
{
    char part[PATH_BYTES];
    unsigned long long token = 0;
    bool written;
    int fd;

    if (getrandom(&token, sizeof(token), 0) != sizeof(token) ||
        snprintf(part, sizeof(part), "%s.%016llx.part", name, token) >= (int)sizeof(part)) {
        return psi_fail(err, PSD_ERR_INVALID, "write %.200s: its path is too long", name);
    }
    fd = openat(directory, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "make %s", part);
    }
    written = write_all(fd, text);
    if (close(fd) != 0 || !written || renameat(directory, part, directory, name) != 0) {
        psi_fail_errno(err, PSD_ERR_IO, "write %s", name);
        unlinkat(directory, part, 0);
        return PSD_ERR_IO;
    }
    return PSD_OK;
}
