/*
 * files.c - the files of checkpoints, made and committed by a thread of the master.
 *
 * The core never waits for a disk: it leaves one request, which replaces one that was not begun, and
 * looks for the news of the last. News of what was given up is dropped.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "master/files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "checkpoint/generations.h"
#include "checkpoint/write.h"

static const char lock_name[] = ".job";

enum { LEAVE_S = 5 /* so long is waited for the thread in the end */ };

enum request { REQUEST_NONE, REQUEST_BEGIN, REQUEST_COMMIT, REQUEST_DROP, REQUEST_STOP };

struct master_files {
    struct master_disk disk;
    struct psi_directory directory;
    char path[4096];
    uint64_t spared;
    int lock; /* -1: not ours */
    void (*wake)(void *owner);
    void *owner;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t asked;
    enum request request;
    uint64_t epoch; /* grows with every request but a commit: news of an earlier one is dropped */
    struct psi_checkpoint_shared shared;
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
    struct master_generation *generation; /* owned; REQUEST_COMMIT */
    struct master_disk_news news;

    struct psi_checkpoint_writer *writer; /* the thread's */
};

/* ------------------------------------------------------------------------------ whose it is --- */

static psd_status
fail_busy(const struct master_files *files, int fd, struct psd_error *err)
{
    char owner[200] = "";
    const ssize_t count = pread(fd, owner, sizeof(owner) - 1, 0);

    owner[count > 0 ? count : 0] = '\0';
    owner[strcspn(owner, "\n")] = '\0';
    for (size_t end = strlen(owner); end > 0 && owner[end - 1] == ' '; end--) {
        owner[end - 1] = '\0'; /* blanks cover what an earlier job had written there */
    }
    return psi_fail(err, PSD_ERR_BUSY,
                    "checkpoints into %s: %s writes there already; give another directory",
                    files->path, owner[0] != '\0' ? owner : "another job");
}

/* A file system without locks gives no protection. */
static psd_status
take_directory(struct master_files *files, struct psd_error *err)
{
    char text[200];
    char host[64] = "";
    int bytes;
    int fd;

    if (files->lock >= 0) {
        return PSD_OK;
    }
    fd = openat(files->directory.fd, lock_name, O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "create %s/%s", files->path, lock_name);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        const psd_status status = fail_busy(files, fd, err);

        close(fd);
        return status;
    }
    (void)gethostname(host, sizeof(host) - 1);
    bytes = snprintf(text, sizeof(text), "the job of ps_master, process %ld on %s%*s\n",
                     (long)getpid(), host, 64, "");
    if (pwrite(fd, text, (size_t)bytes, 0) != bytes) {
        const psd_status status =
            psi_fail_errno(err, PSD_ERR_IO, "write %s/%s", files->path, lock_name);

        close(fd);
        return status;
    }
    files->lock = fd;
    return PSD_OK;
}

/* ------------------------------------------------------------------------------- the thread --- */

static psd_status
do_begin(struct master_files *files, const struct psi_checkpoint_shared *shared,
         const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES], uint64_t *number_p, struct psd_error *err)
{
    psd_status status = take_directory(files, err);

    psi_checkpoint_writer_destroy(files->writer);
    files->writer = NULL;
    if (status == PSD_OK) {
        status = psi_checkpoint_writer_share(&psi_disk_system, files->path, bytes, shared,
                                             &files->writer, err);
    }
    if (status == PSD_OK) {
        *number_p = psi_checkpoint_generation(files->writer);
        psi_checkpoint_spare(files->writer, files->spared);
    }
    return status;
}

