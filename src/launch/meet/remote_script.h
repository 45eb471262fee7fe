/*
 * remote_script.h - how another machine finds its psd_run: where it is here, else in PATH.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_REMOTE_SCRIPT_H
#define LAUNCH_REMOTE_SCRIPT_H

#include <stdbool.h>

enum { REMOTE_SCRIPT_BYTES = 320 };

/*
 * The script for `sh -c SCRIPT PROGRAM` there. It holds none of the bytes that some login shell
 * reads within single quotes. Where everybody may write above the program (a build in /tmp, or on
 * scratch), somebody else may have put another one under its name on another machine. There it
 * counts only if it, and every directory between the open one and it, belongs to the user, to root,
 * or to the owner of the program here.
 */
void remote_script(const char *program, char script_p[REMOTE_SCRIPT_BYTES]);

/* Whether everybody may write to a directory above a path. */
bool remote_script_is_open(const char *program);

#endif
