/*
 * signals.c - SIGINT and SIGTERM as something to read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "base/fail.h"

psd_status
psi_signals_open(int *fd_p, struct psd_error *err)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    errno = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (errno != 0 || sigaction(SIGPIPE, &ignore, NULL) != 0 ||
        sigaction(SIGUSR1, &ignore, NULL) != 0 || sigaction(SIGUSR2, &ignore, NULL) != 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "block signals");
    }
    fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "signalfd");
    }
    *fd_p = fd;
    return PSD_OK;
}

int
psi_signals_read(int fd)
{
    struct signalfd_siginfo info;

    return read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

const char *
psi_signals_text(int signal_number)
{
    return signal_number == SIGINT ? "interrupted by SIGINT" : "terminated by SIGTERM";
}

int
psi_signals_exit_code(int signal_number)
{
    return signal_number == SIGINT ? PSI_EXIT_SIGINT : PSI_EXIT_SIGTERM;
}
