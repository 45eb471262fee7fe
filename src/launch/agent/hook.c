/*
 * hook.c - what makes Python distribute a script that knows nothing of Poseidon.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/hook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/text/memory.h"
#include "launch/text/variables.h"

enum { PATH_BYTES = 4096 };

/* From the directory of psd_run: a build tree, a prefix, a wheel. */
static const char *const places[] = {
    "../python/poseidon/auto/site",
    "../share/poseidon/python/poseidon/auto/site",
    "../../auto/site",
};

char *
hook_find(void)
{
    char program[PATH_BYTES];
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;

    program[bytes > 0 ? bytes : 0] = '\0';
    slash = strrchr(program, '/');
    if (slash == NULL) {
        return NULL;
    }
    *slash = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[PATH_BYTES * 2];
        char file[PATH_BYTES * 2 + 32];
        char *directory;

        snprintf(path, sizeof(path), "%s/%s", program, places[i]);
        snprintf(file, sizeof(file), "%s/sitecustomize.py", path);
        directory = access(file, R_OK) == 0 ? realpath(path, NULL) : NULL;
        if (directory != NULL) {
            return directory;
        }
    }
    return NULL;
}

bool
hook_is_on(const char *directory, const struct words *environment)
{
    const char *kind = variables_get(environment->list, "PSD_AUTO");

    return directory != NULL && kind != NULL && strcmp(kind, "off") != 0;
}

/* Sets of text have one order on all workers of a job, as they have in one process: class numbers
 * that a script makes of them are the same everywhere. */
static void
share_order_of_sets(struct words *environment)
{
    const char *job = variables_get(environment->list, "PSD_JOB_ID");
    uint32_t seed = 2166136261U; /* FNV-1a */

    if (variables_get(environment->list, "PYTHONHASHSEED") != NULL) {
        return;
    }
    for (const char *c = job != NULL ? job : ""; *c != '\0'; c++) {
        seed = (seed ^ (uint8_t)*c) * 16777619U;
    }
    variables_set_number(environment, "PYTHONHASHSEED", seed);
}

void
hook_enter(const char *directory, struct words *environment)
{
    const char *before = variables_get(environment->list, "PYTHONPATH");
    char *joined;

    if (!hook_is_on(directory, environment)) {
        return;
    }
    joined = memory_format("%s%s%s", directory, before != NULL && before[0] != '\0' ? ":" : "",
                           before != NULL ? before : "");
    variables_set_pair(environment, "PYTHONPATH", joined);
    free(joined);
    share_order_of_sets(environment);
}

psd_status
hook_name_note(int fd, struct words *environment, struct psd_error *err)
{
    struct stat info;
    char text[48];

    if (fstat(fd, &info) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "look at the pipe for notes");
    }
    snprintf(text, sizeof(text), "%d:%llu", fd, (unsigned long long)info.st_ino);
    variables_set_pair(environment, "PSD_NOTE_FD", text);
    return PSD_OK;
}
