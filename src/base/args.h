/*
 * args.h - structs of the public header that a program of another version filled, or wants filled.
 *
 * A struct only ever grows at its end, and the program says how long its own is. One rule for all:
 *   - shorter than ours: what the program does not know is 0, the default; nothing is written
 *     beyond its end;
 *   - longer than ours: what we do not know must be 0 when it comes from the program, and becomes 0
 *     when we fill it. Anything else asks for something that this library does not have, and is
 *     refused rather than ignored.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_BASE_ARGS_H
#define PSI_BASE_ARGS_H

#include <stddef.h>

#include <psd/status.h>

/* `bytes` is the size of something by this name: at least `least`, and not rubbish. */
psd_status psi_args_check_size(size_t bytes, size_t least, size_t ours, const char *name,
                               struct psd_error *err);

/* copy[ours] = given[bytes], as this version knows it. */
psd_status psi_args_copy_sized(void *copy, size_t ours, const void *given, size_t bytes,
                               size_t least, const char *name, struct psd_error *err);

/* The same for a struct that begins with its own size (size_t struct_size); the copy says ours. NULL
 * is refused. */
psd_status psi_args_copy(void *copy, size_t ours, const void *given, size_t least, const char *name,
                         struct psd_error *err);

/* filled[bytes] = from[ours]: what the program's version has of it. */
void psi_args_fill(void *filled, size_t bytes, const void *from, size_t ours);

#endif
