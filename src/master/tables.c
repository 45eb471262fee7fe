/*
 * tables.c - the names of tables: numbers, places, and workers that disagree.
 *
 * The first worker to open a name creates the table: every lane is told and has to find the memory.
 * Only when all have said yes do workers hear of it; one no takes it back everywhere, and the name
 * is free again. Numbers are never used twice, so a late answer cannot mean another table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/fail.h"
#include "checkpoint/read.h"
#include "master/state.h"
#include "table/places.h"

enum { OPENERS_MAX = 4096 }; /* threads of one worker that open one table */

void
master_table_destroy(struct table *table)
{
    if (table != NULL) {
        free(table->load_before);
        free(table->acked);
        free(table->waiter);
        free(table->resume);
        master_quorum_forget(table);
        free(table);
    }
}

static struct table *
find_table(const struct master *master, const char *name)
{
    const uint32_t crc = psi_crc32c(0, name, strlen(name));

    for (uint32_t id = 0; id < master->tables; id++) {
        struct table *table = master->table[id];

        if (table->name_crc == crc && table->state != TABLE_DROPPED &&
            strcmp(table->spec.name, name) == 0) {
            return table;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------- sending --- */

static void
make_info(const struct master *master, const struct table *table, struct psi_table_info *info_p)
{
    memset(info_p, 0, sizeof(*info_p));
    info_p->id = table->id;
    info_p->creator = table->creator;
    info_p->spec = table->spec;
    info_p->step = table->first_step;
    info_p->again = table->state == TABLE_READY;
    info_p->loads = master->loads;
    memcpy(info_p->loads.bytes, table->load_before, master->places * sizeof(uint64_t));
}

static void
send_open(struct master *master, const struct table *table, struct member *lane)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_TABLE_OPEN);
    struct psi_table_info info;

    frame.table = table->id;
    make_info(master, table, &info);
    if (lane->session != NULL) {
        master_posted(lane->session, psi_post_table_info(lane->session->guest.conn, &frame, &info));
    }
}

/* To a lane that begins anew: from which step on each worker takes part. */
static void
send_resumes(struct master *master, const struct table *table, struct member *lane)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_TABLE_RESUME);

    frame.table = table->id;
    for (uint32_t rank = 0; table->resume != NULL && rank < master->config.workers; rank++) {
        frame.rank = (uint16_t)rank;
        frame.step = table->resume[rank];
        if (lane->session != NULL && table->resume[rank] != table->first_step) {
            master_posted(lane->session, psi_post(lane->session->guest.conn, &frame));
        }
    }
}

static void
send_drop(struct master *master, const struct table *table, struct member *lane)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_TABLE_DROP);

    frame.table = table->id;
    if (lane->session != NULL) {
        master_posted(lane->session, psi_post(lane->session->guest.conn, &frame));
    }
}

static void
send_info(struct master *master, const struct table *table, const struct waiter *waiter)
{
    struct session *session = master->worker[waiter->rank].member.session;
    struct psi_frame frame = master_frame(master, PSI_FRAME_TABLE_INFO);
    struct psi_table_info info;

    if (session == NULL) {
        return; /* it asks again when it is back */
    }
    frame.request = waiter->request;
    frame.table = table->id;
    make_info(master, table, &info);
    if (table->resume != NULL) {
        info.step = table->resume[waiter->rank];
    }
    master_posted(session, psi_post_table_info(session->guest.conn, &frame, &info));
    psi_fail_point(master_table_told);
}

/* To an observer. */
void
master_table_describe(struct session *session, const struct table *table, uint32_t request)
{
    struct psi_frame frame = master_frame(session->master, PSI_FRAME_TABLE_INFO);
    struct psi_table_info info;

    frame.request = request;
    frame.table = table->id;
    make_info(session->master, table, &info);
    master_posted(session, psi_post_table_info(session->guest.conn, &frame, &info));
}

static void
send_error(struct session *session, const struct psd_error *error)
{
    const struct psi_frame frame = master_answer(session, PSI_FRAME_ACK);

    master_posted(session,
                  psi_post_error(session->guest.conn, &frame, error->status, 0, error->text));
}

