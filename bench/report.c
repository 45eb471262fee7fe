/*
 * report.c - results as tables for people, in Markdown.
 *
 * Speed counts the tensor's bytes once per worker, though each moves twice: up as a gradient, down
 * as a value. A ratio of 1 is as good as the reference, more is better.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "report.h"

#include <string.h>

#define IDLE_CORES_MAX 0.05
#define IDLE_NS_MIN    0.2e9 /* less says nothing */

/* ---- Words ---- */

void
report_size(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    unsigned unit = 0;

    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, size, "%llu %s", (unsigned long long)bytes, units[unit]);
}

static const char *
timing_text(const struct result *result)
{
    return result->timing == TIMING_TOUCH ? "write, call, read" : "call";
}

/* ---- The tables of jobs ---- */

void
report_legend(FILE *file, uint32_t repeat)
{
    fprintf(
        file,
        "Medians of %u runs, taken in turn; all bits checked. us: one round; op/s: rounds of a\n"
        "second; p50, p90, p99: of single rounds, in us. GB/s: bytes of the tensor per worker, "
        "each\n"
        "moved up and down, with the slowest and the fastest run. CPU: seconds of all processes "
        "for\n"
        "a GB of one worker's tensor. ratio: to the reference, run by run; more is better; up to\n"
        "16 KiB by p50. Tuned peers have the congestion control that Poseidon chooses on "
        "loopback.\n",
        repeat);
}

void
report_heading(FILE *file, const struct situation *situation)
{
    fprintf(
        file,
        "\n### %s, %u worker%s, %u server%s\n\n"
        "| tensor | subject | timed | us | op/s | p50 | p90 | p99 | GB/s | min-max | CPU s/GB | "
        "ratio | to |\n"
        "|---:|:---|:---|---:|---:|---:|---:|---:|---:|---:|---:|---:|:---|\n",
        transport_name(situation->transport), situation->workers,
        situation->workers == 1 ? "" : "s", situation->servers, situation->servers == 1 ? "" : "s");
    fflush(file);
}

static void
print_speed(FILE *file, const struct result *result)
{
    const struct spread speed = result_speed(result);

    if (subject_about(result->subject)->urgent ||
        (subject_about(result->subject)->flags & TEAM_BACKWARD) != 0) {
        fprintf(file, " | | |"); /* a round trip or a rest, not a stream */
    } else {
        fprintf(file, " %.3g | %.3g-%.3g | %.2f |", speed.middle, speed.least, speed.most,
                result_cpu_s_per_gb(result));
    }
}

static void
print_row(FILE *file, const struct results *results, const struct result *result)
{
    const struct result *reference = results_reference(results, result);
    const uint32_t repeat = result->repeat;
    const double round_ns = result_spread(result->round_ns, repeat).middle;
    char size[32];

    report_size(result->situation.bytes, size, sizeof(size));
    fprintf(file, "| %s | %s%s | %s | %.1f | %.0f | %.1f | %.1f | %.1f |", size,
            subject_about(result->subject)->title, result_missed_shm(result) ? " (OVER TCP)" : "",
            timing_text(result), round_ns / 1e3, 1e9 / round_ns,
            result_spread(result->median_ns, repeat).middle / 1e3,
            result_spread(result->p90_ns, repeat).middle / 1e3,
            result_spread(result->p99_ns, repeat).middle / 1e3);
    print_speed(file, result);
    if (reference != NULL) {
        fprintf(file, " %.2f | %s |\n",
                result_ratio(result, reference, result_is_small(result)).middle,
                subject_about(reference->subject)->title);
    } else {
        fprintf(file, " | |\n");
    }
}

void
report_situation(FILE *file, const struct results *results, const struct situation *situation)
{
    for (size_t i = 0; i < results->count; i++) {
        if (result_is_of(results->list[i], situation)) {
            print_row(file, results, results->list[i]);
        }
    }
    fflush(file);
}

/* ---- What all of them say together ---- */

/* One size over one transport; heading: printed before the first row, then not again. */
static void
print_workers(FILE *file, const struct results *results, struct situation situation,
              const char **heading)
{
    double before_us = 0;
    char size[32];

    report_size(situation.bytes, size, sizeof(size));
    for (situation.workers = 1; situation.workers <= 4; situation.workers++) {
        const struct result *result =
            results_find(results, &situation, SUBJECT_IN_PLACE, TIMING_CALL);
        const double now_us =
            result == NULL ? 0 : result_spread(result->round_ns, result->repeat).middle / 1e3;

        if (now_us > 0 && before_us > 0) {
            fprintf(file, "%s| %s | %s | %u | %.1f | %+.1f | %.3g |\n", *heading,
                    transport_name(situation.transport), size, situation.workers, now_us,
                    now_us - before_us, result_speed(result).middle * situation.workers);
            *heading = "";
        }
        before_us = now_us;
    }
}

void
report_workers(FILE *file, const struct results *results)
{
    static const uint64_t sizes[] = {4096, 4 << 20};
    const char *heading =
        "\n### What one worker more costs: 1 server, push_pull in place, the call alone\n\n"
        "| transport | tensor | workers | us | more than with one less | GB/s of all |\n"
        "|:---|---:|---:|---:|---:|---:|\n";

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        print_workers(file, results, (struct situation){TRANSPORT_SHM, 0, 1, sizes[i]}, &heading);
        print_workers(file, results, (struct situation){TRANSPORT_TCP, 0, 1, sizes[i]}, &heading);
    }
}

/* Whether two results come from the same processes. */
static bool
share_team(const struct result *a, const struct result *b)
{
    const bool blocking = a->subject == SUBJECT_BLOCKING || b->subject == SUBJECT_BLOCKING;
    const bool jobs = subject_about(a->subject)->kind == KIND_POSEIDON &&
                      subject_about(b->subject)->kind == KIND_POSEIDON;

    return (a->subject == b->subject || (jobs && !blocking)) &&
           a->situation.transport == b->situation.transport &&
           a->situation.workers == b->situation.workers &&
           a->situation.servers == b->situation.servers;
}

/* Subjects that do not sleep take CPU time from the others: the comparison is void. */
static void
report_idle(FILE *file, const struct results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        const struct result *one = results->list[i];
        double idle_ns = 0;
        double cpu_ns = 0;
        bool first = true; /* of its processes */

        for (size_t j = 0; j < results->count; j++) {
            if (share_team(one, results->list[j])) {
                first = first && j >= i;
                idle_ns += results->list[j]->idle_ns;
                cpu_ns += results->list[j]->idle_cpu_ns;
            }
        }
        if (first && idle_ns > IDLE_NS_MIN && cpu_ns / idle_ns > IDLE_CORES_MAX) {
            fprintf(file,
                    "\nVOID: %s (%s, %u workers, %u servers) used %.2f cores while others were "
                    "measured, so\ntheir figures are too low\n",
                    subject_about(one->subject)->title, transport_name(one->situation.transport),
                    one->situation.workers, one->situation.servers, cpu_ns / idle_ns);
        }
    }
}

static void
report_missed_shm(FILE *file, const struct results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        if (result_missed_shm(results->list[i])) {
            fprintf(file, "\nOVER TCP: jobs that were to use shared memory did not: worker and "
                          "server may not share it here\n");
            return;
        }
    }
}

void
report_doubts(FILE *file, const struct results *results, double foreign_cores)
{
    report_missed_shm(file, results);
    report_idle(file, results);
    fprintf(file, "\nother programs kept %.2f cores busy meanwhile%s\n", foreign_cores,
            foreign_cores < 0.1 ? "" : ": repeat it on an idle machine");
}
