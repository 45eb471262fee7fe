/*
 * part_test.c - a generation that several processes write parts of.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/part.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "checkpoint/outline.h"
#include "checkpoint/read.h"
#include "checkpoint/write.h"

enum { TOKEN = 77, BROUGHT = 500, ELEMENTS = 600000 /* several blocks */, DATA = ELEMENTS * 4 };

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
    static char path[] = "/tmp/psd_part_XXXXXX";

    *state = mkdtemp(path);
    return *state == NULL ? -1 : 0;
}

static int
remove_directory(void **state)
{
    clear(*state);
    return rmdir(*state);
}

static struct psi_spec
spec_of(const char *name, psd_rule rule)
{
    struct psi_spec spec = {.dtype = PSD_F32,
                            .dims = 1,
                            .shape = {ELEMENTS},
                            .count = ELEMENTS,
                            .use = PSD_USE_UPDATE,
                            .rule = {.rule = rule}};

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    return spec;
}

static uint8_t *
make_data(void)
{
    uint8_t *data = malloc(DATA);

    assert_non_null(data);
    for (size_t i = 0; i < DATA; i++) {
        data[i] = (uint8_t)(i * 7 + i / 251);
    }
    return data;
}

static struct psi_outline
outline_of(uint64_t step)
{
    static struct psi_spec spec;
    const struct psi_spec *const specs[] = {&spec};
    struct psi_outline outline;

    spec = spec_of("w", PSD_RULE_SGD);
    assert_int_equal(psi_outline_init(&outline, specs, 1, step, NULL), PSD_OK);
    return outline;
}

static struct psi_part_order
order_of(const struct psi_outline *outline, uint64_t token, uint64_t generation, uint64_t after)
{
    struct psi_part_order order = {.token = token, .generation = generation, .after = after};

    memcpy(order.bytes, outline->bytes, sizeof(order.bytes));
    return order;
}

/* The generation of a token. */
static struct psi_checkpoint_writer *
share(const char *path, const struct psi_outline *outline, uint64_t token, uint32_t kept)
{
    const struct psi_checkpoint_shared shared = {.token = token, .kept = kept};
    struct psi_checkpoint_writer *writer;

    assert_int_equal(
        psi_checkpoint_writer_share(&psi_disk_system, path, outline->bytes, &shared, &writer, NULL),
        PSD_OK);
    return writer;
}

/* Begins a generation, writes all of it in two parts, and leaves the sums to the caller. */
static void
write_parts(const char *path, const struct psi_outline *outline, struct psi_part_writer parts[2])
{
    const struct psi_part_order order = order_of(outline, TOKEN, 0, 0);
    uint8_t *data = make_data();
    const size_t cut = DATA / 3;
    const uint64_t begin = outline->begin[0][PSI_PART_VALUE];

    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(
            psi_part_writer_init(&parts[i], &psi_disk_system, path, &order, NULL, NULL), PSD_OK);
    }
    assert_int_equal(
        psi_part_write(&parts[0], PSI_CHECKPOINT_PARAMS, begin + cut, data + cut, DATA - cut, NULL),
        PSD_OK);
    assert_int_equal(psi_part_write(&parts[1], PSI_CHECKPOINT_PARAMS, begin, data, cut, NULL),
                     PSD_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(psi_part_sync(&parts[i], NULL), PSD_OK);
    }
    free(data);
}

static void
write_heads(struct psi_checkpoint_writer *writer, const struct psi_outline *outline)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        assert_int_equal(psi_checkpoint_write(writer, (enum psi_checkpoint_kind)kind, 0,
                                              outline->head[kind], outline->head_bytes[kind], NULL),
                         PSD_OK);
    }
}

static uint32_t
write_brought(const char *path, const char *name)
{
    char temporary[PSI_CHECKPOINT_NAME_BYTES];
    char file[300];
    uint8_t data[BROUGHT];
    int fd;

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 3 + i / 256);
    }
    psi_checkpoint_temporary_part_name(temporary, TOKEN, name);
    snprintf(file, sizeof(file), "%s/%s", path, temporary);
    fd = open(file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, sizeof(data)), sizeof(data));
    close(fd);
    return psi_crc32c(0, data, sizeof(data));
}

static void
bring(struct psi_checkpoint_writer *writer, const char *path, const char *name)
{
    struct psi_manifest_part part = {.bytes = BROUGHT, .checksum = write_brought(path, name)};

    snprintf(part.name, sizeof(part.name), "%s", name);
    assert_int_equal(psi_checkpoint_bring(writer, &part, NULL), PSD_OK);
}