void
master_tables_resend(struct master *master, struct member *lane, uint32_t place)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];

        if (table->state != TABLE_DROPPED && !table->acked[place]) {
            send_resumes(master, table, lane);
            send_open(master, table, lane);
        } else if (table->state == TABLE_DROPPED) {
            send_drop(master, table, lane); /* it may have missed the first */
        }
    }
}

/* ------------------------------------------------------------------------------- opening --- */

/* Adds the table's bytes to the loads, or takes them away again. Where they went follows from the
 * loads before it, so nothing has to be remembered. */
void
master_table_change_loads(struct master *master, const struct table *table, bool add)
{
    struct psi_loads after = master->loads;

    memcpy(after.bytes, table->load_before, master->places * sizeof(uint64_t));
    psi_table_place(&table->spec, psi_dtype_bytes(table->spec.dtype), &after, NULL);
    for (uint32_t place = 0; place < master->places; place++) {
        const uint64_t bytes = after.bytes[place] - table->load_before[place];

        master->loads.bytes[place] += add ? bytes : 0 - bytes;
    }
}

static bool
make_room_for_waiter(struct table *table)
{
    const uint32_t capacity = table->waiters == 0 ? 4 : 2 * table->waiters;
    struct waiter *grown;

    if (table->waiters < table->waiters_capacity) {
        return true;
    }
    grown = realloc(table->waiter, capacity * sizeof(*grown));
    if (grown != NULL) {
        table->waiter = grown;
        table->waiters_capacity = capacity;
    }
    return grown != NULL;
}

/* Several threads of a worker may wait for one table; after a cut each asks again. False: no
 * memory, or too many. */
static bool
add_waiter(struct table *table, uint32_t rank, uint32_t request)
{
    uint32_t of_rank = 0;

    for (uint32_t i = 0; i < table->waiters; i++) {
        if (table->waiter[i].rank == rank) {
            if (table->waiter[i].request == request) {
                return true;
            }
            of_rank++;
        }
    }
    if (of_rank == OPENERS_MAX || !make_room_for_waiter(table)) {
        return false;
    }
    table->waiter[table->waiters++] = (struct waiter){.rank = rank, .request = request};
    return true;
}

struct table *
master_table_create(struct master *master, uint32_t id, const struct psi_spec *spec,
                    uint32_t creator)
{
    struct table *table = calloc(1, sizeof(*table));

    if (table == NULL) {
        return NULL;
    }
    table->id = id;
    table->creator = creator;
    table->name_crc = psi_crc32c(0, spec->name, strlen(spec->name));
    table->spec = *spec;
    table->acks_left = master->places;
    table->load_before = malloc(master->places * sizeof(*table->load_before));
    table->acked = calloc(master->places, sizeof(*table->acked));
    if (table->load_before == NULL || table->acked == NULL || !make_room_for_waiter(table) ||
        master_quorum_join(master, table) != PSD_OK) {
        master_table_destroy(table);
        return NULL;
    }
    memcpy(table->load_before, master->loads.bytes, master->places * sizeof(uint64_t));
    return table;
}

static void
open_new(struct session *session, const struct psi_spec *spec)
{
    struct master *master = session->master;
    const uint32_t rank = session->member->rank;
    struct psd_error error;
    struct table *table;

    if (master_may_open(master, spec, &error) != PSD_OK) {
        send_error(session, &error);
        return;
    }
    table = master_table_create(master, master->tables, spec, rank);
    if (table == NULL) {
        psi_fail(&error, PSD_ERR_NO_MEMORY, "table %s: the master is out of memory", spec->name);
        send_error(session, &error);
        return;
    }
    table->is_new = true;
    if (master->config.resumed != NULL && spec->backup_workers == 0) {
        table->first_step = master->config.resumed->manifest.step;
    }
    master_saving_give_up(master, "a table is opened");
    master->table[master->tables++] = table;
    (void)add_waiter(table, rank,
                     session->guest.inbox.frame.request); /* the first: there is room */
    master_table_change_loads(master, table, true);
    psi_log(master->log, PSI_LOG_DEBUG, "TABLE-OPEN", "table %u is %s, opened by worker %u",
            table->id, spec->name, rank);
    for (uint32_t place = 0; place < master->places; place++) {
        send_open(master, table, master->place[place]);
    }
    psi_fail_point(master_table_ordered);
}

