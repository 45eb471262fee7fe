/*
 * troupe.c - programs started for one contestant, whose workers call the runner.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "troupe.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fail.h"
#include "process.h"

enum { GATHER_MS_MAX = 120000, LEAVE_MS_MAX = 30000, DESCRIPTORS_MAX = 8 };

/* ---- The socket ---- */

static bool
make_address(const char *control, struct sockaddr_un *address_p)
{
    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(control) >= sizeof(address_p->sun_path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(address_p->sun_path, control, strlen(control));
    return true;
}

static psd_status
listen_at(const char *control, int *fd_p, struct psd_error *err)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;

    if (fd < 0 || !make_address(control, &address) ||
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, CREW_MAX) != 0) {
        psi_fail_errno(err, PSD_ERR_IO, "listen at %s", control);
        if (fd >= 0) {
            close(fd);
        }
        return err->status;
    }
    *fd_p = fd;
    return PSD_OK;
}

psd_status
troupe_call(const char *control, int *fd_p, struct psd_error *err)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;

    if (fd < 0 || !make_address(control, &address) ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        psi_fail_errno(err, PSD_ERR_PEER_LOST, "call the runner at %s", control);
        if (fd >= 0) {
            close(fd);
        }
        return err->status;
    }
    *fd_p = fd;
    return PSD_OK;
}

/* ---- Starting ---- */

psd_status
troupe_init(struct troupe *troupe, const char *name, struct psd_error *err)
{
    psd_status status;

    *troupe = (struct troupe){.listener = -1, .directory = "/tmp/psd_bench.XXXXXX"};
    snprintf(troupe->name, sizeof(troupe->name), "%s", name);
    if (mkdtemp(troupe->directory) == NULL) {
        return psi_fail_errno(err, PSD_ERR_IO, "make a directory in /tmp");
    }
    snprintf(troupe->control, sizeof(troupe->control), "%s/control", troupe->directory);
    status = listen_at(troupe->control, &troupe->listener, err);
    if (status != PSD_OK) {
        (void)rmdir(troupe->directory);
    }
    return status;
}

psd_status
troupe_start(struct troupe *troupe, const char *const *words, const char *const *environment,
             struct psd_error *err)
{
    char log[96];
    const struct process_command command = {.words = words, .environment = environment, .log = log};

    psi_assert(troupe->pid_count < CREW_MAX + 1);
    snprintf(log, sizeof(log), "%s/output", troupe->directory);
    /* whoever is stopped hears no SIGTERM */
    if (process_start(&command, troupe->restless ? SIGKILL : SIGTERM,
                      &troupe->pids[troupe->pid_count], err) != PSD_OK) {
        return err->status;
    }
    troupe->pid_count++;
    return PSD_OK;
}

/* Everybody that was started, and whom they started, except the workers. */
static void
find_helpers(struct troupe *troupe, const pid_t *workers)
{
    struct crew *crew = &troupe->crew;

    for (uint32_t i = 0; i < troupe->pid_count && crew->helper_count < CREW_HELPERS_MAX; i++) {
        pid_t *begin = crew->helpers + crew->helper_count;

        begin[0] = troupe->pids[i];
        crew->helper_count +=
            1 + (uint32_t)process_descendants(troupe->pids[i], begin + 1,
                                              CREW_HELPERS_MAX - crew->helper_count - 1);
    }
    for (uint32_t i = 0; i < crew->helper_count; i++) {
        for (uint32_t worker = 0; worker < crew->count; worker++) {
            if (crew->helpers[i] == workers[worker]) {
                crew->helpers[i--] = crew->helpers[--crew->helper_count];
                break;
            }
        }
    }
}

