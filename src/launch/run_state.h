/*
 * run_state.h - what psd_run knows while a job runs. For run.c, which changes it, and report.c,
 * which tells it.
 */
#ifndef LAUNCH_RUN_STATE_H
#define LAUNCH_RUN_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/agent.h"
#include "launch/console.h"
#include "launch/output.h"
#include "launch/plan.h"
#include "launch/runlog.h"
#include "launch/status.h"
#include "launch/watch.h"

struct process {
    char name[24];
    pid_t pid; /* of the last life; 0: never started */
    int error; /* errno of a start that failed */
    uint32_t restart;
    struct output *output; /* owned; NULL before the first start */
};

/* Thread: owned by the main thread of psd_run. */
struct run {
    const struct plan *plan;
    struct watch watch;
    struct agent agent;
    struct console console;
    struct runlog runlog;
    struct status status;
    char *directory; /* of the logs, owned */
    uint32_t slots;
    struct process *processes; /* owned, by slot */

    uint32_t *queue; /* slots to start: a ring of `slots` places */
    uint32_t queue_first;
    uint32_t queue_count;
    bool start_pending; /* the agent has not answered the last start */

    int epoll;
    int signals;
    int ready_fd;     /* -1: not open */
    char master[128]; /* address, "" before the master is ready */
    uint64_t begin_ms;
    uint64_t redraw_ms;
};

#endif
