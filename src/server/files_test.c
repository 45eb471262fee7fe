/*
 * files_test.c - the thread that writes a lane's part of a checkpoint, with a real disk.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/files.h"

#include <dirent.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/write.h"

enum { TOKEN = 5, BYTES = 4096, DEADLINE_S = 30, POLL_NS = 1000000 };

struct bed {
    const struct psi_disk *system;
    char path[64];
    sem_t news;
    struct lane_files *files;
    const struct lane_disk *disk;
    struct psi_checkpoint_writer *writer;
};

static const uint64_t sizes[PSI_CHECKPOINT_DATA_FILES] = {BYTES, BYTES};
static const struct lane_disk_load load = {.bytes = BYTES, .room = BYTES, .piece_bytes = BYTES / 2};
static const struct psi_part_order order = {
    .token = TOKEN, .generation = 1, .bytes = {BYTES, BYTES}};

static void
wake(void *owner)
{
    struct bed *bed = owner;

    sem_post(&bed->news);
}

/* The master's side has made the files. */
static void
start_with(struct bed *bed)
{
    const struct psi_checkpoint_shared shared = {.token = TOKEN, .kept = 2};
    struct psd_error err;

    snprintf(bed->path, sizeof(bed->path), "/tmp/psd_files_XXXXXX");
    assert_non_null(mkdtemp(bed->path));
    assert_int_equal(sem_init(&bed->news, 0, 0), 0);
    bed->files = lane_files_create(bed->system, bed->path, wake, bed);
    assert_non_null(bed->files);
    bed->disk = lane_files_disk(bed->files);
    assert_int_equal(psi_checkpoint_writer_share(&psi_disk_system, bed->path, sizes, &shared,
                                                 &bed->writer, &err),
                     PSD_OK);
}

static void
start(struct bed *bed)
{
    bed->system = &psi_disk_system;
    start_with(bed);
}

static void
stop(struct bed *bed)
{
    lane_files_destroy(bed->files);
    psi_checkpoint_writer_destroy(bed->writer);
    sem_destroy(&bed->news);
    assert_int_equal(rmdir(bed->path), 0);
}

static void
write_piece(struct bed *bed, uint64_t at)
{
    static const char zeros[BYTES / 2];

    bed->disk->write(bed->disk->self, PSI_CHECKPOINT_PARAMS, at, zeros, BYTES / 2);
}

static struct lane_disk_news
wait_for_news(struct bed *bed)
{
    struct lane_disk_news news;
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DEADLINE_S;
    assert_int_equal(sem_timedwait(&bed->news, &until), 0);
    bed->disk->look(bed->disk->self, &news);
    return news;
}

/* Files of the directory that this process has open, with a name or without; and the directory itself. */
static unsigned
count_open(const struct bed *bed)
{
    DIR *stream = opendir("/proc/self/fd");
    const struct dirent *entry;
    unsigned count = 0;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        char to[256];
        const ssize_t bytes = readlinkat(dirfd(stream), entry->d_name, to, sizeof(to) - 1);

        to[bytes > 0 ? bytes : 0] = '\0';
        count += strncmp(to, bed->path, strlen(bed->path)) == 0;
    }
    closedir(stream);
    return count;
}

static void
wait_until_closed(const struct bed *bed)
{
    const time_t until = time(NULL) + DEADLINE_S;

    while (count_open(bed) > 0) {
        assert_true(time(NULL) < until);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

/* If this fails, a checkpoint that was given up keeps its space on the disk, and none fits there any more. */
static void
test_what_is_given_up_takes_no_space(void **state)
{
    struct bed bed;

    (void)state;
    start(&bed);
    bed.disk->begin(bed.disk->self, &order, &load);
    write_piece(&bed, 0);
    assert_int_equal(wait_for_news(&bed).written, BYTES / 2);
    bed.disk->drop(bed.disk->self);
    psi_checkpoint_writer_destroy(bed.writer); /* the names go */
    bed.writer = NULL;
    wait_until_closed(&bed);
    stop(&bed);
}

static sem_t hanging; /* the disk hangs in a write ... */
static sem_t comes_back;

static ssize_t
hang(void *self, int fd, const void *data, size_t bytes, uint64_t offset)
{
    sem_post(&hanging);
    while (sem_wait(&comes_back) != 0) {
    }
    return psi_disk_system.write(NULL, fd, data, bytes, offset);
}

/* If this fails, what waits for a disk that hangs keeps its memory after it was given up, or who gives it
 * up waits for the disk. */
static void
test_a_disk_that_hangs_holds_nobody_up(void **state)
{
    struct psi_disk disk = psi_disk_system;
    struct lane_disk_news news;
    struct bed bed;

    (void)state;
    disk.write = hang;
    assert_int_equal(sem_init(&hanging, 0, 0), 0);
    assert_int_equal(sem_init(&comes_back, 0, 0), 0);
    bed.system = &disk;
    start_with(&bed);
    bed.disk->begin(bed.disk->self, &order, &load);
    write_piece(&bed, 0);
    write_piece(&bed, BYTES / 2);
    while (sem_wait(&hanging) != 0) {
    }
    bed.disk->drop(
        bed.disk->self); /* the address sanitizer sees whether the second piece is freed */
    bed.disk->begin(bed.disk->self, &order, &load);
    bed.disk->look(bed.disk->self, &news);
    assert_false(news.failed || news.done || news.written > 0);
    sem_post(&comes_back);
    sem_post(&comes_back);
    sem_post(&comes_back);
    write_piece(&bed, 0);
    write_piece(&bed, BYTES / 2);
    bed.disk->finish(bed.disk->self);
    do {
        news = wait_for_news(&bed);
        assert_false(news.failed);
    } while (!news.done);
    assert_int_equal(news.bytes[PSI_CHECKPOINT_PARAMS], BYTES);
    psi_checkpoint_writer_destroy(bed.writer);
    bed.writer = NULL;
    wait_until_closed(&bed);
    stop(&bed);
}

/* If this fails, a disk that fails keeps what was written before, or the next checkpoint fails with it. */
static void
test_what_has_failed_takes_no_space(void **state)
{
    struct psi_part_order other = order;
    struct bed bed;
    struct lane_disk_news news;

    (void)state;
    start(&bed);
    other.token = TOKEN + 1; /* nobody has made that */
    bed.disk->begin(bed.disk->self, &other, &load);
    write_piece(&bed, 0);
    news = wait_for_news(&bed);
    assert_true(news.failed);
    assert_non_null(strstr(news.text, "which the master has made there: No such file"));
    bed.disk->begin(bed.disk->self, &order, &load);
    write_piece(&bed, 0);
    write_piece(&bed, BYTES / 2);
    bed.disk->finish(bed.disk->self);
    do {
        news = wait_for_news(&bed);
        assert_false(news.failed);
    } while (!news.done);
    assert_int_equal(news.bytes[PSI_CHECKPOINT_PARAMS], BYTES);
    psi_checkpoint_writer_destroy(bed.writer);
    bed.writer = NULL;
    wait_until_closed(&bed);
    stop(&bed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_given_up_takes_no_space),
        cmocka_unit_test(test_a_disk_that_hangs_holds_nobody_up),
        cmocka_unit_test(test_what_has_failed_takes_no_space),
    };

    return cmocka_run_group_tests_name("lane_files", tests, NULL, NULL);
}
