/*
 * files.c - the files of checkpoints, written by a thread beside the lane's: what the lane asks of it.
 *
 * A call of the system may hang for as long as a disk does. Who is not that thread (files_thread.c) never
 * waits for it: what was given up keeps one piece, and while the disk hangs nothing else is taken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/copy_aside.h"
#include "server/files_state.h"

enum {
    HANGS_S = 10, /* a call of the system that takes so long: nothing else is given to the disk */
    LEAVE_S = 5,  /* so long is waited for it in the end */
    HELD_UP_NS = 1000000000, /* the thread frees nothing for now */
};

/* The mutex is held. What waits in the queue is freed here: the thread may be held up by the disk. */
static void
clear(struct lane_files *files)
{
    while (files->first != NULL) {
        struct piece *piece = files->first;

        files->first = piece->next;
        files_free_piece(files, piece);
    }
    files->end = &files->first;
    files->epoch++;
    files->order = (struct psi_part_order){0};
    files->prepares = false;
    files->finish = false;
    files->over = false;
    files->news = (struct lane_disk_news){0};
    free(files->rows);
    files->rows = NULL;
    files->rows_count = 0;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_manifest_file_fini(&files->sums[kind]);
        files->sums[kind] = (struct psi_manifest_file){0};
    }
}

/* The mutex is held. */
static void
free_idle(struct lane_files *files)
{
    struct copy *copy;

    while ((copy = copies_take_idle(&files->copies)) != NULL) {
        copy_free(copy);
    }
}

/* The mutex is held. So much is coming. What is not needed for that the thread frees, unless the disk holds it up: to give
 * gigabytes back takes long. */
static void
expect(struct lane_files *files, const struct lane_disk_load *load)
{
    copies_expect(&files->copies, load->bytes, load->room, load->piece_bytes);
    if (files->busy_ns != 0 && files_now_ns() - files->busy_ns >= HELD_UP_NS) {
        free_idle(files);
    }
}

/* The mutex is held. */
static void
start_thread(struct lane_files *files)
{
    if (!files->started) {
        errno = pthread_create(&files->thread, NULL, files_run, files);
        files->started = errno == 0;
        if (!files->started) {
            files->news.failed = true;
            snprintf(files->news.text, sizeof(files->news.text), "start a thread: %s",
                     strerror(errno));
        }
    }
    pthread_cond_signal(&files->asked);
}

static void
files_prepare(void *self, const struct lane_disk_load *load)
{
    struct lane_files *files = self;

    pthread_mutex_lock(&files->mutex);
    clear(files);
    expect(files, load);
    files->room_ns = 0;
    files->news.is_prepared = load->bytes == 0;
    if (!files->news.is_prepared) {
        files->prepares = true;
        start_thread(files);
    }
    pthread_mutex_unlock(&files->mutex);
}

static void
files_begin(void *self, const struct psi_part_order *order, const struct lane_disk_load *load)
{
    struct lane_files *files = self;

    pthread_mutex_lock(&files->mutex);
    clear(files);
    files->order = *order;
    files->news.cost.room_ns = files->room_ns;
    files->room_ns = 0;
    expect(files, load);
    if (files->busy_ns != 0 && files_now_ns() - files->busy_ns >= HANGS_S * 1000000000ull) {
        files->news.failed = true;
        files->over = true;
        snprintf(files->news.text, sizeof(files->news.text),
                 "the disk of %.120s still has not answered, for %llu s", files->path,
                 (unsigned long long)((files_now_ns() - files->busy_ns) / 1000000000));
    }
    start_thread(files);
    pthread_mutex_unlock(&files->mutex);
}

/* The mutex is held. */
static void
append(struct lane_files *files, struct piece *piece)
{
    *files->end = piece;
    files->end = &piece->next;
    pthread_cond_signal(&files->asked);
}

/* The mutex is held. */
static void
drop_copy(struct lane_files *files, struct copy *copy, size_t made_bytes)
{
    if (copy != NULL) {
        copies_give(&files->copies, copy);
    } else {
        copies_not_made(&files->copies, made_bytes);
    }
}

