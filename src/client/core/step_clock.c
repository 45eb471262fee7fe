/*
 * step_clock.c - where the time of a worker's steps goes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "client/core/step_clock.h"

#define US_NS UINT64_C(1000)

void
psi_step_clock_begin(struct step_clock *clock, uint64_t step, uint64_t now_ns)
{
    struct step_record *record = clock->now;

    if (clock->running && record->end_ns == 0) { /* something was under way all the time */
        record->end_ns = now_ns;
        record->parts = clock->parts;
    }
    clock->count += clock->running;
    clock->running = true;
    record = &clock->last[clock->count % STEP_RECORDS];
    record->step = step;
    record->pushed_ns = now_ns;
    record->end_ns = 0;
    record->server = UINT32_MAX;
    record->server_ns = 0;
    record->other_ns = 0;
    clock->now = record;
    clock->events = 0;
}

void
psi_step_clock_answered(struct step_clock *clock, uint32_t server)
{
    struct step_record *record = clock->now;

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
    struct step_record *record = clock->now;

    if (clock->asleep_ns != 0) {
        const uint64_t woke_ns = clock->woke_ns != 0 ? clock->woke_ns : now_ns;

        clock->parts.wait_ns += woke_ns - clock->asleep_ns;
        clock->parts.receive_ns += now_ns - woke_ns;
        clock->asleep_ns = 0;
    }
    if (clock->running && clock->events != 0) {
        if ((clock->events & STEP_ANSWERED) != 0) {
            record->server_ns = now_ns;
            record->other_ns = (clock->events & STEP_BOTH) != 0 ? now_ns : record->other_ns;
        }
        if ((clock->events & STEP_DRAINED) != 0) {
            record->end_ns = now_ns;
            record->parts = clock->parts;
        }
    }
    clock->events = 0;
}

/* ---- telling ------------------------------------------------------------------------------- */

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

static struct psi_step_times
times_of(const struct step_record *before, const struct step_record *record)
{
    const struct step_parts *from = &before->parts;
    const struct step_parts *to = &record->parts;
    const uint64_t total_ns = record->end_ns - before->end_ns;
    const uint64_t encode_ns = to->encode_ns - from->encode_ns;
    const uint64_t send_ns = to->send_ns - from->send_ns;
    const uint64_t wait_ns = to->wait_ns - from->wait_ns;
    const uint64_t receive_ns = to->receive_ns - from->receive_ns;
    const uint64_t ours_ns = encode_ns + send_ns + wait_ns + receive_ns;
    const uint64_t alone = alone_ns(record);

    return (struct psi_step_times){
        .step = record->step,
        .total_us = us(total_ns),
        .compute_us = us(total_ns > ours_ns ? total_ns - ours_ns : 0),
        .encode_us = us(encode_ns),
        .send_us = us(send_ns),
        .wait_us = us(wait_ns),
        .receive_us = us(receive_ns),
        .alone_us = us(alone < wait_ns ? alone : wait_ns),
        .server = record->server,
    };
}

/* The first step of all began when nobody knows: it is never told. */
uint32_t
psi_step_clock_take(struct step_clock *clock, struct psi_step_times *times_p, uint64_t *lost_p)
{
    const uint64_t first = clock->count > PSI_STEPS_MAX ? clock->count - PSI_STEPS_MAX : 1;
    uint32_t count = 0;

    *lost_p = clock->told > 0 && first > clock->told ? first - clock->told : 0;
    clock->told = first > clock->told ? first : clock->told;
    while (clock->told < clock->count) {
        const struct step_record *before = &clock->last[(clock->told - 1) % STEP_RECORDS];

        times_p[count++] = times_of(before, &clock->last[clock->told % STEP_RECORDS]);
        clock->told++;
    }
    return count;
}
