/*
 * fuzz_checkpoint.c - the files of a checkpoint, from anywhere: safetensors heads and manifests.
 *
 * The first byte chooses. 's': a safetensors file follows, header length included. 'r': a file of rows, after 16 bytes
 * that say how a manifest describes it; its checksum is set right here, as is that of a manifest, which anything else is,
 * without its last field: no fuzzer guesses it.
 * What is accepted is written and read once more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows_piece.h"
#include "checkpoint/safetensors.h"
#include "fuzz.h"
#include "table/rule.h"

enum { GENERATION = 7, TAIL_BYTES = 21, ROWS_BYTES = 16 /* before a file of rows */ };

/* What holds for any list of tensors that was accepted. */
static void
check_tensors(const struct psi_tensors *tensors, uint64_t data_bytes)
{
    uint64_t covered = 0;

    for (size_t i = 0; i < tensors->count; i++) {
        const struct psi_tensor *tensor = &tensors->list[i];

        psi_assert(tensor->begin <= tensor->end);
        psi_assert(tensor->end <= data_bytes);
        psi_assert(psi_tensors_find(tensors, tensor->name) == tensor);
        covered += tensor->end - tensor->begin;
    }
    psi_assert(covered == data_bytes);
}

/* Tensors of types that we have are the same after a save: laid out anew, written, read. */
static void
check_layout(struct psi_tensors *tensors)
{
    struct psi_tensors again;
    struct psd_error err;
    uint8_t *head;
    size_t head_bytes;
    size_t said;

    for (size_t i = 0; i < tensors->count; i++) {
        if (tensors->list[i].dtype == 0 || tensors->list[i].dims > PSD_DIMS_MAX) {
            return;
        }
    }
    psi_assert(psi_safetensors_layout(tensors, GENERATION, &head, &head_bytes, &err) == PSD_OK);
    const uint64_t bytes = head_bytes + psi_tensors_bytes(tensors);

    psi_assert(psi_safetensors_head_bytes("again", head, bytes, &said, &err) == PSD_OK);
    psi_assert(said == head_bytes);
    psi_assert(psi_safetensors_parse("again", head, head_bytes, bytes, &again, &err) == PSD_OK);
    psi_assert(again.count == tensors->count);
    for (size_t i = 0; i < tensors->count; i++) {
        const struct psi_tensor *tensor = &tensors->list[i];
        const struct psi_tensor *found = psi_tensors_find(&again, tensor->name);

        psi_assert(found != NULL && found->dtype == tensor->dtype && found->dims == tensor->dims);
        psi_assert(memcmp(found->shape, tensor->shape, sizeof(found->shape)) == 0);
    }
    psi_tensors_fini(&again);
    free(head);
    if (tensors->count > 0) { /* a name that cannot come out of a file must not go into one */
        tensors->list[0].name = "__metadata__";
        psi_assert(psi_safetensors_layout(tensors, GENERATION, &head, &head_bytes, &err) ==
                   PSD_ERR_INVALID);
    }
}

static void
check_safetensors(const uint8_t *data, size_t size)
{
    struct psi_tensors tensors;
    struct psd_error err = {0};
    size_t head_bytes;
    psd_status status;

    if (size < PSI_SAFETENSORS_LENGTH_BYTES) {
        return;
    }
    status = psi_safetensors_head_bytes("fuzz", data, size, &head_bytes, &err);
    if (status == PSD_OK) {
        status = psi_safetensors_parse("fuzz", data, head_bytes, size, &tensors, &err);
    }
    if (status == PSD_OK) {
        check_tensors(&tensors, size - head_bytes);
        check_layout(&tensors);
        psi_tensors_fini(&tensors);
    } else {
        psi_assert(err.status == status);
        psi_assert(status == PSD_ERR_CORRUPT);
        psi_assert(strncmp(err.text, "fuzz: ", 6) == 0);
    }
}

