/*
 * rendezvous.c - a directory where psd_run processes find each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/rendezvous.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/random.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "launch/meet/rendezvous_directory.h"
#include "launch/meet/rendezvous_file.h"
#include "launch/system/close_fd.h"
#include "launch/system/reach.h"
#include "launch/text/memory.h"
#include "secure/secret.h"

enum {
    PATH_BYTES = 4096,
    LOOK_MS = 250, /* between two looks at a file whose owner may be gone */
    ENTER_TRIES = 8,
};

struct rendezvous {
    struct rendezvous_config config;
    struct rendezvous_entry own;
    char directory[PATH_BYTES]; /* of the run */
    char path[PATH_BYTES + 32]; /* of our file */
    char secret[PATH_BYTES + 32];
    uint32_t next_address; /* of the coordinator's, to be tried next */
};

static psd_status
check_run_name(const char *run, struct psd_error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    if (run[0] == '\0' || strlen(run) >= RENDEZVOUS_RUN_BYTES ||
        strspn(run, letters) != strlen(run)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "--job_id %.64s: letters, digits, '-', '_' and '.', at most %d", run,
                        RENDEZVOUS_RUN_BYTES - 1);
    }
    return PSD_OK;
}

/* ------------------------------------------------------------------------------------- files ---
 */

/* All of a small file. Returns its bytes, -1 with errno. */
static ssize_t
read_file(const char *path, char text_p[RENDEZVOUS_FILE_BYTES + 1])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    size_t used = 0;
    ssize_t count = 0;

    if (fd < 0) {
        return -1;
    }
    while (used <= RENDEZVOUS_FILE_BYTES &&
           (count = read(fd, text_p + used, RENDEZVOUS_FILE_BYTES + 1 - used)) > 0) {
        used += (size_t)count;
    }
    close(fd);
    return count < 0 ? -1 : (ssize_t)used;
}

static psd_status
read_entry(const char *path, struct rendezvous_entry *entry_p, struct psd_error *err)
{
    char text[RENDEZVOUS_FILE_BYTES + 1];
    const ssize_t bytes = read_file(path, text);

    if (bytes < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "%s", path);
    }
    return rendezvous_read(text, (size_t)bytes, entry_p, err);
}

/* Our file, beside its place, and on the disk. */
static psd_status
write_temporary(const struct rendezvous *rendezvous, char path_p[PATH_BYTES + 64],
                struct psd_error *err)
{
    char text[RENDEZVOUS_FILE_BYTES];
    psd_status status = rendezvous_write(&rendezvous->own, text, err);
    size_t bytes;
    int fd;

    if (status != PSD_OK) {
        return status;
    }
    bytes = strlen(text);
    snprintf(path_p, PATH_BYTES + 64, "%s/.rank-%u.%016llx", rendezvous->directory,
             rendezvous->config.rank, (unsigned long long)rendezvous->own.token);
    fd = open(path_p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "write %s", path_p);
    }
    if (write(fd, text, bytes) != (ssize_t)bytes || fsync(fd) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "write %s", path_p);
    }
    if (close(fd) != 0 && status == PSD_OK) {
        status = psi_fail_errno(err, PSD_ERR_IO, "write %s", path_p);
    }
    if (status != PSD_OK) {
        unlink(path_p);
    }
    return status;
}

static bool
is_ours(const struct rendezvous *rendezvous, const struct rendezvous_entry *entry)
{
    return entry->token == rendezvous->own.token;
}

/* What stands there must be what was meant. */
static psd_status
read_back(const struct rendezvous *rendezvous, struct psd_error *err)
{
    struct rendezvous_entry entry;
    const psd_status status = read_entry(rendezvous->path, &entry, err);

    if (status == PSD_OK && !is_ours(rendezvous, &entry)) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "rank %u was taken by %s (pid %u) at the same moment: every psd_run of a "
                        "job needs a --rank of its own",
                        rendezvous->config.rank, entry.host, entry.pid);
    }
    return status;
}

/* Puts our file in place, whoever stood there. */
static psd_status
put(struct rendezvous *rendezvous, struct psd_error *err)
{
    char temporary[PATH_BYTES + 64];
    psd_status status = write_temporary(rendezvous, temporary, err);

    if (status == PSD_OK && rename(temporary, rendezvous->path) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "rename to %s", rendezvous->path);
        unlink(temporary);
    }
    return status == PSD_OK ? read_back(rendezvous, err) : status;
}

/* ------------------------------------------------------------------------------ taking a rank ---
 */

