/*
 * main.c - psd_sim: whole jobs in virtual time, seed after seed, until a promise is broken.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <psd/psd.h>

#include "faults.h"
#include "job.h"
#include "worker.h"

enum { LIVENESS_S = 150 }; /* after the last fault */

static const char usage[] =
    "psd_sim - whole jobs (master, servers, workers) in virtual time, with faults\n"
    "\n"
    "usage: psd_sim --seeds N [--first K]   run seeds K .. K + N - 1 (K: 1), stop at a failure\n"
    "       psd_sim --seed N [--trace]      run one seed; --trace prints every event\n"
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
    "exit code: 0 all seeds passed, 1 a seed failed, 2 bad usage\n";

struct options {
    uint64_t first;
    uint64_t count;
    bool single;
    bool trace;
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
    for (const struct node *node = job->net.nodes; node != NULL && used + 32 < size;
         node = node->next) {
        if (node->alive) {
            used += (size_t)snprintf(text + used, size - used, " %s", node->name);
        }
    }
}

/*
 * Servers of a sum table hold no weights: when every worker has died or been given up at least
 * once, nobody may be left who has them, and replacements ask each other in vain. psd_state_fetch()
 * then ends with its deadline, and the user goes on from a file.
 */
static bool
weights_may_be_lost(const struct job *job)
{
    bool sums = false;

    for (uint32_t i = 0; i < job->plan.table_count; i++) {
        sums = sums || job->plan.table[i].use == PSD_USE_SUM;
    }
    for (uint32_t rank = 0; rank < job->plan.workers; rank++) {
        sums = sums && job->rank_lost[rank];
    }
    return sums && job->plan.policy == PSI_DEATH_WAIT;
}

/* Runs one seed to its end. The counters are added to *total. */
static bool
run_seed(uint64_t seed, bool trace, struct sim_counters *total, uint64_t *virtual_ns,
         char failure[512], uint64_t *hash_p)
{
    struct sim sim;
    struct job job;
    struct plan plan;
    char stuck[256];

    sim_init(&sim, seed, trace);
    plan_make(&plan, seed);
    if (trace) {
        plan_print(&plan);
    }
    job_start(&job, &sim, &plan);
    faults_schedule(&job);
    sim_at(&sim, SIM_S, tick_second, &job, 0);
    while (!sim.failed && !job_over(&job) && sim_step(&sim)) {
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
    for (size_t i = 0; i < sizeof(*total) / sizeof(uint64_t); i++) {
        ((uint64_t *)total)[i] += ((const uint64_t *)&sim.counters)[i];
    }
    *virtual_ns += sim.now_ns;
    *hash_p = sim.hash;
    memcpy(failure, sim.failure, sizeof(sim.failure));
    sim_fini(&sim);
    return !sim.failed;
}

static double
seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void
print_summary(const struct sim_counters *total, uint64_t seeds, uint64_t virtual_ns, double elapsed)
{
    printf("%llu seeds in %.1f s (%.0f a second), %.0f virtual seconds\n",
           (unsigned long long)seeds, elapsed, (double)seeds / elapsed, (double)virtual_ns / 1e9);
#define PRINT_COUNTER(name) printf("  %-16s %llu\n", #name, (unsigned long long)total->name);
    SIM_COUNTER_MAP(PRINT_COUNTER)
#undef PRINT_COUNTER
}

static int
run_many(const struct options *options)
{
    const bool terminal = isatty(STDOUT_FILENO) != 0;
    const double start = seconds();
    struct sim_counters total = {0};
    uint64_t virtual_ns = 0;
    double shown = start;
    char failure[512];
    uint64_t hash = 0;

    for (uint64_t i = 0; i < options->count; i++) {
        const uint64_t seed = options->first + i;

        if (!run_seed(seed, options->trace, &total, &virtual_ns, failure, &hash)) {
            printf("%sseed %llu failed: %s\nreplay: psd_sim --seed %llu --trace\n",
                   terminal ? "\r\033[K" : "", (unsigned long long)seed, failure,
                   (unsigned long long)seed);
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
        printf("seed %llu passed, hash %016llx, %.3f virtual seconds\n",
               (unsigned long long)options->first, (unsigned long long)hash,
               (double)virtual_ns / 1e9);
    } else {
        print_summary(&total, options->count, virtual_ns, seconds() - start);
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
        } else if (strcmp(argv[i], "--seed") == 0) {
            options->single = true;
            options->count = 1;
            if (!parse_number(argv[++i], &options->first)) {
                return false;
            }
        } else if (strcmp(argv[i], "--seeds") == 0) {
            if (!parse_number(argv[++i], &options->count)) {
                return false;
            }
        } else if (strcmp(argv[i], "--first") == 0) {
            if (!parse_number(argv[++i], &options->first)) {
                return false;
            }
        } else {
            return false;
        }
    }
    return options->count > 0;
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
    return run_many(&options);
}
