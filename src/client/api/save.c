/*
 * save.c - psd_save: tables out of the servers into files.
 *
 * A save is an ordinary reader: a worker that has pulled step c and not pushed it holds back every
 * synchronous table at c, so what it reads range by range belongs together. Tables with staleness
 * move on meanwhile: of those each chunk, value and optimizer state, is of one moment, but not all
 * are of the same. So all parts of a chunk are asked for at once, and written where they belong.
 *
 * The files are checkpoint/'s.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/write.h"
#include "client/api/saved_tables.h"
#include "wire/frame.h"

/* Thread: owned by the psd_save() call it serves. */
struct save {
    psd_context *context;
    uint64_t step;
    struct saved_tables tables;
    struct psi_manifest_table *records; /* one per table */
    struct psi_outline outline;
    struct psi_checkpoint_writer *writer;
};

static void
add_table(struct save *save, size_t index)
{
    const struct psi_spec *spec = psi_table_spec(save->tables.list[index]);
    struct psi_manifest_table *record = &save->records[index];

    memcpy(record->name, spec->name, sizeof(record->name));
    psi_spec_text(spec, record->spec, sizeof(record->spec));
    record->step = save->step;
    record->moment =
        psi_spec_synchronous(spec) ? PSI_MANIFEST_MOMENT_STEP : PSI_MANIFEST_MOMENT_CHUNK;
}

/* Everything that can be known before a byte is moved. */
static psd_status
save_plan(struct save *save, struct psd_error *err)
{
    const size_t count = save->tables.count;
    const struct psi_spec **specs = calloc(count, sizeof(specs[0]));
    psd_status status = PSD_OK;

    save->records = calloc(count, sizeof(save->records[0]));
    if (specs == NULL || save->records == NULL) {
        status =
            psi_fail(err, PSD_ERR_NO_MEMORY, "save: no memory for a list of %zu tables", count);
    }
    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        specs[i] = psi_table_spec(save->tables.list[i]);
        add_table(save, i);
    }
    if (status == PSD_OK) {
        status = psi_outline_init(&save->outline, specs, count, save->step, err);
    }
    free(specs);
    return status;
}

/* A chunk came as all its parts, one after the other by number: each goes to its place. */
static psd_status
save_chunk(struct save *save, size_t table, uint64_t chunk, const uint8_t *from,
           struct psd_error *err)
{
    const struct psi_spec *spec = psi_table_spec(save->tables.list[table]);
    const uint64_t elements = psi_chunk_elements(spec->count, chunk);
    psd_status status = PSD_OK;

    for (unsigned part = 0; part < PSI_PARTS_MAX && status == PSD_OK; part++) {
        const size_t element_bytes = psi_spec_part_bytes(spec, part);
        const size_t bytes = elements * element_bytes;

        if (bytes > 0) {
            status = psi_checkpoint_write(save->writer, psi_saved_kind(part),
                                          save->outline.begin[table][part] +
                                              psi_chunk_first(chunk) * element_bytes,
                                          from, bytes, err);
        }
        from += bytes;
    }
    return status;
}

/* Chunks of a table that are moved at once. */
static uint64_t
chunks_at_once(const struct psi_spec *spec)
{
    const uint64_t fit = BUFFER_BYTES / (PSD_CHUNK_ELEMENTS * psi_spec_all_parts_bytes(spec));

    return fit < RANGE_CHUNKS ? fit : RANGE_CHUNKS;
}

static psd_status
save_range(struct save *save, size_t index, const struct psi_transfer *transfer,
           struct psd_error *err)
{
    psd_table *table = save->tables.list[index];
    struct psi_manifest_table *record = &save->records[index];
    const size_t chunk_bytes = PSD_CHUNK_ELEMENTS * psi_spec_all_parts_bytes(psi_table_spec(table));
    const uint64_t first_chunk = transfer->first / PSD_CHUNK_ELEMENTS;
    uint64_t updates = 0;
    psd_status status = psi_context_transfer(save->context, table, transfer, &updates, err);

    if (status == PSD_OK && updates > record->updates) {
        record->updates = updates;
    }
    for (uint64_t i = 0; i < psi_chunk_count(transfer->count) && status == PSD_OK; i++) {
        status =
            save_chunk(save, index, first_chunk + i, save->tables.buffer + i * chunk_bytes, err);
    }
    return status;
}

static psd_status
save_table(struct save *save, size_t index, struct psd_error *err)
{
    const struct psi_spec *spec = psi_table_spec(save->tables.list[index]);
    const uint64_t at_once = chunks_at_once(spec) * PSD_CHUNK_ELEMENTS;
    psd_status status = PSD_OK;

    for (uint64_t first = 0; first < spec->count && status == PSD_OK; first += at_once) {
        const struct psi_transfer transfer = {
            .type = PSI_FRAME_STATE_PULL,
            .step = save->step,
            .first = first,
            .count = spec->count - first < at_once ? spec->count - first : at_once,
            .to = save->tables.buffer,
        };

        status = save_range(save, index, &transfer, err);
    }
    return status;
}

static psd_status
save_write(struct save *save, const char *directory, struct psd_error *err)
{
    const struct psi_outline *outline = &save->outline;
    psd_status status = psi_checkpoint_writer_create(&psi_disk_system, directory, outline->bytes,
                                                     &save->writer, err);

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = psi_checkpoint_write(save->writer, (enum psi_checkpoint_kind)kind, 0,
                                      outline->head[kind], outline->head_bytes[kind], err);
    }
    for (size_t i = 0; i < save->tables.count && status == PSD_OK; i++) {
        status = save_table(save, i, err);
    }
    if (status == PSD_OK) {
        status =
            psi_checkpoint_commit(save->writer, save->step, save->records, save->tables.count, err);
    }
    return status;
}

static void
save_fini(struct save *save)
{
    psi_checkpoint_writer_destroy(save->writer);
    psi_outline_fini(&save->outline);
    free(save->records);
    psi_saved_tables_fini(&save->tables);
}

psd_status
psd_save(psd_context *context, const char *directory, uint64_t step)
{
    struct psd_error *err = psi_error();
    struct save save = {.context = context, .step = step};
    psd_status status = psi_context_check(context, err);

    if (status != PSD_OK) {
        return status;
    }
    if (directory == NULL || directory[0] == '\0') {
        return psi_fail(err, PSD_ERR_INVALID, "save: no directory given");
    }
    status = psi_saved_tables_init(&save.tables, context, err);
    if (status != PSD_OK) {
        return status;
    }
    status = save_plan(&save, err);
    if (status == PSD_OK) {
        status = save_write(&save, directory, err);
    }
    save_fini(&save);
    return status;
}
