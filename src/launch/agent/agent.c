/*
 * agent.c - the parent of all processes of the job on one machine.
 *
 * Two processes adopt orphans: the agent those of its children, and the one above it (psd_run, or
 * the keeper that ssh or srun started) those of an agent that was killed. So killing either of them
 * leaves somebody who can find every process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fail.h"
#include "base/master_file.h"
#include "base/monotonic.h"
#include "launch/agent/children.h"
#include "launch/agent/ending.h"
#include "launch/agent/greet.h"
#include "launch/agent/keeper.h"
#include "launch/agent/setup.h"
#include "launch/link/jobs.h"
#include "launch/link/link.h"
#include "launch/link/secret.h"
#include "launch/link/unpack.h"
#include "launch/system/reach.h"

enum {
    LOST_GRACE_MS = 1000, /* psd_run is gone: nobody waits for a long goodbye */
    FAREWELL_MS = 5000,   /* for one more byte of the last reports to leave */
    REACH_MS = 3000,      /* to try another machine */
};

/* Thread: owned by the agent, which has one. */
struct agent {
    struct link link;
    int signals; /* signalfd: a child died, the keeper died */
    struct setup setup;
    struct psd_error secret_error; /* why there is no secret; PSD_OK: there is, or is none yet */
    struct children children;
    struct unpack unpack;
    struct ending ending;
    uint32_t lease_ms;      /* silence of psd_run after which the job is over; 0: any */
    uint64_t heard_ms;      /* of psd_run */
    uint64_t pulse_ms;      /* when to say the next time that we are here */
    pid_t keeper;           /* above us; 0: psd_run itself is */
    pid_t launcher;         /* whose entry in the list of jobs is ours to take out if it dies */
    const char *entry_path; /* NULL: none */
};

/* Whoever has not greeted yet may take its time: there may be no psd_run to talk to so far. */
static bool
is_leased(const struct agent *agent)
{
    return agent->lease_ms > 0 && agent->link.in >= 0 && agent->link.greeted;
}

/* psd_run is gone, or might as well be. */
static void
lose_launcher(struct agent *agent)
{
    link_fini(&agent->link);
    ending_begin(&agent->ending, &agent->children, LOST_GRACE_MS, true);
}

/* -------------------------------------------------------------------------------- requests --- */

static void
handle_secret(struct agent *agent, const struct link_message *message)
{
    const int fd = launch_secret_take(message, &agent->secret_error);

    if (fd >= 0) {
        setup_take_secret(&agent->setup, fd);
    }
    link_forget(&agent->link, message);
}

static void
handle_setup(struct agent *agent, const struct link_message *message)
{
    struct psd_error err = {0};
    struct words answers = {0};
    struct words orders = {0};

    if (link_words(message, &orders, &err) == PSD_OK) {
        setup_follow(&agent->setup, &orders, &answers);
    } else {
        words_add_format(&answers, "problem=%s", err.text);
    }
    if (agent->secret_error.status != PSD_OK) {
        words_add_format(&answers, "problem=%s", agent->secret_error.text);
    }
    link_send_words(&agent->link, LINK_SET_UP, 0, 0, &answers);
    words_fini(&orders);
    words_fini(&answers);
}

/* Another life of the master is there: whoever looks for it finds this. */
static void
handle_master(struct agent *agent, const struct link_message *message)
{
    struct psi_master_told told = {.term = (uint32_t)message->number};
    struct psd_error err = {0};
    struct words words = {0};

    if (agent->setup.master_file == NULL) {
        psi_fail(&err, PSD_ERR_STATE, "there is no place for a file that tells them");
    } else if (link_words(message, &words, &err) == PSD_OK && words.count == 1) {
        snprintf(told.address, sizeof(told.address), "%s", words.list[0]);
        (void)psi_master_file_write(agent->setup.master_file, &told, &err);
    }
    if (err.status != PSD_OK) {
        link_send(&agent->link, LINK_MASTER_UNTOLD, 0, 0, err.text, strlen(err.text));
    }
    words_fini(&words);
}

