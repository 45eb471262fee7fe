/*
 * measure.c - subjects take turns: one timed run of each, then the next of each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "measure.h"

#include "base/fail.h"
#include "progress.h"
#include "timer.h"

enum { BACKWARDS = 5 };

/* Whose turn it is, for an error's text. */
static psd_status
blame(const struct measurement *measurement, struct psd_error *err)
{
    const struct psd_error said = *err;

    return psi_fail(err, said.status, "%s: %.400s",
                    subject_about(measurement->result->subject)->name, said.text);
}

/* The first touch, and then enough rounds to know how many fill a run. */
static psd_status
calibrate(struct measurement *measurement, uint64_t target_ns, struct psd_error *err)
{
    struct team_order *order = &measurement->order;
    struct team_times times = {0};
    psd_status status;

    order->rounds = 1;
    status = team_command(measurement->team, order, &times, err);
    if (order->verb == TEAM_URGENT) {
        return status; /* every run is one round */
    }
    if ((order->flags & TEAM_BACKWARD) != 0) {
        order->rounds = BACKWARDS; /* what they add may be next to nothing */
        return status;
    }
    times.elapsed_ns = 0;
    while (status == PSD_OK && times.elapsed_ns < target_ns / 8) {
        order->rounds *= times.elapsed_ns < target_ns / 64 ? 4 : 2;
        status = team_command(measurement->team, order, &times, err);
    }
    order->rounds = timer_rounds(target_ns, order->rounds, times.elapsed_ns);
    return status;
}

psd_status
measure_run(struct measurement *measurements, size_t count, const struct measure_rules *rules,
            struct psd_error *err)
{
    for (size_t i = 0; i < count; i++) {
        progress_show(&measurements[i].result->situation,
                      subject_about(measurements[i].result->subject)->title, 0, rules->repeat);
        if (calibrate(&measurements[i], (uint64_t)(rules->seconds * 1e9), err) != PSD_OK) {
            return blame(&measurements[i], err);
        }
    }
    for (uint32_t run = 0; run < rules->repeat; run++) {
        for (size_t i = 0; i < count; i++) {
            struct measurement *one = &measurements[i];
            struct team_times times = {0};

            progress_show(&one->result->situation, subject_about(one->result->subject)->title,
                          run + 1, rules->repeat);
            if (team_command(one->team, &one->order, &times, err) != PSD_OK) {
                return blame(one, err);
            }
            result_note(one->result, &times, one->order.rounds);
        }
    }
    return PSD_OK;
}
