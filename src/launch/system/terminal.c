/*
 * terminal.c - how wide and how high the terminal behind a descriptor is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/system/terminal.h"

#include <sys/ioctl.h>

static struct winsize
size_of(int fd)
{
    struct winsize size = {0};

    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size : (struct winsize){0};
}

size_t
terminal_columns(int fd)
{
    return size_of(fd).ws_col;
}

size_t
terminal_rows(int fd)
{
    return size_of(fd).ws_row;
}
