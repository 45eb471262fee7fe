/*
 * rows_piece.c - some rows of a sparse table in memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/rows_piece.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/manifest_file.h"

enum { ALIGN = 64 };

static size_t
column_bytes(const struct psi_row_form *form, const struct psi_rows_count *count,
             enum psi_rows_column column)
{
    return (size_t)psi_rows_items(form, count, column) * psi_rows_item_bytes(form, column);
}

static size_t
aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

struct psi_rows_piece *
psi_rows_piece_create(const struct psi_row_form *form, const struct psi_rows_count *room)
{
    struct psi_rows_piece *piece = calloc(1, sizeof(*piece));
    size_t bytes = ALIGN;
    char *at;

    if (piece == NULL) {
        return NULL;
    }
    for (enum psi_rows_column column = 0; column < PSI_ROWS_COLUMNS; column++) {
        bytes += aligned(column_bytes(form, room, column));
    }
    piece->form = *form;
    piece->room = *room;
    piece->memory = at = aligned_alloc(ALIGN, bytes);
    if (at == NULL) {
        free(piece);
        return NULL;
    }
    for (enum psi_rows_column column = 0; column < PSI_ROWS_COLUMNS; column++) {
        piece->column[column] = at;
        at += aligned(column_bytes(form, room, column));
    }
    return piece;
}

void
psi_rows_piece_destroy(struct psi_rows_piece *piece)
{
    if (piece != NULL) {
        free(piece->memory);
        free(piece);
    }
}

static uint32_t
per_piece(size_t bytes)
{
    return (uint32_t)(PSI_ROWS_PIECE_BYTES / bytes) + 1;
}

static size_t
item_bytes(const struct psi_row_form *form, const struct psi_rows_count *one)
{
    size_t bytes = 0;

    for (enum psi_rows_column column = 0; column < PSI_ROWS_COLUMNS; column++) {
        bytes += column_bytes(form, one, column);
    }
    return bytes;
}

uint32_t
psi_rows_per_piece(const struct psi_row_form *form)
{
    return per_piece(item_bytes(form, &(struct psi_rows_count){.rows = 1}));
}

uint32_t
psi_rows_counted_per_piece(const struct psi_row_form *form)
{
    return per_piece(item_bytes(form, &(struct psi_rows_count){.counted = 1}));
}

uint64_t
psi_rows_piece_bytes(const struct psi_rows_piece *piece)
{
    return item_bytes(&piece->form, &piece->count);
}

/* ---- Rows ---- */

static void
put(struct psi_rows_piece *piece, enum psi_rows_column column, const void *from, size_t first,
    size_t count)
{
    const size_t bytes = psi_rows_item_bytes(&piece->form, column);

    memcpy((char *)piece->column[column] + piece->count.rows * bytes,
           (const char *)from + first * bytes, count * bytes);
}

/* Each array of the state is a column. */
static void
put_state(struct psi_rows_piece *piece, const float *state, size_t first, size_t count)
{
    const uint32_t arrays = psi_rows_state_arrays(&piece->form);
    const uint32_t numbers = psi_rows_state_numbers(&piece->form);

    if (arrays == 1) {
        put(piece, PSI_ROWS_STATE, state, first, count);
        return;
    }
    for (uint32_t array = 0; array < arrays; array++) {
        const uint32_t width = numbers / arrays;
        float *to =
            (float *)piece->column[PSI_ROWS_STATE + array] + (size_t)piece->count.rows * width;

        for (size_t i = 0; i < count; i++) {
            memcpy(to + i * width, state + (first + i) * numbers + (size_t)array * width,
                   width * sizeof(float));
        }
    }
}

size_t
psi_rows_piece_add(struct psi_rows_piece *piece, const struct psi_rows_arrays *rows, size_t first)
{
    const size_t room = piece->room.rows - piece->count.rows;
    const size_t rest = rows->count - first;
    const size_t count = rest < room ? rest : room;

    put(piece, PSI_ROWS_IDS, rows->ids, first, count);
    put(piece, PSI_ROWS_STEPS, rows->steps, first, count);
    put(piece, PSI_ROWS_COUNTS, rows->counts, first, count);
    put(piece, PSI_ROWS_VALUES, rows->values, first, count);
    put_state(piece, rows->state, first, count);
    piece->count.rows += (uint32_t)count;
    return count;
}

void
psi_rows_piece_state(const struct psi_rows_piece *piece, uint32_t at, float *state)
{
    const uint32_t arrays = psi_rows_state_arrays(&piece->form);

    for (uint32_t array = 0; array < arrays; array++) {
        const uint32_t width = psi_rows_state_numbers(&piece->form) / arrays;

        memcpy(state + (size_t)array * width,
               (const float *)piece->column[PSI_ROWS_STATE + array] + (size_t)at * width,
               width * sizeof(float));
    }
}

/* ---- Writing ---- */

/* The next bytes of a file that is written from its beginning to its end. */
static int
append(const struct psi_directory *directory, int fd, const void *data, size_t bytes,
       struct psi_rows_file *file)
{
    const int code = psi_disk_write(directory->disk, fd, data, bytes, file->bytes);

