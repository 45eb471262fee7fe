/*
 * group.c - programs started for one subject, whose workers call the runner.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "group.h"

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
        listen(fd, TEAM_MAX) != 0) {
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
group_call(const char *control, int *fd_p, struct psd_error *err)
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
group_init(struct group *group, const char *name, struct psd_error *err)
{
    psd_status status;

    *group = (struct group){.listener = -1, .directory = "/tmp/psd_bench.XXXXXX"};
    snprintf(group->name, sizeof(group->name), "%s", name);
    if (mkdtemp(group->directory) == NULL) {
        return psi_fail_errno(err, PSD_ERR_IO, "make a directory in /tmp");
    }
    snprintf(group->control, sizeof(group->control), "%s/control", group->directory);
    status = listen_at(group->control, &group->listener, err);
    if (status != PSD_OK) {
        (void)rmdir(group->directory);
    }
    return status;
}

psd_status
group_start(struct group *group, const char *const *words, const char *const *environment,
            struct psd_error *err)
{
    char log[96];
    const struct process_command command = {.words = words, .environment = environment, .log = log};

    psi_assert(group->pid_count < TEAM_MAX + 1);
    snprintf(log, sizeof(log), "%s/output", group->directory);
    /* whoever is stopped hears no SIGTERM */
    if (process_start(&command, group->restless ? SIGKILL : SIGTERM, &group->pids[group->pid_count],
                      err) != PSD_OK) {
        return err->status;
    }
    group->pid_count++;
    return PSD_OK;
}

/* Everybody that was started, and whom they started, except the workers. */
static void
find_helpers(struct group *group, const pid_t *workers)
{
    struct team *team = &group->team;

    for (uint32_t i = 0; i < group->pid_count && team->helper_count < TEAM_HELPERS_MAX; i++) {
        pid_t *begin = team->helpers + team->helper_count;

        begin[0] = group->pids[i];
        team->helper_count +=
            1 + (uint32_t)process_descendants(group->pids[i], begin + 1,
                                              TEAM_HELPERS_MAX - team->helper_count - 1);
    }
    for (uint32_t i = 0; i < team->helper_count; i++) {
        for (uint32_t worker = 0; worker < team->count; worker++) {
            if (team->helpers[i] == workers[worker]) {
                team->helpers[i--] = team->helpers[--team->helper_count];
                break;
            }
        }
    }
}

/* Waits for the next call; notices when a program ends instead. */
static psd_status
accept_worker(struct group *group, const int *ended, pid_t *worker_p, struct psd_error *err)
{
    struct pollfd fds[TEAM_MAX + 2] = {{.fd = group->listener, .events = POLLIN}};
    struct ucred credentials = {0};
    socklen_t bytes = sizeof(credentials);
    int ready;
    int fd;

    for (uint32_t i = 0; i < group->pid_count; i++) {
        fds[1 + i] = (struct pollfd){.fd = ended[i], .events = POLLIN};
    }
    while ((ready = poll(fds, 1 + group->pid_count, GATHER_MS_MAX)) < 0 && errno == EINTR) {
    }
    if ((fds[0].revents & POLLIN) == 0) {
        return psi_fail(err, PSD_ERR_JOB_FAILED, "%s %s", group->name,
                        ready > 0 ? "ended before its workers were there"
                                  : "did not bring its workers in time");
    }
    fd = accept4(group->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "hear a worker's call");
    }
    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes);
    *worker_p = credentials.pid;
    group->team.fds[group->team.count++] = fd;
    return PSD_OK;
}

psd_status
group_gather(struct group *group, uint32_t workers, struct psd_error *err)
{
    int ended[TEAM_MAX + 1];
    pid_t pids[TEAM_MAX];
    psd_status status = PSD_OK;

    psi_assert(workers <= TEAM_MAX);
    for (uint32_t i = 0; i < group->pid_count; i++) {
        ended[i] = pidfd_open(group->pids[i], 0); /* -1: poll ignores it */
    }
    while (status == PSD_OK && group->team.count < workers) {
        status = accept_worker(group, ended, &pids[group->team.count], err);
    }
    for (uint32_t i = 0; i < group->pid_count; i++) {
        if (ended[i] >= 0) {
            close(ended[i]);
        }
    }
    if (status == PSD_OK) {
        find_helpers(group, pids);
    }
    if (status == PSD_OK && group->restless) {
        memcpy(group->team.restless, group->pids, group->pid_count * sizeof(pid_t));
        group->team.restless_count = group->pid_count;
        team_rest(&group->team);
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
stop_listening(struct group *group)
{
    if (group->listener >= 0) {
        close(group->listener);
        (void)unlink(group->control);
        group->listener = -1;
    }
}

psd_status
group_end(struct group *group, struct psd_error *err)
{
    int worst = 0;

    team_dismiss(&group->team);
    stop_listening(group);
    for (uint32_t i = 0; i < group->pid_count; i++) {
        const int code = wait_for_end(group->pids[i]);

        worst = code != 0 ? code : worst;
    }
    group->pid_count = 0;
    if (worst != 0) {
        return psi_fail(err, PSD_ERR_JOB_FAILED, "%s ended with %d: see %s", group->name, worst,
                        group->directory);
    }
    (void)nftw(group->directory, remove_one, DESCRIPTORS_MAX, FTW_DEPTH | FTW_PHYS);
    return PSD_OK;
}

/* The end of what they said: whoever reads of the failure may not have the directory. */
static void
show_last_words(const struct group *group)
{
    enum { SHOWN_BYTES = 2000 };
    char path[sizeof(group->directory) + sizeof("/output")];
    char text[SHOWN_BYTES];
    size_t bytes = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/output", group->directory);
    file = fopen(path, "re");
    if (file != NULL) {
        if (fseek(file, -SHOWN_BYTES, SEEK_END) != 0) {
            rewind(file); /* it is shorter */
        }
        bytes = fread(text, 1, sizeof(text), file);
        fclose(file);
    }
    fprintf(stderr, "psd_bench: all that %s said is in %s; the end of it:\n%.*s\n", group->name,
            group->directory, (int)bytes, text);
}

void
group_abandon(struct group *group)
{
    team_dismiss(&group->team);
    stop_listening(group);
    for (uint32_t i = 0; i < group->pid_count; i++) {
        (void)kill(group->pids[i], SIGTERM);
    }
    for (uint32_t i = 0; i < group->pid_count; i++) {
        (void)wait_for_end(group->pids[i]);
    }
    group->pid_count = 0;
    show_last_words(group);
}
