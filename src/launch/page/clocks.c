/*
 * clocks.c - how far the clock of a process is from the reference clock of a timeline.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/page/clocks.h"

enum { ROUNDS_LOOK = 64 }; /* a bound, because each costs a search of all spans */

struct clock_offset
clocks_worker(const struct feed *feed, uint32_t rank)
{
    struct clock_offset offset = {0};

    offset.known = late_offset_us(&feed->waits.late, rank, &offset.us);
    return offset;
}

/* The rank of a worker on the same machine, or UINT32_MAX. */
static uint32_t
neighbour_of(const struct feed *feed, const struct feed_member *member, uint32_t workers)
{
    for (uint32_t rank = 0; rank < workers; rank++) {
        const struct feed_member *worker = &feed->members[1 + feed->servers + rank];

        if (worker->known && worker->machine == member->machine) {
            return rank;
        }
    }
    return UINT32_MAX;
}

/* The offset lies between these, as far as we know. */
struct bounds {
    int64_t least_us;
    int64_t most_us;
};

/* The pushes of a round, on the reference clock. */
struct pushes {
    uint32_t count;
    int64_t begin_us; /* of the first */
    int64_t end_us;   /* of the one that ended first */
};

static struct pushes
pushes_of(const struct feed *feed, const struct psi_span *round)
{
    struct pushes pushes = {.begin_us = INT64_MAX, .end_us = INT64_MAX};
    const struct kept_span *kept;
    uint64_t at = feed->spans.number;

    while ((kept = kept_spans_before(&feed->spans, &at)) != NULL) {
        const struct psi_span *push = &kept->span;

        if (push->kind == PSI_SPAN_PUSH && push->what == round->what && push->step == round->step) {
            const struct clock_offset clock =
                clocks_worker(feed, kept->slot - 1 - feed->servers); /* only workers push */
            const int64_t begin_us = (int64_t)push->begin_us - clock.us;

            pushes.count += clock.known;
            pushes.begin_us = begin_us < pushes.begin_us ? begin_us : pushes.begin_us;
            pushes.end_us =
                begin_us + push->us < pushes.end_us ? begin_us + push->us : pushes.end_us;
        }
    }
    return pushes;
}

static void
tighten(struct bounds *bounds, const struct psi_span *round, const struct pushes *pushes)
{
    const int64_t opened_us = (int64_t)round->begin_us;
    const int64_t most_us = opened_us - pushes->begin_us;
    const int64_t least_us = opened_us + round->us - pushes->end_us;

    bounds->most_us = most_us < bounds->most_us ? most_us : bounds->most_us;
    bounds->least_us = least_us > bounds->least_us ? least_us : bounds->least_us;
}

/* The offset of a server whose machine has no worker, from the rounds of that server. */
static struct clock_offset
estimate(const struct feed *feed, uint32_t server, uint32_t workers)
{
    struct bounds bounds = {.least_us = INT64_MIN, .most_us = INT64_MAX};
    const struct kept_span *kept;
    uint64_t at = feed->spans.number;
    uint32_t looked = 0;

    while (looked < ROUNDS_LOOK && (kept = kept_spans_before(&feed->spans, &at)) != NULL) {
        if (kept->slot == 1 + server && kept->span.kind == PSI_SPAN_ROUND) {
            const struct pushes pushes = pushes_of(feed, &kept->span);

            looked++;
            if (pushes.count == workers) { /* otherwise we do not know the first push */
                tighten(&bounds, &kept->span, &pushes);
            }
        }
    }
    if (bounds.least_us == INT64_MIN) {
        return (struct clock_offset){0};
    }
    return (struct clock_offset){
        .known = true,
        .us = bounds.least_us + (bounds.most_us - bounds.least_us) / 2,
        .doubt_us = bounds.most_us > bounds.least_us ? (bounds.most_us - bounds.least_us) / 2 : 0,
    };
}

struct clock_offset
clocks_server(const struct feed *feed, uint32_t server)
{
    const uint32_t workers =
        feed->workers < feed->waits.workers ? feed->workers : feed->waits.workers;
    const struct feed_member *member = &feed->members[1 + server];
    const uint32_t neighbour = neighbour_of(feed, member, workers);

    if (member->known && neighbour != UINT32_MAX) {
        return clocks_worker(feed, neighbour);
    }
    return feed->waits.ends_together ? estimate(feed, server, workers) : (struct clock_offset){0};
}