static void
save_with(const char *path, uint64_t step, uint32_t kept, const char *brought)
{
    const struct psi_manifest_table table = {.name = "w", .spec = "f32[1]", .step = step};
    struct psi_outline outline = outline_of(step);
    struct psi_checkpoint_writer *writer;
    struct psi_part_writer parts[2];

    writer = share(path, &outline, TOKEN, kept);
    write_parts(path, &outline, parts);
    write_heads(writer, &outline);
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
            assert_int_equal(psi_checkpoint_count(writer, (enum psi_checkpoint_kind)kind,
                                                  &parts[i].sums[kind], parts[i].written[kind],
                                                  NULL),
                             PSD_OK);
        }
        psi_part_writer_fini(&parts[i]);
    }
    if (brought != NULL) {
        bring(writer, path, brought);
    }
    assert_int_equal(psi_checkpoint_commit(writer, step, &table, 1, NULL), PSD_OK);
    psi_checkpoint_writer_destroy(writer);
    psi_outline_fini(&outline);
}

static void
save(const char *path, uint64_t step, uint32_t kept)
{
    save_with(path, step, kept, NULL);
}

static bool
is_there(const char *path, const char *name)
{
    char file[300];

    snprintf(file, sizeof(file), "%s/%s", path, name);
    return access(file, F_OK) == 0;
}

/* The step of the newest generation that is intact; 0: none. */
static uint64_t
newest_step(const char *path)
{
    struct psi_checkpoint *checkpoint;
    struct psd_error err = {0};
    uint64_t step;

    if (psi_checkpoint_open(&psi_disk_system, path, &checkpoint, &err) != PSD_OK) {
        return 0;
    }
    step = checkpoint->manifest.step;
    psi_checkpoint_destroy(checkpoint);
    return step;
}

/* If this fails, what workers brought is not part of the generation: it is lost, damaged without
 * notice, or stays when the generation goes. */
static void
test_parts_of_workers_belong_to_the_generation(void **state)
{
    struct psi_checkpoint *checkpoint;
    struct psd_error err = {0};
    char file[300];
    int fd;

    save(*state, 1, 2);
    save_with(*state, 2, 2, "model.safetensors");
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
    assert_int_equal(checkpoint->manifest.part_count, 1);
    assert_string_equal(checkpoint->manifest.parts[0].name, "model.safetensors");
    assert_int_equal(checkpoint->manifest.parts[0].bytes, BROUGHT);
    psi_checkpoint_destroy(checkpoint);

    snprintf(file, sizeof(file), "%s/part-2-model.safetensors", (const char *)*state);
    fd = open(file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t bit = 0; bit < BROUGHT * 8; bit++) {
        uint8_t byte;

        assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
        byte ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
        if (bit / 8 % 50 == 0 || bit % 8 == bit / 8 % 8) {
            assert_int_equal(newest_step(*state), 1);
        }
        byte ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    }
    assert_int_equal(newest_step(*state), 2);
    for (off_t length = BROUGHT + 1; length >= 0; length -= length == BROUGHT + 1 ? 2 : 1) {
        assert_int_equal(ftruncate(fd, length), 0);
        assert_int_equal(newest_step(*state), 1);
    }
    close(fd);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(newest_step(*state), 1);
    save_with(*state, 3, 2, "a");
    save(*state, 4, 2);
    assert_true(is_there(*state, "part-3-a"));
    save(*state, 5, 2);
    assert_false(is_there(*state, "part-3-a"));
    clear(*state);
}

/* If this fails, a part of another length than its worker says is committed, or one that was given
 * up stays behind. */
