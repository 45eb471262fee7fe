/*
 * rendezvous_directory.c - the directory in which the psd_run of a job meet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/rendezvous_directory.h"

#include <errno.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/system/make_path.h"

psd_status
rendezvous_make_directory(const char *path, struct psd_error *err)
{
    struct stat found;
    size_t failed;

    if (make_path(path, &failed) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "rendezvous directory %.*s", (int)failed, path);
    }
    if (stat(path, &found) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "rendezvous directory %s", path);
    }
    if (!S_ISDIR(found.st_mode)) {
        return psi_fail(err, PSD_ERR_IO, "rendezvous directory %s: it is no directory", path);
    }
    return PSD_OK;
}

psd_status
rendezvous_make_run_directory(const char *path, struct psd_error *err)
{
    struct stat found;

    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return psi_fail_errno(err, PSD_ERR_IO, "rendezvous directory %s", path);
    }
    if (lstat(path, &found) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "rendezvous directory %s", path);
    }
    if (!S_ISDIR(found.st_mode)) {
        return psi_fail(err, PSD_ERR_IO,
                        "rendezvous directory %s: it is a link or a file; name another --job_id",
                        path);
    }
    if (found.st_uid != geteuid()) {
        return psi_fail(err, PSD_ERR_IO,
                        "rendezvous directory %s belongs to user %u, this is user %u: name another "
                        "--job_id or another directory",
                        path, (unsigned)found.st_uid, (unsigned)geteuid());
    }
    if ((found.st_mode & 0077) != 0) {
        return psi_fail(err, PSD_ERR_IO,
                        "rendezvous directory %s is open to others (mode %04o); run: chmod 700 %s",
                        path, (unsigned)found.st_mode & 07777, path);
    }
    if (access(path, R_OK | W_OK | X_OK) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "rendezvous directory %s", path);
    }
    return PSD_OK;
}
