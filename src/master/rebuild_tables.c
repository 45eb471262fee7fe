/*
 * rebuild_tables.c - tables of which lanes tell another life of the master, and which are open.
 *
 * Lanes name every table that they have or have dropped, with its number, and the steps from which
 * replacements went on. Apart from tables.c, where workers ask and lanes obey: here nobody asks, and
 * lanes may lack a table or contradict each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/exit_code.h"
#include "base/fail.h"
#include "master/rebuild.h"

/* ----------------------------------------------------------------------- what lanes tell --- */

static struct table *
create_known(struct master *master, const struct psi_table_info *info)
{
    struct table *table = master_table_create(master, info->id, &info->spec, info->creator);

    if (table != NULL) {
        memcpy(table->load_before, info->loads.bytes, master->places * sizeof(uint64_t));
        table->first_step = info->step;
    }
    return table;
}

/* A table without name, in the place of one that was dropped or that no lane has heard of: its
 * number is not used again. */
static struct table *
create_dropped(uint32_t id)
{
    struct table *table = calloc(1, sizeof(*table));

    if (table != NULL) {
        table->id = id;
        table->state = TABLE_DROPPED;
    }
    return table;
}

/* Somebody has this table in mind. PSD_ERR_MISMATCH: another one says that the number is another
 * table's. */
static psd_status
take_known(struct master *master, const struct psi_table_info *info, struct psd_error *err)
{
    struct table *table;

    if (info->id >= PSI_TABLES_MAX || info->loads.servers != master->config.servers ||
        memcmp(info->loads.first_place, master->loads.first_place,
               sizeof(master->loads.first_place)) != 0) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "TABLE_OPEN: table %u has other places", info->id);
    }
    table = info->id < master->tables ? master->table[info->id] : NULL;
    if (table == NULL) {
        table = create_known(master, info);
        if (table == NULL) {
            return psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for table %s", info->spec.name);
        }
        master->table[info->id] = table;
        master->tables = info->id < master->tables ? master->tables : info->id + 1;
    } else if (table->state != TABLE_DROPPED &&
               (strcmp(table->spec.name, info->spec.name) != 0 ||
                psi_spec_difference(&table->spec, &info->spec) != NULL)) {
        return psi_fail(err, PSD_ERR_MISMATCH, "table %u is %.60s on one server, %.60s on another",
                        info->id, table->spec.name, info->spec.name);
    }
    return PSD_OK;
}

/* Such a job cannot go on; it is no fault of who told of it. */
static psd_status
give_up_if_lost(struct master *master, psd_status status, const struct psd_error *err)
{
    if (status == PSD_ERR_MISMATCH || status == PSD_ERR_NO_MEMORY) {
        master_rebuild_give_up(master, PSI_EXIT_MASTER_LOST, status, err->text);
        return PSD_OK;
    }
    return status;
}

psd_status
master_recall_table(struct master *master, const void *body, size_t bytes, struct psd_error *err)
{
    struct psi_table_info info;
    psd_status status = psi_table_info_decode(body, bytes, &info, err);

    if (status == PSD_OK && master->places == 0) {
        status = psi_fail(err, PSD_ERR_PROTOCOL, "TABLE_INFO before VIEW_COMMIT");
    }
    if (status == PSD_OK) {
        status = take_known(master, &info, err);
    }
    return give_up_if_lost(master, status, err);
}

static psd_status
take_dropped(struct master *master, uint32_t id, struct psd_error *err)
{
    if (id >= PSI_TABLES_MAX) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "TABLE_DROP: no table %u", id);
    }
    if (id < master->tables && master->table[id] != NULL) {
        master->table[id]->state = TABLE_DROPPED;
        return PSD_OK;
    }
    master->table[id] = create_dropped(id);
    master->tables = id < master->tables ? master->tables : id + 1;
    return master->table[id] == NULL
               ? psi_fail(err, PSD_ERR_NO_MEMORY, "no memory for table %u", id)
               : PSD_OK;
}

psd_status
master_on_known_table(struct session *session, const void *body, size_t bytes,
                      struct psd_error *err)
{
    struct master *master = session->master;
    const struct report *report = master_report_of(session);
    struct psi_table_info info;
    psd_status status;

    if (report == NULL || report->view.id == 0) {
        return PSD_OK;
    }
    status = psi_table_info_decode(body, bytes, &info, err);
    if (status == PSD_OK) {
        status = take_known(master, &info, err);
    }
    if (status == PSD_OK && master->table[info.id]->state != TABLE_DROPPED) {
        master->table[info.id]->acked[place_of(master, session->member)] =
            session->guest.inbox.frame.status == PSD_OK;
    }
    return give_up_if_lost(master, status, err);
}

psd_status
master_on_known_drop(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    (void)body;
    (void)bytes;
    return master_report_of(session) == NULL
               ? PSD_OK
               : take_dropped(session->master, session->guest.inbox.frame.table, err);
}

psd_status
master_on_known_resume(struct session *session, const void *body, size_t bytes,
                       struct psd_error *err)
{
    struct master *master = session->master;
    const struct psi_frame *frame = &session->guest.inbox.frame;

    (void)body;
    (void)bytes;
    if (master_report_of(session) == NULL) {
        return PSD_OK;
    }
    if (frame->table >= master->tables || master->table[frame->table] == NULL ||
        frame->rank >= master->config.workers) {
        return psi_fail(err, PSD_ERR_PROTOCOL, "TABLE_RESUME: worker %u of table %u", frame->rank,
                        frame->table);
    }
    return master_table_resume(master, master->table[frame->table], frame->rank, frame->step);
}

bool
master_known_are_frail(const struct master *master)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        const struct table *table = master->table[id];

        if (table != NULL && table->state != TABLE_DROPPED &&
            !psi_spec_is_remade(&table->spec, master->config.policy == PSI_DEATH_WAIT)) {
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------- all have told --- */

/* Workers have heard of a table only if all lanes that were there had it ready. One that is away
 * since then has to make it anew. */
static void
settle(struct master *master, struct table *table)
{
    bool everywhere = true;

    table->acks_left = 0;
    for (uint32_t place = 0; place < master->places; place++) {
        const struct member *lane = master->place[place];
        const bool counts = lane->state == PSD_NODE_RUNNING && master_lane_has_told(lane);

        table->acked[place] = table->acked[place] && lane->state != PSD_NODE_LOST;
        everywhere = everywhere && (!counts || table->acked[place]);
        table->acks_left += !table->acked[place];
    }
    table->state = everywhere ? TABLE_READY : TABLE_OPENING;
    master_table_change_loads(master, table, true);
}

psd_status
master_tables_settle(struct master *master)
{
    for (uint32_t id = 0; id < master->tables; id++) {
        if (master->table[id] == NULL) {
            master->table[id] = create_dropped(id);
        }
        if (master->table[id] == NULL) {
            return PSD_ERR_NO_MEMORY;
        }
        if (master->table[id]->state != TABLE_DROPPED) {
            settle(master, master->table[id]);
        }
    }
    return PSD_OK;
}
