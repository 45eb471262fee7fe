/*
 * unpack.c - unpacks an archive that arrives in parts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/link/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/fail.h"
#include "base/monotonic.h"
#include "launch/system/close_fd.h"
#include "launch/system/trusted_directory.h"

void
unpack_init(struct unpack *unpack)
{
    *unpack = (struct unpack){.directory = -1, .fd = -1, .said = -1, .stall_ms = UNPACK_STALL_MS};
}

void
unpack_fini(struct unpack *unpack)
{
    if (unpack->pid > 0) { /* the agent takes note of its death like of any other */
        kill(unpack->pid, SIGKILL);
    }
    close_fd(&unpack->directory);
    close_fd(&unpack->fd);
    close_fd(&unpack->said);
    EVP_MD_CTX_free(unpack->hash);
    free(unpack->bytes);
    unpack_init(unpack);
}

/* Starts tar on the other end of unpack->fd. */
static psd_status
start_tar(struct unpack *unpack, struct psd_error *err)
{
    char *const argv[] = {"tar", "--extract", "--file=-", NULL};
    int pipes[2];

    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync: a pipe to tar");
    }
    unpack->said = sync_open_said();
    unpack->pid = sync_start_tar(argv, unpack->directory, pipes[0], -1, unpack->said);
    close(pipes[0]);
    if (unpack->pid < 0) {
        unpack->pid = 0;
        close(pipes[1]);
        return psi_fail_errno(err, PSD_ERR_IO, "sync: start tar");
    }
    fcntl(pipes[1], F_SETFL, O_NONBLOCK);
    unpack->fd = pipes[1];
    unpack->moved_ms = psi_monotonic_ms();
    return PSD_OK;
}

/* From here on the directory is neither what it was nor what it will be. */
static psd_status
start_unpacking(struct unpack *unpack, struct psd_error *err)
{
    psd_status status;

    if (faccessat(unpack->directory, ".", W_OK, AT_EACCESS) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "sync: write to %s", unpack->path);
    }
    unpack->bytes = malloc(UNPACK_WINDOW_BYTES);
    unpack->hash = EVP_MD_CTX_new();
    if (unpack->bytes == NULL || unpack->hash == NULL ||
        EVP_DigestInit_ex(unpack->hash, EVP_sha256(), NULL) != 1) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "sync: no memory for %s", unpack->path);
    }
    status = sync_remove_mark(unpack->directory, unpack->path, err);
    return status == PSD_OK ? start_tar(unpack, err) : status;
}

psd_status
unpack_begin(struct unpack *unpack, const struct words *words, uint32_t *wanted_p,
             struct psd_error *err)
{
    char have[SYNC_DIGEST_BYTES];
    struct psd_error why = {0};
    psd_status status;

    unpack_fini(unpack);
    *wanted_p = 0;
    if (words->count != 2) {
        return psi_fail(err, PSD_ERR_INVALID, "sync: a directory and a digest are needed");
    }
    snprintf(unpack->path, sizeof(unpack->path), "%s", words->list[0]);
    snprintf(unpack->digest, sizeof(unpack->digest), "%s", words->list[1]);
    status = trusted_directory_open(words->list[0], &unpack->directory, &why);
    if (status != PSD_OK) {
        return psi_fail(err, status, "--sync: %s", why.text);
    }
    sync_read_mark(unpack->directory, have);
    if (strcmp(have, unpack->digest) == 0) {
        unpack_fini(unpack);
        return PSD_OK;
    }
    status = start_unpacking(unpack, err);
    if (status != PSD_OK) {
        unpack_fini(unpack);
        return status;
    }
    *wanted_p = UNPACK_WINDOW_BYTES;
    return PSD_OK;
}

psd_status
unpack_take(struct unpack *unpack, const struct link_message *message, struct psd_error *err)
{
    if (unpack->failed) {
        return PSD_OK; /* what was on its way when we gave up */
    }
    if (unpack->directory < 0 || unpack->whole) {
        return psi_fail(err, PSD_ERR_STATE, "sync: files that nobody asked for");
    }
    if (message->bytes == 0) {
        unpack->whole = true;
        return PSD_OK;
    }
    if (message->bytes > UNPACK_WINDOW_BYTES - unpack->count) {
        return psi_fail(err, PSD_ERR_STATE, "sync: more of the files than was asked for");
    }
    EVP_DigestUpdate(unpack->hash, message->data, message->bytes);
    memmove(unpack->bytes, unpack->bytes + unpack->first, unpack->count);
    memcpy(unpack->bytes + unpack->count, message->data, message->bytes);
    unpack->first = 0;
    unpack->count += message->bytes;
    return PSD_OK;
}