static void
test_parts_of_workers_are_given_up_with_the_rest(void **state)
{
    const struct psi_manifest_table table = {.name = "w", .spec = "f32[1]", .step = 3};
    const struct psi_manifest_part wrong = {.name = "a/b"};
    struct psi_manifest_part part = {.name = "a", .bytes = BROUGHT + 1};
    struct psi_outline outline = outline_of(3);
    struct psi_checkpoint_writer *writer;
    struct psi_part_writer parts[2];
    struct psd_error err = {0};

    writer = share(*state, &outline, TOKEN, 2);
    write_parts(*state, &outline, parts);
    write_heads(writer, &outline);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(psi_checkpoint_count(writer, PSI_CHECKPOINT_PARAMS,
                                              &parts[i].sums[PSI_CHECKPOINT_PARAMS],
                                              parts[i].written[PSI_CHECKPOINT_PARAMS], NULL),
                         PSD_OK);
        psi_part_writer_fini(&parts[i]);
    }
    bring(writer, *state, "b");
    write_brought(*state, "a");
    assert_int_equal(psi_checkpoint_bring(writer, &wrong, &err), PSD_ERR_INVALID);
    assert_int_equal(psi_checkpoint_bring(writer, &part, &err), PSD_OK);
    assert_int_equal(psi_checkpoint_bring(writer, &part, &err), PSD_ERR_INVALID);
    assert_int_equal(psi_checkpoint_commit(writer, 3, &table, 1, &err), PSD_ERR_IO);
    assert_non_null(strstr(err.text, "its worker says 501"));
    psi_checkpoint_writer_destroy(writer);
    assert_int_equal(rmdir(*state), 0); /* nothing is left */
    assert_int_equal(mkdir(*state, 0700), 0);
    psi_outline_fini(&outline);
}

/* If this fails, what several servers wrote together is taken for damaged, or is. */
static void
test_parts_make_a_whole(void **state)
{
    struct psi_checkpoint *checkpoint;
    struct psd_error err = {0};
    uint8_t *data = make_data();
    uint8_t *read = malloc(DATA);

    assert_non_null(read);
    save(*state, 12, 2);
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
    assert_int_equal(checkpoint->manifest.step, 12);
    assert_int_equal(
        psi_checkpoint_read(checkpoint, PSI_CHECKPOINT_PARAMS,
                            psi_tensors_find(&checkpoint->tensors[PSI_CHECKPOINT_PARAMS], "w"), 0,
                            DATA, read, &err),
        PSD_OK);
    assert_memory_equal(read, data, DATA);
    psi_checkpoint_destroy(checkpoint);
    free(read);
    free(data);
    clear(*state);
}

/* If this fails, a server that is late writes into a generation that it knows nothing of. */
static void
test_late_writer_reaches_no_other_generation(void **state)
{
    struct psi_outline outline = outline_of(3);
    struct psi_checkpoint_writer *writer;
    struct psi_checkpoint *checkpoint;
    struct psi_part_writer late;
    struct psi_part_order order;
    struct psd_error err = {0};

    writer = share(*state, &outline, 5, 2);
    order = order_of(&outline, 5, 1, 0);
    assert_int_equal(psi_part_writer_init(&late, &psi_disk_system, *state, &order, NULL, NULL),
                     PSD_OK);
    psi_checkpoint_writer_destroy(writer); /* given up */
    save(*state, 4, 2);
    assert_int_equal(psi_part_write(&late, PSI_CHECKPOINT_PARAMS, 900, "late", 4, NULL), PSD_OK);
    psi_part_writer_fini(&late);
    assert_int_equal(psi_checkpoint_open(&psi_disk_system, *state, &checkpoint, &err), PSD_OK);
    assert_int_equal(checkpoint->manifest.step, 4);
    psi_checkpoint_destroy(checkpoint);
    assert_int_equal(psi_part_writer_init(&late, &psi_disk_system, *state, &order, NULL, &err),
                     PSD_ERR_IO);
    assert_non_null(strstr(err.text, "which the master has made there"));
    psi_outline_fini(&outline);
    clear(*state);
}

static ssize_t
full_write(void *self, int fd, const void *data, size_t bytes, uint64_t offset)
{
    size_t *room = self;

    if (*room == 0) {
        errno = ENOSPC;
        return -1;
    }
    bytes = bytes < *room ? bytes : *room;
    *room -= bytes;
    return psi_disk_system.write(NULL, fd, data, bytes, offset);
}

static int
failing_sync(void *self, int fd)
{
    (void)self;
    (void)fd;
    errno = EIO;
    return -1;
}

