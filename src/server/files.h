/*
 * files.h - the files of checkpoints, written by a thread beside the lane's.
 */
#ifndef SERVER_FILES_H
#define SERVER_FILES_H

#include "server/disk.h"

/* Thread: any, but for create and destroy. */
struct lane_files;

/* The directory is borrowed. wake(owner) is called from the thread when there is news. NULL: no
 * memory. The thread starts with its first use. */
struct lane_files *lane_files_create(const char *path, void (*wake)(void *owner), void *owner);
void lane_files_destroy(struct lane_files *files); /* NULL is allowed */

/* Borrowed until lane_files_destroy(). */
const struct lane_disk *lane_files_disk(struct lane_files *files);

#endif
