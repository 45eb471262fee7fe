/*
 * contest.c - contestants take turns: one timed run of each, then the next of each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "contest.h"

#include "base/fail.h"
#include "progress.h"
#include "timer.h"

/* Whose turn it is, for an error's text. */
static psd_status
blame(const struct contestant *contestant, struct psd_error *err)
{
    const struct psd_error said = *err;

    return psi_fail(err, said.status, "%s: %.400s",
                    entrant_about(contestant->result->entrant)->name, said.text);
}

/* The first touch, and then enough rounds to know how many fill a run. */
static psd_status
calibrate(struct contestant *contestant, uint64_t target_ns, struct psd_error *err)
{
    struct crew_order *order = &contestant->order;
    struct crew_times times = {0};
    psd_status status;

    order->rounds = 1;
    status = crew_command(contestant->crew, order, &times, err);
    if (order->verb == CREW_URGENT) {
        return status; /* every run is one round */
    }
    times.elapsed_ns = 0;
    while (status == PSD_OK && times.elapsed_ns < target_ns / 8) {
        order->rounds *= times.elapsed_ns < target_ns / 64 ? 4 : 2;
        status = crew_command(contestant->crew, order, &times, err);
    }
    order->rounds = timer_rounds(target_ns, order->rounds, times.elapsed_ns);
    return status;
}

psd_status
contest_run(struct contestant *contestants, size_t count, const struct contest_rules *rules,
            struct psd_error *err)
{
    for (size_t i = 0; i < count; i++) {
        progress_show(&contestants[i].result->situation,
                      entrant_about(contestants[i].result->entrant)->title, 0, rules->repeat);
        if (calibrate(&contestants[i], (uint64_t)(rules->seconds * 1e9), err) != PSD_OK) {
            return blame(&contestants[i], err);
        }
    }
    for (uint32_t run = 0; run < rules->repeat; run++) {
        for (size_t i = 0; i < count; i++) {
            struct contestant *one = &contestants[i];
            struct crew_times times = {0};

            progress_show(&one->result->situation, entrant_about(one->result->entrant)->title,
                          run + 1, rules->repeat);
            if (crew_command(one->crew, &one->order, &times, err) != PSD_OK) {
                return blame(one, err);
            }
            result_note(one->result, &times, one->order.rounds);
        }
    }
    return PSD_OK;
}
