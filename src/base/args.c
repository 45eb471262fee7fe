/*
 * args.c - structs of programs that were built with another version of the public header.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/args.h"

#include <stdint.h>
#include <string.h>

#include "base/fail.h"

/* A size beyond this is no newer header, but memory that was never filled in. */
enum { ARGS_BYTES_MAX = 4096 };

psd_status
psi_args_check_size(size_t bytes, size_t least, size_t ours, const char *name,
                    struct psd_error *err)
{
    if (bytes < least || bytes > ARGS_BYTES_MAX) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "struct %s: its size is given as %zu: set it to sizeof(struct %s), "
                        "%zu in this version",
                        name, bytes, name, ours);
    }
    return PSD_OK;
}

/* What lies behind the end of our version of the struct. */
static psd_status
check_unknown(const uint8_t *given, size_t bytes, size_t ours, const char *name,
              struct psd_error *err)
{
    for (size_t i = ours; i < bytes; i++) {
        if (given[i] != 0) {
            return psi_fail(
                err, PSD_ERR_INVALID,
                "struct %s: the program has %zu bytes of it and sets byte %zu, libpsd " PSD_VERSION
                " knows %zu: leave newer fields 0, or use a newer libpsd",
                name, bytes, i, ours);
        }
    }
    return PSD_OK;
}

psd_status
psi_args_copy_sized(void *copy, size_t ours, const void *given, size_t bytes, size_t least,
                    const char *name, struct psd_error *err)
{
    psd_status status = psi_args_check_size(bytes, least, ours, name, err);

    if (status == PSD_OK && bytes > ours) {
        status = check_unknown(given, bytes, ours, name, err);
    }
    if (status == PSD_OK) {
        psi_args_fill(copy, ours, given, bytes);
    }
    return status;
}

psd_status
psi_args_copy(void *copy, size_t ours, const void *given, size_t least, const char *name,
              struct psd_error *err)
{
    size_t bytes;
    psd_status status;

    if (given == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "struct %s: NULL", name);
    }
    memcpy(&bytes, given, sizeof(bytes));
    if (bytes == ours) {
        memcpy(copy, given, ours);
        return PSD_OK;
    }
    status = psi_args_copy_sized(copy, ours, given, bytes, least, name, err);
    if (status == PSD_OK) {
        memcpy(copy, &ours, sizeof(ours));
    }
    return status;
}

void
psi_args_fill(void *filled, size_t bytes, const void *from, size_t ours)
{
    const size_t both = bytes < ours ? bytes : ours;

    memcpy(filled, from, both);
    memset((uint8_t *)filled + both, 0, bytes - both);
}
