/*
 * sync.h - ships a directory to other machines: packed once, sent to those that lack it, unpacked
 * and verified there.
 *
 * A mark in the directory (.psd_sync) holds the SHA-256 of the archive it came from: a machine that
 * has the same one needs nothing, and so does one that shares the disk.
 */
#ifndef LAUNCH_SYNC_H
#define LAUNCH_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>

#include "launch/link.h"

enum { SYNC_DIGEST_BYTES = 65 };

/* psd_run's side. Thread: owned by the main thread. */
struct sync {
    char directory[4096]; /* absolute */
    char digest[SYNC_DIGEST_BYTES];
    const char *bytes; /* the archive, mapped; NULL: none */
    size_t count;
};

/* Packs a directory (with tar, into a file without a name) and marks it. */
psd_status sync_pack(const char *directory, struct sync *sync_p, struct psd_error *err);
void sync_fini(struct sync *sync);

/* Sends what fits of the archive from *offset on. True: all is out. */
bool sync_send(const struct sync *sync, struct link *link, size_t *offset);

/* The agent's side. */
struct unpack {
    char directory[4096];
    char digest[SYNC_DIGEST_BYTES]; /* that is to come out */
    pid_t pid;                      /* of tar; 0: none */
    int fd;                         /* its input */
    void *hash;                     /* of what came so far */
};

/* LINK_SYNC: strings DIRECTORY, DIGEST. Whether the files are wanted. */
psd_status unpack_begin(struct unpack *unpack, const struct words *words, bool *wanted_p,
                        struct psd_error *err);

/* LINK_FILES: a part; of 0 bytes: the end, and *done_p. */
psd_status unpack_take(struct unpack *unpack, const struct link_message *message, bool *done_p,
                       struct psd_error *err);

#endif
