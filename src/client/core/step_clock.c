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
times_of(const struct step_record *record)
{
    const struct step_parts *from = &record->begin_parts;
    const struct step_parts *to = &record->end_parts;
    const uint64_t total_ns = record->end_ns - record->begin_ns;
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

static void
be_sparse(struct step_clock *clock, uint32_t sparse)
{
    clock->sparse = sparse;
    clock->untold_bits = (UINT64_C(1) << sparse) - 1;
}

static void
set_done(struct step_clock *clock, uint32_t count)
{
    clock->done_count = count;
    clock->now = &clock->kept[count];
}

/* ---- what happens -------------------------------------------------------------------------- */

/* The end of a turn in which something happened. */
static void
note(struct step_clock *clock, uint64_t now_ns)
{
    struct step_record *record = clock->now;

    if ((clock->events & STEP_DRAINED) != 0) {
        record->end_ns = now_ns;
        record->end_parts = clock->parts;
    }
    if ((clock->events & STEP_ANSWERED) != 0) {
        record->server_ns = now_ns;
        record->other_ns = (clock->events & STEP_BOTH) != 0 ? now_ns : record->other_ns;
    }
    clock->events = 0;
}

/* The step may have ended while the program slept, in a turn of another thread: for the program it
 * ends now. */
static void
look(struct step_clock *clock, uint64_t now_ns, bool is_asleep)
{
    const uint64_t asleep_ns = clock->asleep_ns;

    if (asleep_ns != 0) {
        const bool has_woken = clock->woke_ns > asleep_ns;
        const uint64_t woke_ns = has_woken ? clock->woke_ns : now_ns;

        clock->parts.wait_ns += woke_ns - asleep_ns;
        clock->parts.receive_ns += now_ns - woke_ns;
        clock->asleep_ns = is_asleep && !has_woken ? now_ns : 0;
        if (clock->now->end_ns == asleep_ns) {
            psi_step_clock_drained(clock);
        }
    }
    if (clock->events != 0) {
        note(clock, now_ns);
    }
}

void
psi_step_clock_look(struct step_clock *clock, uint64_t now_ns)
{
    look(clock, now_ns, (clock->heed & STEP_ASLEEP) != 0);
}

/* ---- one after the other -------------------------------------------------------------------- */

/* The one that runs stays behind those that do. */
__attribute__((noinline)) static void
thin_out(struct step_clock *clock)
{
    const struct step_record *last = clock->now;
    uint32_t kept = 0;

    be_sparse(clock, clock->sparse + 1);
    for (uint32_t i = 0; i < clock->done_count; i++) {
        if (psi_step_clock_tells(clock, clock->kept[i].step)) {
            clock->kept[kept++] = clock->kept[i];
        }
    }
    clock->untold += clock->done_count - kept;
    set_done(clock, kept);
    *clock->now = *last;
}

/* Is the one that runs to be told? When the first of all began nobody knows. If there is no room, some
 * are left out: others, or itself. */
static bool
is_to_tell(struct step_clock *clock)
{
    const struct step_record *record = clock->now;

    if ((clock->heed & STEP_TOLD) == 0 || record->begin_ns == 0 ||
        record->step > PSI_TOLD_STEP_MAX) {
        return false;
    }
    while (clock->done_count == PSI_STEPS_MAX && clock->sparse < SPARSE_MAX) {
        thin_out(clock);
    }
    return clock->done_count < PSI_STEPS_MAX && psi_step_clock_tells(clock, clock->now->step);
}

/* The step that runs has ended; the next one begins then. */
static void
end_step(struct step_clock *clock, uint64_t now_ns)
{
    const struct step_record *ended;

    if (clock->now->end_ns == 0) { /* something was under way all the time */
        clock->now->end_ns = now_ns;
        clock->now->end_parts = clock->parts;
    }
    if (is_to_tell(clock)) {
        set_done(clock, clock->done_count + 1);
        ended = clock->now - 1;
    } else {
        clock->untold += clock->count != 0;
        ended = clock->now;
    }
    clock->count++;
    clock->now->begin_ns = ended->end_ns;
    clock->now->begin_parts = ended->end_parts;
}

/* The next step that is told is a multiple of 2^sparse, and the one before it is kept for its end. */
static uint64_t
quiet_until(const struct step_clock *clock, uint64_t step, uint64_t stride)
{
    const uint64_t told = (step | clock->untold_bits) + 1;

    return told > stride ? told - stride : 0;
}

/* What is kept of the step that begins. The next one is as far away as the last: if it is not, it is
 * not told. */
static void
begin_step(struct step_clock *clock, uint64_t step, uint64_t stride, uint64_t now_ns)
{
    struct step_record *record = clock->now;

    clock->running = true;
    clock->next = step + 1;
    clock->heed &= STEP_LARGE | STEP_ASLEEP;
    record->step = step;
    if (psi_step_clock_tells(clock, step)) {
        clock->heed |= STEP_KEPT | STEP_TOLD;
        record->pushed_ns = now_ns;
        record->server = UINT32_MAX;
        record->server_ns = 0;
        record->other_ns = 0;
    } else if (psi_step_clock_tells(clock, step + stride)) {
        clock->heed |= STEP_KEPT;
    }
    clock->heed_from = (clock->heed & STEP_KEPT) != 0 ? 0 : quiet_until(clock, step, stride);
}

/* A push out of a callback comes within the turn that ended the step before. A program that sleeps now
 * has another thread that pushes, and sleeps on. */
static void
next_step(struct step_clock *clock, uint64_t step, uint64_t now_ns)
{
    const uint64_t stride = step + 1 - clock->next;

    if (clock->asleep_ns != 0 || clock->events != 0) {
        look(clock, now_ns, true);
    }
    if ((clock->heed & STEP_KEPT) != 0) {
        end_step(clock, now_ns);
    } else {
        clock->now->begin_ns = 0;
        clock->untold += clock->running;
        clock->count += clock->running;
    }
    begin_step(clock, step, stride, now_ns);
}

void
psi_step_clock_heed(struct step_clock *clock, uint64_t step, uint64_t now_ns)
{
    if (!clock->on) {
        return;
    }
    if (!clock->running || step >= clock->next) {
        next_step(clock, step, now_ns);
    }
    clock->now->end_ns = 0; /* it goes on */
}

/* ---- telling -------------------------------------------------------------------------------- */

uint32_t
psi_step_clock_read(const struct step_clock *clock, struct psi_step_times *times_p)
{
    for (uint32_t i = 0; i < clock->done_count; i++) {
        times_p[i] = times_of(&clock->kept[i]);
    }
    return clock->done_count;
}

/* Twice as many would still leave room: workers that are close to a limit do not go to and fro. */
void
psi_step_clock_told(struct step_clock *clock)
{
    clock->kept[0] = *clock->now;
    if (clock->done_count < PSI_STEPS_MAX / 4 && clock->sparse > 0) {
        be_sparse(clock, clock->sparse - 1);
        clock->heed_from = 0; /* more of them are told */
    }
    set_done(clock, 0);
}

/* ---- who watches ---------------------------------------------------------------------------- */

/* No push is looked at, none is the first of its step, and none is told. */
static void
let_all_pass(struct step_clock *clock)
{
    clock->heed_from = UINT64_MAX;
    clock->next = UINT64_MAX;
    clock->untold_bits = UINT64_MAX;
}

void
psi_step_clock_init(struct step_clock *clock)
{
    *clock = (struct step_clock){0};
    set_done(clock, 0);
    let_all_pass(clock);
}

void
psi_step_clock_start(struct step_clock *clock)
{
    if (!clock->on) {
        clock->on = true;
        clock->heed_from = 0;
        clock->next = 0;
        be_sparse(clock, clock->sparse);
    }
}

void
psi_step_clock_stop(struct step_clock *clock)
{
    clock->on = false;
    clock->running = false;
    clock->heed &= STEP_ASLEEP;
    clock->events = 0;
    let_all_pass(clock);
}
