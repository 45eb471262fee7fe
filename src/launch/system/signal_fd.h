/*
 * signal_fd.h - signals that ask psd_run for something, as something to read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_SIGNAL_FD_H
#define LAUNCH_SIGNAL_FD_H

#include <stddef.h>

/* Blocks these signals, save those that psd_run was told to ignore (nohup).
 * Returns a descriptor of struct signalfd_siginfo that never blocks; the caller closes it. */
int signal_fd_open(const int *numbers, size_t count);

#endif
