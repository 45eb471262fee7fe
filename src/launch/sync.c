/*
 * sync.c - ships a directory to other machines.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fail.h"

enum { PIECE_BYTES = 128 << 10, PENDING_BYTES_MAX = 1 << 20, HASH_BYTES = 32 };

static const char mark[] = ".psd_sync";

static void
write_digits(const uint8_t *hash, char digits_p[SYNC_DIGEST_BYTES])
{
    for (size_t i = 0; i < HASH_BYTES; i++) {
        snprintf(digits_p + 2 * i, 3, "%02x", hash[i]);
    }
}

/* The mark of a directory; "" if it has none. */
static void
read_mark(const char *directory, char digits_p[SYNC_DIGEST_BYTES])
{
    char path[4200];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", directory, mark);
    digits_p[0] = '\0';
    file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%64s", digits_p) != 1) {
            digits_p[0] = '\0';
        }
        fclose(file);
    }
}

/* The mark leaves no other trace: the time of the directory is a part of the archive. */
static psd_status
write_mark(const char *directory, const char *digits, struct psd_error *err)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    struct stat info;
    char path[4200];
    FILE *file;

    if (stat(directory, &info) == 0) {
        times[1] = info.st_mtim;
    }
    snprintf(path, sizeof(path), "%s/%s", directory, mark);
    file = fopen(path, "we");
    utimensat(AT_FDCWD, directory, times, 0);
    if (file == NULL || fprintf(file, "%s\n", digits) < 0 || fclose(file) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "write %s", path);
    }
    return PSD_OK;
}

/* Runs tar between two descriptors. Returns its pid, or -1. */
static pid_t
start_tar(char *const *argv, int input, int output)
{
    const pid_t pid = fork();

    if (pid == 0) {
        const int nothing = open("/dev/null", O_RDWR);

        dup2(input >= 0 ? input : nothing, STDIN_FILENO);
        dup2(output >= 0 ? output : nothing, STDOUT_FILENO);
        signal(SIGPIPE, SIG_DFL);
        execvp(argv[0], argv);
        _exit(127);
    }
    return pid;
}

/* ------------------------------------------------------------------------------- to pack --- */

static psd_status
pack_into(int fd, const char *directory, struct psd_error *err)
{
    char *const argv[] = {"tar",
                          "--create",
                          "--sort=name",
                          "--owner=0",
                          "--group=0",
                          "--numeric-owner",
                          "--exclude=./.psd_sync",
                          "--directory",
                          (char *)(uintptr_t)directory,
                          ".",
                          NULL};
    const pid_t pid = start_tar(argv, -1, fd);
    int status = -1;

    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        return psi_fail(err, PSD_ERR_IO, "--sync %s: tar cannot pack it", directory);
    }
    return PSD_OK;
}

psd_status
sync_pack(const char *directory, struct sync *sync_p, struct psd_error *err)
{
    struct sync sync = {.bytes = NULL};
    uint8_t hash[HASH_BYTES];
    struct stat info;
    psd_status status;
    int fd;

    if (realpath(directory, sync.directory) == NULL || stat(sync.directory, &info) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "--sync %s", directory);
    }
    if (!S_ISDIR(info.st_mode)) {
        return psi_fail(err, PSD_ERR_IO, "--sync %s: not a directory", directory);
    }
    fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        fd = memfd_create("psd_sync", MFD_CLOEXEC);
    }
    status = pack_into(fd, sync.directory, err);
    if (status == PSD_OK && fstat(fd, &info) == 0 && info.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

        sync.bytes = bytes != MAP_FAILED ? bytes : NULL;
        sync.count = (size_t)info.st_size;
    }
    close(fd);
    if (status == PSD_OK && (sync.bytes == NULL || EVP_Digest(sync.bytes, sync.count, hash, NULL,
                                                              EVP_sha256(), NULL) != 1)) {
        status = psi_fail(err, PSD_ERR_IO, "--sync %s: no room to pack it", directory);
    }
    if (status == PSD_OK) {
        write_digits(hash, sync.digest);
        status = write_mark(sync.directory, sync.digest, err);
    }
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
sync_send(const struct sync *sync, struct link *link, size_t *offset)
{
    while (*offset < sync->count && link_pending(link) < PENDING_BYTES_MAX && !link->failed) {
        const size_t left = sync->count - *offset;
        const size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;

        link_send(link, LINK_FILES, 0, 0, sync->bytes + *offset, bytes);
        *offset += bytes;
        if (*offset == sync->count) {
            link_send(link, LINK_FILES, 0, 0, NULL, 0);
        }
    }
    return *offset == sync->count;
}