/* If this fails, a part that the disk did not take counts as written. */
static void
test_part_that_is_not_written_is_told(void **state)
{
    struct psi_outline outline = outline_of(3);
    struct psi_checkpoint_writer *writer;
    struct psi_part_writer part;
    struct psd_error err = {0};
    uint8_t *data = make_data();
    size_t room = 1000;
    struct psi_disk disk = psi_disk_system;

    const struct psi_part_order order = order_of(&outline, TOKEN, 1, 0);

    disk.self = &room;
    disk.write = full_write;
    disk.sync = failing_sync;
    writer = share(*state, &outline, TOKEN, 2);
    assert_int_equal(psi_part_writer_init(&part, &disk, *state, &order, NULL, NULL), PSD_OK);
    assert_int_equal(psi_part_write(&part, PSI_CHECKPOINT_PARAMS, 0, data, 900, &err), PSD_OK);
    assert_int_equal(psi_part_write(&part, PSI_CHECKPOINT_PARAMS, 900, data, 900, &err),
                     PSD_ERR_IO);
    assert_non_null(strstr(err.text, "No space left on device"));
    assert_non_null(strstr(err.text, ".params-"));
    assert_int_equal(part.written[PSI_CHECKPOINT_PARAMS], 900);
    assert_int_equal(psi_part_sync(&part, &err), PSD_ERR_IO);
    psi_part_writer_fini(&part);
    psi_checkpoint_writer_destroy(writer);
    psi_outline_fini(&outline);
    free(data);
    clear(*state);
}

/* If this fails, fewer generations are kept than were asked for, or more. */
static void
test_as_many_are_kept_as_asked_for(void **state)
{
    struct psi_directory directory;
    struct psi_generations generations;
    unsigned manifests = 0;

    for (uint64_t step = 1; step <= 5; step++) {
        save(*state, step, 3);
    }
    assert_int_equal(psi_directory_open(&directory, &psi_disk_system, *state, NULL), PSD_OK);
    assert_int_equal(psi_generations_init(&generations, &directory, NULL), PSD_OK);
    for (size_t i = 0; i < generations.count; i++) {
        manifests += generations.list[i].kind == PSI_CHECKPOINT_MANIFEST;
    }
    assert_int_equal(manifests, 3);
    assert_int_equal(generations.count, 9);
    psi_generations_fini(&generations);
    psi_directory_close(&directory);
    clear(*state);
}

/* If this fails, servers write to places that move with the number of the step. */
static void
test_places_do_not_depend_on_the_step(void **state)
{
    struct psi_outline first = outline_of(0);

    (void)state;
    for (uint64_t step = 1; step != 0; step = step > UINT64_MAX / 10 ? 0 : step * 10) {
        struct psi_outline outline = outline_of(step);

        assert_int_equal(outline.begin[0][0], first.begin[0][0]);
        assert_int_equal(outline.bytes[0], first.bytes[0]);
        assert_int_equal(outline.bytes[1], first.bytes[1]);
        psi_outline_fini(&outline);
    }
    psi_outline_fini(&first);
}

/* If this fails, a checkpoint is loaded into tables that it is not of. */
static void
test_what_does_not_fit_is_named(void **state)
{
    const struct psi_spec other_rule = spec_of("w", PSD_RULE_ADAM);
    const struct psi_spec missing = spec_of("v", PSD_RULE_SGD);
    struct psi_spec other_shape = spec_of("w", PSD_RULE_SGD);
    struct psi_checkpoint *checkpoint;
    struct psd_error err = {0};

    save(*state, 4, 2);
    assert_int_equal(psi_checkpoint_open_one(&psi_disk_system, *state, 1, false, &checkpoint, &err),
                     PSD_OK);
    assert_int_equal(psi_checkpoint_fits(checkpoint, &missing, &err), PSD_ERR_MISMATCH);
    assert_non_null(strstr(err.text, "table v: not in generation 1"));
    other_shape.shape[0] = 5;
    assert_int_equal(psi_checkpoint_fits(checkpoint, &other_shape, &err), PSD_ERR_MISMATCH);
    assert_non_null(strstr(err.text, "f32[600000] in"));
    assert_non_null(strstr(err.text, "f32[5] in this job"));
    assert_int_equal(psi_checkpoint_fits(checkpoint, &other_rule, &err), PSD_ERR_MISMATCH);
    psi_checkpoint_destroy(checkpoint);
    clear(*state);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_make_a_whole),
        cmocka_unit_test(test_parts_of_workers_belong_to_the_generation),
        cmocka_unit_test(test_parts_of_workers_are_given_up_with_the_rest),
        cmocka_unit_test(test_late_writer_reaches_no_other_generation),
        cmocka_unit_test(test_part_that_is_not_written_is_told),
        cmocka_unit_test(test_as_many_are_kept_as_asked_for),
        cmocka_unit_test(test_places_do_not_depend_on_the_step),
        cmocka_unit_test(test_what_does_not_fit_is_named),
    };

    return cmocka_run_group_tests_name("checkpoint_part", tests, make_directory, remove_directory);
}
