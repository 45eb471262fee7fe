/*
 * step_clock.c - where the time of a worker's steps goes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/step_clock.h"

#include <string.h>

#define US_NS UINT64_C(1000)

enum { SPARSE_MAX = 62 };

/* ---- what is told of a step ---------------------------------------------------------------- */

static uint32_t
us(uint64_t ns)
{
    return ns / US_NS < UINT32_MAX ? (uint32_t)(ns / US_NS) : UINT32_MAX;
}

/* How long the last server was the only one that was waited for. */
static uint64_t
alone_ns(const struct step_record *record)
{
    const uint64_t since_ns =
        record->other_ns > record->pushed_ns ? record->other_ns : record->pushed_ns;

    return record->server_ns > since_ns ? record->server_ns - since_ns : 0;
}

/* At most what is left of the step, which becomes less by it. */
static uint64_t
part_of(uint64_t *left_ns, uint64_t part_ns)
{
    const uint64_t fits_ns = part_ns < *left_ns ? part_ns : *left_ns;

    *left_ns -= fits_ns;
    return fits_ns;
}

static struct psi_step_times
times_of(const struct step_clock *clock)
{
    const struct step_record *record = &clock->now;
    const struct step_parts *from = &clock->before_parts;
    const struct step_parts *to = &record->parts;
    const uint64_t total_ns = record->end_ns - clock->before_ns;
    uint64_t left_ns = total_ns;
    const uint64_t wait_ns = part_of(&left_ns, to->wait_ns - from->wait_ns);
    const uint64_t receive_ns = part_of(&left_ns, to->receive_ns - from->receive_ns);
    const uint64_t send_ns = part_of(&left_ns, to->send_ns - from->send_ns);
    const uint64_t encode_ns = part_of(&left_ns, to->encode_ns - from->encode_ns);
    const uint64_t alone = alone_ns(record);

    return (struct psi_step_times){
        .step = record->step,
        .total_us = us(total_ns),
        .compute_us = us(left_ns),
        .encode_us = us(encode_ns),
        .send_us = us(send_ns),
        .wait_us = us(wait_ns),
        .receive_us = us(receive_ns),
        .alone_us = us(alone < wait_ns ? alone : wait_ns),
        .server = record->server,
        .end_us = record->end_ns / US_NS,
    };
}

/* ---- which are told ------------------------------------------------------------------------ */

static bool
is_told_of(const struct step_clock *clock, uint64_t step)
{
    return psi_step_clock_tells(clock, step) && step <= PSI_TOLD_STEP_MAX;
}

static void
thin_out(struct step_clock *clock)
{
    uint32_t kept = 0;

    clock->sparse++;
    for (uint32_t i = 0; i < clock->done_count; i++) {
        if (is_told_of(clock, clock->done[i].step)) {
            clock->done[kept++] = clock->done[i];
        }
    }
    clock->untold += clock->done_count - kept;
    clock->done_count = kept;
}

/* Out of the way of the steps that are not told. */
__attribute__((noinline)) static void
keep(struct step_clock *clock)
{
    while (clock->done_count == PSI_STEPS_MAX && clock->sparse < SPARSE_MAX) {
        thin_out(clock);
    }
    if (clock->done_count < PSI_STEPS_MAX && is_told_of(clock, clock->now.step)) {
        clock->done[clock->done_count++] = times_of(clock);
    } else {
        clock->untold++;
    }
}

/* The first step of all began when nobody knows: it is never told. */
__attribute__((noinline)) static void
end_step(struct step_clock *clock, uint64_t now_ns)
{
    if (clock->now.end_ns == 0) { /* something was under way all the time */
        clock->now.end_ns = now_ns;
        clock->now.parts = clock->parts;
    }
    if (clock->before_ns != 0 && clock->telling) {
        keep(clock);
    } else {
        clock->untold += clock->count != 0;
    }
    clock->before_ns = clock->now.end_ns;
    clock->before_parts = clock->now.parts;
    clock->count++;
}

/* The next step that is told is a multiple of 2^sparse, and the one before it is kept for its end. */
static uint64_t
quiet_until(const struct step_clock *clock, uint64_t step, uint64_t stride)
{
    const uint64_t told = ((step >> clock->sparse) + 1) << clock->sparse;

    return told > stride ? told - stride : 0;
}

/* A push out of a callback comes within the turn that ended the step before. The next step is as far
 * away as the last: if it is not, it is not told. */
void
psi_step_clock_begin(struct step_clock *clock, uint64_t step, uint64_t now_ns)
{
    const uint64_t stride = step - clock->now.step;
    const uint64_t next = step + stride;

    psi_step_clock_turn(clock, now_ns);
    if (clock->keeping) {
        end_step(clock, now_ns);
    } else if (clock->running) {
        clock->before_ns = 0;
        clock->untold++;
        clock->count++;
    }
    clock->running = true;
    clock->now.step = step;
    clock->telling = is_told_of(clock, step);
    clock->keeping = clock->telling || is_told_of(clock, next);
    clock->quiet_until = quiet_until(clock, step, stride);
    if (clock->telling) {
        clock->now.pushed_ns = now_ns;
        clock->now.server = UINT32_MAX;
        clock->now.server_ns = 0;
        clock->now.other_ns = 0;
    }
}

uint32_t
psi_step_clock_read(const struct step_clock *clock, struct psi_step_times *times_p)
{
    memcpy(times_p, clock->done, clock->done_count * sizeof(*times_p));
    return clock->done_count;
}

/* Twice as many would still leave room: workers that are close to a limit do not go to and fro. */
void
psi_step_clock_told(struct step_clock *clock)
{
    if (clock->done_count < PSI_STEPS_MAX / 4 && clock->sparse > 0) {
        clock->sparse--;
        clock->quiet_until = 0; /* more of them are told */
    }
    clock->done_count = 0;
}

void
psi_step_clock_stop(struct step_clock *clock)
{
    clock->on = false;
    clock->running = false;
    clock->quiet_until = 0;
    clock->telling = false;
    clock->keeping = false;
    clock->is_large = false;
    clock->events = 0;
    clock->asleep_ns = 0;
    clock->before_ns = 0;
}

/* ---- what happens -------------------------------------------------------------------------- */

void
psi_step_clock_answered(struct step_clock *clock, uint32_t server)
{
    struct step_record *record = &clock->now;

    if (record->server != server) {
        if ((clock->events & STEP_ANSWERED) != 0) {
            clock->events |= STEP_BOTH;
        }
        record->other_ns = record->server_ns;
        record->server = server;
    }
    clock->events |= STEP_ANSWERED;
}

void
psi_step_clock_note(struct step_clock *clock, uint64_t now_ns)
{
    struct step_record *record = &clock->now;

    if ((clock->events & STEP_DRAINED) != 0) {
        record->end_ns = now_ns;
        record->parts = clock->parts;
    }
    if ((clock->events & STEP_ANSWERED) != 0) {
        record->server_ns = now_ns;
        record->other_ns = (clock->events & STEP_BOTH) != 0 ? now_ns : record->other_ns;
    }
    clock->events = 0;
}
