/*
 * job.c - a Poseidon job whose workers are this program, started by psd_run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"

enum { GATHER_MS_MAX = 60000, DESCRIPTORS_MAX = 8 };

/* ---- Starting ---- */

/* psd_run lies one above the directory of this program (build/bench), or beside it (installed). */
static const char *
find_launcher(const char *own, char path[PATH_MAX])
{
    static const char *const places[] = {"/../psd_run", "/psd_run"};
    const char *slash = strrchr(own, '/');

    for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        const int used = snprintf(path, PATH_MAX, "%.*s%s", (int)(slash - own), own, places[i]);

        if (used > 0 && used < PATH_MAX && access(path, X_OK) == 0) {
            return path;
        }
    }
    return "psd_run"; /* on the PATH, or a message that says so */
}

static _Noreturn void
become_launcher(const struct job *job, uint32_t workers, uint32_t servers)
{
    char own[PATH_MAX] = "";
    char path[PATH_MAX];
    char control[96];
    char log[96];
    char counts[2][16];
    const ssize_t own_bytes = readlink("/proc/self/exe", own, sizeof(own) - 1);
    const char *launcher = find_launcher(own, path);
    int fd;

    snprintf(control, sizeof(control), "%s/control", job->directory);
    snprintf(log, sizeof(log), "%s/psd_run.out", job->directory);
    snprintf(counts[0], sizeof(counts[0]), "%u", workers);
    snprintf(counts[1], sizeof(counts[1]), "%u", servers);
    fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (own_bytes > 0 && fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0) {
        execlp(launcher, "psd_run", "-o", job->directory, "--pass", "env", "--workers", counts[0],
               "--servers", counts[1], "--", own, "--control", control, (char *)NULL);
    }
    fprintf(stderr, "%s: %s\n", launcher, strerror(errno));
    _exit(127);
}

static psd_status
start_launcher(struct job *job, uint32_t workers, uint32_t servers, struct psd_error *err)
{
    const pid_t parent = getpid();

    fflush(NULL);
    job->pid = fork();
    if (job->pid < 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "start psd_run");
    }
    if (job->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) {
            _exit(127);
        }
        become_launcher(job, workers, servers);
    }
    return PSD_OK;
}

static psd_status
listen_for_workers(const struct job *job, int *fd_p, struct psd_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", job->directory);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, CREW_MAX) != 0) {
        psi_fail_errno(err, PSD_ERR_IO, "listen at %s", address.sun_path);
        if (fd >= 0) {
            close(fd);
        }
        return err->status;
    }
    *fd_p = fd;
    return PSD_OK;
}

/* Waits for the next worker; notices when psd_run ends instead. */
static psd_status
accept_worker(struct job *job, int listener, int ended, struct psd_error *err)
{
    struct pollfd fds[2] = {{.fd = listener, .events = POLLIN}, {.fd = ended, .events = POLLIN}};
    int fd;

    while (poll(fds, 2, GATHER_MS_MAX) < 0 && errno == EINTR) {
    }
    if ((fds[0].revents & POLLIN) == 0) {
        return psi_fail(err, PSD_ERR_JOB_FAILED, "psd_run %s",
                        fds[1].revents != 0 ? "ended before its workers were there"
                                            : "did not bring its workers in time");
    }
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "hear a worker's call");
    }
    job->crew.fds[job->crew.count++] = fd;
    return PSD_OK;
}

psd_status
job_start(uint32_t workers, uint32_t servers, struct job *job_p, struct psd_error *err)
{
    struct job *job = job_p;
    psd_status status;
    int listener = -1;
    int ended = -1;

    *job = (struct job){.pid = -1, .directory = "/tmp/psd_bench.XXXXXX"};
    psi_assert(workers <= CREW_MAX);
    if (mkdtemp(job->directory) == NULL) {
        return psi_fail_errno(err, PSD_ERR_IO, "make a directory in /tmp");
    }
    status = listen_for_workers(job, &listener, err);
    if (status == PSD_OK) {
        status = start_launcher(job, workers, servers, err);
    }
    if (status == PSD_OK) {
        ended = pidfd_open(job->pid, 0);
    }
    while (status == PSD_OK && job->crew.count < workers) {
        status = accept_worker(job, listener, ended, err);
    }
    if (ended >= 0) {
        close(ended);
    }
    if (listener >= 0) {
        close(listener);
    }
    if (status != PSD_OK) {
        job_abandon(job);
    }
    return status;
}

/* ---- Ending ---- */

static int
wait_for_launcher(const struct job *job)
{
    int code = 0;

    while (waitpid(job->pid, &code, 0) < 0 && errno == EINTR) {
    }
    return code;
}

static int
remove_one(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

psd_status
job_end(struct job *job, struct psd_error *err)
{
    int code;

    crew_dismiss(&job->crew);
    code = wait_for_launcher(job);
    if (code != 0) {
        return psi_fail(err, PSD_ERR_JOB_FAILED, "psd_run ended with %d: see %s",
                        WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code), job->directory);
    }
    (void)nftw(job->directory, remove_one, DESCRIPTORS_MAX, FTW_DEPTH | FTW_PHYS);
    return PSD_OK;
}

void
job_abandon(struct job *job)
{
    crew_dismiss(&job->crew);
    if (job->pid > 0) {
        (void)kill(job->pid, SIGTERM);
        (void)wait_for_launcher(job);
    }
    fprintf(stderr, "psd_bench: what the job said is in %s\n", job->directory);
}
