/*
 * whole_file.h - a small file that is there whole or not at all, and is never written through a
 * link that somebody left in its place.
 */
#ifndef LAUNCH_WHOLE_FILE_H
#define LAUNCH_WHOLE_FILE_H

#include <psd/status.h>

/*
 * Writes text into a new file beside `name` and renames it to that. directory: a descriptor that
 * name is relative to, or AT_FDCWD. What was there, a link too, is replaced; nothing behind a link
 * is touched. Mode 0644 less the umask.
 */
psd_status whole_file_write(int directory, const char *name, const char *text,
                            struct psd_error *err);

#endif
