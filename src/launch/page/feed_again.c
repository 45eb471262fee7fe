/*
 * feed_again.c - a job is begun anew: what was told of the last attempt stays, who took part goes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "launch/page/feed_state.h"

static void
forget_members(struct feed *feed)
{
    for (uint32_t slot = 0; slot < feed->slots; slot++) {
        free(feed->members[slot].counts);
    }
    free(feed->members);
    for (uint32_t i = 0; i < feed->table_count; i++) {
        free(feed->tables[i].places);
    }
    feed->table_count = 0;
    feed->spans.number = 0; /* they are of those that are gone */
}

void
feed_again(struct feed *feed, uint32_t workers, uint32_t servers)
{
    const uint32_t slots = 1 + servers + workers;
    struct feed_member *members = calloc(slots, sizeof(*members));

    pthread_mutex_lock(&feed->lock);
    feed->phase = FEED_PHASE_STARTING;
    feed->ended_ms = 0;
    feed->has_cause = false; /* it stays among the events */
    if (members != NULL && waits_again(&feed->waits, workers)) {
        forget_members(feed);
        feed->members = members;
        feed->slots = slots;
        feed->workers = workers;
        feed->servers = servers;
        members = NULL;
    }
    pthread_mutex_unlock(&feed->lock);
    free(members);
}
