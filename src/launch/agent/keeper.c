/*
 * keeper.c - what stands above an agent: it collects it, and what it leaves if it was killed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/pidfd.h>
#include <sys/wait.h>

#include "base/monotonic.h"
#include "launch/agent/tree.h"
#include "launch/system/close_fd.h"

enum {
    LOOK_AGAIN_MS = 20, /* whether somebody who was killed is gone */
    COLLECT_MS = 5000,  /* for an agent to end after its line did ... */
    OVERDUE_MS = 10000, /* ... and then it was stopped: more than its grace and its farewell */
};

bool
keeper_collect(pid_t agent)
{
    const uint64_t until_ms = psi_monotonic_ms() + COLLECT_MS;
    int status = 0;
    pid_t ended;

    while ((ended = waitpid(agent, &status, WNOHANG)) == 0 && psi_monotonic_ms() < until_ms) {
        poll(NULL, 0, LOOK_AGAIN_MS);
    }
    if (ended == agent && WIFEXITED(status)) {
        return true;
    }
    keeper_bury(agent, NULL, 0);
    return false;
}

/* Waits for the agent to end. One whose line is closed has its time to end everything; if it does
 * not, somebody stopped it, and its children with nobody to end them would run on. */
static void
await_agent(pid_t agent, int line)
{
    struct pollfd polls[] = {{.fd = pidfd_open(agent, 0), .events = POLLIN},
                             {.fd = line, .events = POLLRDHUP}};

    while (polls[0].fd >= 0 && polls[0].revents == 0) {
        const bool closed = polls[1].revents != 0;

        polls[1].fd = closed ? -1 : line;
        polls[1].revents = 0;
        if (poll(polls, 2, closed ? OVERDUE_MS : -1) == 0) {
            kill(agent, SIGKILL);
        }
    }
    close_fd(&polls[0].fd);
}

int
keeper_wait(pid_t agent, int line)
{
    int status = 0;

    await_agent(agent, line);
    close(line);
    while (waitpid(agent, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status);
    }
    keeper_bury(agent, NULL, 0);
    return 128 + WTERMSIG(status);
}

void
keeper_bury(pid_t agent, const pid_t *kept, size_t kept_count)
{
    /* Our own session is not the job's: what a shell left us with before exec stays alone. */
    const struct tree_pick pick = {
        .root = getpid(), .spare_session = getsid(0), .spare = kept, .spare_count = kept_count};

    kill(agent, SIGKILL);
    while (tree_signal(&pick, SIGKILL) > 0) {
        int status;

        while (waitpid(-1, &status, WNOHANG) > 0) {
        }
        poll(NULL, 0, LOOK_AGAIN_MS);
    }
}
