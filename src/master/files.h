/*
 * files.h - the files of checkpoints, made and committed by a thread of the master.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MASTER_FILES_H
#define MASTER_FILES_H

#include <stdbool.h>

#include "master/disk.h"

/* Thread: any, but for create and destroy. */
struct master_files;

/*
 * Takes the directory, made if only its last name is missing, for this job. wake(owner) is called
 * from the thread when there is news. Generation `spared` (0: none) stays, however old. An heir follows a life of the master that may not have left yet.
 * PSD_ERR_BUSY names the job that has it, PSD_ERR_IO the reason.
 */
psd_status master_files_create(const char *path, uint32_t kept, uint64_t spared, bool is_heir,
                               void (*wake)(void *owner), void *owner,
                               struct master_files **files_p, struct psd_error *err);
void master_files_destroy(struct master_files *files); /* NULL is allowed */

/* Borrowed until master_files_destroy(). The thread starts with its first use. */
const struct master_disk *master_files_disk(struct master_files *files);

#endif
