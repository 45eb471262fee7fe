/*
 * trusted_directory.h - a directory whose files may be run: nobody but us and root can have put
 * them there.
 *
 * In /tmp or on a scratch disk anybody can make a directory, or a link, of any name before we do.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_TRUSTED_DIRECTORY_H
#define LAUNCH_TRUSTED_DIRECTORY_H

#include <psd/status.h>

/*
 * Opens an absolute path, and makes it, and what is above it, where it is not there. *fd_p is for
 * names relative to it (O_PATH): a later change of the path does not change what it stands for.
 *
 * PSD_ERR_REFUSED with the reason and what to do:
 *   - it is a link, belongs to another user, or others may write to it (a group that is the user's
 *     own, as Debian makes it for everybody, is nobody else);
 *   - a part of the path stands in a directory where everybody may write, and is neither ours nor
 *     root's: whoever made it may exchange what is below;
 *   - a part of the path lets everybody rename what others have there (mode 0777, no sticky bit).
 */
psd_status trusted_directory_open(const char *path, int *fd_p, struct psd_error *err);

#endif
