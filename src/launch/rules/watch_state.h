/*
 * watch_state.h - what is known of a job while it runs: watch.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_WATCH_STATE_H
#define LAUNCH_WATCH_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/rules/cause.h"
#include "launch/rules/role.h"

/* What psd_run exits with when no process gave it a code. */
enum watch_code {
    WATCH_CODE_USAGE = 2,
    WATCH_CODE_CANNOT_START = 3,
    WATCH_CODE_START_TIMEOUT = 124,
};

enum watch_policy { WATCH_FAIL, WATCH_CONTINUE, WATCH_WAIT };

struct watch_config {
    uint32_t servers;       /* processes that there may be at a time */
    uint32_t parts;         /* into so many the tables are cut: servers from the start; 0: all */
    bool may_scale_servers; /* they may come and go */
    uint32_t workers;
    enum watch_policy on_worker_death;
    bool is_policy_told; /* ... because somebody has said so */
    uint32_t max_restarts;
    uint32_t restart_delay_ms;  /* before the first restart after a short life */
    bool restart_signals_only;  /* codes below 128 are final */
    uint32_t server_restarts;   /* of short lives of one server, one after the other; 0: its end is
                                   the job's */
    bool others_take_over;      /* ... or other servers may take its part */
    uint32_t replicas;          /* copies of servers: 0 or 1 */
    uint32_t master_restarts;   /* likewise of the master */
    const uint32_t *machine_of; /* (optional) by slot: NULL is one machine for all */
    uint32_t machines;          /* how many; 0: one */
    uint32_t here;              /* psd_run's own, or CAUSE_NOWHERE */
    uint32_t silence_ms;        /* after which the master takes a silent process for dead */
    uint32_t server_grace_ms;   /* ... and a server whose connection ended */
    uint32_t server_wait_ms;    /* ... and ends the job, if nobody has its part by then */
    uint32_t lease_ms;          /* after which a silent machine is lost */
    uint32_t start_timeout_ms;  /* for the machines to answer; for the master to say where it
                                   listens */
    uint64_t timeout_ms;        /* for the whole job; 0: any */
    uint32_t replace_ms;        /* for a lost machine with workers alone to come back; 0: it is
                                   not waited for */
    uint32_t save_ms;     /* for a checkpoint before SIGTERM stops the job; 0: there are none */
    uint32_t leave_ms;    /* for servers and master to leave once the workers are done */
    bool foreign;         /* all run the user's command: nobody joins, everything starts at once */
    bool masterless;      /* slot 0 is empty; only of foreign jobs, which may lack servers, too */
    uint32_t max_workers; /* ranks in all the job's life; 0: none may join */
    uint32_t min_workers; /* of Poseidon's: with fewer no step ends */
    const char *alone;    /* why its workers cannot come and go; NULL: they can */
    uint32_t leaders;     /* the first of the workers, with whose end the job is done; 0: all */
};

/* Orders. Processes are numbered by slot: role.h. Hooks return at once and call nothing back. */
struct watch_ops {
    void (*start)(void *context, uint32_t slot, uint32_t restart);
    /* From now on a process has its place on another machine: in config.machine_of, too. */
    void (*move)(void *context, uint32_t slot, uint32_t machine);
    void (*signal)(void *context, uint32_t slot, int number);
    /* Ask every machine whether it is there: WATCH_ANSWERED, or WATCH_MACHINE_LOST in time. */
    void (*ask)(void *context);
    /* A worker has not joined for waited_ms since the first one did, and the others wait for it:
     * people are told. */
    void (*tell_late)(void *context, uint32_t slot, uint64_t waited_ms);
    /* A server died, or is silent and about to be killed; another life of it follows, delay_ms
     * later: people are told. */
    void (*tell_failover)(void *context, uint32_t slot);
    /* The master is told. */
    void (*tell_master)(void *context, const struct psi_word *word);
    /* A server that came is gone before it was in the job: people are told. */
    void (*tell_not_come)(void *context, uint32_t slot);
    void (*tell_drained)(void *context, uint32_t slot); /* ... has nothing more, and is ended */
    /* Servers are restarted one after the other, and that has come a step further: watch.rolling. */
    void (*tell_rolling)(void *context);
    /* Ask everything that is left to stop, kill it after grace_ms. May come again, with less. */
    void (*end)(void *context, uint32_t grace_ms);
};

