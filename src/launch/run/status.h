/*
 * status.h - how the job is doing, as its master tells it: the line at the bottom of a terminal.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef LAUNCH_STATUS_H
#define LAUNCH_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>

#include <psd/psd.h>

#include "client/api/observer.h"

struct feed;

enum { STATUS_NODES_MAX = 4096 };

/* What the nodes say, in a few numbers. */
struct status_figures {
    uint32_t workers_running;
    uint32_t workers_done;
    bool has_step;      /* else nobody who runs has told it */
    uint64_t step;      /* of the slowest running worker */
    double steps_per_s; /* measured between two tables; < 0: not yet */
    char value_name[32];
    double value; /* of the lowest rank that reported one */
};

/* Thread: from known_ns on guarded by mutex; the rest immutable while the thread runs. */
struct status {
    bool started;
    struct psi_observer *observer; /* owned */
    struct psi_watcher watcher;    /* what it tells of metrics ... */
    struct feed *feed;             /* ... to this one; NULL: nobody wants to know */
    uint32_t every_ms;
    pthread_t thread;
    pthread_mutex_t mutex;
    uint64_t known_ns; /* when the last table came; 0: none yet */
    uint64_t heard_ns; /* ... or anything else */
    struct status_figures figures;
    struct psd_node *nodes; /* owned: of that table */
    size_t node_count;
    uint32_t readers;  /* likewise */
    char trouble[160]; /* why no more of them will come; "": they will */
};

/* Has the master tell, every so often; a thread of its own listens, and tells the feed (optional;
 * borrowed until status_stop()). */
bool status_start(struct status *status, const char *master_address, uint32_t every_ms,
                  struct feed *feed);
void status_stop(struct status *status);

/* Another life of the master is elsewhere: listens there from now on. What was told stays known. */
void status_move(struct status *status, const char *master_address);

/* The master has ended: waits until all that it said is heard, a moment at most. */
void status_hear_out(struct status *status);

/* Asks once more, now, and waits for the answer, a moment: soon there may be nobody to ask. */
void status_refresh(struct status *status);

/* How long ago the master said anything; 0: it has not told of the nodes yet, or never will. */
uint64_t status_silence_ms(struct status *status);

/* The master's last answer: at most `capacity` nodes. Returns how many. */
size_t status_nodes(struct status *status, struct psd_node *nodes_p, size_t capacity);

/* ... and how many readers the job had. */
uint32_t status_readers(struct status *status);

/* What the line needs besides. */
struct status_line {
    uint64_t elapsed_ms;
    uint32_t workers;    /* of the job */
    const char *waiting; /* who is waited for, in a few words; "": nobody */
    size_t columns;      /* that there is room for */
};

/* The line: "12 s  workers 2/2  step 140  35.1 steps/s  loss 0.1234  waiting for worker 1 (61 %)". Where there is
 * no room for all of it, it does without some numbers: who is waited for stays. When the master tells nothing any
 * more, it says why. */
void status_text(struct status *status, const struct status_line *line, char *text_p, size_t size);

/* Pure: a master that was started again does not know where workers are before they have told it. Of those that
 * `before` has in the same life, what that says stays true. */
void status_fill(struct psd_node *nodes, size_t count, const struct psd_node *before,
                 size_t before_count);

/* Pure: the numbers behind the line, save the rate, which is measured. */
void status_sum(const struct psd_node *nodes, size_t count, struct status_figures *figures_p);

#endif
