/*
 * timer.c - time, and what repeated measurements say.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "timer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 1000000 };

static uint64_t
read_clock(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
timer_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t
timer_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

static int
by_value(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return left < right ? -1 : left > right;
}

double
timer_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[(count - 1) / 2];
}

static int
by_time(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

void
timer_sort(uint64_t *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_time);
}

uint64_t
timer_percentile(const uint64_t *sorted, size_t count, unsigned percent)
{
    const size_t upto = (count * percent + 99) / 100;

    return sorted[upto > 0 ? upto - 1 : 0];
}

uint64_t
timer_rounds(uint64_t target_ns, uint64_t rounds, uint64_t elapsed_ns)
{
    const double fit = (double)target_ns * (double)rounds / (double)(elapsed_ns + 1);

    if (fit < ROUNDS_MIN) {
        return ROUNDS_MIN;
    }
    return fit > ROUNDS_MAX ? ROUNDS_MAX : (uint64_t)fit;
}

/* CPU time of all programs, in seconds; 0 where /proc does not tell. */
static double
machine_s(void)
{
    unsigned long long ticks[7] = {0}; /* user nice system idle iowait irq softirq */
    FILE *file = fopen("/proc/stat", "re");
    int found = 0;

    if (file == NULL) {
        return 0;
    }
    found = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", &ticks[0], &ticks[1], &ticks[2],
                   &ticks[3], &ticks[4], &ticks[5], &ticks[6]);
    fclose(file);
    return found < 7 ? 0
                     : (double)(ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) /
                           (double)sysconf(_SC_CLK_TCK);
}

static double
used_s(int who)
{
    struct rusage usage;

    if (getrusage(who, &usage) != 0) {
        return 0;
    }
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void
read_load(struct timer_load *load)
{
    load->at_ns = timer_now_ns();
    load->all_s = machine_s();
    load->own_s = used_s(RUSAGE_SELF) + used_s(RUSAGE_CHILDREN);
}

void
timer_load_begin(struct timer_load *load)
{
    read_load(load);
}

double
timer_load_foreign(const struct timer_load *load)
{
    struct timer_load now;
    double foreign_s;

    read_load(&now);
    foreign_s = (now.all_s - load->all_s) - (now.own_s - load->own_s);
    return foreign_s > 0 ? foreign_s * 1e9 / (double)(now.at_ns - load->at_ns + 1) : 0;
}
