/*
 * signal_fd.c - signals that ask psd_run for something, as something to read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/signal_fd.h"

#include <signal.h>

#include <sys/signalfd.h>

int
signal_fd_open(const int *numbers, size_t count)
{
    struct sigaction action;
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < count; i++) {
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(&set, numbers[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}
