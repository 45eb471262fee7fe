/*
 * rounds.c - the timed rounds of one worker: write the gradient, exchange it, read the result.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rounds.h"

#include <stdlib.h>

#include "base/fail.h"
#include "models.h"
#include "timer.h"

/* What one round left behind. */
struct trace {
    uint64_t *times_ns;
    uint32_t *reads;
};

/* Without TOUCH the gradient stays as it was written before the clock started. */
static uint32_t
phase_of(const struct team_order *order, uint64_t round)
{
    return (order->flags & TEAM_TOUCH) != 0 ? (uint32_t)(round % TENSOR_PHASES) : 0;
}

static psd_status
one_round(const struct rounds *rounds, bool touch, uint32_t phase, uint32_t *read_p,
          struct psd_error *err)
{
    const size_t count = rounds->model->count;
    psd_status status;

    if (rounds->stream != NULL) {
        return rounds->stream(rounds->owner, phase, read_p, err);
    }
    if (touch) {
        tensor_write(rounds->gradient, 0, count, rounds->rank, phase);
    }
    status = rounds->exchange(rounds->owner, err);
    if (touch && status == PSD_OK) {
        *read_p = tensor_read(rounds->values, count);
    }
    return status;
}

static psd_status
timed(const struct rounds *rounds, const struct team_order *order, const struct trace *trace,
      struct team_times *times, struct psd_error *err)
{
    const bool touch = (order->flags & TEAM_TOUCH) != 0;
    const bool beside =
        (order->flags & TEAM_BACKWARD) != 0; /* then what is told is what is added */
    const uint64_t backward_ns = beside ? model_backward_ns() : 0;
    const uint64_t cpu_ns = timer_cpu_ns();
    uint64_t last_ns = timer_now_ns();
    psd_status status = PSD_OK;

    for (uint64_t i = 0; i < order->rounds && status == PSD_OK; i++) {
        uint64_t now_ns;

        status = one_round(rounds, touch, phase_of(order, i), &trace->reads[i], err);
        now_ns = timer_now_ns();
        trace->times_ns[i] = now_ns - last_ns > backward_ns ? now_ns - last_ns - backward_ns : 1;
        times->elapsed_ns += trace->times_ns[i];
        last_ns = now_ns;
    }
    times->cpu_ns = timer_cpu_ns() - cpu_ns;
    return status;
}

/* Follows all rounds in the model, and compares. */
static psd_status
check(const struct rounds *rounds, const struct team_order *order, const struct trace *trace,
      struct psd_error *err)
{
    struct tensor_model *model = rounds->model;

    for (uint64_t i = 0; i < order->rounds; i++) {
        tensor_model_round(model, phase_of(order, i));
        if ((order->flags & TEAM_TOUCH) != 0 && trace->reads[i] != tensor_model_read(model)) {
            return psi_fail(err, PSD_ERR_CORRUPT,
                            "round %llu of %llu gave worker %u wrong values of %zu elements",
                            (unsigned long long)i, (unsigned long long)order->rounds, rounds->rank,
                            model->count);
        }
    }
    return rounds->half
               ? tensor_check_half(model, (const uint16_t *)(const void *)rounds->values, err)
               : tensor_check(model, rounds->values, err);
}

void
rounds_summarise(uint64_t *times_ns, uint64_t count, struct team_times *times)
{
    timer_sort(times_ns, count);
    times->median_ns = timer_percentile(times_ns, count, 50);
    times->p90_ns = timer_percentile(times_ns, count, 90);
    times->p99_ns = timer_percentile(times_ns, count, 99);
    times->worst_ns = times_ns[count - 1];
}

psd_status
rounds_run(const struct rounds *rounds, const struct team_order *order, struct team_times *times,
           struct psd_error *err)
{
    struct trace trace = {.times_ns = calloc(order->rounds, sizeof(*trace.times_ns)),
                          .reads = calloc(order->rounds, sizeof(*trace.reads))};
    psd_status status = PSD_OK;

    if (trace.times_ns == NULL || trace.reads == NULL || order->rounds == 0) {
        status = psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for the times of %llu rounds",
                          (unsigned long long)order->rounds);
    }
    if (status == PSD_OK && rounds->half) {
        tensor_write_half((uint16_t *)(void *)rounds->gradient, rounds->model->count, rounds->rank,
                          0);
    } else if (status == PSD_OK) {
        tensor_write(rounds->gradient, 0, rounds->model->count, rounds->rank, 0);
    }
    if (status == PSD_OK && rounds->gather != NULL) {
        status = rounds->gather(rounds->owner, err);
    }
    if (status == PSD_OK) {
        status = timed(rounds, order, &trace, times, err);
    }
    if (status == PSD_OK) {
        status = check(rounds, order, &trace, err);
        rounds_summarise(trace.times_ns, order->rounds, times);
    }
    free(trace.times_ns);
    free(trace.reads);
    return status;
}
