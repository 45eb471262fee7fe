/*
 * tensors.h - the tensors of one file: their names, shapes and places in its data. Pure.
 *
 * The text that describes them in the file is safetensors.h's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_CHECKPOINT_TENSORS_H
#define PSI_CHECKPOINT_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <psd/psd.h>

/* Thread: owned by its caller. */
struct psi_tensor {
    const char *name; /* reading: inside psi_tensors.names; laying out: the caller's */
    psd_dtype dtype;  /* 0: one we have no tables of */
    uint32_t dims;    /* may exceed PSD_DIMS_MAX in files from elsewhere */
    uint64_t shape[PSD_DIMS_MAX];
    uint64_t begin; /* in the data */
    uint64_t end;
    size_t source; /* laying out: the caller's number for it; not in the file */
};

/* The tensors of one file. Thread: owned by its caller. */
struct psi_tensors {
    struct psi_tensor *list; /* after checking: by name; after placing: by place */
    size_t count;
    char *names;
    uint64_t data_begin; /* in the file; a multiple of 64 in our own files */
};

void psi_tensors_fini(struct psi_tensors *tensors);

/*
 * For tensors from outside: the data is covered exactly once, every shape fills its place, no name
 * is there twice. Else PSD_ERR_CORRUPT, naming the file. Sorts by name.
 */
psd_status psi_tensors_check(struct psi_tensors *tensors, const char *file, uint64_t data_bytes,
                             struct psd_error *err);

/* By name, in checked ones; NULL: not there. */
const struct psi_tensor *psi_tensors_find(const struct psi_tensors *tensors, const char *name);

/*
 * Gives every tensor its place. Wide elements come first, then names rise: so each tensor is
 * aligned to its elements without holes, which the format forbids.
 */
void psi_tensors_place(struct psi_tensors *tensors);

/* Bytes of data of placed tensors. */
uint64_t psi_tensors_bytes(const struct psi_tensors *tensors);

#endif
