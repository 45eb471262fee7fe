/*
 * run_state.h - what psd_run knows while a job runs. run.c changes it, with orders.c and
 * control.c; report.c and job_json.c tell it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_RUN_STATE_H
#define LAUNCH_RUN_STATE_H

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "launch/link/notes.h"
#include "launch/page/feed.h"
#include "launch/page/page.h"
#include "launch/plan/plan.h"
#include "launch/rules/watch.h"
#include "launch/run/gather.h"
#include "launch/run/run_args.h"
#include "launch/run/status.h"
#include "launch/tell/console.h"
#include "launch/tell/output.h"
#include "launch/tell/runlog.h"

struct process {
    char name[24];
    pid_t pid; /* of the last life, on its machine; 0: never started */
    int error; /* errno of a start that failed */
    uint32_t restart;
    uint32_t lanes;       /* of a server; 0: never started */
    uint32_t join_step;   /* of a worker that was added: asked for; 0: none */
    bool start_pending;   /* ordered, not answered */
    bool port_taken;      /* when its last life failed, somebody else had its port */
    uint64_t start_ms;    /* of the last life, on the clock of the wall; 0: never started */
    uint64_t end_ms;      /* 0: it lives */
    uint64_t counts_from; /* of a worker that joined: its first step; 0: it is not known yet */
    uint64_t left_at; /* ... that left or died: the first step after which all know; 0: likewise */
    uint64_t last_step;  /* of a worker that said done: the master's last word; else 0 */
    char *command;       /* owned: what it runs, masked; NULL before the first start */
    char *last_word;     /* owned: why it ends, by its own word (notes.h); NULL: it said nothing */
    bool told_last_word; /* on the console */
    struct output *output; /* owned; NULL before the first start */
};

enum { FAILOVER_WHY_MAX = 256 };

/* A server or the master died, and the job went on. */
struct failover {
    uint32_t slot;
    uint64_t lost_ms;
    uint64_t back_ms; /* 0: it is not */
    bool is_hosted;   /* what is back is its part, in another server */
    bool is_rolled;   /* it did not die, but was restarted on purpose */
    const char *to;   /* the machine on which it was started; NULL: that on which it was */
    char why[FAILOVER_WHY_MAX];
};

/* A lane of a server is in another process now. */
struct place_move {
    uint32_t server;
    uint32_t lane;
    uint32_t to; /* the index of that process */
    uint64_t bytes;
    uint64_t at_ms; /* on the clock of the wall */
};

/* Thread: owned by the main thread of psd_run. */
struct run {
    const struct run_args *args;
    const struct plan *plan;
    struct layout *layout; /* of its own: servers may move */
    struct layout places;  /* ... which is this */
    struct watch watch;
    struct gather gather;
    struct host *hosts; /* owned, by machine */
    struct console console;
    struct runlog runlog;
    struct status status;
    struct feed *feed; /* of args.shown: what those who watch are told; NULL: nothing */
    struct output_listener listener; /* of every process, for the feed */
    struct page *page;               /* of args.shown: where they watch; NULL: nowhere */
    uint64_t feeding_ms;             /* when it is looked at again what the feed is to tell */
    char *directory;                 /* of the logs; NULL with --check */
    uint32_t slots;
    struct process *processes; /* owned, by slot */

    int epoll;
    int signals;
    char master[128];                  /* address, "" before the master is ready */
    bool master_listens;               /* its last life has said where */
    bool master_moved;                 /* its next one is the first on its machine */
    char obstacle[512];                /* why the job could not start */
    char master_line[PSI_TIDING_LINE]; /* of what the master tells, not complete */
    size_t master_line_bytes;
    bool told_detached;
    struct sync sync; /* files for other machines */
    char here[4096];  /* directory in which psd_run was started */
    char logs[4096];  /* directory of the logs, absolute; "" with --check */
    char *peers;      /* owned: addresses of the workers; NULL before the first is started */
    char *host_map;   /* owned: addresses of all processes by name; likewise */
    struct psi_tf_config cluster; /* who of TensorFlow's tasks listens where; empty otherwise */
    bool checked;                 /* --check: every machine has answered */
    regex_t result_regex;
    const regex_t *wanted; /* NULL: no --result_regex */
    bool refreshed;        /* the master was asked a last time */
    char stopped_by[512];  /* "psd_run stop", if that asked first; "": it did not */
    bool ending;           /* end() was ordered */
    uint64_t end_ms;       /* when machines that have not ended by then are given up */
    uint64_t begin_ms;
    uint64_t redraw_ms;
    uint64_t pulse_ms;
    uint64_t doubt_ms; /* until then the master may break its silence; 0: it has said something */
    uint64_t tick_ms;  /* when args.tick is due */
    uint64_t began_wall_ms;
    uint64_t ended_wall_ms;
    struct failover *failovers; /* owned, in order of time */
    size_t failover_count;
    struct place_move *moves; /* owned, in order of time */
    size_t move_count;
    uint32_t servers_came; /* while the job ran */
    uint32_t servers_left;
    uint64_t server_lost_ms;       /* when the master last took one for lost */
    struct words rolling_lines;    /* told of servers that are restarted, for who asked for it */
    char note[NOTES_LINE_MAX + 1]; /* the last one that a worker told; "" if none */
    char result[256]; /* the last line that --result_regex found, with its worker; "" if none */
};

/* What an event of the loop is about: kind in the upper half of its data, machine in the lower. */
enum run_source { RUN_SIGNAL, RUN_LINE, RUN_UNSENT, RUN_STDERR, RUN_CONTROL, RUN_JOIN, RUN_PAGE };

/* ops: what carries the orders of watch.h out. */
psd_status run_init(struct run *run, const struct run_args *args, const struct watch_ops *ops,
                    struct psd_error *err);
void run_fini(struct run *run);

/* Says to every agent that we are here, and sends what could not be sent before. context: the run.
 */
void run_pulse(void *context);

void run_watch_line(struct run *run, struct host *host);
/* The loop turns the page, if there is one. */
void run_watch_page(struct run *run);
/* Before the job is ended: how far it came is known to the master alone. */
void run_ask_last(struct run *run);

void run_tell(struct run *run, enum watch_event_kind kind, uint32_t slot, int number);
struct host *run_host_of(struct run *run, uint32_t slot);

#endif
