/*
 * main.c - psd_sim: whole jobs in virtual time, seed after seed, until a promise is broken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <psd/psd.h>

#include "base/monotonic.h"
#include "faults.h"
#include "job.h"
#include "plan_file.h"
#include "worker.h"

enum { LIVENESS_S = 150 }; /* after the last fault */

static const char usage[] =
    "psd_sim - whole jobs (master, servers, workers) in virtual time, with faults\n"
    "\n"
    "usage: psd_sim --seeds N [--first K]   run seeds K .. K + N - 1 (K: 1), stop at a failure\n"
    "       psd_sim --seed N [--trace]      run one seed; --trace prints every event\n"
    "       psd_sim --dump-plan N           print what was drawn for a seed, to be kept\n"
    "       psd_sim --plan FILE [--trace]   run a job that was kept\n"
    "               [--seeds N] [--first K] the same job with other fortunes: N seeds from K on\n"
    "                                       (K: the seed of the plan), and what happened in them\n"
    "       psd_sim -h | --version\n"
    "\n"
    "Everything in a run follows from its seed: the shape of the job, what its workers do, "
    "delays,\n"
    "cuts, pauses, deaths. A run fails when a bit of a model differs from the sequential model, a\n"
    "push counts twice or not at all, an operation outlives its deadline, the job does not finish\n"
    "once faults have stopped, an exit code or message is not the documented one, or memory or a\n"
    "connection is left behind. The same seed gives the same run and the same hash.\n"
    "\n"
    "The cores are the object files of ps_master, ps_server and libpsd; time, network and\n"
    "processes are simulated.\n"
    "\n"
    "example: psd_sim --seeds 2000\n"
    "exit code: 0 all seeds passed, 1 a seed failed, 2 bad usage or a plan that cannot be read\n";

struct options {
    uint64_t first;
    bool has_first;
    uint64_t count;
    const char *plan; /* a file; NULL: seeds */
    bool single;
    bool counted; /* what happened in all of them is shown */
    bool dump;
    bool trace;
};

/* What a run gave. The numbers of several runs are added up. */
struct outcome {
    struct sim_counters total;
    uint64_t virtual_ns;
    uint64_t hash;     /* of the last run */
    char failure[512]; /* likewise */
};

static void
tick_second(void *object, uint64_t argument)
{
    struct job *job = object;

    (void)argument;
    for (uint32_t i = 0; i < job->plan.workers; i++) {
        worker_check_deadlines(job->worker[i]);
    }
    sim_at(job->sim, job->sim->now_ns + SIM_S, tick_second, job, 0);
}

static void
describe_stuck(const struct job *job, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (const struct node *node = job->net.nodes; node != NULL && used + 64 < size;
         node = node->next) {
        const bool works = node->keeps_neighbours;

        if (node->alive) {
            used += (size_t)snprintf(text + used, size - used, "%s %s%s%s", used > 0 ? "," : "",
                                     node->name, works ? " " : "",
                                     works ? worker_phase(node->owner) : "");
        }
    }
}

/*
 * Servers of a sum table hold no weights: when every worker has died or been given up at least
 * once, nobody may be left who has them, and replacements, or those who join, ask each other in vain. psd_state_fetch()
 * then ends with its deadline, and the user goes on from a file.
 */
static bool
weights_may_be_lost(const struct job *job)
{
    bool sums = false;

    for (uint32_t i = 0; i < job->plan.table_count; i++) {
        sums = sums || job->plan.table[i].use == PSD_USE_SUM;
    }
    if (plan_is_elastic(&job->plan)) {
        return sums && job->rank_lost[0]; /* who never leaves early */
    }
    for (uint32_t rank = 0; rank < job->plan.workers; rank++) {
        sums = sums && job->rank_lost[rank];
    }
    return sums && job->plan.policy == PSI_DEATH_WAIT;
}

/* Runs one job to its end. */
static bool
run_plan(const struct plan *plan, bool trace, struct outcome *outcome)
{
    struct sim sim;
    struct job job;
    char stuck[400];

    sim_init(&sim, plan->seed, trace);
    if (trace) {
        plan_print(plan);
    }
    job_start(&job, &sim, plan);
    faults_schedule(&job);
    sim_at(&sim, SIM_S, tick_second, &job, 0);
    while (!sim.failed && !job_over(&job) && sim_step(&sim)) {
        if (model_is_forgotten(job.model)) {
            sim.counters.jobs_failed++;
            break;
        }
        if (sim.now_ns > job.last_fault_ns + LIVENESS_S * SIM_S) {
            if (weights_may_be_lost(&job)) {
                sim.counters.jobs_failed++;
                break;
            }
            describe_stuck(&job, stuck, sizeof(stuck));
            sim_fail(&sim, "not finished %d s after the last fault; still there:%s", LIVENESS_S,
                     stuck);
        }
    }
    if (!sim.failed && job_over(&job)) {
        job_judge(&job);
    }
    job_stop(&job);
    for (size_t i = 0; i < sizeof(outcome->total) / sizeof(uint64_t); i++) {
        ((uint64_t *)&outcome->total)[i] += ((const uint64_t *)&sim.counters)[i];
    }
    outcome->virtual_ns += sim.now_ns;
    outcome->hash = sim.hash;
    memcpy(outcome->failure, sim.failure, sizeof(sim.failure));
    sim_fini(&sim);
    return !sim.failed;
}

