/*
 * checkpoint_export_rows.c - the rows of sparse tables of a checkpoint, for other programs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "launch/cli/checkpoint_export_rows.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/rows_merge.h"

enum { NPY_ALIGN = 64, NPY_PREFIX = 10, NPY_HEAD_BYTES = 256, COLUMNS = PSI_ROWS_CLEARED };

static const char suffix[] = ".safetensors";

/* Where the rows of a table go: each column to its place in a file. */
struct target {
    int fd[COLUMNS]; /* all the same one, or one for each; -1: not open */
    uint64_t at[COLUMNS];
    char path[PATH_MAX]; /* of the file that was opened last */
};

static bool
has_column(const struct psi_row_form *form, unsigned column)
{
    const struct psi_rows_count one = {.rows = 1};

    return psi_rows_items(form, &one, (enum psi_rows_column)column) > 0;
}

static psd_status
open_new(struct target *target, unsigned column, struct psd_error *err)
{
    target->fd[column] = psi_disk_open(&psi_disk_system, AT_FDCWD, target->path, PSI_DISK_NEW);
    return target->fd[column] >= 0 ? PSD_OK
                                   : psi_fail_errno(err, PSD_ERR_IO, "create %s", target->path);
}

static psd_status
put(struct target *target, unsigned column, const void *data, size_t bytes, struct psd_error *err)
{
    const int code =
        psi_disk_write(&psi_disk_system, target->fd[column], data, bytes, target->at[column]);

    target->at[column] += bytes;
    return code == 0 ? PSD_OK : psi_fail_errno(err, PSD_ERR_IO, "write %s", target->path);
}

/* All rows that count. */
static psd_status
put_rows(struct target *target, struct psi_rows_merge *merge, struct psd_error *err)
{
    struct psi_rows_piece *piece = NULL;
    psd_status status = psi_rows_merge_next(merge, &piece, err);

    while (status == PSD_OK && piece != NULL) {
        for (unsigned column = 0; column < COLUMNS && status == PSD_OK; column++) {
            const size_t bytes =
                piece->count.rows * psi_rows_item_bytes(&piece->form, (enum psi_rows_column)column);

            if (bytes > 0 && has_column(&piece->form, column)) {
                status = put(target, column, piece->column[column], bytes, err);
            }
        }
        psi_rows_piece_destroy(piece);
        if (status == PSD_OK) {
            status = psi_rows_merge_next(merge, &piece, err);
        }
    }
    return status;
}

/* ---- One safetensors file for a table ---- */

static psd_status
name_file(char path[PATH_MAX], const char *out, const char *infix, const char *table,
          const char *ending, struct psd_error *err)
{
    char name[PSD_NAME_MAX + 1];

    snprintf(name, sizeof(name), "%s", table);
    for (char *at = name; *at != '\0'; at++) {
        *at = *at == '/' ? '_' : *at;
    }
    return snprintf(path, PATH_MAX, "%s%s%s%s", out, infix, name, ending) < PATH_MAX
               ? PSD_OK
               : psi_fail(err, PSD_ERR_INVALID, "export %.64s...: too long", out);
}

psd_status
checkpoint_export_rows_name(const struct psi_manifest_rows *rows, const char *out,
                            char path[PATH_MAX], struct psd_error *err)
{
    char begin[PATH_MAX];
    size_t length = strlen(out);

    if (length > sizeof(suffix) - 1 && strcmp(out + length - (sizeof(suffix) - 1), suffix) == 0) {
        length -= sizeof(suffix) - 1;
    }
    snprintf(begin, sizeof(begin), "%.*s", (int)length, out);
    return name_file(path, begin, ".", rows->table, suffix, err);
}

static psd_status
open_file(struct target *target, const struct psi_manifest_rows *rows, uint32_t count,
          const char *out, struct psd_error *err)
{
    const struct psi_rows_count all = {.rows = count};
    struct psi_rows_layout layout;
    psd_status status = psi_rows_lay_out(&layout, rows->table, &rows->form, &all, err);

    if (status == PSD_OK) {
        status = checkpoint_export_rows_name(rows, out, target->path, err);
    }
    if (status == PSD_OK) {
        status = open_new(target, 0, err);
    }
    if (status == PSD_OK) {
        status = put(target, 0, layout.head, layout.head_bytes, err);
    }
    for (unsigned column = 0; column < COLUMNS; column++) {
        target->fd[column] = target->fd[0];
        target->at[column] = layout.begin[column];
    }
    return status;
}

