/*
 * start.c - how long a job takes from its command to its first barrier.
 *
 * psd_run starts a master, a server and the workers, which join and meet. The clock stops when the
 * last of them has passed. What ends the job is not in the time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "start.h"

#include <stdio.h>

#include "base/fail.h"
#include "job.h"
#include "progress.h"
#include "timer.h"

/* Thread: owned by the runner. */
struct starts {
    uint32_t workers;
    uint32_t repeat;
    double seconds[RESULT_REPEAT_MAX];
};

static psd_status
start_once(uint32_t workers, double *seconds_p, struct psd_error *err)
{
    const struct job_args args = {.workers = workers, .servers = 1};
    const struct team_order order = {.verb = TEAM_MEET};
    const uint64_t began_ns = timer_now_ns();
    struct team_times times;
    struct group group;
    psd_status status = job_start(&args, &group, err);

    if (status != PSD_OK) {
        return status;
    }
    status = team_command(&group.team, &order, &times, err);
    *seconds_p = (double)(timer_now_ns() - began_ns) / 1e9;
    if (status != PSD_OK) {
        group_abandon(&group);
        return status;
    }
    return group_end(&group, err);
}

static void
print(struct starts *starts)
{
    const double middle = timer_median(starts->seconds, starts->repeat); /* sorts them */

    printf("| %u | %.2f | %.2f-%.2f |\n", starts->workers, middle, starts->seconds[0],
           starts->seconds[starts->repeat - 1]);
    fflush(stdout);
}

static psd_status
measure(const struct bench_options *options, uint32_t workers, struct psd_error *err)
{
    struct starts starts = {.workers = workers, .repeat = options->repeat};
    psd_status status = PSD_OK;
    char line[80];

    for (uint32_t run = 0; run < starts.repeat && status == PSD_OK; run++) {
        snprintf(line, sizeof(line), "%u workers, run %u of %u", workers, run + 1, starts.repeat);
        progress_say(line);
        status = start_once(workers, &starts.seconds[run], err);
    }
    progress_clear();
    if (status == PSD_OK) {
        print(&starts);
    }
    return status;
}

psd_status
start_run(const struct bench_options *options, struct psd_error *err)
{
    static const uint32_t counts[] = {1, 4, 16, 64, 256};
    const size_t most = options->quick ? 2 : sizeof(counts) / sizeof(counts[0]);
    struct timer_load load;
    psd_status status = PSD_OK;
    double foreign;

    timer_load_begin(&load);
    printf("### from psd_run to the first barrier: workers in C and 1 server on this host\n\n"
           "| workers | seconds, median of %u | fastest-slowest |\n|---:|---:|---:|\n",
           options->repeat);
    for (size_t i = 0; i < most && status == PSD_OK; i++) {
        status = measure(options, counts[i], err);
    }
    foreign = timer_load_foreign(&load);
    printf("\nother programs kept %.2f cores busy meanwhile%s\n", foreign,
           foreign < 0.1 ? "" : ": repeat it on an idle machine");
    return status;
}
