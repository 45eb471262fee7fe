/*
 * rows_merge.c - the rows of a sparse table that count.
 *
 * A row is in several files if it was saved again: the last one counts. One that has gone is in files
 * before the one that clears its bucket. The files of a place are in the order of the list, and a bucket
 * is of one place.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/rows_merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "shard/bucket.h"

struct entry {
    uint64_t id;
    uint32_t file;
    uint32_t at; /* in the file */
};

struct psi_rows_merge {
    const struct psi_checkpoint *checkpoint;
    const struct psi_manifest_rows *rows;
    uint64_t count;  /* of rows that count */
    bool *counts;    /* of all rows, file by file */
    uint64_t *first; /* row of each file, among all */
    size_t next;     /* file */
};

/* While rows are compared. */
struct comparison {
    struct entry *entries;
    uint64_t count;
    uint32_t *cleared; /* by bucket: the last file that clears it, and 1; 0: none */
};

void
psi_rows_merge_destroy(struct psi_rows_merge *merge)
{
    if (merge != NULL) {
        free(merge->counts);
        free(merge->first);
        free(merge);
    }
}

uint32_t
psi_rows_merge_count(const struct psi_rows_merge *merge)
{
    return (uint32_t)merge->count;
}

static void
add_piece(struct comparison *all, const struct psi_rows_piece *piece, uint32_t file)
{
    const uint32_t *cleared = piece->column[PSI_ROWS_CLEARED];
    const uint64_t *ids = piece->column[PSI_ROWS_IDS];

    for (uint32_t i = 0; i < piece->count.cleared; i++) {
        if (cleared[i] < 1u << piece->form.bucket_bits) { /* a file may say anything */
            all->cleared[cleared[i]] = file + 1;
        }
    }
    for (uint32_t i = 0; i < piece->count.rows; i++) {
        all->entries[all->count++] = (struct entry){.id = ids[i], .file = file, .at = i};
    }
}

static int
by_id_and_file(const void *a, const void *b)
{
    const struct entry *left = a;
    const struct entry *right = b;

    if (left->id != right->id) {
        return left->id < right->id ? -1 : 1;
    }
    return (left->file > right->file) - (left->file < right->file);
}

static void
compare(struct psi_rows_merge *merge, struct comparison *all)
{
    const uint32_t bits = merge->rows->form.bucket_bits;

    if (all->count > 1) {
        qsort(all->entries, all->count, sizeof(all->entries[0]), by_id_and_file);
    }
    for (uint64_t i = 0; i < all->count; i++) {
        const struct entry *entry = &all->entries[i];
        const bool is_last = i + 1 == all->count || all->entries[i + 1].id != entry->id;

        if (is_last && entry->file + 1 >= all->cleared[psi_bucket_of(entry->id, bits)]) {
            merge->counts[merge->first[entry->file] + entry->at] = true;
            merge->count++;
        }
    }
}

static psd_status
read_all(struct psi_rows_merge *merge, struct comparison *all, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < merge->rows->count && status == PSD_OK; i++) {
        struct psi_rows_piece *piece = NULL;

        status = psi_checkpoint_read_rows(merge->checkpoint, merge->rows, &merge->rows->files[i],
                                          &piece, err);
        if (status == PSD_OK) {
            add_piece(all, piece, (uint32_t)i);
        }
        psi_rows_piece_destroy(piece);
    }
    return status;
}

static psd_status
fill(struct psi_rows_merge *merge, struct psd_error *err)
{
    const struct psi_manifest_rows *rows = merge->rows;
    struct comparison all = {0};
    uint64_t count = 0;
    psd_status status;

    merge->first = calloc(rows->count + 1, sizeof(*merge->first));
    for (size_t i = 0; i < rows->count && merge->first != NULL; i++) {
        merge->first[i] = count;
        count += rows->files[i].count.rows;
    }
    merge->counts = calloc(count + 1, sizeof(*merge->counts));
    all.entries = calloc(count + 1, sizeof(*all.entries));
    all.cleared = calloc((size_t)1 << rows->form.bucket_bits, sizeof(*all.cleared));
    if (count > UINT32_MAX || merge->first == NULL || merge->counts == NULL ||
        all.entries == NULL || all.cleared == NULL) {
        status = psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory for a list of %llu rows",
                          rows->table, (unsigned long long)count);
    } else {
        status = read_all(merge, &all, err);
    }
    if (status == PSD_OK) {
        compare(merge, &all);
    }
    free(all.entries);
    free(all.cleared);
    return status;
}

psd_status
psi_rows_merge_create(const struct psi_checkpoint *checkpoint, const struct psi_manifest_rows *rows,
                      struct psi_rows_merge **merge_p, struct psd_error *err)
{
    struct psi_rows_merge *merge = calloc(1, sizeof(*merge));
    psd_status status;

    if (merge == NULL) {
        return psi_fail(err, PSD_ERR_NO_MEMORY, "table %s: no memory", rows->table);
    }
    merge->checkpoint = checkpoint;
    merge->rows = rows;
    status = fill(merge, err);
    if (status != PSD_OK) {
        psi_rows_merge_destroy(merge);
        return status;
    }
    *merge_p = merge;
    return PSD_OK;
}

/* Leaves only the rows that count. */
static void
leave_out(struct psi_rows_piece *piece, const bool *counts)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < piece->count.rows; i++) {
        for (unsigned column = PSI_ROWS_IDS; counts[i] && column <= PSI_ROWS_STATE_LAST; column++) {
            const size_t bytes = psi_rows_item_bytes(&piece->form, (enum psi_rows_column)column);
            char *base = piece->column[column];

            if (psi_rows_items(&piece->form, &piece->count, (enum psi_rows_column)column) > 0) {
                memmove(base + left * bytes, base + i * bytes, bytes);
            }
        }
        left += counts[i];
    }
    piece->count = (struct psi_rows_count){.rows = left};
}

psd_status
psi_rows_merge_next(struct psi_rows_merge *merge, struct psi_rows_piece **piece_p,
                    struct psd_error *err)
{
    const size_t index = merge->next;
    psd_status status;

    *piece_p = NULL;
    if (index == merge->rows->count) {
        return PSD_OK;
    }
    merge->next++;
    status = psi_checkpoint_read_rows(merge->checkpoint, merge->rows, &merge->rows->files[index],
                                      piece_p, err);
    if (status == PSD_OK) {
        leave_out(*piece_p, merge->counts + merge->first[index]);
    }
    return status;
}