/* ---- Or a .npy for each column ---- */

/* Version 1.0 of the format: magic, a length, a dictionary, padded. */
static psd_status
open_array(struct target *target, const struct psi_manifest_rows *rows, unsigned column,
           uint32_t count, const char *out, struct psd_error *err)
{
    const size_t width = psi_rows_item_bytes(&rows->form, (enum psi_rows_column)column) / 4;
    char head[NPY_HEAD_BYTES];
    char name[PSI_ROWS_NAME_BYTES];
    char ending[PSI_ROWS_NAME_BYTES + 8];
    const char *type = column == PSI_ROWS_IDS ? "<i8" : column < PSI_ROWS_VALUES ? "<u4" : "<f4";
    int used = NPY_PREFIX;
    psd_status status;

    psi_rows_column_name(&rows->form, (enum psi_rows_column)column, name);
    snprintf(ending, sizeof(ending), ".%s.npy", name);
    status = name_file(target->path, out, "/", rows->table, ending, err);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    used += snprintf(head + used, sizeof(head) - NPY_PREFIX,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%u,", type, count);
    if (column >= PSI_ROWS_VALUES) {
        used += snprintf(head + used, sizeof(head) - (size_t)used, " %zu", width);
    }
    used += snprintf(head + used, sizeof(head) - (size_t)used, "), }");
    while ((used + 1) % NPY_ALIGN != 0) {
        head[used++] = ' ';
    }
    head[used++] = '\n';
    head[8] = (char)((used - NPY_PREFIX) & 0xff);
    head[9] = (char)((used - NPY_PREFIX) >> 8);
    if (status == PSD_OK) {
        status = open_new(target, column, err);
    }
    return status == PSD_OK ? put(target, column, head, (size_t)used, err) : status;
}

static psd_status
open_arrays(struct target *target, const struct psi_manifest_rows *rows, uint32_t count,
            const char *out, struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (unsigned column = 0; column < COLUMNS && status == PSD_OK; column++) {
        if (has_column(&rows->form, column)) {
            status = open_array(target, rows, column, count, out, err);
        }
    }
    return status;
}

/* ---- All tables ---- */

typedef psd_status (*open_fn)(struct target *target, const struct psi_manifest_rows *rows,
                              uint32_t count, const char *out, struct psd_error *err);

static void
close_all(struct target *target)
{
    for (unsigned column = COLUMNS; column-- > 0;) {
        if (column == 0 || target->fd[column] != target->fd[0]) {
            psi_disk_close(&target->fd[column]);
        }
    }
}

static psd_status
export_table(const struct psi_checkpoint *checkpoint, const struct psi_manifest_rows *rows,
             const char *out, open_fn open_target, struct psd_error *err)
{
    struct psi_rows_merge *merge = NULL;
    struct target target = {0};
    psd_status status = psi_rows_merge_create(checkpoint, rows, &merge, err);

    for (unsigned column = 0; column < COLUMNS; column++) {
        target.fd[column] = -1;
    }
    if (status == PSD_OK) {
        status = open_target(&target, rows, psi_rows_merge_count(merge), out, err);
    }
    if (status == PSD_OK) {
        status = put_rows(&target, merge, err);
    }
    close_all(&target);
    psi_rows_merge_destroy(merge);
    return status;
}

static psd_status
export_tables(const struct psi_checkpoint *checkpoint, const char *out, open_fn open_target,
              struct psd_error *err)
{
    psd_status status = PSD_OK;

    for (size_t i = 0; i < checkpoint->manifest.rows_count && status == PSD_OK; i++) {
        status = export_table(checkpoint, &checkpoint->manifest.rows[i], out, open_target, err);
    }
    return status;
}

psd_status
checkpoint_export_rows_files(const struct psi_checkpoint *checkpoint, const char *path,
                             struct psd_error *err)
{
    return export_tables(checkpoint, path, open_file, err);
}

psd_status
checkpoint_export_rows_numpy(const struct psi_checkpoint *checkpoint, const char *path,
                             struct psd_error *err)
{
    return export_tables(checkpoint, path, open_arrays, err);
}
