/*
 * console.h - what psd_run shows: the workers' lines, its own messages, one line of status.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CONSOLE_H
#define LAUNCH_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/status.h>

#include "launch/rules/role.h"
#include "launch/tell/outlet.h"

/* What a message of psd_run is about. */
enum console_kind {
    CONSOLE_NOTE,
    CONSOLE_LOSS,     /* a process or a machine is gone, and the job goes on */
    CONSOLE_FAILOVER, /* another life, or another process, takes the place of one that was lost */
};

/* Hears what psd_run itself says. */
struct console_listener {
    void (*said)(void *context, enum console_kind kind, const char *text);
    void *context;
};

/*
 * Thread: owned by the main thread of psd_run.
 */
struct console {
    struct outlet_waiter waiter; /* wake_fd: somebody wants psd_run's attention */
    struct outlet out;           /* where workers' lines go */
    struct outlet err;           /* ... and everything else, unless shared */
    bool shared;                 /* both are one, so that all lines keep their order */
    bool terminal;               /* stderr is one: there is a status line */
    bool colour;
    bool daemons_quiet;               /* they are being ended: what they say about it is no news */
    bool told_root;                   /* that daemons run as root */
    bool drawn;                       /* the status line is to be seen */
    char status[256];                 /* "" if none */
    struct console_listener listener; /* (optional) */
};

/* environment: for NO_COLOR. */
void console_init(struct console *console, int wake_fd, void (*meanwhile)(void *context),
                  void *context, char *const *environment);

/* Shows what is left, however long whoever reads takes, unless psd_run's attention is wanted. */
void console_fini(struct console *console);

/* Shows what was not taken so far. Returns whether nothing is left. */
bool console_flush(struct console *console);

/* From now on everything goes to a file. */
psd_status console_redirect(struct console *console, const char *path, struct psd_error *err);

/* "[worker0] text": to stdout for workers, to stderr for the daemons. */
void console_line(struct console *console, enum launch_role role, const char *name,
                  const char *text, size_t bytes);

/* A message of psd_run itself, to stderr. */
void console_say(struct console *console, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, for those who want to know what it is about. */
void console_tell(struct console *console, enum console_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Of the terminal; 80 if there is none. */
size_t console_columns(void);

/* Replaces the status line; "" removes it. Does nothing when stderr is no terminal. */
void console_status(struct console *console, const char *text);

#endif
