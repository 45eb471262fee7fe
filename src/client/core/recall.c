/*
 * recall.c - what a worker knows of the job when nobody else is left to tell another life of the master.
 *
 * Servers keep in mind what the master decides. If all that have a part die together with it, workers are
 * asked: each tells the view that it has, and the tables that it has opened. More is not needed: nothing is
 * decided before workers hear of it that they could have acted on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "client/core/state.h"
#include "rpc/post.h"

/* Places are what follows from the loads; the loads do not follow from the places. */
psd_status
psi_recall_keep(struct psd_table *table, const struct psi_table_info *info)
{
    uint8_t bytes[16384];
    struct psi_pack pack;

    psi_pack_init(&pack, bytes, sizeof(bytes));
    psi_table_info_encode(&pack, info);
    psi_assert(!pack.overflow); /* it came in less */
    table->info = malloc(pack.used);
    if (table->info == NULL) {
        return PSD_ERR_NO_MEMORY;
    }
    memcpy(table->info, bytes, pack.used);
    table->info_bytes = pack.used;
    return PSD_OK;
}

/* A status other than PSD_OK ends the connection: on the next one it is asked again. */
psd_status
psi_recall_tell(void *owner, struct psd_error *err)
{
    const struct psi_client *client = owner;
    struct psi_conn *conn = client->master.peer.conn;
    struct psi_frame frame = {.type = PSI_FRAME_VIEW_COMMIT,
                              .view = client->view.id,
                              .rank = (uint16_t)client->job.rank,
                              .incarnation = (uint16_t)client->job.incarnation};
    psd_status status = PSD_OK;

    if (client->view.id > 0) {
        status = psi_post_view(conn, &frame, &client->view);
    }
    frame.type = PSI_FRAME_TABLE_INFO;
    for (size_t i = 0; i < client->table_count && status == PSD_OK; i++) {
        const struct psd_table *table = client->tables[i];

        frame.table = table->id;
        status = psi_post_body(conn, &frame, table->info, table->info_bytes);
    }
    frame.type = PSI_FRAME_RECALL;
    frame.table = 0;
    if (status == PSD_OK) {
        status = psi_post(conn, &frame);
    }
    return status == PSD_OK
               ? PSD_OK
               : psi_fail(err, status, "RECALL: what this worker knows could not be queued");
}