static psd_status
do_commit(struct master_files *files, const struct master_generation *generation,
          uint64_t *number_p, struct psd_error *err)
{
    const struct psi_outline *outline = &generation->outline;
    psd_status status = PSD_OK;

    if (files->writer == NULL) {
        return psi_fail(err, PSD_ERR_STATE, "checkpoint into %s: nothing was begun", files->path);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = psi_checkpoint_write(files->writer, (enum psi_checkpoint_kind)kind, 0,
                                      outline->head[kind], outline->head_bytes[kind], err);
        if (status == PSD_OK) {
            status = psi_checkpoint_count(files->writer, (enum psi_checkpoint_kind)kind,
                                          &generation->sums[kind], generation->written[kind], err);
        }
    }
    for (size_t i = 0; i < generation->rows.rows_count && status == PSD_OK; i++) {
        status = psi_checkpoint_bring_rows(files->writer, &generation->rows.rows[i], err);
    }
    if (status == PSD_OK && generation->has_part) {
        status = psi_checkpoint_bring(files->writer, &generation->part, err);
    }
    if (status == PSD_OK) {
        *number_p = psi_checkpoint_generation(files->writer);
        status = psi_checkpoint_commit(files->writer, generation->step, generation->tables,
                                       generation->table_count, err);
    }
    psi_checkpoint_writer_destroy(files->writer);
    files->writer = NULL;
    return status;
}

/* One request, with the mutex given up meanwhile. */
static void
serve(struct master_files *files)
{
    const enum request request = files->request;
    const uint64_t epoch = files->epoch;
    const struct psi_checkpoint_shared shared = files->shared;
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
    struct master_generation *generation = files->generation;
    struct master_disk_news news = {.state = MASTER_DISK_BEGUN};
    struct psd_error err = {0};
    psd_status status = PSD_OK;

    memcpy(bytes, files->bytes, sizeof(bytes));
    files->generation = NULL;
    files->request = REQUEST_NONE;
    pthread_mutex_unlock(&files->mutex);
    if (request == REQUEST_BEGIN) {
        status = do_begin(files, &shared, bytes, &news.generation, &err);
    } else if (request == REQUEST_COMMIT) {
        news.state = MASTER_DISK_COMMITTED;
        status = do_commit(files, generation, &news.generation, &err);
    } else {
        psi_checkpoint_writer_destroy(files->writer);
        files->writer = NULL;
    }
    master_generation_destroy(generation);
    if (status != PSD_OK) {
        news.state = MASTER_DISK_FAILED;
        snprintf(news.text, sizeof(news.text), "%.500s", err.text);
    }
    pthread_mutex_lock(&files->mutex);
    if (request != REQUEST_DROP && files->epoch == epoch && files->request != REQUEST_STOP) {
        files->news = news;
        files->wake(files->owner);
    }
}

static void *
run(void *argument)
{
    struct master_files *files = argument;

    pthread_mutex_lock(&files->mutex);
    while (files->request != REQUEST_STOP) {
        if (files->request == REQUEST_NONE) {
            pthread_cond_wait(&files->asked, &files->mutex);
        } else {
            serve(files);
        }
    }
    pthread_mutex_unlock(&files->mutex);
    psi_checkpoint_writer_destroy(files->writer);
    files->writer = NULL;
    return NULL;
}

/* ---------------------------------------------------------------------------- from the core --- */

/* The mutex is held. A commit that was not begun is replaced, too. */
static void
ask(struct master_files *files, enum request request)
{
    master_generation_destroy(files->generation);
    files->generation = NULL;
    files->request = request;
    files->news = (struct master_disk_news){.state = MASTER_DISK_BUSY};
    if (!files->started && request != REQUEST_DROP) {
        errno = pthread_create(&files->thread, NULL, run, files);
        files->started = errno == 0;
        if (!files->started) {
            files->news.state = MASTER_DISK_FAILED;
            snprintf(files->news.text, sizeof(files->news.text),
                     "checkpoint into %.300s: start a thread: %s", files->path, strerror(errno));
        }
    }
    pthread_cond_signal(&files->asked);
}

static void
files_begin(void *self, uint64_t token, const uint64_t bytes[PSI_CHECKPOINT_DATA_FILES],
            bool refers)
{
    struct master_files *files = self;

    pthread_mutex_lock(&files->mutex);
    files->epoch++;
    files->shared.token = token;
    files->shared.refers = refers;
    memcpy(files->bytes, bytes, sizeof(files->bytes));
    ask(files, REQUEST_BEGIN);
    pthread_mutex_unlock(&files->mutex);
}

