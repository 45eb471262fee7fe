/*
 * ceiling.c - the processes and connections of a ceiling.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "ceiling.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "process.h"

/* ---- Processes ---- */

/* The runner's ends of control sockets stay with the runner alone: closed, they end the workers. */
static pid_t
fork_one(struct ceiling *ceiling)
{
    const pid_t pid = process_fork();

    if (pid == 0) {
        (void)signal(SIGPIPE, SIG_IGN);
        team_dismiss(&ceiling->team);
    }
    return pid;
}

pid_t
ceiling_fork_server(struct ceiling *ceiling)
{
    const pid_t pid = fork_one(ceiling);

    psi_assert(ceiling->team.helper_count < TEAM_HELPERS_MAX);
    if (pid > 0) {
        ceiling->team.helpers[ceiling->team.helper_count++] = pid;
    }
    return pid;
}

pid_t
ceiling_fork_worker(struct ceiling *ceiling, int *control_p)
{
    int control[2];
    pid_t pid;

    psi_assert(ceiling->worker_count < TEAM_MAX);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0) {
        return -1;
    }
    ceiling->team.fds[ceiling->team.count++] = control[0];
    pid = fork_one(ceiling);
    if (pid == 0) {
        *control_p = control[1];
        return 0;
    }
    close(control[1]);
    if (pid > 0) {
        ceiling->workers[ceiling->worker_count++] = pid;
    }
    return pid;
}

static void
end_all(const pid_t *pids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)kill(pids[i], SIGKILL);
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)process_wait(pids[i]);
    }
}

/* They hold nothing that matters, and one that waits for a dead partner would not hear a word. */
void
ceiling_stop(struct ceiling *ceiling)
{
    team_dismiss(&ceiling->team);
    end_all(ceiling->workers, ceiling->worker_count);
    end_all(ceiling->team.helpers, ceiling->team.helper_count);
    ceiling->worker_count = 0;
    ceiling->team.helper_count = 0;
}

/* ---- Connections ---- */

/* Loopback has no bottleneck to model: a pacing default (bbr) would halve the speed. */
static void
tune(int fd)
{
    const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    }
}

bool
ceiling_connect(int pair_p[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *any = (struct sockaddr *)&address;
    socklen_t bytes = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good;

    pair_p[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair_p[1] = -1;
    good = listener >= 0 && pair_p[0] >= 0 && bind(listener, any, bytes) == 0 &&
           listen(listener, 1) == 0 && getsockname(listener, any, &bytes) == 0 &&
           connect(pair_p[0], any, bytes) == 0;
    if (good) {
        pair_p[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    }
    if (listener >= 0) {
        close(listener);
    }
    if (pair_p[1] < 0 && pair_p[0] >= 0) {
        close(pair_p[0]);
        pair_p[0] = -1;
    }
    if (pair_p[1] < 0) {
        return false;
    }
    tune(pair_p[0]);
    tune(pair_p[1]);
    return true;
}
