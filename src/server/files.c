/*
 * files.c - the files of checkpoints, written by a thread beside the lane's.
 *
 * A call of the system may hang for as long as a disk does. Who is not that thread never waits for it:
 * what was given up keeps one piece, and while the disk hangs nothing else is taken.
 *
 * Pieces are written in the order in which they came. What was given up is dropped from the queue, and its
 * files are closed: their names are gone, and the disk gets their space back when nobody has them open. A
 * piece that is being written then does no harm: an order with the same files writes all of them anew, and this
 * thread does so after it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/files.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/resource.h>

#include "base/fail.h"
#include "checkpoint/part.h"
#include "server/copies.h"

enum {
    HANGS_S = 10, /* a call of the system that takes so long: nothing else is given to the disk */
    LEAVE_S = 5,  /* so long is waited for it in the end */
    NICE = 10,    /* the lane, which trains, goes first where cores are few */
};

struct piece {
    struct piece *next;
    enum psi_checkpoint_kind kind;
    uint64_t at;
    struct copy *copy; /* NULL: rows */
    struct lane_disk_rows rows;
    size_t bytes;
};

struct lane_files {
    struct lane_disk disk;
    const struct psi_disk *system;
    const char *path;
    void (*wake)(void *owner);
    void *owner;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t asked;
    bool stop;
    uint64_t busy_ns; /* the thread is in a call of the system since then; 0: it is not */
    uint64_t epoch;   /* grows with begin and drop: news of an earlier one is dropped */
    struct psi_part_order order; /* token 0: nothing was begun */
    struct piece *first;
    struct piece **end;
    struct copies copies;
    bool prepares;    /* the lane is to be woken when there is room */
    uint64_t room_ns; /* of a processor, that made room for what was not begun yet */
    bool finish;      /* no piece follows */
    bool over;        /* done, or failed */
    struct lane_disk_news news;
    struct psi_manifest_file sums[PSI_CHECKPOINT_DATA_FILES]; /* once done; blocks are owned */
    uint64_t written[PSI_CHECKPOINT_DATA_FILES];
    struct psi_saved_file *rows; /* of which files were written; owned */
    uint32_t rows_count;

    struct psi_part_writer writer; /* the thread's, and what follows */
    struct psi_earlier earlier;
    uint64_t open; /* of which epoch the writer is; 0: it is not open */
};

/* What is in it has been written, or is given up. The mutex is held. */
static void
free_piece(struct lane_files *files, struct piece *piece)
{
    if (piece->copy != NULL) {
        copies_give(&files->copies, piece->copy);
    }
    psi_rows_piece_destroy(piece->rows.piece);
    free(piece);
}

