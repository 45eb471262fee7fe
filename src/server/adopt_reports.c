/*
 * adopt_reports.c - what workers have told of a chunk that is adopted, read together.
 *
 * Who has the result of the round in question, who needs it, who has not spoken; for adopt.c, which
 * acts on it, and for those who ask meanwhile: the master by way of views.c, people by way of why.c.
 * Nothing here changes a chunk.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/adopt_reports.h"

#include <stdio.h>

/* Those who have told and are members. */
static const struct report *
report_of(const struct lane *lane, const struct chunk *chunk, uint32_t rank)
{
    const struct report *report = &chunk->adopting->reports[rank];

    return report->here && adopt_is_member(lane, rank) ? report : NULL;
}

/* One that has joined and given nothing yet: that it is through with the steps before its first says
 * nothing of those who took part in them. */
static bool
has_not_begun(const struct chunk *chunk, uint32_t rank, const struct report *report)
{
    return report->base == chunk->table->members.joined_at[rank] && report->base > 0 &&
           report->has == PSI_HAS_PASSED;
}

static void
sort_in(struct findings *findings, uint32_t rank, const struct report *report)
{
    if (report->base > findings->step) {
        findings->ahead = rank;
        if (report->base > findings->step + 1) {
            findings->far = rank;
        } else if (report->has == PSI_HAS_KEPT) {
            psi_ranks_add(&findings->showers, rank);
        }
    } else if (report->has == PSI_HAS_HELD) {
        psi_ranks_add(&findings->holders, rank);
        psi_ranks_add(&findings->showers, rank);
    } else {
        psi_ranks_add(&findings->pushers, rank);
    }
}

struct findings
adopt_find(const struct lane *lane, const struct chunk *chunk)
{
    struct findings findings = {.step = PSI_STEP_NEVER, .ahead = NOBODY, .far = NOBODY};

    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        const struct report *report = report_of(lane, chunk, rank);

        if (report != NULL && report->base < findings.step) {
            findings.step = report->base;
        }
    }
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        const struct report *report = report_of(lane, chunk, rank);

        if (report != NULL &&
            (report->base == findings.step || !has_not_begun(chunk, rank, report))) {
            sort_in(&findings, rank, report);
        }
    }
    return findings;
}

bool
adopt_version(const struct lane *lane, const struct chunk *chunk, uint32_t rank,
              uint64_t *version_p)
{
    bool known = false;

    *version_p = 0;
    for (uint32_t other = 0; other < lane->rows; other++) {
        const struct report *report = other == rank ? NULL : report_of(lane, chunk, other);

        if (report != NULL && !has_not_begun(chunk, other, report)) {
            const uint64_t version = report->base + (report->has == PSI_HAS_HELD);

            known = true;
            *version_p = version > *version_p ? version : *version_p;
        }
    }
    return known;
}

/* Has every member but the rank told? */
static bool
others_have_told(const struct lane *lane, const struct adopting *adopting, uint32_t rank)
{
    const uint32_t self = adopt_is_member(lane, rank) && !adopting->reports[rank].here;

    return adopting->missing == self;
}

bool
adopt_knows_all(const struct lane *lane, uint32_t rank)
{
    for (const struct table *table = lane->tables; table != NULL; table = table->next) {
        for (uint64_t i = 0; table->adoption != NULL && i < table->chunk_count; i++) {
            const struct adopting *adopting = table->chunks[i].adopting;

            if (adopting != NULL && !others_have_told(lane, adopting, rank)) {
                return false;
            }
        }
    }
    return true;
}

static struct psi_ranks
silent(const struct lane *lane, const struct chunk *chunk)
{
    struct psi_ranks ranks = {{0}};

    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        if (adopt_is_member(lane, rank) && !chunk->adopting->reports[rank].here) {
            psi_ranks_add(&ranks, rank);
        }
    }
    return ranks;
}

/* Whom the chunk waits for, and what for. */
void
adopt_describe(const struct lane *lane, const struct chunk *chunk, char *text, size_t size)
{
    const struct adopting *adopting = chunk->adopting;
    const struct findings findings = adopt_find(lane, chunk);
    const struct psi_ranks missing = silent(lane, chunk);
    const int used =
        snprintf(text, size, "table %s chunk %u: server %u was lost, its new life waits",
                 chunk->table->spec.name, chunk->index, lane->config.server);
    char names[PSI_TEXT_MAX / 2];

    text += used;
    size -= (size_t)used;
    name_workers(adopting->missing > 0 ? &missing : &findings.showers, names, sizeof(names));
    if (adopting->missing > 0) {
        snprintf(text, size, " for word from %s", names);
    } else if (lane->frozen_rank >= 0) {
        snprintf(text, size, " for the master's word about worker %lld",
                 (long long)lane->frozen_rank);
    } else if (adopting->asked != NOBODY) {
        snprintf(text, size, " for worker %lld to show the result of step %llu",
                 (long long)adopting->asked, (unsigned long long)adopting->asked_step);
    } else {
        snprintf(text, size, " for one of %s to come back and show the result of step %llu", names,
                 (unsigned long long)findings.step);
    }
}