/* "table w: worker 1 wants f32[10,20] ..., worker 0 opened f32[10,30] ...: shape differs" */
static void
refuse_mismatch(struct session *session, const struct table *table, const struct psi_spec *spec,
                const char *difference)
{
    char wanted[160];
    char opened[160];
    struct psd_error error;

    psi_spec_text(spec, wanted, sizeof(wanted));
    psi_spec_text(&table->spec, opened, sizeof(opened));
    psi_fail(&error, PSD_ERR_MISMATCH,
             "table %.60s: worker %u wants %s, worker %u opened %s: %s differs", spec->name,
             session->member->rank, wanted, table->creator, opened, difference);
    psi_log(session->master->log, PSI_LOG_WARN, "TABLE-MISMATCH", "%s", error.text);
    send_error(session, &error);
}

psd_status
master_on_table_open(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct waiter asker = {.rank = session->member->rank,
                                 .request = session->guest.inbox.frame.request};
    struct psi_table_info info;
    psd_status status = psi_table_info_decode(body, bytes, &info, err);
    struct psd_error error;
    const char *difference;
    struct table *table;

    if (status != PSD_OK) {
        return status;
    }
    if (session->member->state != PSD_NODE_RUNNING) {
        psi_fail(&error, PSD_ERR_STATE, "table %s: worker %u is not in a view of the job",
                 info.spec.name, asker.rank);
        send_error(session, &error);
        return PSD_OK;
    }
    if (psi_spec_check(&info.spec, master->config.workers, &error) != PSD_OK) {
        send_error(session, &error);
        return PSD_OK;
    }
    psi_fail_point(master_table_asked);
    table = find_table(master, info.spec.name);
    if (table == NULL) {
        open_new(session, &info.spec);
        return PSD_OK;
    }
    difference = psi_spec_difference(&table->spec, &info.spec);
    if (difference != NULL) {
        refuse_mismatch(session, table, &info.spec, difference);
    } else if (table->state == TABLE_READY) {
        send_info(master, table, &asker);
    } else if (!add_waiter(table, asker.rank, asker.request)) {
        psi_fail(&error, PSD_ERR_BUSY, "table %s: too many threads of worker %u open it",
                 info.spec.name, asker.rank);
        send_error(session, &error);
    }
    return PSD_OK;
}

/* ------------------------------------------------------------------------- lanes' answers --- */

static void
table_ready(struct master *master, struct table *table)
{
    table->state = TABLE_READY;
    table->is_new = false;
    master_wake_at(master, 0); /* readers are told */
    psi_fail_point(master_table_ready);
    for (uint32_t i = 0; i < table->waiters; i++) {
        send_info(master, table, &table->waiter[i]);
    }
    table->waiters = 0;
    free(table->waiter);
    table->waiter = NULL;
}

/* A worker asks whom its view names. While that may be a server that was declared dead, and lives, no
 * worker hears of a new table: the dead would take gradients that the next life knows nothing of. */
static bool
are_owners_known(const struct master *master)
{
    for (uint32_t index = 0; index < master->config.servers; index++) {
        if (master->server[index].is_away) {
            return false;
        }
    }
    return master->change.stage != STAGE_COMMITTED || master->change.kind != PSI_VIEW_SERVER_BACK;
}

void
master_tables_look(struct master *master)
{
    for (uint32_t id = 0; id < master->tables && are_owners_known(master); id++) {
        if (master->table[id]->state == TABLE_OPENING && master->table[id]->acks_left == 0) {
            table_ready(master, master->table[id]);
        }
    }
}

/* A lane cannot: forget the table everywhere. */
static void
table_failed(struct master *master, struct table *table, psd_status status, const char *text)
{
    struct psi_frame frame = master_frame(master, PSI_FRAME_ACK);

    psi_log(master->log, PSI_LOG_WARN, "TABLE-REFUSED", "table %s: %s", table->spec.name, text);
    master_saving_give_up(master, "a table is dropped");
    table->state = TABLE_DROPPED;
    master_table_change_loads(master, table, false);
    for (uint32_t place = 0; place < master->places; place++) {
        send_drop(master, table, master->place[place]);
    }
    frame.table = table->id;
    for (uint32_t i = 0; i < table->waiters; i++) {
        struct session *session = master->worker[table->waiter[i].rank].member.session;

        frame.request = table->waiter[i].request;
        if (session != NULL) {
            master_posted(session, psi_post_error(session->guest.conn, &frame, status, 0, text));
        }
    }
    table->waiters = 0;
}

