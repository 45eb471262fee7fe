/*
 * agent.c - the parent of all processes of the job on one machine.
 *
 * Both psd_run and the agent adopt orphans: the agent those of its children, psd_run those of an
 * agent that was killed. So killing either of them leaves somebody who can find every process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "launch/link.h"
#include "launch/spawn.h"
#include "launch/tree.h"

enum {
    LOST_GRACE_MS = 1000, /* psd_run is gone: nobody waits for a long goodbye */
    KILL_AGAIN_MS = 20,   /* between two rounds of KILL, for those that forked meanwhile */
    DEATHS_MAX = 64,      /* reported in one batch */
};

struct child {
    uint32_t slot;
    pid_t pid; /* kept after its death: what it left behind is still of its session */
    bool alive;
};

/* Thread: owned by the agent, which has one. */
struct host {
    int line;
    int deaths; /* signalfd of SIGCHLD */
    struct child *children;
    size_t child_count;
    bool ending;
    uint64_t kill_ms; /* when ending: from then on, KILL */
    int secret_fd;    /* every child keeps it under this number */
};

static uint64_t
clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct child *
find_slot(const struct host *host, uint32_t slot)
{
    for (size_t i = 0; i < host->child_count; i++) {
        if (host->children[i].slot == slot) {
            return &host->children[i];
        }
    }
    return NULL;
}

/* The child record of a slot, new if need be. NULL without memory. */
static struct child *
take_slot(struct host *host, uint32_t slot)
{
    struct child *child = find_slot(host, slot);

    if (child == NULL) {
        struct child *children =
            realloc(host->children, (host->child_count + 1) * sizeof(*children));

        if (children == NULL) {
            return NULL;
        }
        host->children = children;
        child = &children[host->child_count++];
        *child = (struct child){.slot = slot};
    }
    return child;
}

/* Returns 0 or an errno. */
static int
start_child(struct host *host, const struct link_request *request, const int *fds, pid_t *pid_p)
{
    struct child *child = take_slot(host, request->slot);
    struct spawn_args args = {.output_fd = fds[LINK_FD_OUTPUT],
                              .extra_fd = fds[LINK_FD_EXTRA],
                              .secret_fd = host->secret_fd};
    char **strings;
    int code;

    if (child == NULL || link_unpack(fds[LINK_FD_BLOCK], request, &strings, NULL) != PSD_OK) {
        return ENOMEM;
    }
    if (child->pid > 0) { /* a restart: nothing of the last life may share the rank with it */
        tree_signal(getpid(), child->pid, 0, SIGKILL);
    }
    args.argv = strings;
    args.environment = strings + request->argc + 1;
    code = spawn_start(&args, &child->pid);
    child->alive = code == 0;
    *pid_p = child->pid;
    free(strings);
    return code;
}

static void
handle_start(struct host *host, const struct link_request *request, const int *fds)
{
    struct link_report report = {.kind = LINK_START_FAILED, .slot = request->slot};
    pid_t pid = 0;

    report.code = host->ending ? ECANCELED : start_child(host, request, fds, &pid);
    if (report.code == 0) {
        report.kind = LINK_STARTED;
        report.pid = pid;
    }
    link_send_report(host->line, &report);
}

/* The group at once, so that nobody slips through by forking; then those in sessions of their own.
 */
static void
handle_signal(struct host *host, const struct link_request *request)
{
    const struct child *child = find_slot(host, request->slot);

    if (child != NULL && child->alive) {
        kill(-child->pid, request->signal);
        tree_signal(getpid(), child->pid, child->pid, request->signal);
    }
}

static void
end(struct host *host, uint32_t grace_ms)
{
    const uint64_t kill_ms = clock_ms() + grace_ms;

    if (!host->ending) {
        tree_signal(getpid(), 0, 0, SIGTERM);
        host->kill_ms = kill_ms;
    }
    host->ending = true;
    host->kill_ms = kill_ms < host->kill_ms ? kill_ms : host->kill_ms;
}

static void
handle_requests(struct host *host)
{
    struct link_request request;
    int fds[LINK_FDS];
    int result;

    while ((result = link_next_request(host->line, &request, fds)) == 1) {
        if (request.kind == LINK_START) {
            handle_start(host, &request, fds);
        } else if (request.kind == LINK_SIGNAL) {
            handle_signal(host, &request);
        } else if (request.kind == LINK_END) {
            end(host, request.grace_ms);
        }
        for (size_t i = 0; i < LINK_FDS; i++) {
            if (fds[i] >= 0) {
                close(fds[i]);
            }
        }
    }
    if (result < 0) {
        close(host->line);
        host->line = -1;
        end(host, LOST_GRACE_MS);
    }
}