static void
files_commit(void *self, struct master_generation *generation)
{
    struct master_files *files = self;

    pthread_mutex_lock(&files->mutex);
    ask(files, REQUEST_COMMIT);
    files->generation = generation;
    pthread_mutex_unlock(&files->mutex);
}

static void
files_drop(void *self)
{
    struct master_files *files = self;

    pthread_mutex_lock(&files->mutex);
    files->epoch++;
    ask(files, REQUEST_DROP);
    pthread_mutex_unlock(&files->mutex);
}

static void
files_look(void *self, struct master_disk_news *news_p)
{
    struct master_files *files = self;

    pthread_mutex_lock(&files->mutex);
    *news_p = files->news;
    pthread_mutex_unlock(&files->mutex);
}

/* Generations of a run that this one does not go on from would be in the way, and soon be removed. */
static psd_status
refuse_those_of_others(const struct master_files *files, struct psd_error *err)
{
    struct psi_generations generations;
    uint64_t newest = 0;
    psd_status status = psi_generations_init(&generations, &files->directory, err);

    if (status != PSD_OK) {
        return status;
    }
    for (size_t i = 0; i < generations.count && newest == 0; i++) {
        newest =
            generations.list[i].kind == PSI_CHECKPOINT_MANIFEST ? generations.list[i].number : 0;
    }
    psi_generations_fini(&generations);
    return newest == 0 ? PSD_OK
                       : psi_fail(err, PSD_ERR_STATE,
                                  "--checkpoint %s: it holds checkpoints already, up to generation "
                                  "%llu, and new ones would "
                                  "replace them; add --resume %s to go on from there, or give "
                                  "another directory to begin anew",
                                  files->path, (unsigned long long)newest, files->path);
}

psd_status
master_files_create(const char *path, uint32_t kept, uint64_t spared, bool is_heir,
                    void (*wake)(void *owner), void *owner, struct master_files **files_p,
                    struct psd_error *err)
{
    struct master_files *files = calloc(1, sizeof(*files));
    psd_status status;

    if (files == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "checkpoints into %s: no memory", path);
    }
    snprintf(files->path, sizeof(files->path), "%s", path);
    files->shared.kept = kept;
    files->spared = spared;
    files->lock = -1;
    files->wake = wake;
    files->owner = owner;
    files->disk = (struct master_disk){.self = files,
                                       .begin = files_begin,
                                       .commit = files_commit,
                                       .drop = files_drop,
                                       .look = files_look};
    pthread_mutex_init(&files->mutex, NULL);
    pthread_cond_init(&files->asked, NULL);
    status = psi_directory_make(&files->directory, &psi_disk_system, files->path, err);
    if (status == PSD_OK) {
        status = take_directory(files, err);
    }
    if (status == PSD_OK && spared == 0 && !is_heir) {
        status = refuse_those_of_others(files, err);
    }
    if (status == PSD_ERR_BUSY && is_heir) {
        status = PSD_OK; /* the life before is about to leave: tried again when it is needed */
    }
    if (status != PSD_OK) {
        master_files_destroy(files);
        return status;
    }
    *files_p = files;
    return PSD_OK;
}

void
master_files_destroy(struct master_files *files)
{
    struct timespec until;

    if (files == NULL) {
        return;
    }
    if (files->started) {
        pthread_mutex_lock(&files->mutex);
        ask(files, REQUEST_STOP);
        pthread_mutex_unlock(&files->mutex);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LEAVE_S;
        if (pthread_timedjoin_np(files->thread, NULL, &until) != 0) {
            return; /* the disk holds it up: it may come back, and needs all of this */
        }
    }
    if (files->lock >= 0) {
        close(files->lock);
    }
    psi_directory_close(&files->directory);
    pthread_cond_destroy(&files->asked);
    pthread_mutex_destroy(&files->mutex);
    free(files);
}

const struct master_disk *
master_files_disk(struct master_files *files)
{
    return &files->disk;
}
