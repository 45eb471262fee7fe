/*
 * fuzz_idx.c - the files of a set of images, from anywhere, plain or compressed.
 *
 * The first byte says which of the two files are there and under which name, the next two how long
 * the first is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "fuzz.h"
#include "idx.h"

enum { IMAGES_GZ = 1, LABELS_GZ = 2, NO_IMAGES = 4, NO_LABELS = 8, HEAD_BYTES = 3 };

struct file {
    char path[64];
};

static struct file
write_file(const char *directory, const char *kind, bool gz, const uint8_t *data, size_t size)
{
    struct file file;
    int descriptor;

    snprintf(file.path, sizeof(file.path), "%s/t-%s-ubyte%s", directory, kind, gz ? ".gz" : "");
    descriptor = open(file.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    psi_assert(descriptor >= 0);
    psi_assert(write(descriptor, data, size) == (ssize_t)size);
    close(descriptor);
    return file;
}

static void
check(const char *directory)
{
    struct images images = {0};
    struct failure failure = {0};

    if (idx_read(&images, directory, "t", &failure)) {
        psi_assert(images.count > 0);
        for (uint32_t i = 0; i < images.count; i++) {
            psi_assert(images.labels[i] < CLASSES);
        }
        images_fini(&images);
    } else {
        psi_assert(failure.text[0] != '\0');
        psi_assert(images.pixels == NULL);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char directory[] = "/dev/shm/psd_fuzz_XXXXXX";
    struct file images = {0};
    struct file labels = {0};
    size_t first;

    if (size < HEAD_BYTES) {
        return 0;
    }
    first = (size_t)data[1] | (size_t)data[2] << 8;
    first = first < size - HEAD_BYTES ? first : size - HEAD_BYTES;
    psi_assert(mkdtemp(directory) != NULL);
    if ((data[0] & NO_IMAGES) == 0) {
        images = write_file(directory, "images-idx3", (data[0] & IMAGES_GZ) != 0, data + HEAD_BYTES,
                            first);
    }
    if ((data[0] & NO_LABELS) == 0) {
        labels = write_file(directory, "labels-idx1", (data[0] & LABELS_GZ) != 0,
                            data + HEAD_BYTES + first, size - HEAD_BYTES - first);
    }
    check(directory);
    (void)unlink(images.path);
    (void)unlink(labels.path);
    psi_assert(rmdir(directory) == 0);
    return 0;
}
