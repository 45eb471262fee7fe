/*
 * remote_script.c - how another machine finds its psd_run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/remote_script.h"

#include <stdio.h>
#include <string.h>

#include <sys/stat.h>

bool
remote_script_is_open(const char *program)
{
    char above[4096];
    char *slash;
    struct stat info;

    snprintf(above, sizeof(above), "%s", program);
    while ((slash = strrchr(above, '/')) != NULL && slash != above) {
        *slash = '\0';
        if (stat(above, &info) == 0 && (info.st_mode & S_IWOTH) != 0) {
            return true;
        }
    }
    return false;
}

void
remote_script(const char *program, char script_p[REMOTE_SCRIPT_BYTES])
{
    struct stat info;
    char whose[96] = "";

    if (remote_script_is_open(program) && stat(program, &info) == 0) {
        snprintf(whose, sizeof(whose),
                 "{ [ -O \"$0\" ] || [ \"$(stat -c %%u \"$0\")\" = %u ]; } && ",
                 (unsigned)info.st_uid);
    }
    snprintf(script_p, REMOTE_SCRIPT_BYTES,
             "[ -x \"$0\" ] && %sexec \"$0\" --agent; exec psd_run --agent", whose);
}
