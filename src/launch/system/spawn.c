/*
 * spawn.c - one process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "launch/system/close_fd.h"

static void
reset_signals(void)
{
    const struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int number = 1; number < NSIG; number++) {
        sigaction(number, &action, NULL); /* KILL and STOP refuse, as they should */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Lays the descriptors out: 0 the input, 1 and 2 the output, 3 the extra one. Returns 0 or -1. */
static int
lay_descriptors(const struct spawn_args *args)
{
    const int input = args->input_fd >= 0 ? args->input_fd : open("/dev/null", O_RDONLY);
    const int error = args->error_fd >= 0 ? args->error_fd : args->output_fd;

    /* Sources lie above SPAWN_EXTRA_FD (see spawn_start), so no dup2 overwrites a later one. */
    if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(args->output_fd, STDOUT_FILENO) < 0 ||
        dup2(error, STDERR_FILENO) < 0) {
        return -1;
    }
    if (args->extra_fd >= 0 && dup2(args->extra_fd, SPAWN_EXTRA_FD) < 0) {
        return -1;
    }
    return 0;
}

/* The program will not see what lies at `first` or above, save the kept ones; -1: not one. */
static void
close_all_but(unsigned first, const int kept[2])
{
    close_range(first, ~0u, CLOSE_RANGE_CLOEXEC);
    for (size_t i = 0; i < 2; i++) {
        if (kept[i] >= 0) {
            fcntl(kept[i], F_SETFD, 0);
        }
    }
}

static void
run_child(const struct spawn_args *args, pid_t parent, int failure_fd)
{
    const unsigned first_unused = args->extra_fd >= 0 ? SPAWN_EXTRA_FD + 1 : SPAWN_EXTRA_FD;
    int code;
    ssize_t written;

    setsid();
    if (!args->outlives) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(127); /* the parent died before the line above */
        }
    }
    reset_signals();
    if (lay_descriptors(args) == 0) {
        close_all_but(first_unused, (const int[]){args->secret_fd, args->note_fd});
        execvpe(args->path, args->argv, args->environment); /* a script without #! is run by sh */
    }
    code = errno;
    written = write(failure_fd, &code, sizeof(code));
    (void)written;
    _exit(127);
}

/* Copies fd above the descriptors that a child lays out. */
static int
lift(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, SPAWN_EXTRA_FD + 1);
}

static void
close_lifted(const struct spawn_args *lifted)
{
    int fds[] = {lifted->input_fd, lifted->output_fd, lifted->error_fd, lifted->extra_fd};

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        close_fd(&fds[i]);
    }
}

int
spawn_start(const struct spawn_args *args, pid_t *pid_p)
{
    const pid_t parent = getpid();
    struct spawn_args lifted = *args;
    int pipes[2];
    int failure_fd;
    int code = 0;
    pid_t pid;

    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return errno;
    }
    lifted.input_fd = lift(args->input_fd);
    lifted.output_fd = lift(args->output_fd);
    lifted.error_fd = lift(args->error_fd);
    lifted.extra_fd = lift(args->extra_fd);
    failure_fd = lift(pipes[1]);
    close(pipes[1]);
    pid = failure_fd < 0 || lifted.output_fd < 0 ? -1 : fork();
    if (pid == 0) {
        run_child(&lifted, parent, failure_fd);
    }
    code = pid < 0 ? errno : 0;
    close_lifted(&lifted);
    close(failure_fd);
    /* The pipe closes by itself when the program runs: silence is success. */
    if (pid > 0 && read(pipes[0], &code, sizeof(code)) == (ssize_t)sizeof(code)) {
        waitpid(pid, NULL, 0);
    }
    close(pipes[0]);
    if (code == 0) {
        *pid_p = pid;
    }
    return code;
}
