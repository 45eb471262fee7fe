/*
 * tensors.c - the tensors of one file: their names, shapes and places in its data.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "table/spec.h"

void
psi_tensors_fini(struct psi_tensors *tensors)
{
    free(tensors->list);
    free(tensors->names);
    memset(tensors, 0, sizeof(*tensors));
}

static int
by_place(const void *a, const void *b)
{
    const struct psi_tensor *left = a;
    const struct psi_tensor *right = b;

    if (left->begin != right->begin) {
        return left->begin < right->begin ? -1 : 1;
    }
    return (left->end > right->end) - (left->end < right->end);
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct psi_tensor *)a)->name, ((const struct psi_tensor *)b)->name);
}

/* Does the shape, in elements of the type, fill exactly the place? */
static psd_status
check_size(const char *file, const struct psi_tensor *tensor, struct psd_error *err)
{
    uint64_t bytes = tensor->dtype == 0 ? 0 : psi_dtype_bytes(tensor->dtype);

    for (uint32_t i = 0; i < tensor->dims && i < PSD_DIMS_MAX; i++) {
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes)) {
            return psi_fail(err, PSD_ERR_CORRUPT, "%s: tensor %s: shape overflows", file,
                            tensor->name);
        }
    }
    if (tensor->dtype != 0 && tensor->dims <= PSD_DIMS_MAX &&
        bytes != tensor->end - tensor->begin) {
        return psi_fail(err, PSD_ERR_CORRUPT,
                        "%s: tensor %s: %llu bytes by its shape, %llu by its data_offsets", file,
                        tensor->name, (unsigned long long)bytes,
                        (unsigned long long)(tensor->end - tensor->begin));
    }
    return PSD_OK;
}

/* The data is covered once, without overlap or hole; leaves the list sorted by place. */
static psd_status
check_places(const char *file, struct psi_tensors *tensors, uint64_t data_bytes,
             struct psd_error *err)
{
    uint64_t covered = 0;

    if (tensors->count > 1) {
        qsort(tensors->list, tensors->count, sizeof(tensors->list[0]), by_place);
    }
    for (size_t i = 0; i < tensors->count; i++) {
        const struct psi_tensor *tensor = &tensors->list[i];
        psd_status status;

        if (tensor->begin != covered || tensor->end < tensor->begin || tensor->end > data_bytes) {
            return psi_fail(err, PSD_ERR_CORRUPT,
                            "%s: tensor %s: data_offsets %llu to %llu, expected from %llu within "
                            "%llu bytes",
                            file, tensor->name, (unsigned long long)tensor->begin,
                            (unsigned long long)tensor->end, (unsigned long long)covered,
                            (unsigned long long)data_bytes);
        }
        status = check_size(file, tensor, err);
        if (status != PSD_OK) {
            return status;
        }
        covered = tensor->end;
    }
    if (covered != data_bytes) {
        return psi_fail(err, PSD_ERR_CORRUPT, "%s: %llu bytes of data belong to no tensor", file,
                        (unsigned long long)(data_bytes - covered));
    }
    return PSD_OK;
}

/* Leaves the list sorted by name, as psi_tensors_find() wants it. */
static psd_status
check_names(const char *file, struct psi_tensors *tensors, struct psd_error *err)
{
    if (tensors->count > 1) {
        qsort(tensors->list, tensors->count, sizeof(tensors->list[0]), by_name);
    }
    for (size_t i = 1; i < tensors->count; i++) {
        if (strcmp(tensors->list[i - 1].name, tensors->list[i].name) == 0) {
            return psi_fail(err, PSD_ERR_CORRUPT, "%s: tensor %s is there twice", file,
                            tensors->list[i].name);
        }
    }
    return PSD_OK;
}

psd_status
psi_tensors_check(struct psi_tensors *tensors, const char *file, uint64_t data_bytes,
                  struct psd_error *err)
{
    const psd_status status = check_places(file, tensors, data_bytes, err);

    return status == PSD_OK ? check_names(file, tensors, err) : status;
}

const struct psi_tensor *
psi_tensors_find(const struct psi_tensors *tensors, const char *name)
{
    const struct psi_tensor wanted = {.name = name};

    return tensors->count == 0
               ? NULL
               : bsearch(&wanted, tensors->list, tensors->count, sizeof(tensors->list[0]), by_name);
}

static int
by_width_and_name(const void *a, const void *b)
{
    const size_t left = psi_dtype_bytes(((const struct psi_tensor *)a)->dtype);
    const size_t right = psi_dtype_bytes(((const struct psi_tensor *)b)->dtype);

    return left != right ? (left < right) - (left > right) : by_name(a, b);
}

void
psi_tensors_place(struct psi_tensors *tensors)
{
    uint64_t used = 0;

    if (tensors->count > 1) {
        qsort(tensors->list, tensors->count, sizeof(tensors->list[0]), by_width_and_name);
    }
    for (size_t i = 0; i < tensors->count; i++) {
        struct psi_tensor *tensor = &tensors->list[i];
        uint64_t bytes = psi_dtype_bytes(tensor->dtype);

        for (uint32_t dim = 0; dim < tensor->dims; dim++) {
            bytes *= tensor->shape[dim];
        }
        tensor->begin = used;
        tensor->end = used + bytes;
        used = tensor->end;
    }
}

uint64_t
psi_tensors_bytes(const struct psi_tensors *tensors)
{
    return tensors->count == 0 ? 0 : tensors->list[tensors->count - 1].end;
}
