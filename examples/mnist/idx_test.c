/*
 * idx_test.c - files with images, whole and spoilt.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "idx.h"

enum { FILE_IMAGES = 3, IMAGES_BYTES = 16 + FILE_IMAGES * IMAGE_PIXELS, LABELS_BYTES = 11 };

/* A directory with a small, correct set in it, for tests to spoil. */
struct fixture {
    char directory[32];
    uint8_t images[IMAGES_BYTES + 1]; /* one more than belongs there */
    uint8_t labels[LABELS_BYTES + 1];
};

static void
file_path(const struct fixture *fixture, const char *name, char *path)
{
    snprintf(path, PATH_MAX, "%s/%s", fixture->directory, name);
}

static void
write_plain(const struct fixture *fixture, const char *name, const void *bytes, size_t count)
{
    char path[PATH_MAX];
    FILE *file;

    file_path(fixture, name, path);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void
write_gz(const struct fixture *fixture, const char *name, const void *bytes, size_t count)
{
    char path[PATH_MAX];
    gzFile file;

    file_path(fixture, name, path);
    file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)count), count);
    assert_int_equal(gzclose(file), Z_OK);
}

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    strcpy(fixture->directory, "/tmp/mnist_test_XXXXXX");
    assert_non_null(mkdtemp(fixture->directory));
    memcpy(fixture->images, "\0\0\x08\x03\0\0\0\3\0\0\0\34\0\0\0\34", 16);
    for (int i = 16; i < IMAGES_BYTES; i++) {
        fixture->images[i] = (uint8_t)(i * 7);
    }
    memcpy(fixture->labels, "\0\0\x08\x01\0\0\0\3\5\0\x09", LABELS_BYTES);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz",
                                        "train-labels-idx1-ubyte", "train-labels-idx1-ubyte.gz"};
    struct fixture *fixture = *state;
    char path[PATH_MAX];

    for (size_t i = 0; i < 4; i++) {
        file_path(fixture, names[i], path);
        unlink(path);
    }
    assert_int_equal(rmdir(fixture->directory), 0);
    free(fixture);
    return 0;
}

