/*
 * sync.c - packs a directory and sends it to other machines.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/sync.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fail.h"

enum { PIECE_BYTES = 128 << 10, PENDING_BYTES_MAX = 1 << 20 };

/* Nobody but the owner may write to the copies: the other end uses no directory where others may.
 */
static psd_status
pack_into(int fd, int directory, const char *path, struct psd_error *err)
{
    char *const argv[] = {
        "tar",       "--create",        "--file=-",    "--sort=name",           "--owner=0",
        "--group=0", "--numeric-owner", "--mode=go-w", "--exclude=./.psd_sync", ".",
        NULL};
    const int said = sync_open_said();
    const pid_t pid = sync_start_tar(argv, directory, -1, fd, said);
    char why[256];
    int status = -1;

    if (pid > 0) {
        waitpid(pid, &status, 0);
    }
    sync_last_words(said, status, why, sizeof(why));
    return status == 0 ? PSD_OK : psi_fail(err, PSD_ERR_IO, "--sync %s: %s", path, why);
}

/* Takes the descriptor of a directory. */
static psd_status
pack(int directory, struct sync *sync, struct psd_error *err)
{
    uint8_t hash[SYNC_HASH_BYTES];
    struct stat info;
    psd_status status;
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0) {
        fd = memfd_create("psd_sync", MFD_CLOEXEC);
    }
    status = pack_into(fd, directory, sync->directory, err);
    if (status == PSD_OK && fstat(fd, &info) == 0 && info.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

        sync->bytes = bytes != MAP_FAILED ? bytes : NULL;
        sync->count = (size_t)info.st_size;
    }
    close(fd);
    if (status == PSD_OK && (sync->bytes == NULL || EVP_Digest(sync->bytes, sync->count, hash, NULL,
                                                               EVP_sha256(), NULL) != 1)) {
        status = psi_fail(err, PSD_ERR_IO, "--sync %s: no room to pack it", sync->directory);
    }
    if (status == PSD_OK) {
        sync_write_digits(hash, sync->digest);
        status = sync_write_mark(directory, sync->directory, sync->digest, err);
    }
    return status;
}

psd_status
sync_pack(const char *directory, struct sync *sync_p, struct psd_error *err)
{
    struct sync sync = {.bytes = NULL};
    psd_status status;
    int fd;

    if (realpath(directory, sync.directory) == NULL) {
        return psi_fail_errno(err, PSD_ERR_IO, "--sync %s", directory);
    }
    fd = open(sync.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "--sync %s", directory);
    }
    status = pack(fd, &sync, err);
    close(fd);
    *sync_p = sync;
    return status;
}

void
sync_fini(struct sync *sync)
{
    if (sync->bytes != NULL) {
        munmap((void *)(uintptr_t)sync->bytes, sync->count);
    }
    *sync = (struct sync){.bytes = NULL};
}

bool
sync_send(const struct sync *sync, struct link *link, size_t *offset, size_t wanted)
{
    const size_t end = sync->count < wanted ? sync->count : wanted;

    while (*offset < end && link_pending(link) < PENDING_BYTES_MAX && !link->failed) {
        const size_t left = end - *offset;
        const size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;

        link_send(link, LINK_FILES, 0, 0, sync->bytes + *offset, bytes);
        *offset += bytes;
        if (*offset == sync->count) {
            link_send(link, LINK_FILES, 0, 0, NULL, 0);
        }
    }
    return *offset == sync->count;
}
