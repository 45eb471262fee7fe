/*
 * quorum.c - rounds with backup workers: which ranks are in, decided once per step.
 *
 * The decision holds for all chunks of all tables of a group: those with the same number of backup
 * workers. The first of them that enough workers have given decides who is in the step, so that a
 * worker counts everywhere or nowhere. A round of a table closes (CLOSE to all lanes) when all of
 * those have given the table. One that stops in the middle of a step, between two tables, would
 * keep everybody waiting: if it does so for a heartbeat, while enough others have come that far,
 * the table closes with those who have given it.
 *
 * The master is the coordinator because it also orders changes of membership: a CLOSE that follows
 * a VIEW_COMMIT to a lane was decided with that membership. Lanes hold contributions until CLOSE.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/read.h"
#include "master/state.h"

static struct backup_group *
find_group(const struct master *master, uint32_t backup_workers)
{
    struct backup_group *group = master->groups;

    while (group != NULL && group->backup_workers != backup_workers) {
        group = group->next;
    }
    return group;
}

static struct backup_group *
create_group(struct master *master, uint32_t backup_workers)
{
    struct backup_group *group = calloc(1, sizeof(*group));

    if (group == NULL) {
        return NULL;
    }
    group->backup_workers = backup_workers;
    group->quorum.step = master->config.resumed == NULL ? 0 : master->config.resumed->manifest.step;
    group->members.left_at = group->left_at;
    for (uint32_t rank = 0; rank < PSI_RANKS_MAX; rank++) {
        const bool leaving = master->change.stage == STAGE_COMMITTED &&
                             master->change.kind == PSI_VIEW_WORKER_LEFT &&
                             master->change.who == rank;
        const bool member =
            rank < master->config.workers && master->view.worker[rank].member && !leaving;

        group->members.left_at[rank] = member ? PSI_STEP_NEVER : 0;
    }
    group->next = master->groups;
    master->groups = group;
    return group;
}

static psd_status
create_backup(const struct master *master, struct table *table, struct backup_group *group)
{
    struct backup *backup = calloc(1, sizeof(*backup));

    table->backup = backup;
    if (backup != NULL) {
        backup->group = group;
        backup->next = group->quorum.step;
        backup->given = calloc(master->config.workers, sizeof(*backup->given));
    }
    return backup != NULL && backup->given != NULL ? PSD_OK : PSD_ERR_NO_MEMORY;
}

psd_status
master_quorum_join(struct master *master, struct table *table)
{
    const uint32_t backup_workers = table->spec.backup_workers;
    struct backup_group *group;

    if (backup_workers == 0) {
        return PSD_OK;
    }
    group = find_group(master, backup_workers);
    if (group == NULL) {
        group = create_group(master, backup_workers);
    }
    if (group == NULL || create_backup(master, table, group) != PSD_OK) {
        return PSD_ERR_NO_MEMORY;
    }
    table->first_step = group->quorum.step;
    return PSD_OK;
}

void
master_quorum_forget(struct table *table)
{
    if (table->backup != NULL) {
        free(table->backup->given);
        free(table->backup);
        table->backup = NULL;
    }
}

void
master_quorum_destroy(struct master *master)
{
    while (master->groups != NULL) {
        struct backup_group *group = master->groups;

        master->groups = group->next;
        free(group);
    }
}

/*
 * Two groups have steps of their own. Workers that wait for tables of both may wait for each other
 * when a group has nobody to spare, which deaths bring about in a job that goes on.
 */
