/*
 * children.h - the processes that an agent started: what they print, and how they end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CHILDREN_H
#define LAUNCH_CHILDREN_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>

#include "launch/agent/printout.h"
#include "launch/agent/setup.h"
#include "launch/link/link.h"
#include "launch/link/notes.h"
#include "launch/link/unpack.h"

enum {
    CHILD_PORTS = 2, /* its own, and that of a store for all workers */
    /* A dead process's pipe is read to its end; if somebody else holds it, until nothing has come
     * for the first, and for the second at most. */
    CHILDREN_SILENT_MS = 1000,
    CHILDREN_ENDLESS_MS = 10000,
};

/* How far the reading of a dead process's pipe is. */
enum children_drain {
    CHILDREN_READS,
    CHILDREN_READ,    /* to its end */
    CHILDREN_SILENT,  /* somebody holds it, and says nothing */
    CHILDREN_ENDLESS, /* ... and goes on and on */
};

struct child {
    uint32_t slot;
    pid_t pid; /* kept after its death: what it left behind is still of its session */
    bool alive;
    bool is_daemon;              /* one of ours, not the user's command */
    bool unreported;             /* dead, and psd_run has not been told */
    int status;                  /* as waitpid() told it */
    int drains;                  /* of its pipe after its death, before that is reported */
    uint64_t died_ms;            /* while psd_run takes nothing: now */
    bool asked;                  /* it lived when the end began: ending.h */
    bool released;               /* what it left behind was asked to stop ... */
    uint64_t kill_ms;            /* ... and is killed then */
    struct link_message order;   /* to start it again, once its pipe is read; kind 0: none */
    uint16_t ports[CHILD_PORTS]; /* for its own use; 0: none */
    struct printout printout;
    int ready; /* read end of its ready pipe, -1: none */
    int heed;  /* write end of its stdin, -1: none */
    int note;  /* read end of its pipe for notes, -1: none */
    struct notes notes;
};

/* Thread: owned by the agent. */
struct children {
    struct child *list;
    size_t count;
    struct pollfd *polls;
    size_t poll_count; /* behind those that the caller reserved */
};

void children_fini(struct children *children);

/* Starts what LINK_START tells: the strings are ROLE, LOG, PORTS ("20001,20002"), arguments,
 * environment. Returns 0 or an errno. *path_p: of the program, owned by the caller; NULL: not
 * found. */
int children_start(struct children *children, struct setup *setup,
                   const struct link_message *message, pid_t *pid_p, char **path_p);

/*
 * Whether the start that a message orders has to wait for what the last life of its process says.
 * If so, the message is kept, and children_next_order() has it when it is due. The caller frees its
 * data then.
 */
bool children_keep_order(struct children *children, const struct link_message *message);
bool children_next_order(struct children *children, struct link *link,
                         struct link_message *message_p);

/* How far the reading is; and when it may be further without a byte. */
enum children_drain children_drain(const struct child *child, uint64_t now_ms);
uint64_t children_drain_deadline(const struct child *child);

/* Tells psd_run who holds the pipe of a process that has ended. */
void children_name_holders(const struct child *child, enum children_drain drain, struct link *link);

/* A signal to a process and everything of it, but the filters of its output (filters.h); USR1,
 * USR2 and TSTP only to what handles them. */
void children_signal(const struct children *children, uint32_t slot, int number);

/* A line for the stdin of the master. */
void children_tell(const struct children *children, const struct link_message *message);

/* Collects the dead; children_report() then tells of them, each after the last of its output.
 * unpack hears of all, for its tar is one of them. */
void children_reap(struct children *children, struct unpack *unpack);
void children_report(struct children *children, const struct setup *setup, struct link *link);

/* All have ended: hands on what is left in their pipes, unfinished lines too. */
void children_finish(struct children *children, struct link *link);

/* Whether somebody's end was not reported yet. */
bool children_busy(const struct children *children);

/*
 * What to wait for, behind `reserved` places for the caller: output, as long as not too much of it
 * waits to be sent; and what to do about it then.
 */
struct pollfd *children_polls(struct children *children, size_t pending_bytes, size_t reserved);
void children_read(struct children *children, struct link *link, const struct pollfd *polls);
uint64_t children_deadline(const struct children *children); /* when to look without being told */

#endif
