/*
 * remote_script.c - how another machine finds its psd_run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/meet/remote_script.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

/* How many parts of a path stand below the first directory where everybody may write. */
static unsigned
open_depth(const char *program)
{
    char above[4096];
    unsigned depth = 0;
    unsigned deepest = 0;
    char *slash;
    struct stat info;

    snprintf(above, sizeof(above), "%s", program);
    while ((slash = strrchr(above, '/')) != NULL && slash != above) {
        *slash = '\0';
        depth++;
        if (stat(above, &info) == 0 && (info.st_mode & S_IWOTH) != 0) {
            deepest = depth;
        }
    }
    return deepest;
}

bool
remote_script_is_open(const char *program)
{
    return open_depth(program) > 0;
}

/* Each part is looked at itself, not what a link points to: whoever owns a directory, or a link,
 * may exchange what is found there after it was looked at. */
static void
write_guarded(const char *program, unsigned depth, char script_p[REMOTE_SCRIPT_BYTES])
{
    struct stat info;
    const uid_t owner = stat(program, &info) == 0 ? info.st_uid : geteuid();

    snprintf(script_p, REMOTE_SCRIPT_BYTES,
             "[ -x \"$0\" ] && { p=$0; n=%u; u=$(id -u); until [ $n = 0 ]; do "
             "case $(stat -c %%u \"$p\") in 0|${u:-0}|%u) p=$(dirname \"$p\"); n=$((n-1));; "
             "*) exec psd_run --agent;; esac; done; exec \"$0\" --agent; }; exec psd_run --agent",
             depth, (unsigned)owner);
}

void
remote_script(const char *program, char script_p[REMOTE_SCRIPT_BYTES])
{
    const unsigned depth = open_depth(program);

    if (depth > 0) {
        write_guarded(program, depth, script_p);
    } else {
        snprintf(script_p, REMOTE_SCRIPT_BYTES,
                 "[ -x \"$0\" ] && exec \"$0\" --agent; exec psd_run --agent");
    }
}