/* Takes the place if it is free: false: somebody has it (EEXIST), or errno. */
static bool
take_free(const char *temporary, const char *path)
{
    int fd;

    if (link(temporary, path) == 0) {
        unlink(temporary);
        return true;
    }
    if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP && errno != EMLINK) {
        return false;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* no links there */
    if (fd < 0) {
        return false;
    }
    close(fd);
    return rename(temporary, path) == 0;
}

/* A moment of a file: as long as it does not change, nobody renews it. */
struct moment {
    struct timespec time;
    ino_t inode;
};

/* NFS asks its server when a file is opened; what it says of one that is not may be a minute old.
 */
static bool
look(const char *path, struct moment *moment_p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat found;
    const bool seen = fd >= 0 ? fstat(fd, &found) == 0 : lstat(path, &found) == 0;

    close_fd(&fd);
    if (!seen) {
        return false;
    }
    *moment_p = (struct moment){.time = found.st_mtim, .inode = found.st_ino};
    return true;
}

/* Whether whoever has the rank lives. Takes a while to say no. */
static bool
is_alive(const char *path)
{
    struct moment first;
    struct moment now;

    if (!look(path, &first)) {
        return false;
    }
    for (int waited = 0; waited < RENDEZVOUS_STALE_MS; waited += LOOK_MS) {
        poll(NULL, 0, LOOK_MS);
        if (!look(path, &now)) {
            return false;
        }
        if (now.inode != first.inode || now.time.tv_sec != first.time.tv_sec ||
            now.time.tv_nsec != first.time.tv_nsec) {
            return true;
        }
    }
    return false;
}

/* Our incarnation: the directory's own clock, and more than that of who was there before. */
static void
choose_incarnation(struct rendezvous *rendezvous, const char *temporary)
{
    struct rendezvous_entry former;
    struct moment moment = {.inode = 0};

    look(temporary, &moment);
    rendezvous->own.incarnation =
        (uint64_t)moment.time.tv_sec * 1000 + (uint64_t)moment.time.tv_nsec / 1000000;
    if (read_entry(rendezvous->path, &former, NULL) == PSD_OK &&
        former.incarnation >= rendezvous->own.incarnation) {
        rendezvous->own.incarnation = former.incarnation + 1;
    }
}

static psd_status
refuse_taken(const struct rendezvous *rendezvous, struct psd_error *err)
{
    struct rendezvous_entry other = {.host = "somebody"};

    read_entry(rendezvous->path, &other, NULL);
    return psi_fail(err, PSD_ERR_REFUSED,
                    "rank %u of run %s is taken: %s (pid %u) lives there; every psd_run of a job "
                    "needs a --rank of its own, and every job a --job_id of its own",
                    rendezvous->config.rank, rendezvous->config.run, other.host, other.pid);
}

static psd_status
take_rank(struct rendezvous *rendezvous, struct psd_error *err)
{
    char temporary[PATH_BYTES + 64];
    const psd_status status = write_temporary(rendezvous, temporary, err);

    if (status != PSD_OK) {
        return status;
    }
    choose_incarnation(rendezvous, temporary);
    if (!take_free(temporary, rendezvous->path)) {
        const int code = errno;

        unlink(temporary);
        if (code != EEXIST) {
            errno = code;
            return psi_fail_errno(err, PSD_ERR_IO, "take %s", rendezvous->path);
        }
        if (is_alive(rendezvous->path)) {
            return refuse_taken(rendezvous, err);
        }
    }
    return put(rendezvous, err); /* with the incarnation */
}

/* -------------------------------------------------------------------------------- open, close ---
 */

/* Somebody who leaves as the last one takes the directory away, perhaps while we go in. */
static psd_status
enter(struct rendezvous *rendezvous, struct psd_error *err)
{
    unsigned tries = 0;
    psd_status status;

    do {
        status = rendezvous_make_run_directory(rendezvous->directory, err);
        status = status == PSD_OK ? take_rank(rendezvous, err) : status;
    } while (status == PSD_ERR_IO && ++tries < ENTER_TRIES &&
             access(rendezvous->directory, F_OK) != 0 && errno == ENOENT);
    return status;
}

psd_status
rendezvous_open(const struct rendezvous_config *config, struct rendezvous **rendezvous_p,
                struct psd_error *err)
{
    struct rendezvous *rendezvous = memory_need(calloc(1, sizeof(*rendezvous)));
    psd_status status = check_run_name(config->run, err);

