/*
 * runner.c - measures what the plan says and reports it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "runner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "lines.h"
#include "measure.h"
#include "plan.h"
#include "processes.h"
#include "progress.h"
#include "report.h"
#include "sparse_store.h"
#include "targets.h"
#include "timer.h"

enum { MEASUREMENTS_MAX = 2 * SUBJECTS };

/* Thread: owned by the main thread. */
struct runner {
    const struct bench_options *options;
    struct results results;
    FILE *lines;
};

/* ---- One size ---- */

static psd_status
enter(struct runner *runner, struct team *team, const struct situation *situation,
      enum subject subject, enum subject_timing timing, struct measurement *measurement_p)
{
    const struct subject_about *about = subject_about(subject);
    struct result *result = results_add(&runner->results, situation, subject, timing);

    if (result == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    *measurement_p = (struct measurement){
        .team = team,
        .order = {.verb = about->urgent ? TEAM_URGENT : TEAM_RUN,
                  .flags = about->flags | (timing == TIMING_TOUCH ? TEAM_TOUCH : 0),
                  .bytes = situation->bytes},
        .result = result,
    };
    return PSD_OK;
}

/* Everybody who is there, in each way it is timed. */
static psd_status
enter_all(struct runner *runner, struct processes *processes, const struct situation *situation,
          struct measurement *measurements, size_t *count_p, struct psd_error *err)
{
    static const enum subject_timing timings[] = {TIMING_TOUCH, TIMING_CALL};
    psd_status status = PSD_OK;

    for (enum subject subject = 1; subject < SUBJECTS; subject++) {
        struct team *team = processes_team(processes, subject);

        for (size_t i = 0; team != NULL && i < 2 && status == PSD_OK; i++) {
            if ((subject_about(subject)->timings & timings[i]) != 0 &&
                subject_takes(subject, situation->bytes)) {
                status = enter(runner, team, situation, subject, timings[i],
                               &measurements[(*count_p)++]);
            }
        }
    }
    return status == PSD_OK ? status : psi_fail(err, status, "no room for one more result");
}

static psd_status
measure_size(struct runner *runner, struct processes *processes, uint64_t bytes,
             struct psd_error *err)
{
    const struct plan_row *row = processes->row;
    const struct situation situation = {row->transport, row->workers, row->servers, bytes};
    const struct measure_rules rules = {.seconds = runner->options->seconds,
                                        .repeat = runner->options->repeat};
    struct measurement measurements[MEASUREMENTS_MAX];
    size_t count = 0;
    psd_status status = processes_start_ceilings(processes, bytes, err);

    if (status == PSD_OK) {
        status = enter_all(runner, processes, &situation, measurements, &count, err);
    }
    if (status == PSD_OK) {
        status = measure_run(measurements, count, &rules, err);
    }
    processes_stop_ceilings(processes);
    progress_clear();
    if (status == PSD_OK) {
        report_situation(stdout, &runner->results, &situation);
        lines_write(runner->lines, &runner->results, &situation);
    }
    return status;
}

/* ---- One row of the plan ---- */

static psd_status
measure_row(struct runner *runner, const struct plan_row *row, struct psd_error *err)
{
    const struct situation situation = {row->transport, row->workers, row->servers, 0};
    struct processes processes;
    psd_status status;
    char line[80];

    snprintf(line, sizeof(line), "%s, %u workers, %u servers", transport_name(row->transport),
             row->workers, row->servers);
    progress_say(line);
    status = processes_start(row, runner->options->launch, &processes, err);
    if (status != PSD_OK) {
        return status;
    }
    progress_clear();
    report_heading(stdout, &situation);
    for (size_t i = 0; i < row->sizes.count && status == PSD_OK; i++) {
        status = measure_size(runner, &processes, row->sizes.bytes[i], err);
    }
    if (status != PSD_OK) {
        processes_abandon(&processes);
        return status;
    }
    return processes_end(&processes, err);
}

static psd_status
measure_all(struct runner *runner, struct psd_error *err)
{
    struct plan plan;
    struct timer_load load;
    psd_status status = PSD_OK;

    plan_make(runner->options, &plan);
    timer_load_begin(&load);
    report_legend(stdout, runner->options->repeat);
    for (size_t i = 0; i < plan.count && status == PSD_OK; i++) {
        status = measure_row(runner, &plan.rows[i], err);
    }
    if (status == PSD_OK) {
        report_workers(stdout, &runner->results);
        targets_print(stdout, &runner->results, runner->options->what == BENCH_SUITE);
        report_doubts(stdout, &runner->results, timer_load_foreign(&load));
    }
    return status;
}

psd_status
runner_run(const struct bench_options *options, struct psd_error *err)
{
    struct runner runner = {.options = options};
    psd_status status = lines_open(options->json, &runner.lines, err);
    psd_status closed;

    if (status != PSD_OK) {
        return status;
    }
    status = options->what == BENCH_SPARSE ? sparse_store_run(options, runner.lines, err)
                                           : measure_all(&runner, err);
    results_fini(&runner.results);
    closed = lines_close(runner.lines, options->json, status == PSD_OK ? err : NULL);
    if (status == PSD_OK && closed == PSD_OK && options->json != NULL) {
        printf("\nresults: %s\n", options->json);
    }
    return status != PSD_OK ? status : closed;
}