/* Answers how many bytes more psd_run is to send; 0: all is here, or err says why not. */
static void
answer_sync(struct agent *agent, uint32_t wanted, const struct psd_error *err)
{
    struct words problems = {0};

    if (err->status != PSD_OK) {
        words_add(&problems, err->text);
    }
    link_send_words(&agent->link, LINK_SYNCED, 0, (int32_t)wanted, &problems);
    words_fini(&problems);
}

static void
handle_sync(struct agent *agent, const struct link_message *message)
{
    struct psd_error err = {0};
    struct words words = {0};
    uint32_t wanted = 0;

    if (link_words(message, &words, &err) == PSD_OK) {
        unpack_begin(&agent->unpack, &words, &wanted, &err);
    }
    answer_sync(agent, wanted, &err);
    words_fini(&words);
}

static void
handle_files(struct agent *agent, const struct link_message *message)
{
    struct psd_error err = {0};

    if (unpack_take(&agent->unpack, message, &err) != PSD_OK) {
        unpack_fini(&agent->unpack);
        agent->unpack.failed = true; /* said once, the rest is dropped */
        answer_sync(agent, 0, &err);
    }
}

/* Files that have arrived go on to tar. */
static void
go_on_unpacking(struct agent *agent)
{
    struct psd_error err = {0};
    uint32_t more = 0;

    if (unpack_step(&agent->unpack, &more, &err) != UNPACK_GOES_ON) {
        answer_sync(agent, more, &err);
    }
}

static void
handle_reach(struct agent *agent, const struct link_message *message)
{
    struct psd_error err = {0};
    struct words answers = {0};
    struct words targets = {0};

    if (link_words(message, &targets, &err) == PSD_OK) {
        reach_all(&targets, REACH_MS, &answers);
    } else {
        words_add(&answers, err.text);
    }
    link_send_words(&agent->link, LINK_REACHED, 0, 0, &answers);
    words_fini(&targets);
    words_fini(&answers);
}

static void
start_now(struct agent *agent, const struct link_message *message)
{
    char *path = NULL;
    pid_t pid = 0;
    const int code = agent->ending.begun
                         ? ECANCELED
                         : children_start(&agent->children, &agent->setup, message, &pid, &path);

    if (agent->setup.listener >= 0) { /* whoever wanted to reach it has done so */
        close(agent->setup.listener);
        agent->setup.listener = -1;
    }
    link_send(&agent->link, code == 0 ? LINK_STARTED : LINK_START_FAILED, message->slot,
              code == 0 ? (int32_t)pid : code, path, path != NULL ? strlen(path) : 0);
    free(path);
}

static void
handle_start(struct agent *agent, const struct link_message *message)
{
    if (!children_keep_order(&agent->children, message)) {
        start_now(agent, message);
    }
}

/* Those whose last life has said all. */
static void
start_kept(struct agent *agent)
{
    struct link_message message;

    while (children_next_order(&agent->children, &agent->link, &message)) {
        start_now(agent, &message);
        free((char *)message.data);
    }
}

static void
handle_message(struct agent *agent, const struct link_message *message)
{
    switch ((enum link_kind)message->kind) {
    case LINK_SECRET:
        handle_secret(agent, message);
        break;
    case LINK_SETUP:
        handle_setup(agent, message);
        break;
    case LINK_SYNC:
        handle_sync(agent, message);
        break;
    case LINK_FILES:
        handle_files(agent, message);
        break;
    case LINK_REACH:
        handle_reach(agent, message);
        break;
    case LINK_START:
        handle_start(agent, message);
        break;
    case LINK_SIGNAL:
        children_signal(&agent->children, message->slot, message->number);
        break;
    case LINK_TELL:
        children_tell(&agent->children, message);
        break;
    case LINK_MASTER:
        handle_master(agent, message);
        break;
    case LINK_END:
        ending_begin(&agent->ending, &agent->children, (uint32_t)message->number, false);
        break;
    case LINK_PULSE:
        if (message->number != 0) {
            link_send(&agent->link, LINK_PULSE, 0, message->number, NULL, 0);
        }
        break;
    default:
        break; /* what a newer psd_run may say */
    }
}

