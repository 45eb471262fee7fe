/*
 * runner.c - measures what the plan says and reports it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "runner.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "cast.h"
#include "contest.h"
#include "lines.h"
#include "plan.h"
#include "progress.h"
#include "report.h"
#include "targets.h"
#include "timer.h"

enum { CONTESTANTS_MAX = 2 * ENTRANTS };

/* Thread: owned by the main thread. */
struct runner {
    const struct bench_options *options;
    struct results results;
    FILE *lines;
};

/* ---- One size ---- */

static psd_status
enter(struct runner *runner, struct crew *crew, const struct situation *situation,
      enum entrant entrant, enum entrant_timing timing, struct contestant *contestant_p)
{
    const struct entrant_about *about = entrant_about(entrant);
    struct result *result = results_add(&runner->results, situation, entrant, timing);

    if (result == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    *contestant_p = (struct contestant){
        .crew = crew,
        .order = {.verb = about->urgent ? CREW_URGENT : CREW_RUN,
                  .flags = about->flags | (timing == TIMING_TOUCH ? CREW_TOUCH : 0),
                  .bytes = situation->bytes},
        .result = result,
    };
    return PSD_OK;
}

/* Everybody who is there, in each way it is timed. */
static psd_status
enter_all(struct runner *runner, struct cast *cast, const struct situation *situation,
          struct contestant *contestants, size_t *count_p, struct psd_error *err)
{
    static const enum entrant_timing timings[] = {TIMING_TOUCH, TIMING_CALL};
    psd_status status = PSD_OK;

    for (enum entrant entrant = 1; entrant < ENTRANTS; entrant++) {
        struct crew *crew = cast_crew(cast, entrant);

        for (size_t i = 0; crew != NULL && i < 2 && status == PSD_OK; i++) {
            if ((entrant_about(entrant)->timings & timings[i]) != 0 &&
                entrant_takes(entrant, situation->bytes)) {
                status =
                    enter(runner, crew, situation, entrant, timings[i], &contestants[(*count_p)++]);
            }
        }
    }
    return status == PSD_OK ? status : psi_fail(err, status, "no room for one more result");
}

static psd_status
measure_size(struct runner *runner, struct cast *cast, uint64_t bytes, struct psd_error *err)
{
    const struct plan_row *row = cast->row;
    const struct situation situation = {row->transport, row->workers, row->servers, bytes};
    const struct contest_rules rules = {.seconds = runner->options->seconds,
                                        .repeat = runner->options->repeat};
    struct contestant contestants[CONTESTANTS_MAX];
    size_t count = 0;
    psd_status status = cast_start_ceilings(cast, bytes, err);

    if (status == PSD_OK) {
        status = enter_all(runner, cast, &situation, contestants, &count, err);
    }
    if (status == PSD_OK) {
        status = contest_run(contestants, count, &rules, err);
    }
    cast_stop_ceilings(cast);
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
    struct cast cast;
    psd_status status;
    char line[80];

    snprintf(line, sizeof(line), "%s, %u workers, %u servers", transport_name(row->transport),
             row->workers, row->servers);
    progress_say(line);
    status = cast_start(row, runner->options->launch, &cast, err);
    if (status != PSD_OK) {
        return status;
    }
    progress_clear();
    report_heading(stdout, &situation);
    for (size_t i = 0; i < row->sizes.count && status == PSD_OK; i++) {
        status = measure_size(runner, &cast, row->sizes.bytes[i], err);
    }
    if (status != PSD_OK) {
        cast_abandon(&cast);
        return status;
    }
    return cast_end(&cast, err);
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
    status = measure_all(&runner, err);
    results_fini(&runner.results);
    closed = lines_close(runner.lines, options->json, status == PSD_OK ? err : NULL);
    if (status == PSD_OK && closed == PSD_OK && options->json != NULL) {
        printf("\nresults: %s\n", options->json);
    }
    return status != PSD_OK ? status : closed;
}
