/*
 * log_file.h - a log that grows: opened for appending, never through a link or into a pipe.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_LOG_FILE_H
#define LAUNCH_LOG_FILE_H

/*
 * Opens the file, and creates it if it is missing. In a cloned repository, or in /tmp, somebody may
 * have left a link or a pipe of that name: neither is written to. Returns the descriptor, or -1 with
 * errno (ELOOP: a link).
 */
int log_file_open(const char *path);

/* In a directory that is open. */
int log_file_open_at(int directory, const char *name);

#endif