static void
handle_link(struct agent *agent)
{
    struct link_message message;
    const int read = link_read(&agent->link);
    int result;

    while ((result = link_next(&agent->link, &message)) == 1) {
        handle_message(agent, &message);
        if (agent->link.in < 0) {
            return;
        }
    }
    agent->heard_ms = read == 1 ? psi_monotonic_ms() : agent->heard_ms;
    if (read < 0 || result < 0) {
        lose_launcher(agent);
    }
}

/* ---------------------------------------------------------------------------------- turns --- */

/* Returns false when there is no child left. */
static bool
reap(struct agent *agent)
{
    siginfo_t info;

    children_reap(&agent->children, &agent->unpack);
    children_report(&agent->children, &agent->setup, &agent->link);
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void
earlier(uint64_t *until_ms, uint64_t ms)
{
    *until_ms = ms < *until_ms ? ms : *until_ms;
}

static int
wait_ms(const struct agent *agent, uint64_t now_ms)
{
    uint64_t until_ms = now_ms + 60000;

    earlier(&until_ms, children_deadline(&agent->children));
    earlier(&until_ms, ending_deadline(&agent->ending, &agent->children));
    earlier(&until_ms, unpack_deadline_ms(&agent->unpack));
    if (is_leased(agent)) {
        earlier(&until_ms, agent->heard_ms + agent->lease_ms);
        earlier(&until_ms, agent->pulse_ms);
    }
    return until_ms <= now_ms ? 0 : (int)(until_ms - now_ms);
}

static void
keep_lease(struct agent *agent, uint64_t now_ms)
{
    if (!is_leased(agent)) {
        return;
    }
    if (now_ms >= agent->heard_ms + agent->lease_ms) {
        lose_launcher(agent);
    } else if (now_ms >= agent->pulse_ms) {
        agent->pulse_ms = now_ms + LINK_PULSE_MS;
        link_send(&agent->link, LINK_PULSE, 0, 0, NULL, 0);
    }
}

static void
handle_signals(struct agent *agent)
{
    struct signalfd_siginfo info;

    while (read(agent->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP) { /* the keeper died, or the session of ssh */
            lose_launcher(agent);
        }
    }
}

/* One turn: waits for a request, output, a death or the time. Returns false when all is over. */
static bool
turn(struct agent *agent)
{
    struct pollfd *polls = children_polls(&agent->children, link_pending(&agent->link), 4);
    const short line_events = (short)(POLLIN | (link_pending(&agent->link) > 0 ? POLLOUT : 0));
    bool left;

    polls[0] = (struct pollfd){.fd = agent->signals, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = agent->link.in, .events = POLLIN};
    polls[2] = (struct pollfd){.fd = agent->link.out,
                               .events = agent->link.in == agent->link.out ? line_events : POLLOUT};
    if (link_pending(&agent->link) == 0) {
        polls[2].fd = -1;
    }
    polls[3] = (struct pollfd){.fd = unpack_fd(&agent->unpack), .events = POLLOUT};
    poll(polls, 4 + agent->children.poll_count, wait_ms(agent, psi_monotonic_ms()));
    handle_signals(agent);
    link_flush(&agent->link);
    children_read(&agent->children, &agent->link, polls + 4);
    left = reap(agent);
    if (agent->link.in >= 0 && polls[1].revents != 0) {
        handle_link(agent);
        left = reap(agent);
    }
    go_on_unpacking(agent);
    keep_lease(agent, psi_monotonic_ms());
    start_kept(agent);
    ending_turn(&agent->ending, &agent->children, &agent->link);
    return left || !agent->ending.begun || ending_reads(&agent->ending, &agent->children);
}

/* The last reports, as long as somebody takes them. */
static void
say_farewell(struct agent *agent)
{
    uint64_t until_ms = psi_monotonic_ms() + FAREWELL_MS;

    while (children_busy(&agent->children) || link_pending(&agent->link) > 0) {
        const uint64_t now_ms = psi_monotonic_ms();
        const size_t before = link_pending(&agent->link);

        if (now_ms >= until_ms || agent->link.out < 0) {
            return;
        }
        if (link_pending(&agent->link) > 0) {
            struct pollfd line = {.fd = agent->link.out, .events = POLLOUT};

            poll(&line, 1, (int)(until_ms - now_ms));
        }
        link_flush(&agent->link);
        until_ms = link_pending(&agent->link) < before ? now_ms + FAREWELL_MS : until_ms;
        children_report(&agent->children, &agent->setup, &agent->link);
    }
}

/* ------------------------------------------------------------------------ begin and end --- */

/* What is sent to a whole group or, by a batch system, to a whole step is for the workers; when the
 * job ends is for psd_run to say. */
static void
ignore_signals(void)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP};

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        signal(ignored[i], SIG_IGN);
    }
}

