/*
 * files.h - the files of checkpoints, written by a thread beside the lane's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SERVER_FILES_H
#define SERVER_FILES_H

#include "server/disk.h"

/* Thread: any, but for create and destroy. */
struct lane_files;

/* The disk and the directory are borrowed. wake(owner) is called from the thread when there is news. NULL: no
 * memory. The thread starts with its first use. */
struct lane_files *lane_files_create(const struct psi_disk *disk, const char *path,
                                     void (*wake)(void *owner), void *owner);

/* A thread that a disk holds up is left behind with what it has, after some seconds: it wakes nobody any
 * more. NULL is allowed. */
void lane_files_destroy(struct lane_files *files);

/* Borrowed until lane_files_destroy(). */
const struct lane_disk *lane_files_disk(struct lane_files *files);

#endif
