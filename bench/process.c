/*
 * process.c - processes that end with this one, and the CPU time of others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/fail.h"

enum { PROCESSES_MAX = 4096 };

/* ---- Starting and ending ---- */

static pid_t
fork_with(int death_signal)
{
    const pid_t parent = getpid();
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, death_signal);
        if (getppid() != parent) {
            _exit(1);
        }
    }
    return pid;
}

pid_t
process_fork(void)
{
    return fork_with(SIGKILL);
}

static _Noreturn void
become(const struct process_command *command)
{
    const int log = open(command->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    for (const char *const *pair = command->environment; pair != NULL && *pair != NULL; pair++) {
        char name[64];
        const char *equals = strchr(*pair, '=');

        psi_assert(equals != NULL);
        psi_assert((size_t)(equals - *pair) < sizeof(name));
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *pair), *pair);
        if (setenv(name, equals + 1, 1) != 0) {
            _exit(127);
        }
    }
    if (log >= 0 && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0) {
        execvp(command->words[0], (char *const *)(uintptr_t)command->words);
    }
    fprintf(stderr, "%s: %s\n", command->words[0], strerror(errno));
    _exit(127);
}

psd_status
process_start(const struct process_command *command, int death_signal, pid_t *pid_p,
              struct psd_error *err)
{
    const pid_t pid = fork_with(death_signal);

    if (pid < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start %s", command->words[0]);
    }
    if (pid == 0) {
        become(command);
    }
    *pid_p = pid;
    return PSD_OK;
}

int
process_wait(pid_t pid)
{
    int code = 0;

    while (waitpid(pid, &code, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}

/* ---- Who descends from whom ---- */

struct kin {
    pid_t pid;
    pid_t parent;
};

/* The name in /proc/PID/stat stands in brackets and may hold anything: look behind the last one. */
static pid_t
parent_of(pid_t pid)
{
    char path[64];
    char line[512];
    const char *behind = NULL;
    FILE *file;
    int parent = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    if (fgets(line, sizeof(line), file) != NULL) {
        behind = strrchr(line, ')');
    }
    fclose(file);
    return behind != NULL && sscanf(behind, ") %*c %d", &parent) == 1 ? parent : 0;
}

static size_t
list_processes(struct kin *all)
{
    DIR *directory = opendir("/proc");
    const struct dirent *entry;
    size_t count = 0;

    while (directory != NULL && count < PROCESSES_MAX && (entry = readdir(directory)) != NULL) {
        const int pid = atoi(entry->d_name);

        if (pid > 0) {
            all[count++] = (struct kin){.pid = pid, .parent = parent_of(pid)};
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

static size_t
add_children(const struct kin *all, size_t count, pid_t parent, pid_t *pids, size_t found,
             size_t max)
{
    for (size_t i = 0; i < count && found < max; i++) {
        if (all[i].parent == parent) {
            pids[found++] = all[i].pid;
        }
    }
    return found;
}

size_t
process_descendants(pid_t pid, pid_t *pids, size_t max)
{
    struct kin *all = calloc(PROCESSES_MAX, sizeof(*all));
    size_t count;
    size_t found;

    if (all == NULL) {
        return 0;
    }
    count = list_processes(all);
    found = add_children(all, count, pid, pids, 0, max);
    for (size_t i = 0; i < found; i++) {
        found = add_children(all, count, pids[i], pids, found, max);
    }
    free(all);
    return found;
}

/* ---- Cores ---- */

uint64_t
process_cpu_ns(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) {
        return 0;
    }
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

void
process_bind(uint32_t core)
{
    const uint32_t cores = psi_usable_cores();

    psi_cores_keep_to_share(core % cores, cores);
}

void
process_keep_to(uint32_t cores)
{
    cpu_set_t usable;
    cpu_set_t kept;

    if (cores == 0 || sched_getaffinity(0, sizeof(usable), &usable) != 0) {
        return;
    }
    CPU_ZERO(&kept);
    for (size_t core = 0; core < CPU_SETSIZE && (uint32_t)CPU_COUNT(&kept) < cores; core++) {
        if (CPU_ISSET(core, &usable)) {
            CPU_SET(core, &kept);
        }
    }
    (void)sched_setaffinity(0, sizeof(kept), &kept); /* refused: on all */
}
