/*
 * results.c - what was measured: one entry for each subject in each situation.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "results.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "timer.h"

enum { SMALL_BYTES = 16384 };

const char *
transport_name(enum transport transport)
{
    static const char *const names[] = {
        [TRANSPORT_SHM] = "shm", [TRANSPORT_TCP] = "tcp", [TRANSPORT_TLS] = "tls"};

    return names[transport];
}

/* ---- The list ---- */

struct result *
results_add(struct results *results, const struct situation *situation, enum subject subject,
            enum subject_timing timing)
{
    struct result *result = calloc(1, sizeof(*result));

    if (result == NULL || results->count == RESULTS_MAX) {
        free(result);
        return NULL;
    }
    result->situation = *situation;
    result->subject = subject;
    result->timing = timing;
    results->list[results->count++] = result;
    return result;
}

void
results_fini(struct results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        free(results->list[i]);
    }
    results->count = 0;
}

const struct result *
results_find(const struct results *results, const struct situation *situation, enum subject subject,
             enum subject_timing timing)
{
    for (size_t i = 0; i < results->count; i++) {
        const struct result *result = results->list[i];

        if (result->subject == subject && result->timing == timing &&
            result_is_of(result, situation)) {
            return result;
        }
    }
    return NULL;
}

static double
middle_ns(const struct result *result)
{
    return result_spread(result->round_ns, result->repeat).middle;
}

const struct result *
results_reference(const struct results *results, const struct result *result)
{
    const struct subject_about *about = subject_about(result->subject);
    const struct result *best = NULL;

    for (size_t i = 0; i < SUBJECT_REFERENCES && about->references[i] != SUBJECT_NONE; i++) {
        const struct result *one =
            results_find(results, &result->situation, about->references[i], result->timing);

        if (one != NULL && (best == NULL || middle_ns(one) < middle_ns(best))) {
            best = one;
        }
    }
    return best;
}

/* ---- One entry ---- */

bool
result_is_of(const struct result *result, const struct situation *situation)
{
    const struct situation *own = &result->situation;

    return result->repeat > 0 && own->transport == situation->transport &&
           own->workers == situation->workers && own->servers == situation->servers &&
           own->bytes == situation->bytes;
}

bool
result_is_small(const struct result *result)
{
    return result->situation.bytes <= SMALL_BYTES;
}

bool
result_missed_shm(const struct result *result)
{
    const struct subject_about *about = subject_about(result->subject);

    return result->situation.transport == TRANSPORT_SHM && about->kind == KIND_POSEIDON &&
           !result->shared;
}

/* Of the tensor as it is sent. */
static double
tensor_bytes(const struct result *result)
{
    const bool half = (subject_about(result->subject)->flags & TEAM_HALF) != 0;

    return (double)result->situation.bytes / (half ? 2 : 1);
}

void
result_note(struct result *result, const struct team_times *times, uint64_t rounds)
{
    const uint32_t i = result->repeat;

    psi_assert(i < RESULT_REPEAT_MAX);
    psi_assert(rounds > 0);
    result->round_ns[i] = (double)times->elapsed_ns / (double)rounds;
    result->median_ns[i] = (double)times->median_ns;
    result->p90_ns[i] = (double)times->p90_ns;
    result->p99_ns[i] = (double)times->p99_ns;
    result->cpu_ns[i] = (double)times->cpu_ns / (double)rounds;
    result->idle_ns += (double)times->idle_ns;
    result->idle_cpu_ns += (double)times->idle_cpu_ns;
    result->shared = times->shared > 0;
    result->repeat++;
}

struct spread
result_spread(const double *values, size_t count)
{
    double sorted[RESULT_REPEAT_MAX];
    struct spread spread;

    psi_assert(count > 0);
    psi_assert(count <= RESULT_REPEAT_MAX);
    memcpy(sorted, values, count * sizeof(*values));
    spread.middle = timer_median(sorted, count);
    spread.least = sorted[0];
    spread.most = sorted[count - 1];
    return spread;
}

struct spread
result_ratio(const struct result *result, const struct result *reference, bool small)
{
    const uint32_t count = result->repeat < reference->repeat ? result->repeat : reference->repeat;
    double ratios[RESULT_REPEAT_MAX];

    for (uint32_t i = 0; i < count; i++) {
        ratios[i] = small ? reference->median_ns[i] / result->median_ns[i]
                          : reference->round_ns[i] / result->round_ns[i];
    }
    return result_spread(ratios, count);
}

struct spread
result_speed(const struct result *result)
{
    double speeds[RESULT_REPEAT_MAX];

    for (uint32_t i = 0; i < result->repeat; i++) {
        speeds[i] = tensor_bytes(result) / result->round_ns[i];
    }
    return result_spread(speeds, result->repeat);
}

double
result_elements(const struct result *result)
{
    const double count = (double)result->situation.bytes / sizeof(float);

    return count / result_spread(result->round_ns, result->repeat).middle;
}

double
result_cpu_s_per_gb(const struct result *result)
{
    const double bytes = tensor_bytes(result) * result->situation.workers;

    return result_spread(result->cpu_ns, result->repeat).middle / bytes;
}
