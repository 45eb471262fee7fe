/*
 * journal.c - what a lane keeps in mind for a master that returns, and tells it.
 *
 * The master writes nothing down. Whatever it decides the lanes hear first, and they keep it: the
 * last view with what it decided, all tables, the first steps of workers that joined, or replaced others, who has said
 * BYE. When a master in another life asks, each lane tells all of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/post.h"
#include "server/state.h"

/* The first step of a worker that joined, or where a replacement goes on with a table. */
struct known_resume {
    uint32_t rank;
    uint64_t step;
};

/* A table that was opened, here or elsewhere. */
struct known_table {
    void *body; /* owned; of its TABLE_OPEN; NULL: it was dropped, or not heard of */
    size_t bytes;
    bool dropped;
    struct known_resume *resume; /* owned */
    uint32_t resumes;
};

/* ---- keeping ------------------------------------------------------------------------------- */

/* NULL: no memory. */
static struct known_table *
known(struct lane *lane, uint32_t id)
{
    struct journal *journal = &lane->journal;

    if (id >= journal->table_count) {
        const uint32_t count = id < 64 ? 64 : 2 * id;
        struct known_table *grown = realloc(journal->tables, count * sizeof(*grown));

        if (grown == NULL) {
            return NULL;
        }
        memset(grown + journal->table_count, 0, (count - journal->table_count) * sizeof(*grown));
        journal->tables = grown;
        journal->table_count = count;
    }
    return &journal->tables[id];
}

psd_status
journal_open(struct lane *lane, uint32_t id, const void *body, size_t bytes, struct psd_error *err)
{
    struct known_table *table = known(lane, id);
    void *copy = malloc(bytes);

    if (table == NULL || copy == NULL) {
        free(copy);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to keep table %u in mind", id);
    }
    memcpy(copy, body, bytes);
    free(table->body);
    table->body = copy;
    table->bytes = bytes;
    return PSD_OK;
}

const void *
journal_table(const struct lane *lane, uint32_t id, size_t *bytes_p)
{
    const struct known_table *table =
        id < lane->journal.table_count ? &lane->journal.tables[id] : NULL;

    *bytes_p = table == NULL ? 0 : table->bytes;
    return table == NULL ? NULL : table->body;
}

void
journal_drop(struct lane *lane, uint32_t id)
{
    struct known_table *table = id < PSI_TABLES_MAX ? known(lane, id) : NULL;

    if (table != NULL) { /* else another lane has it in mind */
        free(table->body);
        table->body = NULL;
        table->dropped = true;
    }
}

static struct known_resume *
resume_of(struct known_table *table, uint32_t rank)
{
    struct known_resume *grown;

    for (uint32_t i = 0; i < table->resumes; i++) {
        if (table->resume[i].rank == rank) {
            return &table->resume[i];
        }
    }
    grown = realloc(table->resume, (table->resumes + 1) * sizeof(*grown));
    if (grown == NULL) {
        return NULL;
    }
    table->resume = grown;
    return &table->resume[table->resumes++];
}

psd_status
journal_resume_table(struct lane *lane, uint32_t id, uint32_t rank, uint64_t step,
                     struct psd_error *err)
{
    struct table *opened = table_find(lane, id);
    struct known_table *table;
    struct known_resume *resume;

    if (rank >= lane->rows) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "TABLE_RESUME: worker %u of %u", rank, lane->rows);
    }
    table = id < PSI_TABLES_MAX ? known(lane, id) : NULL;
    resume = table == NULL ? NULL : resume_of(table, rank);
    if (resume == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory to keep in mind where worker %u goes on",
                        rank);
    }
    *resume = (struct known_resume){.rank = rank, .step = step};
    if (opened != NULL) {
        opened->members.joined_at[rank] = step; /* what it gave in an earlier life it has given */
    }
    return PSD_OK;
}

psd_status
journal_resume(struct lane *lane, const struct psi_view *view, struct psd_error *err)
{
    psd_status status = PSD_OK;
    const bool begins =
        view->change == PSI_VIEW_WORKER_REPLACED || view->change == PSI_VIEW_WORKER_JOINED;

    for (uint32_t i = 0; i < view->tables && begins; i++) {
        status = status == PSD_OK ? journal_resume_table(lane, view->table[i].id, view->who,
                                                         view->table[i].left_at, err)
                                  : status;
    }
    return status;
}

bool
journal_resume_at(const struct lane *lane, uint32_t id, uint32_t index, uint32_t *rank_p,
                  uint64_t *step_p)
{
    const struct known_table *table =
        id < lane->journal.table_count ? &lane->journal.tables[id] : NULL;

    if (table == NULL || index >= table->resumes) {
        return false;
    }
    *rank_p = table->resume[index].rank;
    *step_p = table->resume[index].step;
    return true;
}

