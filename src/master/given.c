/*
 * given.c - what a rank has given of every table: where it left, where its replacement goes on, or with
 * which step one that joins begins.
 *
 * Lanes report of their own chunks while a change of view is proposed. Here that is added up, and
 * decided the same way for all lanes. Apart from views.c, which has who hears what and when: this
 * sends nothing, and fills in master->view_table and master->change.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>

#include "master/state.h"

/*
 * Adds one lane's report. A rank is never more than one step ahead of itself on a synchronous
 * table (with backup workers: rounds that closed without it are not reported), so counts for the
 * smallest clock seen so far, and for the one below it should that turn up, are enough; no lane's
 * report has to be kept.
 */
void
master_given_add(struct given *sum, const struct psi_given *lane)
{
    const bool level = lane->next_min == lane->next_max;

    if (lane->chunks == 0) {
        return;
    }
    if (!sum->any) {
        *sum = (struct given){.any = true, .next = lane->next_min};
    } else if (lane->next_min < sum->next) {
        sum->next = lane->next_min;
        sum->ahead = sum->chunks;
        sum->closed = sum->closed_below;
        sum->closed_below = 0;
    }
    if (lane->next_min > sum->next) {
        sum->ahead += lane->chunks;
        sum->closed += lane->closed;
    } else if (level) {
        sum->closed_below += lane->closed;
    } else {
        sum->ahead += lane->ahead;
        sum->closed += lane->closed;
    }
    sum->chunks += lane->chunks;
}

/* ------------------------------------------------------------------------- a rank leaves --- */

/*
 * First step without the rank, and whether what it gave of that step is taken back. All chunks at
 * one clock: every step it began is complete. Some ahead, closed nowhere: the part is taken back.
 * Some ahead and closed: it counts where it was given.
 */
static struct psi_view_table
decide(const struct table *table)
{
    const struct given *given = &table->given;

    return (struct psi_view_table){
        .id = table->id,
        .left_at = given->next, /* 0 for a table opened after the lanes had reported */
        .drop = psi_spec_synchronous(&table->spec) && given->ahead > 0 && given->closed == 0,
    };
}

/* The one case that cannot be undone: the step counts in part. */
static bool
counts_in_part(const struct table *table)
{
    return psi_spec_synchronous(&table->spec) && table->given.closed > 0;
}

/* Complete steps of the tables. Each has a rhythm of its own; one that is a step behind those with most
 * was about to be given its next. */
struct complete_steps {
    uint64_t least; /* of all */
    uint64_t level; /* of those that go with the job's steps */
    uint64_t most;
};

static struct complete_steps
complete_steps(const struct psi_view_table *tables, uint32_t count)
{
    struct complete_steps complete = {.least = PSI_STEP_NEVER, .most = 0};

    for (uint32_t i = 0; i < count; i++) {
        if (tables[i].left_at != PSI_STEP_NEVER) {
            complete.least =
                tables[i].left_at < complete.least ? tables[i].left_at : complete.least;
            complete.most = tables[i].left_at > complete.most ? tables[i].left_at : complete.most;
        }
    }
    complete.level = complete.most;
    for (uint32_t i = 0; i < count; i++) {
        if (tables[i].left_at + 1 == complete.most) {
            complete.level = tables[i].left_at;
        }
    }
    return complete;
}

static void
log_leave(const struct master *master, struct complete_steps complete)
{
    const uint32_t rank = master->change.who;
    uint32_t partial = 0;

    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];

        if (table->state == TABLE_DROPPED || !counts_in_part(table) ||
            ++partial > MASTER_NAMES_MAX) {
            continue;
        }
        psi_log(master->log, PSI_LOG_INFO, "MEMBER-LEFT",
                "worker %u counted in %" PRIu64 " of %" PRIu64 " chunks of step %" PRIu64
                " of table %s",
                rank, table->given.ahead, table->given.chunks, table->given.next, table->spec.name);
    }
    if (partial > MASTER_NAMES_MAX) {
        psi_log(master->log, PSI_LOG_INFO, "MEMBER-LEFT",
                "worker %u counted in part in %u more tables", rank, partial - MASTER_NAMES_MAX);
    }
    if (complete.level == 0) {
        psi_log(master->log, PSI_LOG_INFO, "MEMBER-LEFT", "worker %u left: no step complete", rank);
    } else if (complete.least == complete.level) {
        psi_log(master->log, PSI_LOG_INFO, "MEMBER-LEFT",
                "worker %u left: tables complete through step %" PRIu64, rank, complete.level - 1);
    } else {
        psi_log(master->log, PSI_LOG_INFO, "MEMBER-LEFT",
                "worker %u left: tables complete through step %" PRIu64
                ", those that are used less often have %" PRIu64 " complete steps or more",
                rank, complete.level - 1, complete.least);
    }
}

/* Does it go with the job's steps? Of an asynchronous table each worker has steps of its own. */
static bool
has_steps(const struct table *table)
{
    return table->state != TABLE_DROPPED && table->spec.staleness != PSD_STALENESS_UNBOUNDED;
}

/*
 * The step from which workers see that the rank is gone (psd_members). The first step without it may
 * have begun: it closes only where the view is known, so nobody reaches the next one without the view.
 */
static uint64_t
counts_no_longer(const struct master *master)
{
    uint64_t step = 0;

    for (uint32_t i = 0; i < master->change.tables; i++) {
        const struct psi_view_table *left = &master->view_table[i];

        if (has_steps(master->table[left->id]) && left->left_at != PSI_STEP_NEVER &&
            left->left_at >= step) {
            step = left->left_at + 1;
        }
    }
    return step;
}

