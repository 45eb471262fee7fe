/*
 * sync_mark.h - what both ends of --sync share: the mark of a directory, and how tar is started.
 *
 * The mark (.psd_sync) holds the SHA-256 of the archive that a directory came from.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SYNC_MARK_H
#define LAUNCH_SYNC_MARK_H

#include <stdint.h>

#include <sys/types.h>

#include <psd/status.h>

enum { SYNC_DIGEST_BYTES = 65, SYNC_HASH_BYTES = 32 };

void sync_write_digits(const uint8_t *hash, char digits_p[SYNC_DIGEST_BYTES]);

/* The mark of a directory; "" if it has none. */
void sync_read_mark(int directory, char digits_p[SYNC_DIGEST_BYTES]);

/* Marks a directory. path: its name, for messages. */
psd_status sync_write_mark(int directory, const char *path, const char *digits,
                           struct psd_error *err);
psd_status sync_remove_mark(int directory, const char *path, struct psd_error *err);

/* Runs tar in a directory. -1 as input or output: none. Its complaints go to `said`. Returns its
 * pid, or -1 with errno. */
pid_t sync_start_tar(char *const *argv, int directory, int input, int output, int said);

/* An empty file without a name for what tar says; -1: none. */
int sync_open_said(void);

/* The last thing it said, or how it ended; closes said. status: as waitpid() told it. */
void sync_last_words(int said, int status, char *text_p, size_t size);

#endif
