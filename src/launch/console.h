/*
 * console.h - what psd_run shows: the workers' lines, its own messages, one line of status.
 */
#ifndef LAUNCH_CONSOLE_H
#define LAUNCH_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/role.h"

/*
 * Thread: owned by the main thread of psd_run.
 */
struct console {
    int wake_fd; /* readable: somebody wants psd_run's attention; a stuck terminal must not keep it
                  */
    int out;     /* where workers' lines go */
    int err;     /* ... and everything else */
    void (*meanwhile)(void *context); /* called now and then while a terminal is stuck */
    void *context;
    bool terminal; /* stderr is one: there is a status line */
    bool colour;
    bool stuck;         /* somebody wanted attention while the reader did not read */
    bool daemons_quiet; /* they are being ended: what they say about it is no news */
    char status[256];   /* shown now, "" if none */
};

/* environment: for NO_COLOR. */
void console_init(struct console *console, int wake_fd, void (*meanwhile)(void *context),
                  void *context, char *const *environment);

void console_fini(struct console *console);

/* From now on everything goes to a file. */
psd_status console_redirect(struct console *console, const char *path, struct psd_error *err);

/* "[worker0] text": to stdout for workers, to stderr for the daemons. */
void console_line(struct console *console, enum launch_role role, const char *name,
                  const char *text, size_t bytes);

/* A message of psd_run itself, to stderr. */
void console_say(struct console *console, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Replaces the status line; "" removes it. Does nothing when stderr is no terminal. */
void console_status(struct console *console, const char *text);

#endif
