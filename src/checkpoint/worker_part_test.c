/*
 * worker_part_test.c - a generation with a file of worker 0.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/worker_part.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/outline.h"
#include "checkpoint/read.h"
#include "checkpoint/write.h"

enum { TOKEN = 77, BYTES = 3000001 /* several pieces */ };

static void
clear(const char *path)
{
    DIR *stream = opendir(path);
    const struct dirent *entry;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        if (entry->d_name[0] != '.' || strstr(entry->d_name, ".tmp") != NULL) {
            assert_int_equal(unlinkat(dirfd(stream), entry->d_name, 0), 0);
        }
    }
    closedir(stream);
}

static int
make_directory(void **state)
{
    static char path[] = "/tmp/psd_worker_part_XXXXXX";

    *state = mkdtemp(path);
    return *state == NULL ? -1 : 0;
}

static int
empty_directory(void **state)
{
    clear(*state);
    return 0;
}

static int
remove_directory(void **state)
{
    clear(*state);
    return rmdir(*state);
}

static uint8_t *
make_data(uint8_t first)
{
    uint8_t *data = malloc(BYTES);

    assert_non_null(data);
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)(first + i * 7 + i / 251);
    }
    return data;
}

static struct psi_checkpoint_writer *
begin(const char *path, struct psi_outline *outline)
{
    struct psi_checkpoint_writer *writer;
    const struct psi_checkpoint_shared shared = {.token = TOKEN, .kept = 2};
    const struct psi_spec *none[1] = {NULL};

    assert_int_equal(psi_outline_init(outline, none, 0, 5, NULL), PSD_OK);
    assert_int_equal(
        psi_checkpoint_writer_share(&psi_disk_system, path, outline->bytes, &shared, &writer, NULL),
        PSD_OK);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        assert_int_equal(psi_checkpoint_write(writer, (enum psi_checkpoint_kind)kind, 0,
                                              outline->head[kind], outline->head_bytes[kind], NULL),
                         PSD_OK);
    }
    return writer;
}

static void
bring(struct psi_checkpoint_writer *writer, uint64_t bytes, uint32_t checksum)
{
    const struct psi_manifest_part part = {
        .name = PSI_WORKER_PART, .bytes = bytes, .checksum = checksum};

    assert_int_equal(psi_checkpoint_bring(writer, &part, NULL), PSD_OK);
}

/* A generation of nothing but that. */
static void
save(const char *path, uint8_t first)
{
    uint8_t *data = make_data(first);
    struct psi_outline outline;
    struct psi_checkpoint_writer *writer = begin(path, &outline);
    const struct psi_manifest_table table = {.name = ""};
    uint32_t checksum;

    assert_int_equal(
        psi_worker_part_write(&psi_disk_system, path, TOKEN, data, BYTES, &checksum, NULL), PSD_OK);
    bring(writer, BYTES, checksum);
    assert_int_equal(psi_checkpoint_commit(writer, 5, &table, 0, NULL), PSD_OK);
    psi_checkpoint_writer_destroy(writer);
    psi_outline_fini(&outline);
    free(data);
}

static unsigned
count_files(const char *path, const char *word)
{
    DIR *stream = opendir(path);
    const struct dirent *entry;
    unsigned count = 0;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        count += strstr(entry->d_name, word) != NULL;
    }
    closedir(stream);
    return count;
}

/* If this fails, a job of PyTorch goes on with other weights than it saved, or not at all. */
static void
test_a_part_comes_back(void **state)
{
    const char *path = *state;
    uint8_t *data = make_data(2);
    uint8_t *found = malloc(BYTES);
    struct psi_checkpoint *checkpoint;
    struct psi_directory directory;
    const struct psi_manifest_part *part;
    struct psd_error err;

    save(path, 1);
    save(path, 2);
    save(path, 2);
    assert_int_equal(count_files(path, "worker0"), 2); /* old ones go with their generations */
    assert_int_equal(count_files(path, ".tmp"), 0);
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, path, &checkpoint, &err), PSD_OK);
    part = psi_worker_part(&checkpoint->manifest);
    assert_non_null(part);
    assert_int_equal(part->bytes, BYTES);
    assert_int_equal(checkpoint->manifest.step, 5);
    assert_int_equal(psi_directory_open(&directory, &psi_disk_system, path, NULL), PSD_OK);
    assert_int_equal(psi_worker_part_read(&directory, 3, part, found, BYTES, NULL), PSD_OK);
    assert_memory_equal(found, data, BYTES);
    psi_directory_close(&directory);
    psi_checkpoint_destroy(checkpoint);
    free(found);
    free(data);
}

/* If this fails, a job goes on from a part that is not what was written. */
static void
test_a_damaged_part_is_not_taken(void **state)
{
    const char *path = *state;
    uint8_t *found = malloc(BYTES);
    struct psi_checkpoint *checkpoint;
    struct psi_directory directory;
    struct psd_error err;
    char name[4096];
    uint8_t byte;
    int fd;

    save(path, 1);
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, path, &checkpoint, &err), PSD_OK);
    assert_int_equal(psi_directory_open(&directory, &psi_disk_system, path, NULL), PSD_OK);
    snprintf(name, sizeof(name), "%s/part-1-worker0.safetensors", path);
    fd = open(name, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, BYTES - 1), 1);
    byte ^= 16;
    assert_int_equal(pwrite(fd, &byte, 1, BYTES - 1), 1); /* since it was opened */
    assert_int_equal(psi_worker_part_read(&directory, 1, psi_worker_part(&checkpoint->manifest),
                                          found, 10, &err),
                     PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "part-1-worker0.safetensors: damaged"));
    assert_int_equal(ftruncate(fd, BYTES - 1), 0);
    assert_int_equal(psi_worker_part_read(&directory, 1, psi_worker_part(&checkpoint->manifest),
                                          found, BYTES, &err),
                     PSD_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "the manifest says 3000001"));
    close(fd);
    psi_directory_close(&directory);
    psi_checkpoint_destroy(checkpoint);
    free(found);
}

/* If this fails, an order that is given twice leaves half of the first part, or a part stays for ever. */
static void
test_a_part_is_written_anew(void **state)
{
    const char *path = *state;
    uint8_t *data = make_data(1);
    struct psi_outline outline;
    struct psi_checkpoint_writer *writer = begin(path, &outline);
    uint32_t checksum;

    assert_int_equal(
        psi_worker_part_write(&psi_disk_system, path, TOKEN, data, BYTES, &checksum, NULL), PSD_OK);
    assert_int_equal(
        psi_worker_part_write(&psi_disk_system, path, TOKEN, data, 100, &checksum, NULL), PSD_OK);
    bring(writer, 100, checksum);
    psi_checkpoint_writer_destroy(writer);
    psi_outline_fini(&outline);
    assert_int_equal(count_files(path, "worker0"), 0);
    assert_int_equal(
        psi_worker_part_write(&psi_disk_system, path, TOKEN + 1, data, 9, &checksum, NULL),
        PSD_OK); /* who is late */
    assert_int_equal(count_files(path, "worker0"), 1);
    save(path, 1);
    assert_int_equal(count_files(path, "worker0"), 1);
    free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_part_comes_back, empty_directory),
        cmocka_unit_test_teardown(test_a_damaged_part_is_not_taken, empty_directory),
        cmocka_unit_test_teardown(test_a_part_is_written_anew, empty_directory),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