/* What was accepted is the same after it was written and read. */
static void
check_again(const struct psi_manifest *manifest)
{
    struct psi_manifest again;
    struct psd_error err;
    char *text;
    size_t bytes;

    psi_manifest_init(&again, GENERATION);
    psi_assert(psi_manifest_format(manifest, "again", &text, &bytes, &err) == PSD_OK);
    psi_assert(psi_manifest_parse(&again, "again", text, bytes, &err) == PSD_OK);
    psi_assert(again.step == manifest->step && again.table_count == manifest->table_count);
    for (size_t i = 0; i < again.table_count; i++) {
        psi_assert(memcmp(&again.tables[i], &manifest->tables[i], sizeof(again.tables[i])) == 0);
    }
    psi_assert(again.part_count == manifest->part_count);
    for (size_t i = 0; i < again.part_count; i++) {
        psi_assert(memcmp(&again.parts[i], &manifest->parts[i], sizeof(again.parts[i])) == 0);
    }
    psi_assert(again.rows_count == manifest->rows_count);
    for (size_t i = 0; i < again.rows_count; i++) {
        const struct psi_manifest_rows *rows = &manifest->rows[i];

        psi_assert(strcmp(again.rows[i].table, rows->table) == 0);
        psi_assert(memcmp(&again.rows[i].form, &rows->form, sizeof(rows->form)) == 0);
        psi_assert(again.rows[i].count == rows->count);
        psi_assert(rows->count == 0 || memcmp(again.rows[i].files, rows->files,
                                              rows->count * sizeof(rows->files[0])) == 0);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        const struct psi_manifest_file *file = &manifest->files[kind];

        psi_assert(again.files[kind].bytes == file->bytes);
        psi_assert(again.files[kind].checksum == file->checksum);
        psi_assert(again.files[kind].block_count == file->block_count);
        psi_assert(file->block_count == 0 ||
                   memcmp(again.files[kind].blocks, file->blocks,
                          file->block_count * sizeof(file->blocks[0])) == 0);
    }
    psi_manifest_fini(&again);
    free(text);
}

/* What holds for any manifest that was accepted: it can only name files of its own generation. */
static void
check_accepted(const struct psi_manifest *manifest)
{
    char absent[PSD_NAME_MAX + 2] = ""; /* longer than any name */

    memset(absent, 'n', sizeof(absent) - 1);
    psi_assert(psi_manifest_table(manifest, absent) == NULL);
    psi_assert(strcmp(manifest->files[PSI_CHECKPOINT_PARAMS].name, "params-7.safetensors") == 0);
    psi_assert(strcmp(manifest->files[PSI_CHECKPOINT_STATE].name, "state-7.safetensors") == 0);
    for (size_t i = 0; i < manifest->table_count; i++) {
        psi_assert(psi_manifest_table(manifest, manifest->tables[i].name) != NULL);
    }
}

/* Without setting the checksum right: refused, unless somebody did. */
static void
check_unsealed(const uint8_t *data, size_t size)
{
    struct psi_manifest manifest;
    struct psd_error err = {0};

    psi_manifest_init(&manifest, GENERATION);
    if (psi_manifest_parse(&manifest, "fuzz", (const char *)data, size, &err) != PSD_OK) {
        psi_assert(strncmp(err.text, "fuzz: ", 6) == 0);
    }
    psi_manifest_fini(&manifest);
}

static void
check_manifest(const uint8_t *data, size_t size)
{
    struct psi_manifest manifest;
    char *text = malloc(size + TAIL_BYTES + 1);
    struct psd_error err = {0};
    psd_status status;

    psi_assert(text != NULL);
    psi_manifest_init(&manifest, GENERATION);
    memcpy(text, data, size);
    snprintf(text + size, TAIL_BYTES + 1, "\"crc32c\":\"%08x\"}\n", psi_crc32c(0, data, size));
    status = psi_manifest_parse(&manifest, "fuzz", text, size + TAIL_BYTES, &err);
    if (status == PSD_OK) {
        check_accepted(&manifest);
        check_again(&manifest);
    } else {
        psi_assert(status == PSD_ERR_CORRUPT);
        psi_assert(strncmp(err.text, "fuzz: ", 6) == 0);
    }
    free(text);
    psi_manifest_fini(&manifest);
}