void
master_given_leave(struct master *master)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        if (master->table[id]->state != TABLE_DROPPED) {
            master->view_table[master->change.tables++] = decide(master->table[id]);
        }
    }
    master->change.counts = counts_no_longer(master);
    log_leave(master, complete_steps(master->view_table, master->change.tables));
}

/* -------------------------------------------------------------------- a rank is replaced --- */

static bool
in_rounds(const struct table *table)
{
    return table->state != TABLE_DROPPED && psi_spec_synchronous(&table->spec);
}

/* The first step that the rank may have to give of this table. */
static uint64_t
owed_step(const struct table *table)
{
    return table->backup != NULL ? table->backup->group->resume : table->given.next;
}

/*
 * The step that the replacement repeats: the first that some chunk lacks, one for all tables that
 * are pushed together, since a gradient is computed from all of them. Those are at most one step
 * apart (a push of the next step leaves only when this one's are done); a table further behind is
 * pushed at a rhythm of its own.
 */
static uint64_t
common_step(const struct master *master)
{
    uint64_t furthest = 0;

    for (uint32_t id = 0; id < master->tables; id++) {
        if (in_rounds(master->table[id]) && owed_step(master->table[id]) > furthest) {
            furthest = owed_step(master->table[id]);
        }
    }
    for (uint32_t id = 0; id < master->tables; id++) {
        if (in_rounds(master->table[id]) && owed_step(master->table[id]) + 1 == furthest) {
            return furthest - 1;
        }
    }
    return furthest;
}

psd_status
master_given_resume(struct master *master)
{
    uint64_t common;

    master_quorum_resume(master, master->change.who);
    common = common_step(master);
    for (uint32_t id = 0; id < master->tables; id++) {
        struct table *table = master->table[id];
        const uint64_t owed = owed_step(table);
        const uint64_t step = in_rounds(table) && owed >= common ? common : owed;

        if (table->state == TABLE_DROPPED) {
            continue;
        }
        if (master_table_resume(master, table, master->change.who, step) != PSD_OK) {
            return PSD_ERR_NO_MEMORY;
        }
        master->view_table[master->change.tables++] =
            (struct psi_view_table){.id = id, .left_at = step};
    }
    return PSD_OK;
}

/* --------------------------------------------------------------------------- a rank joins --- */

enum { APART_MAX = 8 }; /* tables that are pushed together are no further apart than that */

void
master_given_add_promise(struct given *sum, const struct psi_given *lane)
{
    sum->any = true;
    sum->next = lane->next_max > sum->next ? lane->next_max : sum->next;
}

/* A table opened after a lane had reported stands still there. */
static bool
has_begun(const struct table *table)
{
    return table->given.next > table->first_step;
}

/*
 * Each lane has promised not to close the step that it named before it knows of the one that joins. That
 * comes with the step behind the highest of these: so whoever comes to that step has an answer from
 * every lane that knew of it (psd_members). A table that nobody has pushed it begins with the others.
 */
static uint64_t
first_free_step(const struct table *table)
{
    return has_begun(table) ? table->given.next + 1 : table->first_step;
}

/* One step for all tables that are pushed together: a later one than it would take is as good. */
static uint64_t
first_step_of_all(const struct master *master)
{
    uint64_t furthest = 0;

    for (uint32_t id = 0; id < master->tables; id++) {
        if (has_steps(master->table[id]) && first_free_step(master->table[id]) > furthest) {
            furthest = first_free_step(master->table[id]);
        }
    }
    return furthest;
}

/*
 * The step from which workers see that the rank counts. If training had not begun, some may be at the
 * first step already without knowing.
 */
static uint64_t
counts_since(const struct master *master, uint64_t common)
{
    bool stepped = master->tables == 0; /* or the first table, to come, is */
    bool begun = false;

    for (uint32_t id = 0; id < master->tables; id++) {
        stepped = stepped || has_steps(master->table[id]);
        begun = begun || (has_steps(master->table[id]) && has_begun(master->table[id]));
    }
    return stepped && !begun ? common + 1 : common;
}

uint64_t
master_given_first_step(const struct master *master)
{
    bool begun = false;

    for (uint32_t id = 0; id < master->tables; id++) {
        begun = begun || (has_steps(master->table[id]) && has_begun(master->table[id]));
    }
    return begun ? first_step_of_all(master) : 0;
}

psd_status
master_given_join(struct master *master, uint64_t wanted)
{
    const uint64_t first = first_step_of_all(master);
    const uint64_t common = wanted > first ? wanted : first;
    const uint32_t rank = master->change.who;

    for (uint32_t id = 0; id < master->tables; id++) {
        struct table *table = master->table[id];
        const bool own_rhythm = has_steps(table) && first_free_step(table) + APART_MAX < first;
        const uint64_t step = own_rhythm ? first_free_step(table) : common;

        if (table->state == TABLE_DROPPED) {
            continue;
        }
        if (master_table_resume(master, table, rank, step) != PSD_OK) {
            return PSD_ERR_NO_MEMORY;
        }
        master->view_table[master->change.tables++] =
            (struct psi_view_table){.id = id, .left_at = step};
    }
    master->change.counts = counts_since(master, common);
    if (common == 0) {
        psi_log(master->log, PSI_LOG_INFO, "MEMBER-JOINS", "worker %u counts from now on", rank);
    } else {
        psi_log(master->log, PSI_LOG_INFO, "MEMBER-JOINS",
                "worker %u counts from step %" PRIu64 " on", rank, common);
    }
    return PSD_OK;
}
