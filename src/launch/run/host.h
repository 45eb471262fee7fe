/*
 * host.h - psd_run's view of one machine: the line to its agent, and what is known about it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_HOST_H
#define LAUNCH_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/types.h>

#include "launch/link/link.h"
#include "launch/meet/join.h"
#include "launch/meet/remote_shell.h"
#include "launch/plan/layout.h"

enum {
    HOST_STDERR_BYTES = 4096, /* kept of what the caller says */
    HOST_ADDRESS_BYTES = 64,
};

enum host_state {
    HOST_AWAY,       /* no login yet, or the last one failed and is repeated */
    HOST_CALLING,    /* ssh or srun runs, the agent has not answered */
    HOST_MET,        /* the agent said hello */
    HOST_ASKED,      /* LINK_SYNC is out */
    HOST_FILLING,    /* files are on their way */
    HOST_FILLED,     /* it has the files, or needs none */
    HOST_SETTING_UP, /* LINK_SETUP is out */
    HOST_SET_UP,
    HOST_REACHING, /* LINK_REACH is out */
    HOST_READY,
    HOST_GONE, /* after an end, or lost */
};

/* Thread: owned by the main thread of psd_run. */
struct host {
    const struct layout_machine *machine;
    struct remote_shell shell; /* of a machine that is not here */
    enum host_state state;
    bool lost;      /* it went without being told to ... */
    char loss[512]; /* ... in words */

    bool returning; /* a joined machine that was lost and is made ready again */

    pid_t pid;  /* of ssh or srun, or of the agent here; 0: none */
    int status; /* of that process when it ended; -1: unknown */
    struct link link;
    int stderr_fd; /* standard error of ssh or srun, -1: none */
    char stderr_tail[HOST_STDERR_BYTES];
    unsigned tries;
    uint64_t retry_ms; /* HOST_AWAY: when to call */
    uint64_t heard_ms;

    char hostname[256];
    uint64_t computer; /* what machines that are one and the same share; 0: not known */
    char version[32];
    struct words addresses;               /* "INTERFACE ADDRESS" */
    char our_address[HOST_ADDRESS_BYTES]; /* of us, as the machine sees it; "": not known */
    char its_address[HOST_ADDRESS_BYTES]; /* of the machine, as we reached it */
    int64_t clock_ahead_ms;               /* of ours */
    uint32_t cores;
    char advertised[HOST_ADDRESS_BYTES]; /* the one it wants to be reached under; "": any */
    char address[HOST_ADDRESS_BYTES];    /* under which the others reach it */
    uint16_t probe_port;                 /* of its listener; 0: none */
    size_t sent;                         /* HOST_FILLING: bytes of the archive */
    size_t wanted;                       /* ... that it asked for so far */
    struct words problems;               /* what is missing there */
    struct words notes;                  /* what is different there, for the log */
    uint16_t *worker_ports; /* owned; host_setup_port() knows whose they are; 0: none */
    bool *knows_flags;      /* owned, by command */
};

/* Ends the process behind the line at once, if that is ours to do. */
void host_kill(const struct host *host);

/* Calls a machine by ssh or srun. The agent here is agent_fork()'s, and host_adopt() takes it. */
psd_status host_call(struct host *host, struct psd_error *err);
void host_adopt(struct host *host, pid_t agent, int line);

/* A machine came by itself (join.h), for the first time or after it was lost; takes line. */
void host_welcome(struct host *host, const struct join_member *member, int line);
void host_fini(struct host *host);

/* Reads what ssh or srun complains about. */
void host_read_stderr(struct host *host);

/* The line is closed: collects the process behind it, which is killed if it does not end at once.
 */
void host_close(struct host *host);

/* Takes LINK_HELLO. */
psd_status host_meet(struct host *host, const struct words *hello, struct psd_error *err);

/* Whether two machines are one computer, as far as they say; and the first of the machines that are
 * the same as this one: itself, where there is none. */
bool host_is_same_computer(const struct host *one, const struct host *other);
const struct host *host_first_of_computer(const struct host *hosts, const struct host *host);

/* "host2 (10.0.0.2)", or the name alone. */
void host_describe(const struct host *host, char *text_p, size_t size);

/* The interface of that address. Returns false if it is not known. */
bool host_interface(const struct host *host, char *name_p, size_t size);

/* Chooses the address under which others reach the machine. wanted: an interface, a network
 * (10.0.0.0/8), or NULL. any: a machine that was called, to ask how it sees us. together: all
 * are one computer, which can do without a network. */
psd_status host_choose_address(struct host *host, const char *wanted, const struct host *any,
                               bool together, struct psd_error *err);

#endif