/* Workers have the table, and gradients for it: without its place there is no way on. */
static void
cannot_open_again(struct master *master, const struct member *lane, const struct psd_error *error)
{
    master_blame(master, lane, PSI_LOSS_GAVE_UP);
    master_end(master, PSI_EXIT_SERVER_LOST, error->status, "%s, which it had before it was lost",
               error->text);
}

psd_status
master_on_table_ack(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    const struct psi_frame *frame = &session->guest.inbox.frame;
    const struct member *lane = session->member;
    struct psi_verdict verdict = {0};
    struct psd_error error;
    struct table *table;
    uint32_t place;

    if (master->phase == PHASE_REBUILDING) {
        return PSD_OK; /* it is asked again when it is known which tables there are */
    }
    if (frame->table >= master->tables) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "ACK: no table %u", frame->table);
    }
    table = master->table[frame->table];
    place = place_of(master, lane);
    if (table->state == TABLE_DROPPED || table->acked[place]) {
        return PSD_OK; /* repeated, or refused by another lane meanwhile */
    }
    if (frame->status != PSD_OK) {
        const psd_status status = psi_verdict_decode(body, bytes, &verdict, err);

        if (status != PSD_OK) {
            return status;
        }
        psi_fail(&error, (psd_status)frame->status, "server %u: %s", lane->rank, verdict.text);
        if (table->state == TABLE_READY) {
            cannot_open_again(master, lane, &error);
        } else {
            table_failed(master, table, error.status, error.text);
        }
        return PSD_OK;
    }
    table->acked[place] = true;
    table->acks_left--;
    psi_fail_point(master_table_acked);
    if (table->acks_left == 0 && table->state == TABLE_OPENING && are_owners_known(master)) {
        table_ready(master, table);
    }
    master_wake_at(master, 0); /* a server may be complete now */
    return PSD_OK;
}

/* ----------------------------------------------------------------- servers that come back --- */

/* One that is being opened is empty: another life of a server opens it like the first. */
const char *
master_tables_frail(const struct master *master)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        if (master->table[id]->state != TABLE_DROPPED && !master->table[id]->is_new &&
            !psi_spec_is_remade(&master->table[id]->spec,
                                master->config.policy == PSI_DEATH_WAIT)) {
            return master->table[id]->spec.name;
        }
    }
    return NULL;
}

void
master_tables_lose(struct master *master, uint32_t first_place, uint32_t places)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        struct table *table = master->table[id];

        for (uint32_t place = first_place;
             place < first_place + places && table != NULL && table->state != TABLE_DROPPED;
             place++) {
            table->acks_left += table->acked[place];
            table->acked[place] = false;
        }
    }
}

bool
master_tables_are_open(const struct master *master, uint32_t first_place, uint32_t places)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];

        for (uint32_t place = first_place; place < first_place + places; place++) {
            if (table->state != TABLE_DROPPED && !table->acked[place]) {
                return false;
            }
        }
    }
    return true;
}

/* --------------------------------------------------------------------- workers that change --- */

void
master_tables_forget(struct master *master, uint32_t rank)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        struct table *table = master->table[id];

        uint32_t left = 0;

        for (uint32_t i = 0; i < table->waiters; i++) {
            if (table->waiter[i].rank != rank) {
                table->waiter[left++] = table->waiter[i];
            }
        }
        table->waiters = left;
    }
}

psd_status
master_table_resume(struct master *master, struct table *table, uint32_t rank, uint64_t step)
{
    if (table->resume == NULL) {
        table->resume = calloc(master->config.workers, sizeof(*table->resume));
        if (table->resume == NULL) {
            return PSD_ERR_NO_MEMORY;
        }
        for (uint32_t other = 0; other < master->config.workers; other++) {
            table->resume[other] = table->first_step;
        }
    }
    table->resume[rank] = step;
    return PSD_OK;
}
