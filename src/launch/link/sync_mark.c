/*
 * sync_mark.c - the mark of a directory that was shipped, and tar.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/sync_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "launch/system/close_fd.h"
#include "launch/system/stderr_tail.h"
#include "launch/system/whole_file.h"

enum { SAID_BYTES_MAX = 4096 };

static const char mark[] = ".psd_sync";

void
sync_write_digits(const uint8_t *hash, char digits_p[SYNC_DIGEST_BYTES])
{
    for (size_t i = 0; i < SYNC_HASH_BYTES; i++) {
        snprintf(digits_p + 2 * i, 3, "%02x", hash[i]);
    }
}

void
sync_read_mark(int directory, char digits_p[SYNC_DIGEST_BYTES])
{
    int fd = openat(directory, mark, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, digits_p, SYNC_DIGEST_BYTES - 1) : -1;

    digits_p[bytes > 0 ? bytes : 0] = '\0';
    close_fd(&fd);
}

/* The mark leaves no other trace: the time of the directory is a part of the archive. */
psd_status
sync_write_mark(int directory, const char *path, const char *digits, struct psd_error *err)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    char line[SYNC_DIGEST_BYTES + 1];
    struct psd_error why = {0};
    struct stat info;

    if (fstat(directory, &info) == 0) {
        times[1] = info.st_mtim;
    }
    snprintf(line, sizeof(line), "%s\n", digits);
    if (whole_file_write(directory, mark, line, &why) != PSD_OK) {
        return psi_fail(err, PSD_ERR_IO, "--sync: mark %s: %s", path, why.text);
    }
    utimensat(directory, ".", times, 0);
    return PSD_OK;
}

psd_status
sync_remove_mark(int directory, const char *path, struct psd_error *err)
{
    if (unlinkat(directory, mark, 0) != 0 && errno != ENOENT) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync: remove %s/%s", path, mark);
    }
    return PSD_OK;
}

pid_t
sync_start_tar(char *const *argv, int directory, int input, int output, int said)
{
    const pid_t pid = fork();

    if (pid == 0) {
        const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

        dup2(input >= 0 ? input : nothing, STDIN_FILENO);
        dup2(output >= 0 ? output : nothing, STDOUT_FILENO);
        dup2(said >= 0 ? said : nothing, STDERR_FILENO);
        signal(SIGPIPE, SIG_DFL);
        if (fchdir(directory) == 0) {
            execvp(argv[0], argv);
        }
        dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    return pid;
}

int
sync_open_said(void)
{
    return memfd_create("psd_sync_said", MFD_CLOEXEC);
}

/* That it fails is no reason. */
static bool
is_closing_line(const char *line)
{
    return strncmp(line, "tar: Exiting with failure", 25) == 0 ||
           strncmp(line, "tar: Error is not recoverable", 29) == 0;
}

void
sync_last_words(int said, int status, char *text_p, size_t size)
{
    char text[SAID_BYTES_MAX + 1] = "";
    struct stat info;

    if (said >= 0 && fstat(said, &info) == 0) {
        const off_t begin = info.st_size > SAID_BYTES_MAX ? info.st_size - SAID_BYTES_MAX : 0;
        const ssize_t bytes = pread(said, text, SAID_BYTES_MAX, begin);

        text[bytes > 0 ? bytes : 0] = '\0';
    }
    close_fd(&said);
    stderr_tail_describe("tar", text, "", is_closing_line, status, text_p, size);
}