/* The mutex is held. What waits in the queue is freed here: the thread may be held up by the disk. */
static void
clear(struct lane_files *files)
{
    while (files->first != NULL) {
        struct piece *piece = files->first;

        files->first = piece->next;
        free_piece(files, piece);
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

/* The mutex is held. So much is coming; what is not needed for that is freed here. */
static void
expect(struct lane_files *files, const struct lane_disk_load *load)
{
    struct copy *copy;

    copies_expect(&files->copies, load->bytes, load->room, load->piece_bytes);
    while ((copy = copies_take_idle(&files->copies)) != NULL) {
        copy_free(copy);
    }
}

/* ------------------------------------------------------------------------------- the thread --- */

static void
close_writer(struct lane_files *files)
{
    if (files->open != 0) {
        psi_part_writer_fini(&files->writer);
        files->open = 0;
    }
}

/* Of a processor, by the thread that asks. */
static uint64_t
used_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t
now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Around what may hang. */
static void
leave(struct lane_files *files)
{
    files->busy_ns = now_ns();
    pthread_mutex_unlock(&files->mutex);
}

static void
come_back(struct lane_files *files)
{
    pthread_mutex_lock(&files->mutex);
    files->busy_ns = 0;
}

/* The mutex is held again. */
static void
tell(struct lane_files *files, uint64_t epoch, psd_status status, const struct psd_error *err)
{
    if (files->epoch != epoch || files->stop) {
        return;
    }
    if (status != PSD_OK) {
        files->news.failed = true;
        files->over = true;
        snprintf(files->news.text, sizeof(files->news.text), "%.250s", err->text);
        copies_expect_nothing(&files->copies);
    }
    files->wake(files->owner);
}

/* The files of an order. The mutex is not held. */
static psd_status
open_writer(struct lane_files *files, uint64_t epoch, const struct psi_part_order *order,
            struct psd_error *err)
{
    psd_status status;

    close_writer(files);
    psi_earlier_begin(&files->earlier, order);
    status = psi_part_writer_init(&files->writer, files->system, files->path, order,
                                  &files->earlier, err);
    files->open = status == PSD_OK ? epoch : 0;
    return status;
}

/* A file of its own. The mutex is not held. */
static psd_status
write_rows(struct lane_files *files, const struct psi_part_order *order, const struct piece *piece,
           struct psi_saved_file *saved, struct psd_error *err)
{
    const struct lane_disk_rows *rows = &piece->rows;
    const uint64_t begin_ns = used_ns();
    struct psi_rows_file file = {.place = rows->place, .number = rows->number};
    struct psi_directory directory;
    psd_status status = psi_directory_open(&directory, files->system, files->path, err);

    if (status != PSD_OK) {
        return status;
    }
    status = psi_rows_piece_write(rows->piece, &directory, rows->name, order->token, &file, err);
    psi_directory_close(&directory);
    files->writer.write_ns += used_ns() - begin_ns; /* checksums included */
    *saved = (struct psi_saved_file){.table = rows->table,
                                     .generation = order->generation,
                                     .number = rows->number,
                                     .first_bucket = rows->first_bucket,
                                     .end_bucket = rows->end_bucket,
                                     .rows = file.count.rows,
                                     .cleared = file.count.cleared,
                                     .counted = file.count.counted,
                                     .bytes = file.bytes,
                                     .checksum = file.checksum};
    return status;
}

/* The mutex is held. */
static psd_status
remember_rows(struct lane_files *files, const struct psi_saved_file *saved, struct psd_error *err)
{
    struct psi_saved_file *rows = reallocarray(files->rows, files->rows_count + 1, sizeof(*rows));

    if (rows == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for a list of %u files of rows",
                        files->rows_count + 1);
    }
    files->rows = rows;
    rows[files->rows_count++] = *saved;
    return PSD_OK;
}

/* One piece, or the opening of the files, with the mutex given up meanwhile. */
static void
write_piece(struct lane_files *files, struct piece *piece)
{
    const uint64_t epoch = files->epoch;
    const struct psi_part_order order = files->order;
    const size_t size = piece->bytes;
    struct psi_saved_file saved;
    struct psd_error err = {0};
    psd_status status = PSD_OK;

    files->first = piece->next;
    files->end = files->first == NULL ? &files->first : files->end;
    leave(files);
    if (files->open != epoch) {
        status = open_writer(files, epoch, &order, &err);
    }
    if (status == PSD_OK && piece->copy == NULL) {
        status = write_rows(files, &order, piece, &saved, &err);
    } else if (status == PSD_OK) {
        status = psi_part_write(&files->writer, piece->kind, piece->at, copy_memory(piece->copy),
                                piece->bytes, &err);
    }
    come_back(files);
    if (files->epoch == epoch && status == PSD_OK && piece->copy == NULL) {
        status = remember_rows(files, &saved, &err);
    }
    free_piece(files, piece);
    if (files->epoch == epoch) {
        files->news.written += size;
        files->news.cost.check_ns = files->writer.check_ns;
        files->news.cost.write_ns = files->writer.write_ns;
    }
    tell(files, epoch, status, &err);
}

/* The mutex is held. What was written, for who commits. */
static void
hand_over_sums(struct lane_files *files)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        files->sums[kind] = files->writer.sums[kind];
        files->sums[kind].earlier = files->writer.referred[kind];
        files->writer.sums[kind].blocks = NULL;
        files->writer.referred[kind] = (struct psi_ranges){0};
        psi_assert(psi_ranges_settle(&files->sums[kind].earlier));
        files->written[kind] = files->writer.written[kind];
    }
    files->news.done = true;
    files->news.sums = files->sums;
    files->news.bytes = files->written;
    files->news.rows = files->rows;
    files->news.rows_count = files->rows_count;
}