static void
expect_read(const struct fixture *fixture)
{
    struct failure failure = {""};
    struct images images;

    if (!idx_read(&images, fixture->directory, "train", &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_int_equal(images.count, FILE_IMAGES);
    assert_memory_equal(images.pixels, fixture->images + 16, FILE_IMAGES * IMAGE_PIXELS);
    assert_memory_equal(images.labels, fixture->labels + 8, FILE_IMAGES);
    images_fini(&images);
}

/* Refused, in these words, and the output untouched. */
static void
expect_refused(const struct fixture *fixture, const char *words)
{
    struct failure failure = {""};
    struct images images = {.count = 77};

    assert_false(idx_read(&images, fixture->directory, "train", &failure));
    assert_int_equal(images.count, 77);
    if (strstr(failure.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", failure.text, words);
    }
}

/* If this fails, good files are refused or read wrongly. */
static void
test_idx_read_plain_and_gz(void **state)
{
    const struct fixture *fixture = *state;

    write_gz(fixture, "train-images-idx3-ubyte.gz", fixture->images, IMAGES_BYTES);
    write_plain(fixture, "train-labels-idx1-ubyte", fixture->labels, LABELS_BYTES);
    expect_read(fixture);
    write_plain(fixture, "train-images-idx3-ubyte", fixture->images, IMAGES_BYTES);
    expect_read(fixture);
}

/* If this fails, somebody looks for missing files for an hour. */
static void
test_idx_read_names_missing_file(void **state)
{
    const struct fixture *fixture = *state;

    expect_refused(fixture, "neither train-images-idx3-ubyte nor the same with .gz");
    write_plain(fixture, "train-images-idx3-ubyte", fixture->images, IMAGES_BYTES);
    expect_refused(fixture, "neither train-labels-idx1-ubyte nor the same with .gz");
}

/* If this fails, a half-copied file trains on garbage or reads past its end. */
static void
test_idx_read_refuses_truncated(void **state)
{
    const struct fixture *fixture = *state;
    static const size_t image_cuts[] = {0, 3, 7, 15, 16, IMAGES_BYTES - 1};

    write_plain(fixture, "train-labels-idx1-ubyte", fixture->labels, LABELS_BYTES);
    for (size_t i = 0; i < sizeof(image_cuts) / sizeof(image_cuts[0]); i++) {
        write_plain(fixture, "train-images-idx3-ubyte", fixture->images, image_cuts[i]);
        expect_refused(fixture, "train-images-idx3-ubyte: the file is truncated");
    }
    write_plain(fixture, "train-images-idx3-ubyte", fixture->images, IMAGES_BYTES);
    write_plain(fixture, "train-labels-idx1-ubyte", fixture->labels, LABELS_BYTES - 1);
    expect_refused(fixture, "train-labels-idx1-ubyte: the file is truncated");
}

/* If this fails, files that are not what their names say are taken for images. */
static void
test_idx_read_refuses_wrong_headers(void **state)
{
    static const struct {
        size_t at; /* of the big-endian number to spoil */
        uint8_t bytes[4];
        const char *words;
    } cases[] = {
        {0, {0, 0, 8, 1}, "magic number 0x00000801, expected 0x00000803"},
        {4, {0, 0, 0, 0}, "it claims 0 items"},
        {4, {255, 255, 255, 255}, "it claims 4294967295 items"},
        {4, {0, 0, 0, 2}, "more bytes than its header says"},
        {4, {0, 0, 0, 4}, "truncated"},
        {8, {0, 0, 0, 32}, "images of 32 x 28, expected 28 x 28"},
        {12, {0, 0, 0, 0}, "images of 28 x 0, expected 28 x 28"},
    };
    struct fixture *fixture = *state;

    write_plain(fixture, "train-labels-idx1-ubyte", fixture->labels, LABELS_BYTES);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t spoilt[IMAGES_BYTES];

        memcpy(spoilt, fixture->images, IMAGES_BYTES);
        memcpy(spoilt + cases[i].at, cases[i].bytes, 4);
        write_plain(fixture, "train-images-idx3-ubyte", spoilt, IMAGES_BYTES);
        expect_refused(fixture, cases[i].words);
    }
}

/* If this fails, labels can index past ten classes or belong to other images. */
static void
test_idx_read_refuses_wrong_labels(void **state)
{
    struct fixture *fixture = *state;

    write_plain(fixture, "train-images-idx3-ubyte", fixture->images, IMAGES_BYTES);
    fixture->labels[9] = 10;
    write_plain(fixture, "train-labels-idx1-ubyte", fixture->labels, LABELS_BYTES);
    expect_refused(fixture, "label 1 is 10, expected 0 to 9");
    fixture->labels[9] = 0;
    fixture->labels[7] = 4;
    write_plain(fixture, "train-labels-idx1-ubyte", fixture->labels, LABELS_BYTES + 1);
    expect_refused(fixture, "4 labels for 3 images");
}

/* If this fails, a damaged download goes unnoticed. */
static void
test_idx_read_refuses_damaged_gz(void **state)
{
    const struct fixture *fixture = *state;
    uint8_t packed[2 * IMAGES_BYTES];
    char path[PATH_MAX];
    size_t count;
    FILE *file;

    write_plain(fixture, "train-labels-idx1-ubyte", fixture->labels, LABELS_BYTES);
    write_gz(fixture, "train-images-idx3-ubyte.gz", fixture->images, IMAGES_BYTES);
    file_path(fixture, "train-images-idx3-ubyte.gz", path);
    file = fopen(path, "rb");
    assert_non_null(file);
    count = fread(packed, 1, sizeof(packed), file);
    fclose(file);
    assert_in_range(count, 20, sizeof(packed) - 1);

    for (size_t cut = count - 1; cut > 0; cut = cut > count - 20 ? cut - 1 : cut / 2) {
        write_plain(fixture, "train-images-idx3-ubyte.gz", packed, cut);
        expect_refused(fixture, "train-images-idx3-ubyte.gz: ");
    }
    packed[count - 6] ^= 1; /* in the checksum */
    write_plain(fixture, "train-images-idx3-ubyte.gz", packed, count);
    expect_refused(fixture, "incorrect data check");
    memset(packed + 10, 0xff, count - 10);
    write_plain(fixture, "train-images-idx3-ubyte.gz", packed, count);
    expect_refused(fixture, "invalid block type");
    write_plain(fixture, "train-images-idx3-ubyte.gz", "this is not gzip at all", 23);
    expect_refused(fixture, "magic number 0x74686973");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_idx_read_plain_and_gz, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idx_read_names_missing_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idx_read_refuses_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idx_read_refuses_wrong_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idx_read_refuses_wrong_labels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idx_read_refuses_damaged_gz, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
