/*
 * whole_file.h - a small file that is there whole or not at all, and is never written through a
 * link that somebody left in its place.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WHOLE_FILE_H
#define LAUNCH_WHOLE_FILE_H

#include <psd/status.h>

/*
 * Writes text into a new file beside `name` and renames it to `name`, which is relative to the
 * descriptor `directory` (or AT_FDCWD). It replaces whatever was there. If that was a link, its
 * target is not touched. Mode 0644 less the umask.
 */
psd_status whole_file_write(int directory, const char *name, const char *text,
                            struct psd_error *err);

#endif
