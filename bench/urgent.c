/*
 * urgent.c - how long a small tensor takes while a large one is in flight.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "urgent.h"

#include "base/fail.h"
#include "mapping.h"
#include "timer.h"

enum {
    URGENT_BYTES = 4096,
    UNDER_WAY_MS = 2, /* the large tensor's start before the urgent one */
    PRIORITY_LOW = 1,
    PRIORITY_HIGH = 255,
};

/* Starts the large one, lets it get under way, and times the small one. */
static psd_status
overtake(struct worker *worker, struct measured *urgent, const struct team_order *order,
         struct team_times *times, struct psd_error *err)
{
    const bool priority = (order->flags & TEAM_PRIORITY) != 0;
    struct psd_transfer large = measured_transfer(&worker->memory, worker->measured, order->flags);
    struct psd_transfer small = measured_transfer(&worker->urgent_memory, urgent, order->flags);
    psd_op *large_op;
    psd_op *small_op;
    uint64_t start_ns;
    psd_status status;

    large.priority = PRIORITY_LOW;
    small.priority = priority ? PRIORITY_HIGH : PRIORITY_LOW;
    status = measured_heard(psd_push_pull(worker->measured->table, &large, &large_op), err);
    if (status != PSD_OK) {
        return status;
    }
    if (psd_wait(large_op, UNDER_WAY_MS) != PSD_PENDING) {
        return psi_fail(err, PSD_ERR_STATE,
                        "%llu bytes were through before the urgent tensor started",
                        (unsigned long long)order->bytes);
    }
    start_ns = timer_now_ns();
    status = measured_heard(psd_push_pull(urgent->table, &small, &small_op), err);
    if (status == PSD_OK) {
        status = measured_finish(small_op, err);
    }
    times->elapsed_ns = timer_now_ns() - start_ns;
    return status == PSD_OK ? measured_finish(large_op, err) : status;
}

static psd_status
check_urgent(struct worker *worker, struct measured *urgent, const struct team_order *order,
             struct psd_error *err)
{
    struct measured *const all_measured[] = {worker->measured, urgent};
    const struct memory *const memories[] = {&worker->memory, &worker->urgent_memory};
    psd_status status = PSD_OK;

    for (size_t i = 0; i < 2 && status == PSD_OK; i++) {
        all_measured[i]->step++;
        tensor_model_round(&all_measured[i]->model, 0);
        status = tensor_check(&all_measured[i]->model,
                              measured_values(memories[i], all_measured[i], order->flags), err);
    }
    return status;
}

psd_status
urgent_run(struct worker *worker, const struct team_order *order, struct team_times *times,
           struct psd_error *err)
{
    const uint32_t rank = psd_rank(worker->context);
    struct memory *const memories[] = {&worker->memory, &worker->urgent_memory};
    struct measured *urgent;
    psd_status status = measured_use(worker, URGENT_BYTES, 0, &urgent, err);

    if (status == PSD_OK) {
        status = measured_memory(worker, &worker->urgent_memory, URGENT_BYTES, err);
    }
    for (size_t i = 0; i < 2 && status == PSD_OK; i++) {
        const size_t count = memories[i]->bytes / sizeof(float);

        tensor_write(memories[i]->gradient, 0, count, rank, 0);
        tensor_write(memories[i]->shared_gradient, 0, count, rank, 0);
        tensor_spoil(memories[i]->values, memories[i]->bytes);
    }
    if (status == PSD_OK) {
        status = measured_heard(psd_barrier(worker->context, PSD_FOREVER), err);
    }
    if (status == PSD_OK) {
        status = overtake(worker, urgent, order, times, err);
    }
    times->median_ns = times->p90_ns = times->p99_ns = times->worst_ns = times->elapsed_ns;
    times->shared = mapping_of_a_neighbour();
    return status == PSD_OK ? check_urgent(worker, urgent, order, err) : status;
}