static double
seconds(void)
{
    return (double)psi_monotonic_ns() / 1e9;
}

static void
print_summary(const struct outcome *outcome, uint64_t seeds, double elapsed)
{
    printf("%llu seeds in %.1f s (%.0f a second), %.0f virtual seconds\n",
           (unsigned long long)seeds, elapsed, (double)seeds / elapsed,
           (double)outcome->virtual_ns / 1e9);
#define PRINT_COUNTER(name)                                                                        \
    printf("  %-16s %llu\n", #name, (unsigned long long)outcome->total.name);
    SIM_COUNTER_MAP(PRINT_COUNTER)
#undef PRINT_COUNTER
}

static void
print_passed(const char *what, const char *which, const struct outcome *outcome)
{
    printf("%s %s passed, hash %016llx, %.3f virtual seconds\n", what, which,
           (unsigned long long)outcome->hash, (double)outcome->virtual_ns / 1e9);
}

static int
run_many(const struct options *options)
{
    const bool terminal = isatty(STDOUT_FILENO) != 0;
    const double start = seconds();
    struct outcome outcome = {{0}};
    double shown = start;
    struct plan plan;
    char number[24] = "";

    for (uint64_t i = 0; i < options->count; i++) {
        plan_make(&plan, options->first + i);
        snprintf(number, sizeof(number), "%llu", (unsigned long long)plan.seed);
        if (!run_plan(&plan, options->trace, &outcome)) {
            printf("%sseed %s failed: %s\nreplay: psd_sim --seed %s --trace\n",
                   terminal ? "\r\033[K" : "", number, outcome.failure, number);
            return 1;
        }
        if (terminal && seconds() - shown >= 1) {
            shown = seconds();
            printf("\r\033[K%llu of %llu seeds, %.0f a second", (unsigned long long)(i + 1),
                   (unsigned long long)options->count, (double)(i + 1) / (shown - start));
            fflush(stdout);
        }
    }
    if (terminal) {
        printf("\r\033[K");
    }
    if (options->single) {
        print_passed("seed", number, &outcome);
    } else {
        print_summary(&outcome, options->count, seconds() - start);
    }
    return 0;
}

static int
dump_plan(uint64_t seed)
{
    struct plan plan;

    plan_make(&plan, seed);
    plan_write(&plan, stdout);
    return 0;
}

static int
run_kept(const struct options *options)
{
    const double start = seconds();
    struct outcome outcome = {{0}};
    struct plan plan;
    char text[512];

    if (!plan_read(&plan, options->plan, text, sizeof(text))) {
        fprintf(stderr, "psd_sim: %s\n", text);
        return 2;
    }
    if (options->has_first) {
        plan.seed = options->first;
    }
    for (uint64_t i = 0; i < options->count; i++) {
        if (!run_plan(&plan, options->trace, &outcome)) {
            printf("plan %s failed: %s\nreplay: psd_sim --plan %s --first %llu --trace\n",
                   options->plan, outcome.failure, options->plan, (unsigned long long)plan.seed);
            return 1;
        }
        plan.seed++;
    }
    if (!options->counted) {
        print_passed("plan", options->plan, &outcome);
    } else {
        print_summary(&outcome, options->count, seconds() - start);
    }
    return 0;
}

static bool
parse_number(const char *text, uint64_t *number_p)
{
    char *end;

    errno = 0;
    *number_p = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

static bool
parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.first = 1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0) {
            options->trace = true;
        } else if (i + 1 == argc) {
            return false;
        } else if (strcmp(argv[i], "--plan") == 0) {
            options->plan = argv[++i];
        } else if (strcmp(argv[i], "--seed") == 0 || strcmp(argv[i], "--dump-plan") == 0) {
            options->single = true;
            options->dump = strcmp(argv[i], "--dump-plan") == 0;
            options->count = 1;
            if (!parse_number(argv[++i], &options->first)) {
                return false;
            }
        } else if (strcmp(argv[i], "--seeds") == 0) {
            options->counted = true;
            if (!parse_number(argv[++i], &options->count)) {
                return false;
            }
        } else if (strcmp(argv[i], "--first") == 0) {
            options->has_first = true;
            if (!parse_number(argv[++i], &options->first)) {
                return false;
            }
        } else {
            return false;
        }
    }
    if (options->plan != NULL && options->count == 0) {
        options->count = 1;
    }
    return options->count > 0 && (options->plan == NULL || !options->single);
}

int
main(int argc, char **argv)
{
    struct options options;

    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("psd_sim %s\n", psd_version());
        return 0;
    }
    if (!parse(argc, argv, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    if (options.dump) {
        return dump_plan(options.first);
    }
    return options.plan != NULL ? run_kept(&options) : run_many(&options);
}