/* Numbers only grow. */
static void
cross_out(struct psi_crossed *all, const struct psi_crossed *more)
{
    for (uint32_t i = 0; i < more->places; i++) {
        if (i >= all->places) {
            all->number[all->places++] = 0;
        }
        if (more->number[i] > all->number[i]) {
            all->number[i] = more->number[i];
        }
    }
}

psd_status
journal_done(struct lane *lane, const void *body, size_t bytes, struct psd_error *err)
{
    const struct psi_frame answer = {
        .type = PSI_FRAME_DONE, .view = lane->view.id, .seq = lane->master.peer.inbox.frame.seq};
    const uint64_t load_barriers = lane->master.peer.inbox.frame.step;
    struct psi_done done;
    const psd_status status = psi_done_decode(body, bytes, &done, err);

    if (status != PSD_OK) {
        return status;
    }
    for (size_t i = 0; i < sizeof(done.ranks.word) / sizeof(done.ranks.word[0]); i++) {
        lane->journal.done.word[i] |= done.ranks.word[i];
    }
    cross_out(&lane->journal.crossed, &done.crossed);
    if (load_barriers > lane->journal.load_barriers) {
        lane->journal.load_barriers = load_barriers;
    }
    psi_fail_point(server_done_kept);
    if (psi_post(lane->master.peer.conn, &answer) != PSD_OK) {
        lane_renew_master(lane);
    }
    return PSD_OK;
}

void
journal_free(struct lane *lane)
{
    for (uint32_t id = 0; id < lane->journal.table_count; id++) {
        free(lane->journal.tables[id].body);
        free(lane->journal.tables[id].resume);
    }
    free(lane->journal.tables);
    free(lane->journal.view);
}

/* ---- telling ------------------------------------------------------------------------------- */

static psd_status
tell_table(const struct lane *lane, uint32_t id)
{
    const struct known_table *known_table = &lane->journal.tables[id];
    const struct table *table = table_find(lane, id);
    struct psi_conn *conn = lane->master.peer.conn;
    struct psi_frame frame = {.type = PSI_FRAME_TABLE_DROP, .view = lane->view.id, .table = id};
    psd_status status;

    if (known_table->dropped) {
        return psi_post(conn, &frame);
    }
    if (known_table->body == NULL) {
        return PSD_OK;
    }
    frame.type = PSI_FRAME_TABLE_OPEN;
    frame.status = table == NULL || table->prepared == table->chunk_count ? PSD_OK : PSD_PENDING;
    status = psi_post_body(conn, &frame, known_table->body, known_table->bytes);
    frame.type = PSI_FRAME_TABLE_RESUME;
    frame.status = PSD_OK;
    for (uint32_t i = 0; i < known_table->resumes && status == PSD_OK; i++) {
        frame.rank = (uint16_t)known_table->resume[i].rank;
        frame.step = known_table->resume[i].step;
        status = psi_post(conn, &frame);
    }
    return status;
}

/* Is any rank kept out, or any round, until the next view? */
static bool
is_frozen(const struct lane *lane)
{
    for (uint32_t rank = 0; rank < lane->rows; rank++) {
        if (lane->view.worker[rank].member && lane->view.worker[rank].incarnation == 0) {
            return true;
        }
    }
    return lane->frozen_rank >= 0 || lane->joining_rank >= 0;
}

void
journal_tell(struct lane *lane)
{
    struct psi_conn *conn = lane->master.peer.conn;
    struct psi_frame frame = {.type = PSI_FRAME_VIEW_COMMIT, .view = lane->view.id};
    const struct psi_lane_state state = {
        .frozen = is_frozen(lane),
        .load_barriers = lane->journal.load_barriers,
        .done = lane->journal.done,
        .pair = lane->pair == NULL ? 0 : lane->pair->number,
        .is_eligible = lane->pair != NULL && lane->pair->is_eligible && !lane->pair->is_broken,
        .crossed = lane->journal.crossed};
    psd_status status = psi_post_body(conn, &frame, lane->journal.view, lane->journal.view_bytes);

    for (uint32_t id = 0; id < lane->journal.table_count && status == PSD_OK; id++) {
        status = tell_table(lane, id);
    }
    frame.type = PSI_FRAME_LANE_STATE;
    if (status != PSD_OK || psi_post_lane_state(conn, &frame, &state) != PSD_OK) {
        lane_renew_master(lane);
    }
    psi_fail_point(server_journal_told);
}