    rendezvous->config = *config;
    rendezvous->own = (struct rendezvous_entry){
        .rank = config->rank, .size = config->size, .pid = (uint32_t)getpid()};
    gethostname(rendezvous->own.host, sizeof(rendezvous->own.host) - 1);
    if (status == PSD_OK && strlen(config->directory) > PATH_BYTES - 256) {
        status = psi_fail(err, PSD_ERR_INVALID, "--rendezvous: the path is too long");
    }
    if (status == PSD_OK &&
        getrandom(&rendezvous->own.token, sizeof(rendezvous->own.token), 0) < 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "no random number to be had");
    }
    if (status == PSD_OK) {
        snprintf(rendezvous->own.run, sizeof(rendezvous->own.run), "%s", config->run);
        snprintf(rendezvous->directory, sizeof(rendezvous->directory), "%s/psd-%s",
                 config->directory, config->run);
        snprintf(rendezvous->path, sizeof(rendezvous->path), "%s/rank-%u", rendezvous->directory,
                 config->rank);
        snprintf(rendezvous->secret, sizeof(rendezvous->secret), "%s/secret",
                 rendezvous->directory);
        status = rendezvous_make_directory(config->directory, err);
    }
    status = status == PSD_OK ? enter(rendezvous, err) : status;
    if (status != PSD_OK) {
        free(rendezvous);
        return status;
    }
    *rendezvous_p = rendezvous;
    return PSD_OK;
}

void
rendezvous_close(struct rendezvous *rendezvous)
{
    struct rendezvous_entry entry;

    if (rendezvous == NULL) {
        return;
    }
    if (read_entry(rendezvous->path, &entry, NULL) == PSD_OK && is_ours(rendezvous, &entry)) {
        unlink(rendezvous->path);
    }
    rmdir(rendezvous->directory); /* if that was all */
    free(rendezvous);
}

/* ------------------------------------------------------------------------------------- secret ---
 */