enum watch_event_kind {
    WATCH_GATHERED,     /* all machines are ready */
    WATCH_CANNOT_START, /* a machine is not, and will not be: slot is its number */
    WATCH_READY,        /* the master listens */
    WATCH_STARTED,      /* slot */
    WATCH_START_FAILED, /* slot */
    WATCH_EXITED,       /* slot, code or signal */
    WATCH_INTERRUPTED,  /* signal: psd_run itself was asked to stop */
    WATCH_MACHINE_LOST, /* slot is its number; silent: nothing came of it for too long */
    WATCH_ANSWERED,     /* slot is the number of a machine that was asked */
    WATCH_MACHINE_BACK, /* slot is its number: it was lost, and is ready again */
    WATCH_ALL_GONE,     /* all agents ended after end(): nothing is left */
};

struct watch_event {
    enum watch_event_kind kind;
    uint32_t slot;
    int code;   /* exit code, when signal is 0 */
    int signal; /* that ended the process, or 0 */
    bool silent;
};

enum watch_phase {
    WATCH_GATHERING, /* the machines are not ready */
    WATCH_STARTING,  /* the master is not ready */
    WATCH_RUNNING,
    WATCH_LEAVING,  /* every worker ended: servers and master leave by themselves */
    WATCH_ASKING,   /* something failed: what it was is being found out, and nothing is done */
    WATCH_STOPPING, /* interrupted: workers first, then servers, then the master */
    WATCH_ENDING,   /* end() was ordered */
    WATCH_ENDED,
};

/* Why the job ended as it did. */
enum watch_cause {
    WATCH_CAUSE_NONE,
    WATCH_CAUSE_PROCESS,      /* cause_slot failed */
    WATCH_CAUSE_SERVICE_LEFT, /* cause_slot, a service, left with code 0 before the workers */
    WATCH_CAUSE_NOT_STARTED,  /* cause_slot could not be started */
    WATCH_CAUSE_START_TIMEOUT,
    WATCH_CAUSE_TIMEOUT,
    WATCH_CAUSE_INTERRUPT,
    WATCH_CAUSE_UNCLOSED,     /* cause_slot, a worker, ended with 0 without psd_close() */
    WATCH_CAUSE_SILENT,       /* cause_slot did not talk, although its machine did */
    WATCH_CAUSE_DISCONNECTED, /* cause_slot lives, but the master lost its connection */
    WATCH_CAUSE_VERDICT,      /* what the master said: inquest.end */
    WATCH_CAUSE_MACHINE,      /* cause_slot is the number of a machine that was lost */
    WATCH_CAUSE_CUT_OFF,      /* ... and so were all others: it is ours that was cut off */
    WATCH_CAUSE_NO_MACHINE,   /* ... that could not be made ready */
    WATCH_CAUSE_NEVER_JOINED, /* cause_slot, a worker, ended before it joined: no job without it */
};

/* Servers that are restarted one after the other: watch_rolling.c. */
enum watch_rolling_stage {
    ROLLING_NONE,
    ROLLING_WAITING, /* until the job can do without the server in `slot`; or the one before is back */
    ROLLING_KILLED, /* ... that was killed, until it is back and nothing is missing */
    ROLLING_DONE,
    ROLLING_FAILED, /* it took too long, or the job is about to end: no more are restarted */
};

struct watch_rolling {
    enum watch_rolling_stage stage;
    uint32_t slot;
    uint32_t done;     /* servers that are back */
    uint32_t restarts; /* of that server, before */
    uint32_t limit_ms; /* for each */
    uint64_t began_ms;
    uint64_t killed_ms; /* the last one */
    uint64_t back_ms;   /* likewise */
    uint64_t deadline_ms;
    uint64_t settled_ms; /* if nothing is missing until then, the next may die; 0: something is */
};