const struct table *
master_quorum_rival(const struct master *master, const struct psi_spec *spec)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];

        if (master->config.policy == PSI_DEATH_CONTINUE && spec->backup_workers > 0 &&
            table->state != TABLE_DROPPED && table->spec.backup_workers > 0 &&
            table->spec.backup_workers != spec->backup_workers) {
            return table;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------- closing --- */

/* The oldest of so many rounds before `step` whose set is kept; `step` if there is none. */
static uint64_t
first_kept(uint64_t step, uint64_t rounds)
{
    return step - (rounds < MASTER_ROUNDS_KEPT ? rounds : MASTER_ROUNDS_KEPT);
}

/* Who was chosen for a step; NULL: that is forgotten, or not decided yet. */
static const struct psi_ranks *
chosen_for(const struct backup_group *group, uint64_t step)
{
    if (step >= group->quorum.step || step < first_kept(group->quorum.step, group->rounds)) {
        return NULL;
    }
    return &group->decided[step % MASTER_ROUNDS_KEPT];
}

static void
send_close(struct master *master, const struct table *table, struct member *lane, uint64_t step)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_CLOSE);

    frame.table = table->id;
    frame.step = step;
    if (lane->session != NULL) {
        master_posted(lane->session,
                      psi_post_ranks(lane->session->guest.conn, &frame,
                                     &table->backup->closed[step % MASTER_ROUNDS_KEPT]));
    }
}

/* How far workers have come in the round that a table closes next. */
struct progress {
    struct psi_ranks gave;
    uint32_t live;
    uint32_t ready;   /* of the live: have given it */
    uint32_t passed;  /* of the live: have given it, or a later step of some table */
    uint32_t missing; /* of the live: were chosen, and have not */
};

static struct progress
look(const struct master *master, const struct backup *backup, const struct psi_ranks *chosen)
{
    const struct backup_group *group = backup->group;
    struct progress progress = {.gave = {{0}}};

    for (uint32_t rank = 0; rank < master->config.workers; rank++) {
        const bool gave = backup->given[rank] == backup->next + 1;

        if (gave) {
            psi_ranks_add(&progress.gave, rank);
        }
        if (group->members.left_at[rank] > backup->next) {
            progress.live++;
            progress.ready += gave;
            progress.passed += gave || group->furthest[rank] > backup->next + 1;
            progress.missing += !gave && chosen != NULL && psi_ranks_has(chosen, rank);
        }
    }
    return progress;
}

static uint32_t
needed(const struct master *master, const struct backup_group *group, uint32_t live)
{
    const uint32_t all = master->config.workers - group->backup_workers;

    return all < live ? all : live;
}

static void
close_round(struct master *master, struct table *table, const struct psi_ranks *ranks)
{
    struct backup *backup = table->backup;
    const uint64_t step = backup->next;

    backup->closed[step % MASTER_ROUNDS_KEPT] = *ranks;
    backup->rounds++;
    backup->next++;
    backup->late_ns = 0;
    for (uint32_t place = 0; place < master->places; place++) {
        send_close(master, table, master->place[place], step);
    }
}

/* Lanes keep only the last sets: none is pushed out before its round is closed everywhere. */
static bool
may_close(const struct backup *backup)
{
    const uint64_t oldest = backup->next - MASTER_ROUNDS_KEPT;

    return backup->next < backup->group->quorum.step &&
           (backup->rounds < MASTER_ROUNDS_KEPT || oldest < backup->proven ||
            psi_ranks_count(&backup->closed[oldest % MASTER_ROUNDS_KEPT]) == 0);
}

/* All that were chosen have given it. */
static bool
close_with_the_chosen(struct master *master, struct table *table)
{
    const struct backup *backup = table->backup;
    const struct psi_ranks *chosen = chosen_for(backup->group, backup->next);
    const struct progress progress = look(master, backup, chosen);
    struct psi_ranks ranks = progress.gave;

    if (!may_close(backup) ||
        (chosen != NULL ? progress.missing > 0
                        : progress.ready < needed(master, backup->group, progress.live))) {
        return false;
    }
    for (uint32_t rank = 0; chosen != NULL && rank < master->config.workers; rank++) {
        if (!psi_ranks_has(chosen, rank)) {
            psi_ranks_remove(&ranks, rank);
        }
    }
    close_round(master, table, &ranks);
    return true;
}

