/*
 * saves_rows.c - the files of rows that simulated jobs save, and what is in them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "saves_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "shard/bucket.h"

struct rows_file *
rows_file_add(struct rows_file **list, const struct lane_disk_rows *rows, uint64_t generation)
{
    const struct psi_rows_count *count = &rows->piece->count;
    struct rows_file *file = calloc(1, sizeof(*file));

    psi_assert(file != NULL);
    file->place = rows->place;
    file->piece = rows->piece;
    file->saved = (struct psi_saved_file){
        .table = rows->table,
        .generation = generation,
        .number = rows->number,
        .first_bucket = rows->first_bucket,
        .end_bucket = rows->end_bucket,
        .rows = count->rows,
        .cleared = count->cleared,
        .counted = count->counted,
        .bytes = psi_rows_piece_bytes(rows->piece),
        .checksum =
            psi_crc32c(0, rows->piece->column[PSI_ROWS_IDS], count->rows * sizeof(uint64_t)),
    };
    file->next = *list;
    *list = file;
    return file;
}

void
rows_files_free(struct rows_file **list)
{
    while (*list != NULL) {
        struct rows_file *file = *list;

        *list = file->next;
        psi_rows_piece_destroy(file->piece);
        free(file);
    }
}

const struct rows_file *
rows_file_find(const struct rows_file *list, uint32_t place, uint32_t number)
{
    while (list != NULL && (list->place != place || list->saved.number != number)) {
        list = list->next;
    }
    return list;
}

bool
rows_file_is(const struct rows_file *file, const struct psi_rows_file *said)
{
    return file->saved.rows == said->count.rows && file->saved.cleared == said->count.cleared &&
           file->saved.counted == said->count.counted && file->saved.bytes == said->bytes &&
           file->saved.checksum == said->checksum &&
           file->saved.first_bucket == said->first_bucket &&
           file->saved.end_bucket == said->end_bucket;
}

void
rows_image_init(struct rows_image *image, const struct plan *plan, unsigned index)
{
    const struct table_plan *table = &plan->table[index];

    *image = (struct rows_image){
        .plan = plan,
        .index = index,
        .ids = malloc(plan_rows(table) * sizeof(*image->ids)),
        .values = malloc(table->count * sizeof(float)),
    };
    psi_assert(image->ids != NULL && image->values != NULL && table->dtype == PSD_F32);
    plan_row_ids(table, image->ids);
    plan_initial(plan, index, 0, table->count, image->values);
}

void
rows_image_fini(struct rows_image *image)
{
    free(image->ids);
    free(image->values);
}

/* Its place among the rows of the table; their number: it is none of them. */
static uint64_t
find_row(const struct rows_image *image, uint64_t id)
{
    const uint64_t rows = plan_rows(&image->plan->table[image->index]);
    uint64_t row = 0;

    while (row < rows && image->ids[row] != id) {
        row++;
    }
    return row;
}

/* No table of a simulated job loses rows. */
bool
rows_image_take(struct rows_image *image, const struct rows_file *file)
{
    const struct table_plan *table = &image->plan->table[image->index];
    const struct psi_rows_piece *piece = file->piece;
    const size_t bytes = table->width * sizeof(float);
    bool all_known = piece->count.cleared == 0;

    for (uint32_t i = 0; i < piece->count.rows; i++) {
        const uint64_t id = ((const uint64_t *)piece->column[PSI_ROWS_IDS])[i];
        const uint32_t bucket = psi_bucket_of(id, piece->form.bucket_bits);
        const uint64_t row = find_row(image, id);

        if (row == plan_rows(table) || bucket < file->saved.first_bucket ||
            bucket >= file->saved.end_bucket) {
            all_known = false;
            continue;
        }
        memcpy(image->values + row * bytes,
               (const uint8_t *)piece->column[PSI_ROWS_VALUES] + i * bytes, bytes);
    }
    return all_known;
}
