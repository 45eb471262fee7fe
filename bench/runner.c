/*
 * runner.c - measures: every shape of job, every size, Poseidon and the ceiling in turn.
 *
 * This machine's speed moves by a fifth within minutes, so the contestants take turns: one timed
 * run of each, then the next of each. While one runs, the others' processes sleep.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fail.h"
#include "ceiling.h"
#include "job.h"
#include "report.h"
#include "timer.h"
#include "tls_pair.h"

/* A contestant: a crew and the order it gets. */
struct contestant {
    const struct crew *crew;
    struct crew_order order;
};

static void
show_progress(const struct report_row *row)
{
    char size[32];

    if (isatty(STDERR_FILENO) != 0) {
        report_size(row->bytes, size, sizeof(size));
        fprintf(stderr, "\r\033[K%u workers, %u servers, %s ...", row->workers, row->servers, size);
    }
}

static void
clear_progress(void)
{
    if (isatty(STDERR_FILENO) != 0) {
        fprintf(stderr, "\r\033[K");
    }
}

/* Warms up, and finds how many rounds a timed run has. */
static psd_status
calibrate(struct contestant *contestant, uint64_t target_ns, struct psd_error *err)
{
    struct crew_order *order = &contestant->order;
    struct crew_times times = {0};
    psd_status status;

    order->verb = CREW_RUN;
    order->rounds = 1;
    status = crew_command(contestant->crew, order, &times, err); /* the first touch */
    times.elapsed_ns = 0;
    while (status == PSD_OK && times.elapsed_ns < target_ns / 8) {
        order->rounds *= 2;
        status = crew_command(contestant->crew, order, &times, err);
    }
    order->rounds = timer_rounds(target_ns, order->rounds, times.elapsed_ns);
    return status;
}

static psd_status
take_turns(struct contestant *contestants, const struct bench_options *options,
           struct report_row *row, struct psd_error *err)
{
    double times[REPORT_WAYS][BENCH_REPEAT_MAX];
    psd_status status = PSD_OK;

    for (int way = 0; way < REPORT_WAYS && status == PSD_OK; way++) {
        status = calibrate(&contestants[way], (uint64_t)(options->seconds * 1e9), err);
    }
    for (uint32_t i = 0; i < options->repeat; i++) {
        for (int way = 0; way < REPORT_WAYS && status == PSD_OK; way++) {
            const struct contestant *contestant = &contestants[way];
            struct crew_times took = {0};

            status = crew_command(contestant->crew, &contestant->order, &took, err);
            times[way][i] = (double)took.elapsed_ns / (double)contestant->order.rounds;
            if (way == REPORT_DEFAULT) { /* the ceiling ran before it */
                row->idle_ns += (double)took.idle_ns;
                row->idle_cpu_ns += (double)took.idle_cpu_ns;
            }
        }
    }
    for (int way = 0; way < REPORT_WAYS && status == PSD_OK; way++) {
        row->round_ns[way] = timer_median(times[way], options->repeat);
    }
    return status;
}

static psd_status
measure_size(const struct job *job, const struct bench_options *options, struct report_row *row,
             struct psd_error *err)
{
    const struct crew_order prepare = {.verb = CREW_PREPARE, .bytes = row->bytes};
    struct contestant contestants[REPORT_WAYS] = {
        [REPORT_DEFAULT] = {.crew = &job->crew},
        [REPORT_UNCHECKED] = {.crew = &job->crew, .order.unchecked = true},
    };
    struct ceiling ceiling;
    struct crew_times unused;
    psd_status status;

    show_progress(row);
    status = options->sealed ? tls_pair_start(row->bytes, &ceiling, err)
                             : ceiling_start(row->workers, row->servers, row->bytes, &ceiling, err);
    if (status != PSD_OK) {
        return status;
    }
    contestants[REPORT_RAW].crew = &ceiling.crew;
    status = crew_command(&job->crew, &prepare, &unused, err);
    if (status == PSD_OK) {
        status = take_turns(contestants, options, row, err);
    }
    ceiling_stop(&ceiling);
    clear_progress();
    return status;
}

static psd_status
measure_shape(const struct bench_options *options, const struct bench_shape *shape,
              struct report_row *rows, FILE *json, struct psd_error *err)
{
    struct job job;
    psd_status status = job_start(shape->workers, shape->servers, &job, err);

    if (status != PSD_OK) {
        return status;
    }
    for (size_t i = 0; i < options->size_count && status == PSD_OK; i++) {
        rows[i] = (struct report_row){
            .workers = shape->workers, .servers = shape->servers, .bytes = options->sizes[i]};
        status = measure_size(&job, options, &rows[i], err);
        if (status == PSD_OK) {
            report_print(stdout, &rows[i]);
            report_json(json, &rows[i], options->sealed);
        }
    }
    if (status != PSD_OK) {
        job_abandon(&job);
        return status;
    }
    return job_end(&job, err);
}

psd_status
runner_run(const struct bench_options *options, struct psd_error *err)
{
    struct report_row rows[BENCH_SHAPES_MAX * BENCH_SIZES_MAX];
    struct timer_load load;
    size_t count = 0;
    psd_status status;
    psd_status closed;
    FILE *json = NULL;

    status = report_open(options->json, &json, err);
    if (status != PSD_OK) {
        return status;
    }
    if (options->sealed && setenv("PSD_FORCE_TLS", "1", 1) != 0) {
        return psi_fail_errno(err, PSD_ERR_NO_MEMORY, "set PSD_FORCE_TLS");
    }
    timer_load_begin(&load);
    report_heading(stdout, options->repeat, options->sealed);
    for (size_t i = 0; i < options->shape_count && status == PSD_OK; i++) {
        status = measure_shape(options, &options->shapes[i], rows + count, json, err);
        count += status == PSD_OK ? options->size_count : 0;
    }
    report_summary(stdout, rows, count, options->sealed, timer_load_foreign(&load));
    closed = report_close(json, options->json, status == PSD_OK ? err : NULL);
    if (status == PSD_OK && closed == PSD_OK && options->json != NULL) {
        printf("\nresults: %s\n", options->json);
    }
    return status != PSD_OK ? status : closed;
}
