/*
 * runlog.c - psd_run's own log and the directory of a run's logs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/tell/runlog.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/system/close_fd.h"
#include "launch/system/log_file.h"
#include "launch/system/make_path.h"
#include "launch/text/memory.h"

enum {
    DIRECTORIES_MAX = 10000,
    NAMES_BYTES = 128 /* of the directory of a run, and of the files in it */
};

psd_status
runlog_open(struct runlog *runlog, const char *path, struct psd_error *err)
{
    runlog->fd = log_file_open(path);
    if (runlog->fd < 0 && errno == ELOOP) {
        return psi_fail(err, PSD_ERR_IO,
                        "open %s: it is a link, and psd_run writes no log through a link: remove "
                        "it",
                        path);
    }
    if (runlog->fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "open %s", path);
    }
    return PSD_OK;
}

void
runlog_close(struct runlog *runlog)
{
    close_fd(&runlog->fd);
}

void
runlog_line(const struct runlog *runlog, const char *id, const char *format, ...)
{
    char line[2048];
    struct timespec now;
    struct tm parts;
    size_t used;
    ssize_t written;
    va_list args;

    if (runlog->fd < 0) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof(line) - used, ".%03ld psd_run[%d] %s ",
                             now.tv_nsec / 1000000, (int)getpid(), id);
    va_start(args, format);
    vsnprintf(line + used, sizeof(line) - used - 1, format, args);
    va_end(args);
    for (char *c = line; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 ? ' ' : *c; /* one line stays one line */
    }
    strcat(line, "\n");
    written = write(runlog->fd, line, strlen(line));
    (void)written; /* a log that cannot be written has nowhere to complain */
}

static psd_status
fail_to_make(const char *out, struct psd_error *err)
{
    return psi_fail(err, PSD_ERR_IO, "log directory %s: %s; -o DIR puts the logs somewhere else",
                    out, strerror(errno));
}

psd_status
runlog_make_directory(const char *out, char **directory_p, struct psd_error *err)
{
    const time_t now = time(NULL);
    struct tm parts;
    char stamp[32];

    localtime_r(&now, &parts);
    strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &parts);
    if (strlen(out) > PATH_MAX - NAMES_BYTES) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "-o: a path of %zu bytes leaves no room for the names of logs in it: at most "
            "%d",
            strlen(out), PATH_MAX - NAMES_BYTES);
    }
    if (make_path(out, NULL) != 0) {
        return fail_to_make(out, err);
    }
    for (int i = 0; i < DIRECTORIES_MAX; i++) {
        char suffix[16] = "";
        char *path;

        if (i > 0) {
            snprintf(suffix, sizeof(suffix), "-%d", i);
        }
        path = memory_format("%s/poseidon_log_%s%s", out, stamp, suffix);
        if (mkdir(path, 0755) == 0) {
            *directory_p = path;
            return PSD_OK;
        }
        if (errno != EEXIST) {
            fail_to_make(out, err);
            free(path);
            return PSD_ERR_IO;
        }
        free(path);
    }
    return psi_fail(err, PSD_ERR_IO, "%s: too many jobs began in this second; try again", out);
}