/* Thread: owned by the main thread of psd_run. */
struct watch {
    struct watch_config config;
    const struct watch_ops *ops;
    void *context;

    enum watch_phase phase;
    uint64_t deadline_ms; /* of the phase; UINT64_MAX: none */
    uint64_t timeout_ms;  /* of the job; UINT64_MAX: none */
    uint64_t joined_ms;   /* when the first worker joined; UINT64_MAX: none has */
    uint64_t late_ms;     /* when to tell who has not joined; UINT64_MAX: never */
    uint64_t absence_ms;  /* when to decide about workers that ended unjoined; UINT64_MAX: never */
    uint64_t save_until_ms; /* it was asked to stop, and saves first, until then; 0: it does not */
    int save_signal;        /* ... by this */
    uint64_t saved_step;    /* what came of it; 0: nothing */
    enum launch_role stopping;
    bool killed; /* WATCH_STOPPING: this role had its time */

    struct watch_slot *slots; /* owned; role.h gives the numbering */
    struct cause inquest;     /* what is known of failures */
    uint32_t workers_well;
    uint32_t workers_failed; /* for good: not those that were restarted */
    uint32_t failed_first;   /* slot of the first of them; 0: none */
    bool master_left;        /* with code 0: every worker had said done */
    uint32_t service_left;   /* slot of a service that left with 0 while its job goes on ... */
    uint64_t service_left_deadline_ms; /* ... which has to end by then; UINT64_MAX: none left */
    struct watch_rolling rolling;
    uint64_t woke_ms; /* psd_run itself had been stopped until then; 0: it never was */

    enum watch_cause cause;
    uint32_t cause_slot;
    bool cause_before; /* it was the life of cause_slot before the one that there is now */
    int cause_code;    /* exit code of psd_run, 0 while all is well */
};

struct watch_slot {
    bool ordered; /* start() was called */
    bool started;
    bool alive;
    bool joined;            /* not the master: became a member of the job, in any of its lives */
    bool ended;             /* a worker: for good */
    bool asked;             /* the job was being stopped when it ended */
    bool away;              /* its machine was lost and may come back ... */
    uint64_t away_until_ms; /* ... until then */
    uint64_t doomed_ms;     /* it counts as dead: when to kill it; 0: never */
    uint64_t word_ms;       /* a server that ended: the master says what that means; 0: it has */
    bool makes_room;        /* a silent server or master, killed for another life of it */
    bool is_spare;          /* the master: in a life that nobody needs */
    bool is_missing;        /* the master waits for another life of it, and none has joined */
    bool is_left;           /* ... but it has died too often: another server may take its part */
    bool is_hosted;         /* another server has its part: no life of this one is wanted */
    bool is_copied;         /* its copy has its part, or had it: it may only stand by */
    bool is_added;          /* a worker that came while the job ran: nobody waits for it */
    bool counts;            /* ... in a step, and those behind it */
    bool is_leaving;        /* a worker that was asked to leave: doomed_ms is its time for that; a
                               server whose places move to the others first */
    bool is_scaled;         /* a server that came, or left, while the job ran ... */
    bool has_left;          /* ... because it was asked to, and had nothing any more */
    bool is_rolled;         /* killed because it is to be restarted: that is no failure */
    uint64_t life;          /* of a server that joined: the number that its process drew */
    uint64_t last_life;     /* ... and that of the last one that ended; 0: none has */
    uint64_t
        crossed[PSI_TIDING_LANES]; /* a server, by lane: the last number of a copy that takes the
                                           place no more */
    bool is_placed;                /* a server: the master has told who has its part: */
    struct psi_tiding_place place;
    uint32_t restarts;
    uint32_t hasty;      /* of them, the last ones that followed upon short lives */
    uint64_t start_ms;   /* when its last life began */
    uint64_t end_ms;     /* ... and ended, unless it is alive */
    uint64_t restart_ms; /* when the next is due; 0: none is */
    uint32_t delay_ms;   /* of the last restart */
    int code;
    int signal;
};

#endif
