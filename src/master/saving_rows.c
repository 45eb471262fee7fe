/*
 * saving_rows.c - which files of a checkpoint have the rows of sparse tables, as lanes tell.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "master/disk.h"
#include "master/state.h"

/* Of a sparse table of the order; NULL: it is none. */
static struct psi_manifest_rows *
find_rows(const struct master *master, uint32_t id)
{
    const struct psi_manifest *all = &master->saving.generation->rows;
    const char *name = id < master->tables ? master->table[id]->spec.name : "";

    for (size_t i = 0; i < all->rows_count; i++) {
        if (strcmp(all->rows[i].table, name) == 0) {
            return &all->rows[i];
        }
    }
    return NULL;
}

static psd_status
add_file(const struct master *master, uint32_t place, const struct psi_saved_file *told,
         struct psd_error *err)
{
    const struct saving *saving = &master->saving;
    struct psi_manifest_rows *rows = find_rows(master, told->table);
    const struct psi_rows_file file = {.generation = told->generation,
                                       .place = place,
                                       .number = told->number,
                                       .first_bucket = told->first_bucket,
                                       .end_bucket = told->end_bucket,
                                       .count = {told->rows, told->cleared, told->counted},
                                       .bytes = told->bytes,
                                       .checksum = told->checksum};

    if (rows == NULL || told->generation == 0 || told->generation > saving->generation_number ||
        (told->generation < saving->generation_number && saving->after == 0)) {
        return psi_fail(err, PSD_ERR_PROTOCOL,
                        "ROWS_SAVED: a file of table %" PRIu32 ", generation %" PRIu64
                        ", for generation %" PRIu64,
                        told->table, told->generation, saving->generation_number);
    }
    return psi_manifest_add_rows_file(rows, &file, err);
}

void
master_saving_count_rows(struct saving *saving)
{
    const struct psi_manifest *all = &saving->generation->rows;

    saving->rows = 0;
    for (size_t i = 0; i < all->rows_count; i++) {
        for (size_t j = 0; j < all->rows[i].count; j++) {
            const struct psi_rows_file *file = &all->rows[i].files[j];

            saving->rows += file->bytes;
            saving->referred += file->generation != saving->generation_number ? file->bytes : 0;
        }
    }
}

psd_status
master_on_rows_saved(struct session *session, const void *body, size_t bytes, struct psd_error *err)
{
    struct master *master = session->master;
    struct saving *saving = &master->saving;
    const uint32_t number = place_of(master, session->member);
    struct saving_place *place = &saving->place[number];
    struct psi_rows_saved saved = {.file = malloc(PSI_ROWS_SAVED_MAX * sizeof(*saved.file))};
    psd_status status;

    if (saved.file == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "ROWS_SAVED: no memory");
    }
    status = psi_rows_saved_decode(body, bytes, &saved, err);
    if (status == PSD_OK && saving->stage == SAVING_ORDERED && saving->any_tables &&
        session->guest.inbox.frame.seq == saving->number &&
        saved.first == place->rows) { /* else it is said once more */
        if (saved.place != number) {
            status = psi_fail(err, PSD_ERR_PROTOCOL, "ROWS_SAVED: of place %u, from place %u",
                              saved.place, number);
        }
        for (uint32_t i = 0; i < saved.count && status == PSD_OK; i++) {
            status = add_file(master, number, &saved.file[i], err);
        }
        place->rows += status == PSD_OK ? saved.count : 0;
    }
    free(saved.file);
    return status;
}
