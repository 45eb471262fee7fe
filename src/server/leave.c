/*
 * leave.c - a lane that is asked to end: its process got a signal, or another lane of it has ended.
 *
 * It ends with its next turn, when it has heard what had come by then. One that has handed its place over waits for
 * a moment longer. The place is its own until the master sends it away, and that word may be on its way: the
 * server may have been told to end just because the master knows that it has nothing any more. Ended as the lane
 * that it was, a server that left in peace would seem to have failed.
 * So would one that came and is to leave again before all of its lanes have met the master: they have nothing
 * either.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/lane.h"
#include "server/state.h"

#define MS_NS UINT64_C(1000000)

enum { WORD_MS = 2000 }; /* psd_run gives a server that has nothing 5 s to end */

void
lane_leave(struct lane *lane, int exit_code, const char *reason)
{
    if (lane->leaving.reason == NULL) {
        lane->leaving = (struct leaving){.reason = reason,
                                         .exit_code = exit_code,
                                         .until_ns = psi_now_ns(lane->env) + WORD_MS * MS_NS};
    }
}

static bool
waits_for_word(const struct lane *lane, uint64_t now_ns)
{
    return lane->pair != NULL && lane->pair->has_given && now_ns < lane->leaving.until_ns;
}

/* It was never let in, and nobody has handed a place over to it. */
static bool
has_not_come(const struct lane *lane)
{
    return !lane->joined && lane->promoted == 0 && lane->mirror == NULL;
}

void
leave_tick(struct lane *lane, uint64_t now_ns)
{
    struct leaving *leaving = &lane->leaving;

    if (leaving->reason != NULL && !lane->finished && !waits_for_word(lane, now_ns)) {
        leaving->had_nothing = lane_has_nothing(lane) || has_not_come(lane);
        lane_stop(lane, leaving->exit_code, leaving->reason);
    }
}

uint64_t
leave_next_ns(const struct lane *lane)
{
    const uint64_t now_ns = psi_now_ns(lane->env);

    if (lane->leaving.reason == NULL) {
        return UINT64_MAX;
    }
    return waits_for_word(lane, now_ns) ? lane->leaving.until_ns : now_ns;
}

bool
lane_was_not_needed(const struct lane *lane)
{
    return lane->config.is_standby && !lane->born.is_standby;
}

bool
lane_left_with_nothing(const struct lane *lane)
{
    return lane->leaving.had_nothing;
}