/* ---- Rows ---- */

static int memory = -1; /* the file that a directory has */

static int
open_memory(void *self, int directory, const char *name, int flags)
{
    (void)self;
    (void)directory;
    (void)name;
    (void)flags;
    return dup(memory);
}

static ssize_t
read_memory(void *self, int fd, void *data, size_t bytes, uint64_t offset)
{
    (void)self;
    return pread(fd, data, bytes, (off_t)offset);
}

/* Each column that was found is in the file. */
static uint64_t
add_up(const struct psi_rows_piece *piece)
{
    uint64_t sum = 0;

    for (enum psi_rows_column column = 0; column < PSI_ROWS_COLUMNS; column++) {
        const uint8_t *at = piece->column[column];
        const size_t bytes = (size_t)psi_rows_items(&piece->form, &piece->count, column) *
                             psi_rows_item_bytes(&piece->form, column);

        for (size_t i = 0; i < bytes; i++) {
            sum += at[i];
        }
    }
    return sum;
}

static void
check_rows(const uint8_t *data, size_t size)
{
    static const psd_dtype dtypes[] = {PSD_F32, PSD_F16, PSD_BF16};
    static const struct psi_disk disk = {.open = open_memory, .read = read_memory};
    const struct psi_directory directory = {.disk = &disk, .path = "fuzz"};
    struct psi_manifest_rows rows = {.table = "t"};
    struct psi_rows_piece *piece = NULL;
    struct psi_rows_file file;
    struct psd_error err = {0};
    psd_status status;

    if (size < ROWS_BYTES) {
        return;
    }
    rows.form = (struct psi_row_form){.dtype = dtypes[data[0] % 3],
                                      .rule = (psd_rule)(data[1] % PSI_RULES),
                                      .width = 1 + data[2],
                                      .bucket_bits = 10,
                                      .counter_bytes = data[4]};
    rows.form.row_wise = psi_rule_states(rows.form.rule) > 0 ? data[3] & 1 : 0;
    file = (struct psi_rows_file){
        .generation = GENERATION,
        .count = {.rows = data[5] | (uint32_t)data[6] << 8 | (uint32_t)data[7] << 24,
                  .cleared = data[8],
                  .counted = data[9]},
        .bytes = size - ROWS_BYTES,
        .checksum = psi_crc32c(0, data + ROWS_BYTES, size - ROWS_BYTES)};
    memory = memfd_create("rows", MFD_CLOEXEC);
    psi_assert(memory >= 0);
    psi_assert(write(memory, data + ROWS_BYTES, file.bytes) == (ssize_t)file.bytes);
    status = psi_rows_piece_read(&directory, &rows, &file, &piece, &err);
    if (status == PSD_OK) {
        (void)add_up(piece);
        psi_rows_piece_destroy(piece);
        file.checksum ^= 1;
        psi_assert(psi_rows_piece_read(&directory, &rows, &file, &piece, &err) == PSD_ERR_CORRUPT);
    } else {
        psi_assert(status == PSD_ERR_CORRUPT);
        psi_assert(strncmp(err.text, "fuzz/rows-7-0-0.safetensors: ", 29) == 0);
    }
    close(memory);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 's') {
        check_safetensors(data + 1, size - 1);
    } else if (size > 0 && data[0] == 'r') {
        check_rows(data + 1, size - 1);
    } else if (size > 0) {
        check_unsealed(data + 1, size - 1);
        check_manifest(data + 1, size - 1);
    }
    return 0;
}
