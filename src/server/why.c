/*
 * why.c - why a chunk does not move on: whom it waits for, in words, for a worker that asks (WHY).
 *
 * Only looks: what it says is for people, and nothing is decided by it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

#include "rpc/post.h"
#include "server/state.h"

/* A worker whose model lacks the table never gives anything: a hint that it may be so. */
static const char gave_nothing[] = " (nothing from it yet: does it have this table?)";

/* The first rank, from `from` on, that the chunk waits for; -1: none. */
static int32_t
missing(const struct chunk *chunk, uint64_t step, uint32_t from)
{
    const struct table *table = chunk->table;
    const struct psi_ranks *closing = backup_closing(table, chunk->clock.version);
    int32_t rank = psi_clock_missing(&table->rule, &table->members, &chunk->clock, step, from);

    while (rank >= 0 && closing != NULL && !psi_ranks_has(closing, (uint32_t)rank)) {
        rank = psi_clock_missing(&table->rule, &table->members, &chunk->clock, step,
                                 (uint32_t)rank + 1);
    }
    return rank;
}

/* Who keeps the chunk from moving on, in words. */
static void
describe_wait(const struct lane *lane, const struct chunk *chunk, uint64_t step, char *text,
              size_t size)
{
    const struct table *table = chunk->table;
    size_t used;
    int32_t rank;
    unsigned named = 0;

    if (chunk->adopting != NULL) {
        adopt_describe(lane, chunk, text, size);
        return;
    }
    if (chunk->held != NULL && hold_describe(chunk, step, text, size)) {
        return;
    }
    if (!chunk->ready) {
        snprintf(text, size, "table %s waits for its initial values from worker 0",
                 table->spec.name);
        return;
    }
    used = (size_t)snprintf(text, size, "table %s step %llu waits for", table->spec.name,
                            (unsigned long long)(step > 0 ? step - 1 : 0));
    rank = missing(chunk, step, 0);
    for (; rank >= 0 && named < 8 && used + 24 + sizeof(gave_nothing) < size; named++) {
        used += (size_t)snprintf(text + used, size - used, "%s worker %d%s", named > 0 ? "," : "",
                                 rank, chunk->clock.next[rank] == 0 ? gave_nothing : "");
        rank = missing(chunk, step, (uint32_t)rank + 1);
    }
    if (named == 0) {
        snprintf(text + used, size - used, " nobody");
    }
}

psd_status
why_arrived(struct session *session, struct psd_error *err)
{
    const struct psi_frame frame = {
        .type = PSI_FRAME_BECAUSE,
        .view = session->lane->view.id,
        .request = session->guest.inbox.frame.request,
        .table = session->guest.inbox.frame.table,
        .chunk = session->guest.inbox.frame.chunk,
    };
    char text[PSI_TEXT_MAX];
    struct chunk *chunk = NULL;
    const psd_status status = asked_chunk(session, &chunk, err);

    if (status == PSD_OK) {
        describe_wait(session->lane, chunk, session->guest.inbox.frame.step, text, sizeof(text));
        (void)psi_post_error(session->guest.conn, &frame, PSD_PENDING, 0, text);
    }
    return status;
}