/* Waits for the next call; notices when a program ends instead. */
static psd_status
accept_worker(struct troupe *troupe, const int *ended, pid_t *worker_p, struct psd_error *err)
{
    struct pollfd fds[CREW_MAX + 2] = {{.fd = troupe->listener, .events = POLLIN}};
    struct ucred credentials = {0};
    socklen_t bytes = sizeof(credentials);
    int ready;
    int fd;

    for (uint32_t i = 0; i < troupe->pid_count; i++) {
        fds[1 + i] = (struct pollfd){.fd = ended[i], .events = POLLIN};
    }
    while ((ready = poll(fds, 1 + troupe->pid_count, GATHER_MS_MAX)) < 0 && errno == EINTR) {
    }
    if ((fds[0].revents & POLLIN) == 0) {
        return psi_fail(err, PSD_ERR_JOB_FAILED, "%s %s", troupe->name,
                        ready > 0 ? "ended before its workers were there"
                                  : "did not bring its workers in time");
    }
    fd = accept4(troupe->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "hear a worker's call");
    }
    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes);
    *worker_p = credentials.pid;
    troupe->crew.fds[troupe->crew.count++] = fd;
    return PSD_OK;
}

psd_status
troupe_gather(struct troupe *troupe, uint32_t workers, struct psd_error *err)
{
    int ended[CREW_MAX + 1];
    pid_t pids[CREW_MAX];
    psd_status status = PSD_OK;

    psi_assert(workers <= CREW_MAX);
    for (uint32_t i = 0; i < troupe->pid_count; i++) {
        ended[i] = pidfd_open(troupe->pids[i], 0); /* -1: poll ignores it */
    }
    while (status == PSD_OK && troupe->crew.count < workers) {
        status = accept_worker(troupe, ended, &pids[troupe->crew.count], err);
    }
    for (uint32_t i = 0; i < troupe->pid_count; i++) {
        if (ended[i] >= 0) {
            close(ended[i]);
        }
    }
    if (status == PSD_OK) {
        find_helpers(troupe, pids);
    }
    if (status == PSD_OK && troupe->restless) {
        memcpy(troupe->crew.restless, troupe->pids, troupe->pid_count * sizeof(pid_t));
        troupe->crew.restless_count = troupe->pid_count;
        crew_rest(&troupe->crew);
    }
    return status;
}

/* ---- Ending ---- */

/* Within the time allowed; after that it is killed, and that is its exit code. */
static int
wait_for_end(pid_t pid)
{
    const int ended = pidfd_open(pid, 0);
    struct pollfd ready = {.fd = ended, .events = POLLIN};
    int count = 0;

    while (ended >= 0 && (count = poll(&ready, 1, LEAVE_MS_MAX)) < 0 && errno == EINTR) {
    }
    if (ended >= 0) {
        close(ended);
    }
    if (count == 0) {
        (void)kill(pid, SIGKILL);
    }
    return process_wait(pid);
}

static int
remove_one(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

static void
stop_listening(struct troupe *troupe)
{
    if (troupe->listener >= 0) {
        close(troupe->listener);
        (void)unlink(troupe->control);
        troupe->listener = -1;
    }
}

psd_status
troupe_end(struct troupe *troupe, struct psd_error *err)
{
    int worst = 0;

    crew_dismiss(&troupe->crew);
    stop_listening(troupe);
    for (uint32_t i = 0; i < troupe->pid_count; i++) {
        const int code = wait_for_end(troupe->pids[i]);

        worst = code != 0 ? code : worst;
    }
    troupe->pid_count = 0;
    if (worst != 0) {
        return psi_fail(err, PSD_ERR_JOB_FAILED, "%s ended with %d: see %s", troupe->name, worst,
                        troupe->directory);
    }
    (void)nftw(troupe->directory, remove_one, DESCRIPTORS_MAX, FTW_DEPTH | FTW_PHYS);
    return PSD_OK;
}

void
troupe_abandon(struct troupe *troupe)
{
    crew_dismiss(&troupe->crew);
    stop_listening(troupe);
    for (uint32_t i = 0; i < troupe->pid_count; i++) {
        (void)kill(troupe->pids[i], SIGTERM);
    }
    for (uint32_t i = 0; i < troupe->pid_count; i++) {
        (void)wait_for_end(troupe->pids[i]);
    }
    troupe->pid_count = 0;
    fprintf(stderr, "psd_bench: what %s said is in %s\n", troupe->name, troupe->directory);
}
