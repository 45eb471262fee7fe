/*
 * console.c - what psd_run shows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/ioctl.h>

#include "base/fail.h"
#include "launch/log_file.h"
#include "launch/variables.h"

enum {
    PIECE_BYTES = 4096, /* what a pipe that polls writable takes at once (PIPE_BUF) */
    COLOURS = 6,
    STUCK_MS = 500,
};

/*
 * Writes all of it, or as much as fits before somebody wants attention: a reader that stopped
 * reading slows the job down, but Ctrl-C still works; from then on nobody waits for that reader.
 * Files have everything in any case.
 */
static void
put(struct console *console, int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        struct pollfd polls[2] = {{.fd = fd, .events = POLLOUT},
                                  {.fd = console->wake_fd, .events = POLLIN}};
        ssize_t written;

        if (poll(polls, 2, console->stuck ? 0 : STUCK_MS) < 0 && errno != EINTR) {
            return;
        }
        if (polls[0].revents == 0) {
            console->stuck = console->stuck || polls[1].revents != 0;
            if (console->stuck) {
                return;
            }
            if (console->meanwhile != NULL) {
                console->meanwhile(console->context);
            }
            continue;
        }
        console->stuck = false;
        written = write(fd, text, bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
        if (written < 0 && errno != EAGAIN && errno != EINTR) {
            return; /* a closed console is no reason to end a job */
        }
        text += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
}

/*
 * A terminal opened once more, so that writing to it never waits and nobody who shares the old
 * descriptor notices: between a look and a write, Ctrl-S may come.
 */
static int
open_terminal(int fd)
{
    char path[32];
    int own;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    own = isatty(fd) ? open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    return own >= 0 ? own : fd;
}

void
console_init(struct console *console, int wake_fd, void (*meanwhile)(void *context), void *context,
             char *const *environment)
{
    const char *no_colour = variables_get(environment, "NO_COLOR");

    *console = (struct console){.wake_fd = wake_fd,
                                .out = open_terminal(STDOUT_FILENO),
                                .err = open_terminal(STDERR_FILENO),
                                .meanwhile = meanwhile,
                                .context = context,
                                .terminal = isatty(STDERR_FILENO) != 0};
    console->colour = isatty(STDOUT_FILENO) != 0 && (no_colour == NULL || no_colour[0] == '\0');
}

void
console_fini(struct console *console)
{
    if (console->out > STDERR_FILENO) {
        close(console->out);
    }
    if (console->err > STDERR_FILENO) {
        close(console->err);
    }
    console->out = STDOUT_FILENO;
    console->err = STDERR_FILENO;
}

psd_status
console_redirect(struct console *console, const char *path, struct psd_error *err)
{
    const int fd = log_file_open(path);

    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "open %s", path);
    }
    close(fd);
    console_fini(console);
    console->terminal = false;
    console->colour = false;
    return PSD_OK;
}

static void
erase_status(struct console *console)
{
    if (console->status[0] != '\0') {
        put(console, console->err, "\r\033[K", 4);
    }
}

static void
draw_status(struct console *console)
{
    put(console, console->err, console->status, strlen(console->status));
}

void
console_line(struct console *console, enum launch_role role, const char *name, const char *text,
             size_t bytes)
{
    const int fd = role == LAUNCH_WORKER ? console->out : console->err;
    char line[PIECE_BYTES * 4];
    int used;

    if (console->colour) {
        /* Workers in turn; red is for the daemons, who only speak up when something is wrong. */
        static const char palette[] = "623546";
        const char colour =
            role == LAUNCH_WORKER ? palette[(unsigned)name[strlen(name) - 1] % COLOURS] : '1';

        used = snprintf(line, sizeof(line), "\033[3%cm[%s]\033[0m ", colour, name);
    } else {
        used = snprintf(line, sizeof(line), "[%s] ", name);
    }
    if (bytes > sizeof(line) - (size_t)used - 1) {
        bytes = sizeof(line) - (size_t)used - 1;
    }
    memcpy(line + used, text, bytes);
    line[(size_t)used + bytes] = '\n';
    erase_status(console);
    put(console, fd, line, (size_t)used + bytes + 1);
    draw_status(console);
}

void
console_say(struct console *console, const char *format, ...)
{
    char line[1024] = "psd_run: ";
    const size_t used = strlen(line);
    va_list args;

    va_start(args, format);
    vsnprintf(line + used, sizeof(line) - used - 1, format, args);
    va_end(args);
    strcat(line, "\n");
    erase_status(console);
    put(console, console->err, line, strlen(line));
    draw_status(console);
}

void
console_status(struct console *console, const char *text)
{
    struct winsize size = {0};
    size_t columns = 80;

    if (!console->terminal) {
        return;
    }
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        columns = size.ws_col;
    }
    erase_status(console);
    /* A line that wraps cannot be erased: it stays one column short of the edge. */
    snprintf(console->status, sizeof(console->status), "%.*s", (int)(columns - 1), text);
    draw_status(console);
}
