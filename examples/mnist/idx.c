/*
 * idx.c - reads images and labels in the format of the MNIST files.
 *
 * A file is a magic number that tells type and dimensions, one big-endian 32-bit size per
 * dimension, then the bytes. zlib reads plain files and .gz alike.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "idx.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

enum { MAGIC_IMAGES = 0x803, MAGIC_LABELS = 0x801, IMAGES_MAX = 1000000 };

struct idx {
    char path[PATH_MAX];
    gzFile file;
};

static bool
idx_open(struct idx *idx, const char *directory, const char *part, const char *kind,
         struct failure *failure)
{
    static const char *const endings[] = {"", ".gz"};

    for (size_t i = 0; i < 2; i++) {
        const int length = snprintf(idx->path, sizeof(idx->path), "%s/%s-%s-ubyte%s", directory,
                                    part, kind, endings[i]);

        if (length < 0 || (size_t)length >= sizeof(idx->path)) {
            return failed(failure, "%.80s...: path too long", directory);
        }
        if (access(idx->path, F_OK) == 0) {
            errno = 0;
            idx->file = gzopen(idx->path, "rb");
            return idx->file != NULL || failed(failure, "open %s: %s", idx->path,
                                               errno != 0 ? strerror(errno) : "out of memory");
        }
    }
    return failed(failure,
                  "%s: neither %s-%s-ubyte nor the same with .gz is there; examples/mnist/fetch.sh "
                  "DIR gets the data, without --data digits are drawn",
                  directory, part, kind);
}

/* Says why fewer bytes came than were asked for. */
static bool
idx_short(struct idx *idx, struct failure *failure)
{
    int code = Z_OK;
    const char *reason = gzerror(idx->file, &code);

    if (code == Z_OK || code == Z_BUF_ERROR) {
        return failed(failure, "read %s: the file is truncated", idx->path);
    }
    return failed(failure, "read %s: %s", idx->path, code == Z_ERRNO ? strerror(errno) : reason);
}

static bool
idx_bytes(struct idx *idx, void *bytes, size_t count, struct failure *failure)
{
    const int got = gzread(idx->file, bytes, (unsigned)count);

    return (got >= 0 && (size_t)got == count) || idx_short(idx, failure);
}

static bool
idx_number(struct idx *idx, uint32_t *number_p, struct failure *failure)
{
    uint8_t b[4];

    if (!idx_bytes(idx, b, sizeof(b), failure)) {
        return false;
    }
    *number_p = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    return true;
}

/* Reads magic number and count, which every file begins with. */
static bool
idx_head(struct idx *idx, uint32_t magic_want, uint32_t *count_p, struct failure *failure)
{
    uint32_t magic;
    uint32_t count;

    if (!idx_number(idx, &magic, failure)) {
        return false;
    }
    if (magic != magic_want) {
        return failed(failure, "read %s: magic number 0x%08x, expected 0x%08x", idx->path, magic,
                      magic_want);
    }
    if (!idx_number(idx, &count, failure)) {
        return false;
    }
    if (count == 0 || count > IMAGES_MAX) {
        return failed(failure, "read %s: it claims %u items, expected 1 to %d", idx->path, count,
                      IMAGES_MAX);
    }
    *count_p = count;
    return true;
}

/* Also the place where a damaged .gz is found out: its checksum comes last. */
static bool
idx_end(struct idx *idx, struct failure *failure)
{
    uint8_t extra;
    int code = Z_OK;

    if (gzread(idx->file, &extra, 1) == 1) {
        return failed(failure, "read %s: more bytes than its header says", idx->path);
    }
    gzerror(idx->file, &code);
    return code == Z_OK || idx_short(idx, failure);
}

static bool
read_images(struct idx *idx, struct images *images, struct failure *failure)
{
    uint32_t count;
    uint32_t rows;
    uint32_t columns;

    if (!idx_head(idx, MAGIC_IMAGES, &count, failure) || !idx_number(idx, &rows, failure) ||
        !idx_number(idx, &columns, failure)) {
        return false;
    }
    if (rows != IMAGE_SIDE || columns != IMAGE_SIDE) {
        return failed(failure, "read %s: images of %u x %u, expected 28 x 28", idx->path, rows,
                      columns);
    }
    return images_init(images, count, failure) &&
           idx_bytes(idx, images->pixels, (size_t)count * IMAGE_PIXELS, failure) &&
           idx_end(idx, failure);
}

static bool
read_labels(struct idx *idx, struct images *images, struct failure *failure)
{
    uint32_t count;

    if (!idx_head(idx, MAGIC_LABELS, &count, failure)) {
        return false;
    }
    if (count != images->count) {
        return failed(failure, "read %s: %u labels for %u images", idx->path, count, images->count);
    }
    if (!idx_bytes(idx, images->labels, count, failure) || !idx_end(idx, failure)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (images->labels[i] >= CLASSES) {
            return failed(failure, "read %s: label %u is %u, expected 0 to 9", idx->path, i,
                          images->labels[i]);
        }
    }
    return true;
}

bool
idx_read(struct images *images, const char *directory, const char *part, struct failure *failure)
{
    struct images found = {0};
    struct idx idx;
    bool ok = false;

    if (idx_open(&idx, directory, part, "images-idx3", failure)) {
        ok = read_images(&idx, &found, failure);
        gzclose_r(idx.file);
    }
    if (ok) {
        ok = idx_open(&idx, directory, part, "labels-idx1", failure);
        if (ok) {
            ok = read_labels(&idx, &found, failure);
            gzclose_r(idx.file);
        }
    }
    if (!ok) {
        images_fini(&found);
        return false;
    }
    *images = found;
    return true;
}