psd_status
rendezvous_secret(struct rendezvous *rendezvous, const char **path_p, struct psd_error *err)
{
    struct psi_secret *secret = NULL;
    char temporary[PATH_BYTES + 64];
    psd_status status = PSD_OK;

    *path_p = rendezvous->secret;
    if (access(rendezvous->secret, F_OK) == 0) {
        return PSD_OK;
    }
    snprintf(temporary, sizeof(temporary), "%s/.secret.%016llx", rendezvous->directory,
             (unsigned long long)rendezvous->own.token);
    status = psi_secret_create(&secret, err);
    status = status == PSD_OK ? psi_secret_to_file(secret, temporary, err) : status;
    psi_secret_destroy(secret);
    if (status == PSD_OK && !take_free(temporary, rendezvous->secret)) {
        const int code = errno;

        unlink(temporary);
        errno = code;
        if (code != EEXIST) { /* somebody else was first: then that one is the job's */
            status = psi_fail_errno(err, PSD_ERR_IO, "make %s", rendezvous->secret);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------------- telling ---
 */

/* Of a former job of this name. */
static void
unlink_over(const struct rendezvous *rendezvous)
{
    char path[PATH_BYTES + 64];

    snprintf(path, sizeof(path), "%s/over", rendezvous->directory);
    unlink(path);
}

psd_status
rendezvous_publish(struct rendezvous *rendezvous, const char *advertised, bool v6, uint16_t port,
                   struct psd_error *err)
{
    struct rendezvous_entry *own = &rendezvous->own;
    struct words words = {0};
    psd_status status = PSD_OK;

    own->address_count = 0;
    own->port = port;
    if (advertised != NULL) {
        snprintf(own->addresses[own->address_count++], sizeof(own->addresses[0]), "%s", advertised);
    } else {
        status = reach_addresses(&words, err);
    }
    for (size_t i = 0; i < words.count && own->address_count < RENDEZVOUS_ADDRESSES; i++) {
        const char *blank = strchr(words.list[i], ' '); /* "address=INTERFACE ADDRESS" */

        if (blank != NULL && (strchr(blank, ':') != NULL) == v6) {
            snprintf(own->addresses[own->address_count++], sizeof(own->addresses[0]), "%.63s",
                     blank + 1);
        }
    }
    words_fini(&words);
    while (own->address_count > 1 && reach_is_loopback(own->addresses[own->address_count - 1])) {
        own->address_count--; /* loopback comes last, and is of use only where there is no other */
    }
    unlink_over(rendezvous);
    return status == PSD_OK ? put(rendezvous, err) : status;
}

psd_status
rendezvous_beat(struct rendezvous *rendezvous, struct psd_error *err)
{
    struct rendezvous_entry entry;

    if (read_entry(rendezvous->path, &entry, NULL) == PSD_OK && !is_ours(rendezvous, &entry)) {
        return psi_fail(err, PSD_ERR_REFUSED,
                        "rank %u of run %s was taken over by %s (pid %u), which was started later",
                        rendezvous->config.rank, rendezvous->config.run, entry.host, entry.pid);
    }
    if (utimensat(AT_FDCWD, rendezvous->path, NULL, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) {
        return put(rendezvous, err); /* somebody tidied up */
    }
    return PSD_OK; /* a file server that is away for a while may come back */
}

uint64_t
rendezvous_incarnation(const struct rendezvous *rendezvous)
{
    return rendezvous->own.incarnation;
}

static bool
ends_with(const char *text, const char *end)
{
    const size_t bytes = strlen(text);
    const size_t end_bytes = strlen(end);

    return bytes > end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

uint32_t
rendezvous_old_files(const struct rendezvous *rendezvous, char *text_p, size_t size)
{
    DIR *directory = opendir(rendezvous->config.directory);
    const struct dirent *item;
    uint32_t count = 0;

    text_p[0] = '\0';
    while (directory != NULL && (item = readdir(directory)) != NULL) {
        char path[PATH_BYTES + 256];
        char text[RENDEZVOUS_FILE_BYTES + 1];
        struct rendezvous_old old;
        ssize_t bytes;

        if (!ends_with(item->d_name, ".tfcluster")) {
            continue;
        }
        count++;
        snprintf(path, sizeof(path), "%s/%s", rendezvous->config.directory, item->d_name);
        bytes = read_file(path, text);
        if (bytes > 0 && rendezvous_read_old(text, (size_t)bytes, &old, NULL) == PSD_OK) {
            snprintf(text_p, size, "%s %u at %s:%u", old.task, old.index, old.address, old.port);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

/* What somebody was about to put in place when it was killed. */
static void
remove_temporaries(const struct rendezvous *rendezvous)
{
    DIR *directory = opendir(rendezvous->directory);
    const struct dirent *item;

    while (directory != NULL && (item = readdir(directory)) != NULL) {
        if (strncmp(item->d_name, ".rank-", 6) == 0 || strncmp(item->d_name, ".secret.", 8) == 0) {
            unlinkat(dirfd(directory), item->d_name, 0);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
}

void
rendezvous_over(struct rendezvous *rendezvous, int code, bool all_know)
{
    char path[PATH_BYTES + 64];
    FILE *file;

    snprintf(path, sizeof(path), "%s/over", rendezvous->directory);
    if (all_know) {
        unlink_over(rendezvous);
    } else if ((file = fopen(path, "we")) != NULL) {
        fprintf(file, "%d\n", code);
        fclose(file);
    }
    unlink(rendezvous->secret);
    remove_temporaries(rendezvous);
}

/* ------------------------------------------------------------------------------------- finding ---
 */

static bool
read_over(const struct rendezvous *rendezvous, int *code_p)
{
    char path[PATH_BYTES + 64];
    char text[RENDEZVOUS_FILE_BYTES + 1];
    ssize_t bytes;

    snprintf(path, sizeof(path), "%s/over", rendezvous->directory);
    bytes = read_file(path, text);
    if (bytes <= 0 || bytes > 8) {
        return false;
    }
    text[bytes] = '\0';
    return sscanf(text, "%d", code_p) == 1;
}

psd_status
rendezvous_find(struct rendezvous *rendezvous, char address_p[JOINER_ADDRESS_BYTES], int *code_p,
                struct psd_error *err)
{
    struct rendezvous_entry entry;
    char path[PATH_BYTES + 32];
    const char *host;
    psd_status status;

    snprintf(path, sizeof(path), "%s/rank-0", rendezvous->directory);
    status = read_entry(path, &entry, err);
    if (status == PSD_OK && (entry.port == 0 || entry.address_count == 0)) {
        return psi_fail(err, PSD_PENDING, "%s: rank 0 on %s does not listen yet", path, entry.host);
    }
    if (status != PSD_OK) {
        if (read_over(rendezvous, code_p)) {
            return psi_fail(err, PSD_ERR_STATE, "the job is over");
        }
        err->status = PSD_PENDING;
        return PSD_PENDING;
    }
    host = entry.addresses[rendezvous->next_address++ % entry.address_count];
    snprintf(address_p, JOINER_ADDRESS_BYTES,
             strchr(host, ':') != NULL ? "tcp://[%s]:%u" : "tcp://%s:%u", host, entry.port);
    return PSD_OK;
}