static void
files_write(void *self, enum psi_checkpoint_kind kind, uint64_t at, const void *data, size_t bytes)
{
    struct lane_files *files = self;
    struct piece *piece = malloc(sizeof(*piece));
    const uint64_t begin_ns = files_used_ns();
    struct copy *copy;
    size_t made_bytes;

    pthread_mutex_lock(&files->mutex);
    copy = copies_take(&files->copies, bytes, &made_bytes);
    pthread_mutex_unlock(&files->mutex);
    copy = copy != NULL ? copy : copy_make(made_bytes, false);
    if (copy != NULL) {
        psi_copy_aside(copy_memory(copy), data, bytes);
    }
    pthread_mutex_lock(&files->mutex);
    if (piece != NULL && copy != NULL && !files->over) {
        *piece = (struct piece){.kind = kind, .at = at, .copy = copy, .bytes = bytes};
        append(files, piece);
        files->news.cost.copy_ns += files_used_ns() - begin_ns;
    } else {
        drop_copy(files, copy, made_bytes);
        free(piece);
        if (!files->over) {
            files->news.failed = true;
            files->over = true;
            snprintf(files->news.text, sizeof(files->news.text),
                     "no memory for a copy of %zu bytes", bytes);
        }
    }
    pthread_mutex_unlock(&files->mutex);
}

static void
files_write_rows(void *self, const struct lane_disk_rows *rows)
{
    struct lane_files *files = self;
    struct piece *piece = malloc(sizeof(*piece));

    pthread_mutex_lock(&files->mutex);
    if (piece != NULL && !files->over) {
        *piece = (struct piece){.rows = *rows, .bytes = psi_rows_piece_bytes(rows->piece)};
        append(files, piece);
    } else {
        free(piece);
        psi_rows_piece_destroy(rows->piece);
        if (!files->over) {
            files->news.failed = true;
            files->over = true;
            snprintf(files->news.text, sizeof(files->news.text),
                     "no memory for rows of table %.200s", rows->name);
        }
    }
    pthread_mutex_unlock(&files->mutex);
}

static void
files_finish(void *self)
{
    struct lane_files *files = self;

    pthread_mutex_lock(&files->mutex);
    files->finish = true;
    pthread_cond_signal(&files->asked);
    pthread_mutex_unlock(&files->mutex);
}

static void
files_drop(void *self)
{
    struct lane_files *files = self;

    pthread_mutex_lock(&files->mutex);
    clear(files);
    expect(files, &(struct lane_disk_load){0});
    files->room_ns = 0;
    pthread_cond_signal(&files->asked);
    pthread_mutex_unlock(&files->mutex);
}

static void
files_look(void *self, struct lane_disk_news *news_p)
{
    struct lane_files *files = self;

    pthread_mutex_lock(&files->mutex);
    *news_p = files->news;
    news_p->has_room = files->copies.ready != NULL;
    pthread_mutex_unlock(&files->mutex);
}

struct lane_files *
lane_files_create(const struct psi_disk *disk, const char *path, void (*wake)(void *owner),
                  void *owner)
{
    struct lane_files *files = calloc(1, sizeof(*files));

    if (files == NULL) {
        return NULL;
    }
    files->system = disk;
    files->path = path;
    files->wake = wake;
    files->owner = owner;
    files->end = &files->first;
    files->disk = (struct lane_disk){.self = files,
                                     .prepare = files_prepare,
                                     .begin = files_begin,
                                     .write = files_write,
                                     .write_rows = files_write_rows,
                                     .finish = files_finish,
                                     .drop = files_drop,
                                     .look = files_look};
    pthread_mutex_init(&files->mutex, NULL);
    pthread_cond_init(&files->asked, NULL);
    return files;
}

void
lane_files_destroy(struct lane_files *files)
{
    struct timespec until;

    if (files == NULL) {
        return;
    }
    if (files->started) {
        pthread_mutex_lock(&files->mutex);
        files->stop = true;
        pthread_cond_signal(&files->asked);
        pthread_mutex_unlock(&files->mutex);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LEAVE_S;
        if (pthread_timedjoin_np(files->thread, NULL, &until) != 0) {
            return; /* it may come back, and needs all of this */
        }
    }
    clear(files);
    copies_expect_nothing(&files->copies);
    free_idle(files);
    psi_earlier_fini(&files->earlier);
    pthread_cond_destroy(&files->asked);
    pthread_mutex_destroy(&files->mutex);
    free(files);
}

const struct lane_disk *
lane_files_disk(struct lane_files *files)
{
    return &files->disk;
}