/* ----------------------------------------------------------------------------- to unpack --- */

static void
make_directories(const char *path)
{
    char copy[4096];

    snprintf(copy, sizeof(copy), "%s", path);
    for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(copy, 0755);
        *slash = '/';
    }
    mkdir(copy, 0755);
}

psd_status
unpack_begin(struct unpack *unpack, const struct words *words, bool *wanted_p,
             struct psd_error *err)
{
    char have[SYNC_DIGEST_BYTES];
    char *const argv[] = {"tar", "--extract", "--directory", unpack->directory, NULL};
    int pipes[2];

    *unpack = (struct unpack){.fd = -1};
    *wanted_p = false;
    if (words->count != 2) {
        return psi_fail(err, PSD_ERR_INVALID, "sync: a directory and a digest are needed");
    }
    snprintf(unpack->directory, sizeof(unpack->directory), "%s", words->list[0]);
    snprintf(unpack->digest, sizeof(unpack->digest), "%s", words->list[1]);
    read_mark(unpack->directory, have);
    if (strcmp(have, unpack->digest) == 0) {
        return PSD_OK;
    }
    make_directories(unpack->directory);
    if (access(unpack->directory, W_OK) != 0 || pipe2(pipes, O_CLOEXEC) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync: write to %s", unpack->directory);
    }
    unpack->hash = EVP_MD_CTX_new();
    if (unpack->hash != NULL) {
        EVP_DigestInit_ex(unpack->hash, EVP_sha256(), NULL);
    }
    unpack->pid = start_tar(argv, pipes[0], -1);
    close(pipes[0]);
    unpack->fd = pipes[1];
    *wanted_p = true;
    return PSD_OK;
}

static psd_status
finish(struct unpack *unpack, struct psd_error *err)
{
    uint8_t hash[HASH_BYTES] = {0};
    char digits[SYNC_DIGEST_BYTES];
    int status = -1;

    close(unpack->fd);
    unpack->fd = -1;
    EVP_DigestFinal_ex(unpack->hash, hash, NULL);
    EVP_MD_CTX_free(unpack->hash);
    unpack->hash = NULL;
    write_digits(hash, digits);
    if (waitpid(unpack->pid, &status, 0) != unpack->pid || status != 0) {
        return psi_fail(err, PSD_ERR_IO, "sync: tar cannot unpack into %s", unpack->directory);
    }
    unpack->pid = 0;
    if (strcmp(digits, unpack->digest) != 0) {
        return psi_fail(err, PSD_ERR_CORRUPT, "sync: what arrived for %s is not what was sent",
                        unpack->directory);
    }
    return write_mark(unpack->directory, unpack->digest, err);
}

psd_status
unpack_take(struct unpack *unpack, const struct link_message *message, bool *done_p,
            struct psd_error *err)
{
    const char *at = message->data;
    size_t left = message->bytes;

    *done_p = left == 0;
    if (unpack->fd < 0) {
        return psi_fail(err, PSD_ERR_STATE, "sync: files that nobody asked for");
    }
    if (left == 0) {
        return finish(unpack, err);
    }
    EVP_DigestUpdate(unpack->hash, at, left);
    while (left > 0) {
        const ssize_t written = write(unpack->fd, at, left);

        if (written < 0 && errno != EINTR) {
            return psi_fail_errno(err, PSD_ERR_IO, "sync: unpack into %s", unpack->directory);
        }
        at += written > 0 ? written : 0;
        left -= written > 0 ? (size_t)written : 0;
    }
    return PSD_OK;
}