static void
close_rounds(struct master *master, struct table *table)
{
    struct backup *backup = table->backup;

    while (close_with_the_chosen(master, table)) {
    }
    if (backup->late_ns == 0 && backup->newest > backup->next) {
        backup->late_ns = psi_now_ns(master->env) + master->config.heartbeat_ms * MASTER_MS_NS;
        if (master->late_ns == 0 || backup->late_ns < master->late_ns) {
            master->late_ns = backup->late_ns;
        }
        master_wake_at(master, backup->late_ns);
    }
}

/* Enough others wait for one that was chosen: they do not any longer. */
static void
close_without_the_late(struct master *master, struct table *table)
{
    struct backup *backup = table->backup;
    const struct progress progress = look(master, backup, chosen_for(backup->group, backup->next));

    backup->late_ns = 0;
    if (may_close(backup) && progress.passed >= needed(master, backup->group, progress.live)) {
        psi_log(master->log, PSI_LOG_DEBUG, "WORKER-LATE",
                "table %s step %" PRIu64 " closes without %u late worker%s", table->spec.name,
                backup->next, progress.missing, psi_plural(progress.missing));
        close_round(master, table, &progress.gave);
    }
    close_rounds(master, table);
}

void
master_quorum_tick(struct master *master, uint64_t now_ns)
{
    if (master->late_ns != 0 && now_ns >= master->late_ns) {
        master->late_ns = 0;
        for (uint32_t id = 0; id < master->tables; id++) {
            struct table *table = master->table[id];
            const struct backup *backup = table->backup;

            if (backup != NULL && backup->late_ns != 0 && backup->late_ns <= now_ns) {
                close_without_the_late(master, table);
            }
            if (backup != NULL && backup->late_ns != 0 &&
                (master->late_ns == 0 || backup->late_ns < master->late_ns)) {
                master->late_ns = backup->late_ns;
            }
        }
    }
    if (master->late_ns != 0) {
        master_wake_at(master, master->late_ns);
    }
}

/* ------------------------------------------------------------------------------ choosing --- */

/* Chooses those of every step that enough workers have. True: of one at least. */
static bool
choose(const struct master *master, struct backup_group *group)
{
    const struct psi_clock_rule rule = {.workers = master->config.workers,
                                        .backup = group->backup_workers};
    const uint64_t rounds = group->rounds;

    while (psi_quorum_close(&group->quorum, &rule, &group->members,
                            &group->decided[group->quorum.step % MASTER_ROUNDS_KEPT])) {
        group->rounds++;
    }
    return group->rounds > rounds;
}

static void
close_rounds_of(struct master *master, const struct backup_group *group)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        struct table *table = master->table[id];

        if (table->backup != NULL && table->backup->group == group) {
            close_rounds(master, table);
        }
    }
}

/* A job that goes on from a saved step. */
static void
begin_at(struct master *master, struct backup_group *group, uint64_t step)
{
    group->quorum.step = step;
    memset(&group->quorum.have, 0, sizeof(group->quorum.have));
    for (uint32_t id = 0; id < master->tables; id++) {
        if (master->table[id]->backup != NULL && master->table[id]->backup->group == group) {
            master->table[id]->backup->next = step;
            master->table[id]->backup->proven = step;
        }
    }
}

psd_status
master_on_have(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const uint32_t rank = session->member->rank;
    struct backup_group *group;
    struct backup *backup;

    (void)body;
    (void)bytes;
    if (frame->table >= master->tables || frame->step == PSI_STEP_NEVER) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "HAVE: no table %u", frame->table);
    }
    backup = master->table[frame->table]->backup;
    if (backup == NULL) {
        return PSD_OK; /* every lane closes such rounds by itself */
    }
    group = backup->group;
    /* Nobody is beyond the first step before it is decided; but a replacement may be behind it. */
    if (group->rounds == 0 &&
        (psi_ranks_count(&group->quorum.have) == 0 || frame->step > group->quorum.step)) {
        begin_at(master, group, frame->step);
    }
    if (backup->given[rank] <= frame->step && backup->given[rank] > backup->proven) {
        backup->proven = backup->given[rank]; /* it was told that the last one it gave is closed */
    }
    backup->given[rank] = frame->step + 1;
    backup->newest = frame->step + 1 > backup->newest ? frame->step + 1 : backup->newest;
    if (frame->step + 1 > group->furthest[rank]) {
        group->furthest[rank] = frame->step + 1;
    }
    psi_quorum_have(&group->quorum, rank, frame->step);
    if (choose(master, group)) {
        close_rounds_of(master, group);
    } else {
        close_rounds(master, master->table[frame->table]);
    }
    return PSD_OK;
}

