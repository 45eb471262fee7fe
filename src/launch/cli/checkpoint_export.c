/*
 * checkpoint_export.c - the values of a checkpoint, for other programs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/checkpoint_export.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"

enum { STRIDE_BYTES = 1 << 20, NPY_ALIGN = 64, NPY_PREFIX = 10 };

static psd_status
open_new(const char *path, int *fd_p, struct psd_error *err)
{
    *fd_p = psi_disk_open(&psi_disk_system, AT_FDCWD, path, PSI_DISK_NEW);
    return *fd_p >= 0 ? PSD_OK : psi_fail_errno(err, PSD_ERR_IO, "create %s", path);
}

static psd_status
put(int fd, const char *path, const void *data, size_t bytes, uint64_t at, struct psd_error *err)
{
    return psi_disk_write(&psi_disk_system, fd, data, bytes, at) == 0
               ? PSD_OK
               : psi_fail_errno(err, PSD_ERR_IO, "write %s", path);
}

/* The file as it lies there: it is one that others read. */
psd_status
checkpoint_export_file(struct psi_checkpoint *checkpoint, const char *path, struct psd_error *err)
{
    const uint64_t bytes = checkpoint->manifest.files[PSI_CHECKPOINT_PARAMS].bytes;
    const struct psi_tensor whole = {.end = bytes};
    const uint64_t data_begin = checkpoint->tensors[PSI_CHECKPOINT_PARAMS].data_begin;
    uint8_t *buffer = malloc(STRIDE_BYTES);
    psd_status status;
    int fd = -1;

    if (buffer == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "export %s: no memory", path);
    }
    status = open_new(path, &fd, err);
    checkpoint->tensors[PSI_CHECKPOINT_PARAMS].data_begin = 0; /* all of it, head included */
    for (uint64_t at = 0; at < bytes && status == PSD_OK; at += STRIDE_BYTES) {
        const size_t count = bytes - at < STRIDE_BYTES ? (size_t)(bytes - at) : STRIDE_BYTES;

        status =
            psi_checkpoint_read(checkpoint, PSI_CHECKPOINT_PARAMS, &whole, at, count, buffer, err);
        if (status == PSD_OK) {
            status = put(fd, path, buffer, count, at, err);
        }
    }
    checkpoint->tensors[PSI_CHECKPOINT_PARAMS].data_begin = data_begin;
    psi_disk_close(&fd);
    free(buffer);
    return status;
}

static const char *
npy_type(psd_dtype dtype)
{
    switch (dtype) {
    case PSD_F64:
        return "<f8";
    case PSD_F16:
        return "<f2";
    default:
        return "<f4"; /* bf16 too */
    }
}

/* Version 1.0 of the format: magic, a length, a dictionary, padded. Returns its bytes. */
static size_t
make_head(const struct psi_tensor *tensor, char head[1024])
{
    int used = NPY_PREFIX;
    size_t length;

    memcpy(head, "\x93NUMPY\x01\x00", 8);
    used += snprintf(head + used, 900, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     npy_type(tensor->dtype));
    for (uint32_t i = 0; i < tensor->dims; i++) {
        used += snprintf(head + used, 900 - (size_t)used, "%llu,",
                         (unsigned long long)tensor->shape[i]);
    }
    used += snprintf(head + used, 1024 - (size_t)used, "), }");
    while ((used + 1) % NPY_ALIGN != 0) {
        head[used++] = ' ';
    }
    head[used++] = '\n';
    length = (size_t)used - NPY_PREFIX;
    head[8] = (char)(length & 0xff);
    head[9] = (char)(length >> 8);
    return (size_t)used;
}

/* bf16 is the upper half of an f32. */
static size_t
widen(uint8_t *data, size_t bytes)
{
    for (size_t i = bytes / 2; i-- > 0;) {
        uint16_t half;
        uint32_t wide;

        memcpy(&half, data + 2 * i, sizeof(half));
        wide = (uint32_t)half << 16;
        memcpy(data + 4 * i, &wide, sizeof(wide));
    }
    return 2 * bytes;
}

static psd_status
export_tensor(struct psi_checkpoint *checkpoint, const struct psi_tensor *tensor, const char *path,
              uint8_t *buffer, struct psd_error *err)
{
    const uint64_t bytes = tensor->end - tensor->begin;
    char head[1024];
    uint64_t to = make_head(tensor, head);
    int fd = -1;
    psd_status status = open_new(path, &fd, err);

    if (status == PSD_OK) {
        status = put(fd, path, head, to, 0, err);
    }
    for (uint64_t at = 0; at < bytes && status == PSD_OK; at += STRIDE_BYTES) {
        const size_t count = bytes - at < STRIDE_BYTES ? (size_t)(bytes - at) : STRIDE_BYTES;

        status =
            psi_checkpoint_read(checkpoint, PSI_CHECKPOINT_PARAMS, tensor, at, count, buffer, err);
        if (status == PSD_OK) {
            const size_t wide = tensor->dtype == PSD_BF16 ? widen(buffer, count) : count;

            status = put(fd, path, buffer, wide, to, err);
            to += wide;
        }
    }
    psi_disk_close(&fd);
    return status;
}

psd_status
checkpoint_export_numpy(struct psi_checkpoint *checkpoint, const char *path, struct psd_error *err)
{
    const struct psi_tensors *tensors = &checkpoint->tensors[PSI_CHECKPOINT_PARAMS];
    uint8_t *buffer = malloc((size_t)2 * STRIDE_BYTES);
    psd_status status = PSD_OK;

    if (buffer == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "export %s: no memory", path);
    }
    if (mkdir(path, 0777) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "make directory %s", path);
    }
    for (size_t i = 0; i < tensors->count && status == PSD_OK; i++) {
        char name[PSD_NAME_MAX + 1];
        char file[PATH_MAX];

        snprintf(name, sizeof(name), "%s", tensors->list[i].name);
        for (char *at = name; *at != '\0'; at++) {
            *at = *at == '/' ? '_' : *at;
        }
        if (tensors->list[i].dtype == 0 || tensors->list[i].dims > PSD_DIMS_MAX) {
            status = psi_fail(err, PSD_ERR_MISMATCH, "export %s: %s is of a type that is not known",
                              path, tensors->list[i].name);
        } else if (snprintf(file, sizeof(file), "%s/%s.npy", path, name) >= (int)sizeof(file)) {
            status = psi_fail(err, PSD_ERR_INVALID, "export %.64s...: too long", path);
        } else {
            status = export_tensor(checkpoint, &tensors->list[i], file, buffer, err);
        }
    }
    free(buffer);
    return status;
}
