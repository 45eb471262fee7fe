/*
 * feed.h - what psd_run knows of a job, for those who watch it: the page, the report, /metrics,
 * `psd_run show --json`, `psd_run top`.
 *
 * psd_run tells (feed_phase to feed_told); readers ask for a snapshot as JSON: everything, or only
 * what is new since they last asked. docs/waiting.md describes the document. What is kept is
 * bounded: of logs, events and steps the last, of curves all, with fewer points as they get longer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_FEED_H
#define LAUNCH_PAGE_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <psd/psd.h>

#include "metric/metric.h"
#include "wire/message.h"

enum feed_phase { FEED_PHASE_STARTING, FEED_PHASE_RUNNING, FEED_PHASE_ENDING, FEED_PHASE_ENDED };

enum feed_state {
    FEED_STARTING,
    FEED_RUNNING,
    FEED_LOST,
    FEED_ENDED,
    FEED_FAILED,
};

enum feed_kind {
    FEED_START,
    FEED_LOSS,
    FEED_FAILOVER,
    FEED_CAUSE,
    FEED_END,
    FEED_NOTE,
};

/* All text is copied, here and below. */
struct feed_job {
    const char *name;
    const char *id;
    const char *command;
    const char *log_directory; /* "": none */
    uint64_t started_unix_ms;
    uint32_t workers;
    uint32_t servers;
};

struct feed_process {
    const char *name; /* "worker 3" */
    psd_role role;
    uint32_t index;
    const char *host;
    uint32_t machine; /* any number that is the same for processes with one clock */
    int64_t pid;      /* 0: not started yet */
    enum feed_state state;
};

/* Thread: any thread may make any call but create and destroy, at any time. */
struct feed;

struct feed *feed_create(const struct feed_job *job); /* NULL: no memory */
void feed_destroy(struct feed *feed);                 /* NULL is allowed */

/* The job is begun anew: curves, logs and events go on, of processes and tables nothing is known, and
 * the cause is but an event. Without memory for it, places that are new stay empty. */
void feed_again(struct feed *feed, uint32_t workers, uint32_t servers);

/* ---- telling ------------------------------------------------------------------------------- */

void feed_phase(struct feed *feed, enum feed_phase phase);

/* What the job has been through and goes on after, or has ended well after: "2 fail-overs"; "": nothing. */
void feed_survived(struct feed *feed, const char *text);

/* How many processes of a machine run or want to (its load), and how many cores they have. Of one
 * machine: the last that was told. */
void feed_load(struct feed *feed, const char *host, double load, uint32_t cores);

/* A process in its place (slot 0 is the master's, then the servers', then the workers'), or what
 * has become of it. */
void feed_process(struct feed *feed, uint32_t slot, const struct feed_process *process);

/* A line that a process printed, without its end. Anything may be in it. */
void feed_log(struct feed *feed, const char *process, bool is_error, const char *line,
              size_t bytes);

void feed_event(struct feed *feed, enum feed_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Why the job ends. Only the first counts. is_stop: somebody wanted it to. */
void feed_cause(struct feed *feed, const char *text, const char *process, int code, bool is_stop);

/* The master's table of nodes, a table of the job, and what one member has counted: role is enum
 * psi_role; lane only of a server. */
void feed_nodes(struct feed *feed, const struct psd_node *nodes, size_t count);
void feed_table(struct feed *feed, const struct psi_table_info *info);
void feed_told(struct feed *feed, uint8_t role, uint32_t rank, uint32_t lane,
               const struct psi_telling *telling);

/* ---- reading ------------------------------------------------------------------------------- */

/* What a reader has already: {0} is nothing. */
struct feed_since {
    uint64_t scalars;
    uint64_t waits;
    uint64_t logs;
    uint64_t events;
};

/* A snapshot; scalars, waits, logs and events only as far as they are new to this reader, of whom
 * is remembered what it has now; metrics to one who has nothing. free() it; NULL: no memory. */
char *feed_json(struct feed *feed, struct feed_since *since);

/* The text of Prometheus, for /metrics. free() it; NULL: no memory. */
char *feed_metrics(struct feed *feed);

/* The last steps of all workers as a timeline for Perfetto, JSON. free() it; NULL: no memory. */
char *feed_trace(struct feed *feed, uint32_t steps);

/* All curves: "worker,name,step,unix_ms,value" and a line for each point. False: it could not be
 * written. */
bool feed_csv(struct feed *feed, FILE *stream);

/* The step at which the job is expected to end, as its workers say; 0: they do not. */
uint64_t feed_steps_total(struct feed *feed);

/* The furthest step that a worker has told of; 0: none. */
uint64_t feed_furthest_step(struct feed *feed);

/* What the lanes that have a server's part have counted, all together; 0: nothing is known. */
uint64_t feed_server_metric(struct feed *feed, uint32_t server, enum psi_metric metric);

/* Who is waited for, in one sentence: "step 812: 61 % of the time everybody waited for worker 3 on
 * node7, which computed 2.1x as long as the median"; "" while too little is known. */
void feed_sentence(struct feed *feed, char *text_p, size_t size);

/* The same in a few words, for the status line: "waiting for worker 3 (61 %)"; "" if for nobody. */
void feed_waiting(struct feed *feed, char *text_p, size_t size);

#endif
