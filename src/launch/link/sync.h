/*
 * sync.h - ships a directory to other machines: packed once and sent to those that lack it, which
 * unpack it (unpack.h).
 *
 * A mark in the directory (.psd_sync) holds the SHA-256 of the archive it came from: a machine that
 * has the same one needs nothing, and so does one that shares the disk. The mark is taken away
 * before the first file changes and written after the last: where it is, the archive is whole. What
 * earlier archives brought and this one lacks stays.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SYNC_H
#define LAUNCH_SYNC_H

#include <stdbool.h>
#include <stddef.h>

#include "launch/link/link.h"
#include "launch/link/sync_mark.h"

/* Thread: owned by the main thread of psd_run. */
struct sync {
    char directory[4096]; /* absolute */
    char digest[SYNC_DIGEST_BYTES];
    const char *bytes; /* the archive, mapped; NULL: none */
    size_t count;
};

/* Packs a directory (with tar, into a file without a name) and marks it. */
psd_status sync_pack(const char *directory, struct sync *sync_p, struct psd_error *err);
void sync_fini(struct sync *sync);

/* Sends what fits of the archive from *offset on, up to the first `wanted` bytes of it: so many the
 * other end has asked for. True: all is out. */
bool sync_send(const struct sync *sync, struct link *link, size_t *offset, size_t wanted);

#endif