    file->checksum = psi_crc32c(file->checksum, data, bytes);
    file->bytes += bytes;
    return code;
}

static int
append_all(const struct psi_rows_piece *piece, const struct psi_directory *directory, int fd,
           const struct psi_rows_layout *layout, struct psi_rows_file *file)
{
    int code = append(directory, fd, layout->head, layout->head_bytes, file);

    for (enum psi_rows_column column = 0; column < PSI_ROWS_COLUMNS && code == 0; column++) {
        const size_t bytes = column_bytes(&piece->form, &piece->count, column);

        code = bytes > 0 ? append(directory, fd, piece->column[column], bytes, file) : 0;
    }
    return code == 0 ? psi_disk_sync(directory->disk, fd) : code;
}

psd_status
psi_rows_piece_write(const struct psi_rows_piece *piece, const struct psi_directory *directory,
                     const char *table, uint64_t token, struct psi_rows_file *file,
                     struct psd_error *err)
{
    char name[PSI_CHECKPOINT_NAME_BYTES];
    struct psi_rows_layout layout;
    psd_status status = psi_rows_lay_out(&layout, table, &piece->form, &piece->count, err);
    int fd;

    if (status != PSD_OK) {
        return status;
    }
    file->count = piece->count;
    file->bytes = 0;
    file->checksum = 0;
    psi_checkpoint_temporary_rows_name(name, token, file->place, file->number);
    status = psi_directory_remove(directory, name, err); /* of an order that was given up */
    if (status != PSD_OK) {
        return status;
    }
    fd = psi_disk_open(directory->disk, directory->fd, name, PSI_DISK_NEW);
    if (fd < 0) {
        return psi_fail_errno(err, PSD_ERR_IO, "create %s/%s", directory->path, name);
    }
    if (append_all(piece, directory, fd, &layout, file) != 0) {
        status = psi_fail_errno(err, PSD_ERR_IO, "write %s/%s", directory->path, name);
        (void)psi_directory_remove(directory, name, NULL);
    }
    psi_disk_close(&fd);
    return status;
}

/* ---- Reading ---- */

/* The columns are in the image of the file. */
static psd_status
find_columns(struct psi_rows_piece *piece, const char *table, const char *path, const char *name,
             const struct psi_rows_file *file, struct psd_error *err)
{
    struct psi_rows_layout layout;
    const psd_status status = psi_rows_lay_out(&layout, table, &piece->form, &file->count, err);

    if (status != PSD_OK) {
        return status;
    }
    if (layout.bytes != file->bytes || memcmp(layout.head, piece->memory, layout.head_bytes) != 0) {
        return psi_fail(err, PSD_ERR_CORRUPT,
                        "%s/%s: its header is not that of %u rows of table %s", path, name,
                        file->count.rows, table);
    }
    for (enum psi_rows_column column = 0; column < PSI_ROWS_COLUMNS; column++) {
        piece->column[column] = (char *)piece->memory + layout.begin[column];
    }
    return PSD_OK;
}

static psd_status
read_image(const struct psi_directory *directory, const char *name,
           const struct psi_rows_file *file, void *to, struct psd_error *err)
{
    uint64_t bytes = 0;
    int fd = -1;
    psd_status status = psi_input_open(directory, name, &fd, &bytes, err);

    if (status == PSD_OK && bytes != file->bytes) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: %llu bytes, the manifest says %llu",
                          directory->path, name, (unsigned long long)bytes,
                          (unsigned long long)file->bytes);
    }
    if (status == PSD_OK && psi_disk_read(directory->disk, fd, to, bytes, 0) != 0) {
        status = psi_input_failed(err, "read", directory->path, name);
    }
    psi_disk_close(&fd);
    if (status == PSD_OK && psi_crc32c(0, to, bytes) != file->checksum) {
        status = psi_fail(err, PSD_ERR_CORRUPT, "%s/%s: damaged: checksum does not match",
                          directory->path, name);
    }
    return status;
}

psd_status
psi_rows_piece_read(const struct psi_directory *directory, const struct psi_manifest_rows *rows,
                    const struct psi_rows_file *file, struct psi_rows_piece **piece_p,
                    struct psd_error *err)
{
    struct psi_rows_piece *piece = calloc(1, sizeof(*piece));
    char name[PSI_CHECKPOINT_NAME_BYTES];
    psd_status status;

    psi_checkpoint_rows_name(name, file->generation, file->place, file->number);
    if (piece != NULL) {
        piece->form = rows->form;
        piece->count = file->count;
        piece->room = file->count;
        piece->memory = aligned_alloc(ALIGN, aligned(file->bytes + 1));
    }
    if (piece == NULL || piece->memory == NULL) {
        psi_rows_piece_destroy(piece);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "load %s/%s: no memory", directory->path, name);
    }
    status = read_image(directory, name, file, piece->memory, err);
    if (status == PSD_OK) {
        status = find_columns(piece, rows->table, directory->path, name, file, err);
    }
    if (status != PSD_OK) {
        psi_rows_piece_destroy(piece);
        return status;
    }
    *piece_p = piece;
    return PSD_OK;
}