/* ------------------------------------------------------------------- leaving and returning --- */

void
master_quorum_left(struct master *master, uint32_t rank)
{
    for (struct backup_group *group = master->groups; group != NULL; group = group->next) {
        uint64_t left_at = PSI_STEP_NEVER; /* the first step that it has not given in all tables */

        for (uint32_t i = 0; i < master->change.tables; i++) {
            const struct psi_view_table *entry = &master->view_table[i];
            struct backup *backup = master->table[entry->id]->backup;

            if (backup != NULL && backup->group == group) {
                /* What is there counts, even if its HAVE was lost on the way; what is not does not,
                 * whatever it said. */
                backup->given[rank] = entry->left_at;
                if (entry->left_at > backup->proven + 1) {
                    backup->proven = entry->left_at - 1; /* no chunk is further behind */
                }
                left_at = entry->left_at < left_at ? entry->left_at : left_at;
            }
        }
        group->members.left_at[rank] = left_at == PSI_STEP_NEVER ? 0 : left_at;
        if (group->members.left_at[rank] > group->quorum.step) {
            psi_quorum_have(&group->quorum, rank, group->quorum.step);
        }
        (void)choose(master, group);
        close_rounds_of(master, group);
    }
}

/* Some chunk may still wait for what the rank owes to this step. */
static bool
owes(const struct master *master, const struct backup_group *group, uint32_t rank, uint64_t step)
{
    const bool chosen = psi_ranks_has(&group->decided[step % MASTER_ROUNDS_KEPT], rank);

    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];
        const struct backup *backup = table->backup;

        if (backup != NULL && backup->group == group && table->given.any &&
            table->given.next <= step &&
            (chosen || (step < backup->next && step >= first_kept(backup->next, backup->rounds) &&
                        psi_ranks_has(&backup->closed[step % MASTER_ROUNDS_KEPT], rank)))) {
            return true;
        }
    }
    return false;
}

/* The last step that the rank has given of any table. */
static uint64_t
last_given(const struct master *master, const struct backup_group *group)
{
    uint64_t next = 0;

    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];

        if (table->backup != NULL && table->backup->group == group && table->given.next > next) {
            next = table->given.next;
        }
    }
    return next > 0 ? next - 1 : 0;
}

/*
 * Where a replacement goes on: at the first step that was decided with its rank and that some chunk
 * may still wait for. Else at the last step its rank has given: that is answered at once, whatever
 * other rounds wait for (perhaps for another replacement, which waits for this one), and it learns
 * there how far the others are.
 */
void
master_quorum_resume(struct master *master, uint32_t rank)
{
    for (struct backup_group *group = master->groups; group != NULL; group = group->next) {
        uint64_t step = first_kept(group->quorum.step, group->rounds);

        while (step < group->quorum.step && !owes(master, group, rank, step)) {
            step++;
        }
        group->resume = step < group->quorum.step ? step : last_given(master, group);
    }
}

void
master_quorum_resend(struct master *master, struct member *lane)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];
        const struct backup *backup = table->backup;

        for (uint64_t step = backup != NULL ? first_kept(backup->next, backup->rounds) : 0;
             backup != NULL && table->state == TABLE_READY && step < backup->next; step++) {
            send_close(master, table, lane, step);
        }
    }
}
