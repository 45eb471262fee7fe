/*
 * ssh_key.h - what is wrong with a file that should hold a private key.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SSH_KEY_H
#define LAUNCH_SSH_KEY_H

#include <stddef.h>

/* Where a "~/file" is. */
void ssh_key_path(const char *pem_file, char *path_p, size_t size);

/*
 * Why ssh cannot use it without asking, and what to do, as the end of a sentence that begins with
 * its name; NULL: it looks right. ssh itself says nothing of this when it may not ask. A key that
 * an agent holds is used whatever its file is, so this explains a failure and refuses nothing.
 */
const char *ssh_key_flaw(const char *pem_file);

#endif