static void
end(struct lane_files *files)
{
    const uint64_t epoch = files->epoch;
    const struct psi_part_order order = files->order;
    struct psd_error err = {0};
    psd_status status = PSD_OK;

    leave(files);
    if (files->open != epoch) { /* there was no piece */
        status = open_writer(files, epoch, &order, &err);
    }
    if (status == PSD_OK) {
        status = psi_part_sync(&files->writer, &err);
    }
    come_back(files);
    if (files->epoch == epoch && status == PSD_OK) {
        hand_over_sums(files);
    }
    if (files->epoch == epoch) {
        files->over = true;
    }
    close_writer(files);
    tell(files, epoch, status, &err);
}

/* The files of what was given up, or has failed. The mutex is given up meanwhile. */
static void
close_dropped(struct lane_files *files)
{
    leave(files);
    close_writer(files);
    come_back(files);
}

/* Memory for copies that are coming. The mutex is given up meanwhile. */
static void
make_room(struct lane_files *files, size_t bytes)
{
    const uint64_t epoch = files->epoch;
    const uint64_t begin_ns = used_ns();
    struct copy *copy;

    leave(files);
    copy = copy_make(bytes, true);
    come_back(files);
    if (copy == NULL) {
        copies_expect_nothing(&files->copies); /* the lane tries once more, and tells */
    } else {
        copies_add(&files->copies, copy);
    }
    if (files->order.token == 0) {
        files->room_ns += used_ns() - begin_ns;
    } else if (files->epoch == epoch) {
        files->news.cost.room_ns += used_ns() - begin_ns;
    }
}

/* The mutex is held. */
static void
look_at_room(struct lane_files *files)
{
    if (files->prepares && copies_wants(&files->copies) == 0) {
        files->prepares = false;
        files->news.is_prepared = true;
        files->wake(files->owner);
    }
}

static void
free_idle(struct lane_files *files, struct copy *copy)
{
    leave(files);
    copy_free(copy);
    come_back(files);
}

static void *
run(void *argument)
{
    struct lane_files *files = argument;
    struct copy *copy;
    size_t bytes;

    (void)setpriority(PRIO_PROCESS, 0, NICE); /* of this thread; refused: it is lower already */
    pthread_mutex_lock(&files->mutex);
    while (!files->stop) {
        if (files->open != 0 && (files->open != files->epoch || files->over)) {
            close_dropped(files);
        } else if ((bytes = copies_wants(&files->copies)) > 0) {
            make_room(files, bytes);
            look_at_room(files);
        } else if ((copy = copies_take_idle(&files->copies)) != NULL) {
            free_idle(files, copy);
        } else if (files->first != NULL && !files->over) {
            write_piece(files, files->first);
        } else if (files->finish && !files->over) {
            end(files);
        } else {
            pthread_cond_wait(&files->asked, &files->mutex);
        }
    }
    pthread_mutex_unlock(&files->mutex);
    close_writer(files);
    return NULL;
}

/* ---------------------------------------------------------------------------- from the lane --- */

/* The mutex is held. */
static void
start_thread(struct lane_files *files)
{
    if (!files->started) {
        errno = pthread_create(&files->thread, NULL, run, files);
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
    files->prepares = true;
    look_at_room(files);
    start_thread(files);
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
    if (files->busy_ns != 0 && now_ns() - files->busy_ns >= HANGS_S * 1000000000ull) {
        files->news.failed = true;
        files->over = true;
        snprintf(files->news.text, sizeof(files->news.text),
                 "the disk of %.120s still has not answered, for %llu s", files->path,
                 (unsigned long long)((now_ns() - files->busy_ns) / 1000000000));
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
    const uint64_t begin_ns = used_ns();
    struct copy *copy;
    size_t made_bytes;

    pthread_mutex_lock(&files->mutex);
    copy = copies_take(&files->copies, bytes, &made_bytes);
    pthread_mutex_unlock(&files->mutex);
    copy = copy != NULL ? copy : copy_make(made_bytes, false);
    if (copy != NULL) {
        memcpy(copy_memory(copy), data, bytes);
    }
    pthread_mutex_lock(&files->mutex);
    if (piece != NULL && copy != NULL && !files->over) {
        *piece = (struct piece){.kind = kind, .at = at, .copy = copy, .bytes = bytes};
        append(files, piece);
        files->news.cost.copy_ns += used_ns() - begin_ns;
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
    expect(files, &(struct lane_disk_load){0});
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