int
unpack_fd(const struct unpack *unpack)
{
    return unpack->count > 0 ? unpack->fd : -1;
}

/* While psd_run is what we wait for, it is for the lease to say how long. */
static bool
waits_for_tar(const struct unpack *unpack)
{
    return unpack->pid > 0 && (unpack->count > 0 || unpack->whole);
}

uint64_t
unpack_deadline_ms(const struct unpack *unpack)
{
    return waits_for_tar(unpack) ? unpack->moved_ms + unpack->stall_ms : UINT64_MAX;
}

void
unpack_died(struct unpack *unpack, pid_t pid, int status)
{
    if (unpack->pid == pid) {
        unpack->pid = 0;
        unpack->status = status;
    }
}

/* Hands tar what it takes. One that has ended takes nothing, and its end tells why. */
static void
feed(struct unpack *unpack)
{
    ssize_t written = 1;

    while (unpack->count > 0 && unpack->fd >= 0 && written > 0) {
        written = write(unpack->fd, unpack->bytes + unpack->first, unpack->count);
        if (written > 0) {
            unpack->first += (size_t)written;
            unpack->count -= (size_t)written;
            unpack->taken += (size_t)written;
            unpack->moved_ms = psi_monotonic_ms();
        } else if (errno == EINTR) {
            written = 1;
        } else if (errno != EAGAIN) {
            close_fd(&unpack->fd);
        }
    }
    if (unpack->whole && unpack->count == 0) {
        close_fd(&unpack->fd);
    }
}

/* tar has ended. */
static psd_status
finish(struct unpack *unpack, struct psd_error *err)
{
    uint8_t hash[SYNC_HASH_BYTES] = {0};
    char digits[SYNC_DIGEST_BYTES];
    char why[256];

    if (unpack->status != 0) {
        sync_last_words(unpack->said, unpack->status, why, sizeof(why));
        unpack->said = -1;
        return psi_fail(err, PSD_ERR_IO, "sync: unpack into %s: %s", unpack->path, why);
    }
    EVP_DigestFinal_ex(unpack->hash, hash, NULL);
    sync_write_digits(hash, digits);
    if (strcmp(digits, unpack->digest) != 0) {
        return psi_fail(err, PSD_ERR_CORRUPT, "sync: what arrived for %s is not what was sent",
                        unpack->path);
    }
    return sync_write_mark(unpack->directory, unpack->path, unpack->digest, err);
}

static psd_status
check_stall(const struct unpack *unpack, struct psd_error *err)
{
    if (psi_monotonic_ms() < unpack_deadline_ms(unpack)) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_TIMEOUT,
                    "sync: %s took no more files for %llu s: its disk, or the machine that has it, "
                    "does not answer",
                    unpack->path, (unsigned long long)unpack->stall_ms / 1000);
}

enum unpack_state
unpack_step(struct unpack *unpack, uint32_t *more_p, struct psd_error *err)
{
    psd_status status = PSD_OK;
    bool ended;

    if (unpack->directory < 0) {
        return UNPACK_GOES_ON;
    }
    feed(unpack);
    /* One that ended well before all was there has found the end of the archive: the rest, which
     * is padding, is only counted into the digest. */
    if (unpack->pid == 0 && unpack->status == 0 && !unpack->whole) {
        unpack->taken += unpack->count;
        unpack->count = 0;
    }
    ended = unpack->pid == 0 && (unpack->status != 0 || unpack->whole);
    status = ended ? finish(unpack, err) : check_stall(unpack, err);
    if (ended || status != PSD_OK) {
        unpack_fini(unpack);
        unpack->failed = status != PSD_OK;
        return unpack->failed ? UNPACK_FAILED : UNPACK_DONE;
    }
    if (unpack->taken >= UNPACK_WINDOW_BYTES / 4) {
        *more_p = (uint32_t)unpack->taken;
        unpack->taken = 0;
        return UNPACK_WANTS_MORE;
    }
    return UNPACK_GOES_ON;
}
