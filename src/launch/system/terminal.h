/*
 * terminal.h - how wide and how high the terminal behind a descriptor is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_TERMINAL_H
#define LAUNCH_TERMINAL_H

#include <stddef.h>

/* 0: it is not a terminal, or it does not say. */
size_t terminal_columns(int fd);
size_t terminal_rows(int fd);

#endif
