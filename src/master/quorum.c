/*
 * quorum.c - rounds with backup workers: which ranks are in, decided once per step for all chunks.
 *
 * The master is the coordinator because it also orders changes of membership: a CLOSE that follows
 * a VIEW_COMMIT to a lane was decided with that membership. Lanes hold contributions until CLOSE.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "master/state.h"

psd_status
master_quorum_create(const struct master *master, struct table *table)
{
    if (table->spec.backup_workers == 0) {
        return PSD_OK;
    }
    table->backup = calloc(1, sizeof(*table->backup));
    if (table->backup == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    for (uint32_t rank = 0; rank < PSI_RANKS_MAX; rank++) {
        const bool leaving = master->change.stage == STAGE_COMMITTED && master->change.leaves &&
                             master->change.rank == rank;
        const bool member =
            rank < master->config.workers && master->worker[rank].in_view && !leaving;

        table->backup->members.left_at[rank] = member ? PSI_STEP_NEVER : 0;
    }
    return PSD_OK;
}

/* The oldest round whose set is kept; quorum.step if there is none. */
static uint64_t
first_kept(const struct backup *backup)
{
    const uint64_t kept = backup->rounds < MASTER_ROUNDS_KEPT ? backup->rounds : MASTER_ROUNDS_KEPT;

    return backup->quorum.step - kept;
}

static void
send_close(struct master *master, const struct table *table, struct member *lane, uint64_t step)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_CLOSE);

    frame.table = table->id;
    frame.step = step;
    if (lane->session != NULL) {
        master_posted(lane->session,
                      psi_post_ranks(lane->session->conn, &frame,
                                     &table->backup->decided[step % MASTER_ROUNDS_KEPT]));
    }
}

static void
close_rounds(struct master *master, struct table *table)
{
    struct backup *backup = table->backup;
    const struct psi_clock_rule rule = {.workers = master->config.workers,
                                        .staleness = table->spec.staleness,
                                        .backup = table->spec.backup_workers};
    uint64_t step = backup->quorum.step;

    while (psi_quorum_close(&backup->quorum, &rule, &backup->members,
                            &backup->decided[step % MASTER_ROUNDS_KEPT])) {
        backup->rounds++;
        for (uint32_t place = 0; place < master->places; place++) {
            send_close(master, table, master->place[place], step);
        }
        step = backup->quorum.step;
    }
}

psd_status
master_on_have(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct psi_frame *frame = &session->inbox.frame;
    struct backup *backup;

    (void)body;
    (void)bytes;
    if (frame->table >= master->tables) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "HAVE: no table %u", frame->table);
    }
    backup = master->table[frame->table]->backup;
    if (backup == NULL) {
        return PSD_OK; /* every lane closes such rounds by itself */
    }
    if (backup->rounds == 0 && psi_ranks_count(&backup->quorum.have) == 0) {
        backup->quorum.step = frame->step; /* a job that goes on from a saved step */
    }
    psi_quorum_have(&backup->quorum, session->member->rank, frame->step);
    close_rounds(master, master->table[frame->table]);
    return PSD_OK;
}

void
master_quorum_left(struct master *master, struct table *table, uint32_t rank, uint64_t left_at)
{
    if (table->backup != NULL) {
        table->backup->members.left_at[rank] = left_at;
        if (left_at > table->backup->quorum.step) {
            /* All of the round is there, even if its HAVE was lost on the way: nobody repeats it.
             */
            psi_quorum_have(&table->backup->quorum, rank, table->backup->quorum.step);
        }
        close_rounds(master, table);
    }
}

/*
 * Where a replacement goes on: at the first round that was decided with its rank and that some
 * chunk may still wait for. Else at the last step its rank has given: that is answered at once,
 * whatever other rounds wait for (perhaps for another replacement, which waits for this one), and
 * it learns there how far the others are.
 */
uint64_t
master_quorum_resume(const struct table *table, uint32_t rank)
{
    const struct backup *backup = table->backup;
    uint64_t step = first_kept(backup);

    while (step < backup->quorum.step &&
           (step < table->given.next ||
            !psi_ranks_has(&backup->decided[step % MASTER_ROUNDS_KEPT], rank))) {
        step++;
    }
    if (step < backup->quorum.step) {
        return step;
    }
    return table->given.next > 0 ? table->given.next - 1 : 0;
}

void
master_quorum_resend(struct master *master, struct member *lane)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];

        for (uint64_t step = table->backup != NULL ? first_kept(table->backup) : 0;
             table->backup != NULL && table->state == TABLE_READY &&
             step < table->backup->quorum.step;
             step++) {
            send_close(master, table, lane, step);
        }
    }
}
