/*
 * cores.c - the cores this process may use, and how its threads share them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/cores.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 512, SPARE_THREADS_MAX = 8 };

uint32_t
psi_usable_cores(void)
{
    cpu_set_t set;
    long online;

    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
    online = sysconf(_SC_NPROCESSORS_ONLN); /* more of them than a cpu_set_t holds */
    return online > 1 ? (uint32_t)online : 1;
}

/* "max 100000" or "150000 100000", in cgroup.controllers' version 2. */
static uint32_t
read_quota(const char *directory)
{
    char path[PATH_BYTES + 32];
    unsigned long long quota;
    unsigned long long period;
    uint32_t cores = UINT32_MAX;
    FILE *file;

    snprintf(path, sizeof(path), "%s/cpu.max", directory);
    file = fopen(path, "re");
    if (file == NULL) {
        return UINT32_MAX;
    }
    if (fscanf(file, "%llu %llu", &quota, &period) == 2 && period > 0 &&
        quota / period < UINT32_MAX - 1) {
        cores = (uint32_t)((quota + period - 1) / period);
    }
    fclose(file);
    return cores > 0 ? cores : 1;
}

/* The line "0::/path" is that of version 2; a limit may be at any level. */
uint32_t
psi_allowed_cores(void)
{
    char line[PATH_BYTES];
    char directory[PATH_BYTES + 16] = "/sys/fs/cgroup";
    uint32_t cores = UINT32_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    char *slash;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(directory, sizeof(directory), "/sys/fs/cgroup%s", line + 3);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    while ((slash = strrchr(directory, '/')) != NULL &&
           strlen(directory) >= strlen("/sys/fs/cgroup")) {
        const uint32_t here = read_quota(directory);

        cores = here < cores ? here : cores;
        *slash = '\0';
    }
    return cores;
}

uint32_t
psi_spare_threads(uint32_t processes)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t machine = online > 1 ? (uint32_t)online : 1;
    const uint32_t allowed = psi_allowed_cores();
    const uint32_t all = (machine < allowed ? machine : allowed) / processes;
    const uint32_t usable = psi_usable_cores(); /* perhaps this process's own share already */
    const uint32_t half = (usable < all ? usable : all) / 2;

    return half < 1 ? 1 : half > SPARE_THREADS_MAX ? SPARE_THREADS_MAX : half;
}

void
psi_cores_keep_to_share(uint32_t index, uint32_t shares)
{
    cpu_set_t usable;
    cpu_set_t share;
    uint32_t seen = 0;
    uint32_t count;

    if (sched_getaffinity(0, sizeof(usable), &usable) != 0) {
        return;
    }
    count = (uint32_t)CPU_COUNT(&usable);
    if (shares < 2 || shares > count) {
        return;
    }
    CPU_ZERO(&share);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &usable)) {
            if (seen * shares / count == index) {
                CPU_SET(core, &share);
            }
            seen++;
        }
    }
    (void)sched_setaffinity(0, sizeof(share), &share); /* refused: the scheduler decides, as ever */
}
