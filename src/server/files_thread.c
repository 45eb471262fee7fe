/*
 * files_thread.c - the thread that writes a lane's part of a checkpoint, and makes room for its copies.
 *
 * Pieces are written in the order in which they came. What was given up is dropped from the queue, and its
 * files are closed: their names are gone, and the disk gets their space back when nobody has them open. A
 * piece that is being written then does no harm: an order with the same files writes all of them anew, and this
 * thread does so after it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <sys/resource.h>

#include "base/fail.h"
#include "server/files_state.h"

/* The lane, which trains, goes first where cores are few; and no step is much slower because of this thread, which rests so
 * many times as long as it has computed: longest while the lane makes copies. */
enum { NICE = 10, REST = 2, REST_MORE = 20, REST_MAX_NS = 20000000 };

void
files_free_piece(struct lane_files *files, struct piece *piece)
{
    if (piece->copy != NULL) {
        copies_give(&files->copies, piece->copy);
    }
    psi_rows_piece_destroy(piece->rows.piece);
    free(piece);
}

static void
close_writer(struct lane_files *files)
{
    if (files->open != 0) {
        psi_part_writer_fini(&files->writer);
        files->open = 0;
    }
}

uint64_t
files_used_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
files_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Around what may hang. */
static void
leave(struct lane_files *files)
{
    files->busy_ns = files_now_ns();
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
    const uint64_t begin_ns = files_used_ns();
    struct psi_rows_file file = {.place = rows->place, .number = rows->number};
    struct psi_directory directory;
    psd_status status = psi_directory_open(&directory, files->system, files->path, err);

    if (status != PSD_OK) {
        return status;
    }
    status = psi_rows_piece_write(rows->piece, &directory, rows->name, order->token, &file, err);
    psi_directory_close(&directory);
    files->writer.write_ns += files_used_ns() - begin_ns; /* checksums included */
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
    files_free_piece(files, piece);
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
    const uint64_t begin_ns = files_used_ns();
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
        files->room_ns += files_used_ns() - begin_ns;
    } else if (files->epoch == epoch) {
        files->news.cost.room_ns += files_used_ns() - begin_ns;
    }
}

/* The mutex is held. */
static void
tell_of_room(struct lane_files *files)
{
    files->prepares = false;
    files->news.is_prepared = true;
    files->wake(files->owner);
}

static void
free_idle(struct lane_files *files, struct copy *copy)
{
    leave(files);
    copy_free(copy);
    come_back(files);
}

/* Not while rounds may soon wait for room. The mutex is given up meanwhile. */
static void
rest(struct lane_files *files, uint64_t computed_ns)
{
    const bool copies_come = files->order.token != 0 && !files->finish;
    const uint64_t wanted_ns = (copies_come ? REST_MORE : REST) * computed_ns;
    const uint64_t rest_ns = wanted_ns < REST_MAX_NS ? wanted_ns : REST_MAX_NS;

    if (files->copies.used_bytes <= files->copies.room / 2) {
        leave(files);
        nanosleep(&(struct timespec){.tv_nsec = (long)rest_ns}, NULL);
        come_back(files);
    }
}

void *
files_run(void *argument)
{
    struct lane_files *files = argument;
    struct copy *copy;
    uint64_t begin_ns;
    size_t bytes;

    (void)setpriority(PRIO_PROCESS, 0, NICE); /* of this thread; refused: it is lower already */
    pthread_mutex_lock(&files->mutex);
    while (!files->stop) {
        begin_ns = files_used_ns();
        if (files->open != 0 && (files->open != files->epoch || files->over)) {
            close_dropped(files);
        } else if ((bytes = copies_wants(&files->copies)) > 0) {
            make_room(files, bytes);
            rest(files, files_used_ns() - begin_ns);
        } else if (files->prepares) {
            tell_of_room(files);
        } else if ((copy = copies_take_idle(&files->copies)) != NULL) {
            free_idle(files, copy);
        } else if (files->first != NULL && !files->over) {
            write_piece(files, files->first);
            rest(files, files_used_ns() - begin_ns);
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