static int
death_order(const void *left_, const void *right_)
{
    const struct link_report *left = left_;
    const struct link_report *right = right_;

    if ((left->signal != 0) != (right->signal != 0)) {
        return left->signal != 0 ? -1 : 1;
    }
    return left->slot > right->slot ? -1 : left->slot < right->slot;
}

/*
 * Collects up to DEATHS_MAX dead and reports those we started. The system does not tell in which
 * order those of one batch died, and who died of whom: a process killed by a signal did not die of
 * another's death, and services (low slots) die of workers rather than the reverse.
 */
static size_t
reap_batch(struct host *host)
{
    struct link_report reports[DEATHS_MAX];
    size_t dead = 0;
    size_t count = 0;
    int status;
    pid_t pid;

    for (; dead < DEATHS_MAX && (pid = waitpid(-1, &status, WNOHANG)) > 0; dead++) {
        for (size_t i = 0; i < host->child_count; i++) {
            struct child *child = &host->children[i];

            if (child->alive && child->pid == pid) {
                child->alive = false;
                reports[count++] =
                    (struct link_report){.kind = LINK_EXITED,
                                         .slot = child->slot,
                                         .pid = pid,
                                         .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                         .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
            }
        }
    }
    qsort(reports, count, sizeof(*reports), death_order);
    for (size_t i = 0; i < count; i++) {
        link_send_report(host->line, &reports[i]);
    }
    return dead;
}

/* Collects all the dead. Returns false when there is no child left. */
static bool
reap(struct host *host)
{
    siginfo_t info;

    while (reap_batch(host) == DEATHS_MAX) {
    }
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* One turn: waits for a request, a death or the time to kill. Returns false when all is over. */
static bool
turn(struct host *host)
{
    struct pollfd polls[2] = {{.fd = host->deaths, .events = POLLIN},
                              {.fd = host->line, .events = POLLIN}};
    struct signalfd_siginfo info;
    const uint64_t now = clock_ms();
    int timeout_ms = -1;
    bool left;

    if (host->ending) {
        timeout_ms = now < host->kill_ms ? (int)(host->kill_ms - now) : KILL_AGAIN_MS;
    }
    poll(polls, 2, timeout_ms);
    while (read(host->deaths, &info, sizeof(info)) > 0) {
    }
    left = reap(host);
    if (host->line >= 0 && (polls[1].revents & (POLLIN | POLLHUP)) != 0) {
        handle_requests(host);
        left = reap(host);
    }
    if (host->ending && clock_ms() >= host->kill_ms) {
        tree_signal(getpid(), 0, 0, SIGKILL);
    }
    return left || !host->ending;
}

static void
become_agent(struct host *host)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t set;

    setsid();
    prctl(PR_SET_NAME, "psd_agent");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        signal(ignored[i], SIG_IGN);
    }
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_SETMASK, &set, NULL);
    host->deaths = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

psd_status
agent_fork(struct agent *agent_p, int secret_fd, struct psd_error *err)
{
    struct host host = {.secret_fd = secret_fd};
    int line[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, line) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "agent: socketpair");
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid = fork();
    if (pid < 0) {
        psi_fail_errno(err, PSD_ERR_IO, "agent: fork");
        close(line[0]);
        close(line[1]);
        return PSD_ERR_IO;
    }
    if (pid == 0) {
        close(line[0]);
        host.line = line[1];
        become_agent(&host);
        while (turn(&host)) {
        }
        free(host.children);
        _exit(0);
    }
    close(line[1]);
    *agent_p = (struct agent){.pid = pid, .fd = line[0]};
    return PSD_OK;
}

void
agent_bury(const struct agent *agent)
{
    /* Our own session is not the job's: what a shell left us with before exec stays alone. */
    const pid_t spare = getsid(0);

    kill(agent->pid, SIGKILL);
    while (tree_signal(getpid(), 0, spare, SIGKILL) > 0) {
        int status;

        while (waitpid(-1, &status, WNOHANG) > 0) {
        }
        poll(NULL, 0, KILL_AGAIN_MS);
    }
}
