/*
 * feed_state.h - the inside of a feed. For src/launch/page only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_PAGE_FEED_STATE_H
#define LAUNCH_PAGE_FEED_STATE_H

#include <pthread.h>

#include "launch/page/curves.h"
#include "launch/page/feed.h"
#include "launch/page/kept_spans.h"
#include "launch/page/waits.h"

enum {
    FEED_TEXT_BYTES = 1024,
    FEED_NAME_BYTES = 32,
    FEED_HOST_BYTES = 128,
    FEED_LOGS_MAX = 5000,
    FEED_LOG_BYTES_MAX = 4 << 20, /* of all lines together */
    FEED_LINE_BYTES_MAX = 2048,   /* the rest of a longer one is in its log */
    FEED_EVENTS_MAX = 1000,
    FEED_TABLES_MAX = 1024,
};

/* One lane of a server, or a worker, or the master. */
struct feed_counts {
    uint64_t value[PSI_METRICS];
    uint64_t told_ms;  /* on the monotonic clock; 0: never */
    bool has_rates;    /* it has told twice: what follows is known */
    uint64_t apply_us; /* a lane: adding, for a step */
    uint64_t step;     /* the job's, at the last telling */
    double cpu;        /* cores in use */
    double asleep;     /* 0 to 1: of the time between the last two tellings */
    double in_bytes_s; /* gradients that came, in a second */
    uint32_t waited;   /* a lane: for whom its rounds waited */
    struct psi_waited wait[PSI_WAITED_MAX];
};

struct feed_member {
    bool known;
    char name[FEED_NAME_BYTES];
    psd_role role;
    uint32_t index;
    char host[FEED_HOST_BYTES];
    uint32_t machine; /* the same for those with one clock */
    int64_t pid;
    enum feed_state state;
    uint64_t step;
    uint64_t lag; /* a worker: behind the furthest, by what was known when it last told of itself */
    uint64_t told_ms; /* ... which was then; 0: never */
    double rate;
    char value_name[FEED_NAME_BYTES]; /* of the table of nodes; "": none */
    double value;
    struct feed_counts *counts; /* owned; one, or one for each lane of a server */
    uint32_t count;
    uint32_t servers; /* a worker: traffic with each */
    struct psi_traffic server[PSI_TRAFFIC_MAX];
    uint32_t tables; /* ... and of each table */
    struct psi_traffic table[PSI_TRAFFIC_MAX];
};

struct feed_line {
    uint64_t number; /* from 1 */
    uint64_t at_ms;
    char process[FEED_NAME_BYTES];
    bool is_error;
    char *text; /* owned */
    size_t bytes;
};

struct feed_happening {
    uint64_t number; /* from 1 */
    uint64_t at_ms;
    enum feed_kind kind;
    char text[FEED_TEXT_BYTES / 2];
};

struct feed_shown_table {
    uint32_t id;
    char name[PSD_NAME_MAX + 1];
    uint64_t bytes;
    uint64_t chunks;
    psd_rule rule;
    bool sums; /* no rule: workers get the sum */
    uint32_t staleness;
    uint32_t *places; /* owned; chunks on each server */
    uint32_t servers;
};

struct feed {
    pthread_mutex_t lock; /* guards all below */
    char *name;           /* owned, as are the next three */
    char *id;
    char *command;
    char *log_directory;
    uint64_t started_unix_ms;
    uint64_t begun_ms; /* on the monotonic clock */
    uint64_t ended_ms; /* since then; 0: it has not */
    uint32_t workers;
    uint32_t servers;
    enum feed_phase phase;
    char survived[128];              /* "2 fail-overs"; "": nothing */
    char load_host[FEED_HOST_BYTES]; /* "": of no machine it is known ... */
    double load;                     /* ... how many want to run there */
    uint32_t load_cores;

    bool has_cause;
    char cause[FEED_TEXT_BYTES];
    char cause_process[FEED_NAME_BYTES];
    int cause_code;
    bool cause_is_stop; /* somebody wanted the job to end */
    uint64_t cause_ms;

    uint32_t slots;
    struct feed_member *members; /* owned; by slot */
    struct curves curves;
    struct waits waits;
    struct kept_spans spans;
    struct feed_shown_table *tables; /* owned */
    uint32_t table_count;

    uint64_t line_number;
    struct feed_line *lines; /* owned; [number % FEED_LOGS_MAX] */
    uint64_t first_line;
    size_t line_bytes;
    uint64_t event_number;
    struct feed_happening *events; /* owned; [number % FEED_EVENTS_MAX] */
};

/* Since the job began; up to its end. */
uint64_t feed_elapsed_ms(const struct feed *feed);

/* The sum over the lanes of a server; of the others their own. */
uint64_t feed_metric(const struct feed_member *member, enum psi_metric metric);

/* Bytes of a table: what came to it from all workers, and what they got. */
struct psi_traffic feed_table_traffic(const struct feed *feed, uint32_t id);

/* How long a server's rounds lacked the gradient of one worker alone, by rank. */
void feed_waited(const struct feed_member *server, uint64_t ns_p[PSI_RANKS_MAX]);

struct feed_member *feed_member_of(struct feed *feed, psd_role role, uint32_t index);

/* With the lock held: the furthest that a worker expects to go. */
uint64_t feed_expected(const struct feed *feed);

/* feed_words.c; with the lock held. Do clearly more processes want to run on psd_run's machine than can? */
bool feed_is_crowded(const struct feed *feed);
void feed_say(const struct feed *feed, char *text_p, size_t size);

/* Who was waited for in all steps of the job: "over 9000 steps: ...". */
void feed_say_whole(const struct feed *feed, char *text_p, size_t size);

/* The same in one short sentence, for the end: whoever stood out. "" if that is nobody. */
void feed_say_verdict(const struct feed *feed, char *text_p, size_t size);

/* Who is waited for now, in the last steps: one that stands out. False: nobody. */
bool feed_waited_for(const struct feed *feed, psd_role *role_p, uint32_t *index_p, double *share_p);

#endif