static void
become_agent(struct agent *agent, char *const *environment)
{
    sigset_t set;

    prctl(PR_SET_NAME, "psd_agent");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    ignore_signals();
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_SETMASK, &set, NULL);
    agent->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    agent->heard_ms = psi_monotonic_ms();
    setup_init(&agent->setup, environment);
    unpack_init(&agent->unpack);
}

static _Noreturn void
run_agent(struct agent *agent)
{
    struct words hello = {0};

    greet_describe(&hello);
    link_send_words(&agent->link, LINK_HELLO, 0, 0, &hello);
    words_fini(&hello);
    while (turn(agent)) {
    }
    children_finish(&agent->children, &agent->link);
    say_farewell(agent);
    if (agent->entry_path != NULL && getppid() != agent->launcher) {
        jobs_forget(agent->entry_path); /* we inherited its socket: until we end, nobody takes it */
    }
    link_fini(&agent->link);
    unpack_fini(&agent->unpack);
    children_fini(&agent->children);
    setup_fini(&agent->setup);
    if (agent->keeper != 0 && getppid() == agent->keeper) {
        kill(agent->keeper, SIGCONT); /* if somebody stopped it, it would stay for ever */
    }
    _exit(0);
}

psd_status
agent_fork(struct agent_handle *agent_p, char *const *environment, const char *entry_path,
           uint32_t lease_ms, bool detached, struct psd_error *err)
{
    struct agent agent = {.launcher = getpid(), .entry_path = entry_path, .lease_ms = lease_ms};
    int line[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) != 0) {
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
        int nothing;

        close(line[0]);
        close_range(STDERR_FILENO + 1, (unsigned)line[1] - 1, 0); /* an open page, among others */
        close_range((unsigned)line[1] + 1, ~0u, 0);
        nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        setsid();
        dup2(nothing, STDIN_FILENO);
        dup2(nothing, STDOUT_FILENO);
        if (detached) { /* whoever reads what psd_run says in front is not to wait for the job */
            dup2(nothing, STDERR_FILENO);
        }
        become_agent(&agent, environment);
        link_init(&agent.link, line[1], line[1]);
        run_agent(&agent);
    }
    close(line[1]);
    *agent_p = (struct agent_handle){.pid = pid, .fd = line[0]};
    return PSD_OK;
}

int
agent_serve(char *const *environment)
{
    struct agent agent = {.lease_ms = LINK_LEASE_MS};
    const pid_t keeper = getpid();
    const int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_t pid;

    if (in < 0 || out < 0 || nothing < 0) {
        return 3;
    }
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    signal(SIGHUP, SIG_IGN); /* the agent hears of a closed session by its line, and ends orderly */
    ignore_signals();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "psd_keeper");
    pid = fork();
    if (pid > 0) {
        close(out);
        return keeper_wait(pid, in);
    }
    if (pid < 0) {
        return 3;
    }
    setsid();
    signal(SIGHUP, SIG_DFL);
    become_agent(&agent, environment);
    prctl(PR_SET_PDEATHSIG, SIGHUP);
    agent.keeper = keeper;
    if (getppid() != keeper) {
        _exit(1);
    }
    link_init(&agent.link, in, out);
    run_agent(&agent);
}
