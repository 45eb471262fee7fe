/*
 * console.c - what psd_run shows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/tell/console.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/fail.h"
#include "launch/system/log_file.h"
#include "launch/system/terminal.h"
#include "launch/text/variables.h"

enum { LINE_BYTES = 16384, COLOURS = 6 };

/* Both streams on one terminal, or in one pipe, keep their order. */
static bool
are_same(int one, int other)
{
    struct stat a;
    struct stat b;

    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

static void
open_outlets(struct console *console)
{
    outlet_init(&console->out, STDOUT_FILENO);
    console->shared = are_same(STDOUT_FILENO, STDERR_FILENO);
    if (!console->shared) {
        outlet_init(&console->err, STDERR_FILENO);
    }
}

static struct outlet *
err_of(struct console *console)
{
    return console->shared ? &console->out : &console->err;
}

void
console_init(struct console *console, int wake_fd, void (*meanwhile)(void *context), void *context,
             char *const *environment)
{
    const char *no_colour = variables_get(environment, "NO_COLOR");

    *console =
        (struct console){.waiter = {.wake_fd = wake_fd, .meanwhile = meanwhile, .context = context},
                         .terminal = isatty(STDERR_FILENO) != 0};
    console->colour = isatty(STDOUT_FILENO) != 0 && (no_colour == NULL || no_colour[0] == '\0');
    open_outlets(console);
}

void
console_fini(struct console *console)
{
    outlet_finish(&console->out, &console->waiter);
    outlet_fini(&console->out);
    if (!console->shared) {
        outlet_finish(&console->err, &console->waiter);
        outlet_fini(&console->err);
    }
}

bool
console_flush(struct console *console)
{
    const bool out = outlet_flush(&console->out);

    return (console->shared || outlet_flush(&console->err)) && out;
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
    open_outlets(console);
    return PSD_OK;
}

/* A terminal that takes nothing now gets no status line: it would only fill the backlog. */
static void
erase_status(struct console *console)
{
    if (console->drawn) {
        outlet_put(err_of(console), "\r\033[K", 4, true, &console->waiter);
    }
    console->drawn = false;
}

static void
draw_status(struct console *console)
{
    if (console->status[0] != '\0' && outlet_flush(err_of(console))) {
        outlet_put(err_of(console), console->status, strlen(console->status), true,
                   &console->waiter);
        console->drawn = true;
    }
}

void
console_line(struct console *console, enum launch_role role, const char *name, const char *text,
             size_t bytes)
{
    struct outlet *outlet = role == LAUNCH_WORKER ? &console->out : err_of(console);
    char line[LINE_BYTES];
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
    outlet_put(outlet, line, (size_t)used + bytes + 1, false, &console->waiter);
    draw_status(console);
}

__attribute__((format(printf, 3, 0))) static void
say(struct console *console, enum console_kind kind, const char *format, va_list args)
{
    char line[2048] = "psd_run: ";
    const size_t used = strlen(line);

    vsnprintf(line + used, sizeof(line) - used - 1, format, args);
    if (console->listener.said != NULL) {
        console->listener.said(console->listener.context, kind, line + used);
    }
    strcat(line, "\n");
    erase_status(console);
    outlet_put(err_of(console), line, strlen(line), true, &console->waiter);
    draw_status(console);
}

void
console_say(struct console *console, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(console, CONSOLE_NOTE, format, args);
    va_end(args);
}

void
console_tell(struct console *console, enum console_kind kind, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(console, kind, format, args);
    va_end(args);
}

size_t
console_columns(void)
{
    const size_t columns = terminal_columns(STDERR_FILENO);

    return columns > 0 ? columns : 80;
}

void
console_status(struct console *console, const char *text)
{
    if (!console->terminal) {
        return;
    }
    erase_status(console);
    /* A line that wraps cannot be erased: it stays one column short of the edge. */
    snprintf(console->status, sizeof(console->status), "%.*s", (int)(console_columns() - 1), text);
    draw_status(console);
}
