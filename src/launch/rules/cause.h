/*
 * cause.h - what ended a job: who failed first, and who only died of it.
 *
 * Three see parts of it. Agents tell which process ended and how, machine by machine, in no common
 * order. The silence of an agent tells that a machine is lost, late. The master tells who stopped
 * talking first, in order, unless it is the one. So nothing is decided by who exits first: once
 * something has failed, an inquest is held. Every machine is asked whether it is there, the word of
 * the master on those that ended is waited for, and then the first cause is named:
 *
 *   1. a machine that is lost; every other computer at once: then it is ours that was cut off;
 *   2. a process that was silent although its machine answers: it was stopped;
 *   3. the process whose end, or cut connection, came first, unless it only passes on what it heard
 *      from the master or ended after the master had ended the job;
 *   4. what the master said. If another life of the process that it lost was on its way, that is not the
 *      one it speaks of.
 *
 * Pure: events and the time go in, a verdict comes out.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_CAUSE_H
#define LAUNCH_CAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tidings.h"
#include "launch/rules/role.h"

enum { CAUSE_NOWHERE = UINT32_MAX };

struct cause_config {
    uint32_t servers;
    uint32_t workers;
    const uint32_t *machine_of; /* (optional) by slot: NULL is one machine for all */
    uint32_t machines;
    uint32_t here;       /* the machine of psd_run itself, or CAUSE_NOWHERE */
    bool foreign;        /* there is no master that could tell anything */
    uint32_t silence_ms; /* after which the master takes a silent process for dead */
    uint32_t lease_ms;   /* after which a silent machine is lost */
};

enum cause_kind {
    CAUSE_PROCESS,      /* slot ended by itself, or was killed */
    CAUSE_UNCLOSED,     /* slot, a worker, ended with 0 without a goodbye */
    CAUSE_SILENT,       /* slot lives, or seems to, but does not talk: it was stopped */
    CAUSE_DISCONNECTED, /* slot lives, but not for the master */
    CAUSE_VERDICT,      /* what the master said; slot: of whom */
    CAUSE_MACHINE,      /* slot is the number of a lost machine */
    CAUSE_CUT_OFF,      /* every other machine is silent: slot is the first of them */
};

struct cause_verdict {
    enum cause_kind kind;
    uint32_t slot;
    int code;    /* exit code of the job */
    bool before; /* PROCESS, SILENT: the last life that was a member, not the one there is now */
};

/* How the last life of a process ended, among those that were members. */
struct cause_before {
    bool was;   /* there was one */
    bool ended; /* ... and its end was seen; else it was lost with its machine */
    bool rolled;
    int code;
    int signal;
};

/* What is known of a process. Moments are numbers in the order of the news; 0: never. */
struct cause_process {
    uint64_t life; /* of a server that joined: the number that its process drew; 0: not told */
    bool joined;   /* became a member of the job */
    bool done;     /* said goodbye */
    bool quiet;    /* the master has not heard of it for a while */
    bool forgiven; /* the job went on without it */
    uint64_t exit_at;
    int code;
    int signal;
    uint64_t cut_at;
    enum psi_loss loss; /* as the master tells it */
    bool rolled;        /* killed because it is to be restarted: never the cause */
    struct cause_before before;
};

struct cause_machine {
    uint32_t computer; /* several machines of a job may be one */
    bool answered;
    bool forgiven; /* the job went on without it */
    bool silent;   /* lost: nothing came of it; else its line was closed */
    bool movable;  /* ... and the job could have done without all it had but its workers */
    uint64_t lost_at;
    uint64_t lost_ms; /* the same on the clock */
};

/* How a machine was lost. */
struct cause_loss {
    uint64_t now_ms;
    bool silent;  /* nothing came of it; else its line was closed */
    bool movable; /* the job could have done without all it had but its workers */
};

/* Thread: owned by the main thread of psd_run. */
struct cause {
    struct cause_config config;
    struct cause_process *processes; /* owned, by slot */
    struct cause_machine *machines;  /* owned */
    uint64_t moment;                 /* of the last news */
    uint64_t end_at;                 /* the master ended the job ... */
    struct psi_tiding end;           /* ... for that reason */
    uint64_t opened_ms;              /* UINT64_MAX: no inquest */
};

/* Returns false without memory. */
bool cause_init(struct cause *cause, const struct cause_config *config);
void cause_fini(struct cause *cause);

/* More workers, behind the others. False: no memory. */
bool cause_add_workers(struct cause *cause, uint32_t count, const uint32_t *machine_of);

/* Which computer a machine is, once that is known; until then each is one of its own. */
void cause_place(struct cause *cause, uint32_t machine, uint32_t computer);

/* News, in the order in which they come: cause_news.c. */
void cause_started(struct cause *cause, uint32_t slot); /* a new life */
void cause_rolled(struct cause *cause, uint32_t slot);  /* it is killed to be restarted */
void cause_exited(struct cause *cause, uint32_t slot, int code, int signal);
void cause_told(struct cause *cause, const struct psi_tiding *tiding);
void cause_machine_lost(struct cause *cause, uint32_t machine, const struct cause_loss *loss);
void cause_machine_back(struct cause *cause, uint32_t machine);
void cause_answered(struct cause *cause, uint32_t machine);

/* The job goes on without a process or a machine: it is nobody's cause. */
void cause_forgive(struct cause *cause, uint32_t slot);
void cause_forgive_machine(struct cause *cause, uint32_t machine);

/* Something failed: from now on machines are to answer. */
void cause_open(struct cause *cause, uint64_t now_ms);

/* Whether all is known that can be known; at the latest at cause_deadline(). */
bool cause_settled(const struct cause *cause, uint64_t now_ms);
uint64_t cause_deadline(const struct cause *cause);

/* Of an inquest that is settled. */
struct cause_verdict cause_verdict(const struct cause *cause);

/* The slot that a line of the master is about; false: of no process of the job. */
bool cause_slot_of(const struct cause_config *config, const struct psi_tiding *tiding,
                   uint32_t *slot_p);

/* ---- for cause.c and cause_news.c */

static inline uint32_t
cause_slots(const struct cause *cause)
{
    return 1 + cause->config.servers + cause->config.workers;
}

static inline uint32_t
cause_machine_of(const struct cause *cause, uint32_t slot)
{
    return cause->config.machine_of != NULL ? cause->config.machine_of[slot] : 0;
}

#endif
