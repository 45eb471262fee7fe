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
#include "checkpoint/safetensors.h"
#include "checkpoint/write.h"
#include "client/api/saved_tables.h"
#include "wire/frame.h"

/* One tensor of a file: of which table, and where it begins there. */
struct source {
    size_t table; /* in tables.list */
    struct saved_part part;
    uint64_t begin;
};

/* Thread: owned by the psd_save() call it serves. */
struct save {
    psd_context *context;
    uint64_t step;
    struct saved_tables tables;
    struct psi_manifest_table *records; /* one per table */
    struct source *sources;             /* table by table, as list_parts() has them */
    size_t source_count;
    struct psi_tensors tensors[PSI_CHECKPOINT_DATA_FILES];
    uint8_t *heads[PSI_CHECKPOINT_DATA_FILES];
    size_t head_bytes[PSI_CHECKPOINT_DATA_FILES];
    struct psi_checkpoint_writer *writer;
};

static psd_status
save_allocate(struct save *save, struct psd_error *err)
{
    const size_t parts = save->tables.count * PSI_PARTS_MAX;
    bool complete;

    save->records = calloc(save->tables.count, sizeof(save->records[0]));
    save->sources = calloc(parts, sizeof(save->sources[0]));
    complete = save->records != NULL && save->sources != NULL;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        save->tensors[kind].list = calloc(parts, sizeof(save->tensors[kind].list[0]));
        complete = complete && save->tensors[kind].list != NULL;
    }
    return complete ? PSD_OK
                    : psi_fail(err, PSD_ERR_NO_MEMORY, "save: no memory for a list of %zu tables",
                               save->tables.count);
}

static void
add_table(struct save *save, size_t index)
{
    const struct psi_spec *spec = psi_table_spec(save->tables.list[index]);
    struct psi_manifest_table *record = &save->records[index];
    struct saved_part parts[PSI_PARTS_MAX];
    const unsigned count = psi_saved_parts(spec, parts);

    memcpy(record->name, spec->name, sizeof(record->name));
    psi_spec_text(spec, record->spec, sizeof(record->spec));
    record->step = save->step;
    record->moment =
        psi_spec_synchronous(spec) ? PSI_MANIFEST_MOMENT_STEP : PSI_MANIFEST_MOMENT_CHUNK;
    for (unsigned i = 0; i < count; i++) {
        struct psi_tensors *tensors = &save->tensors[parts[i].kind];
        struct psi_tensor *tensor = &tensors->list[tensors->count++];
        struct source *source = &save->sources[save->source_count];

        source->table = index;
        source->part = parts[i];
        tensor->name = source->part.name;
        tensor->dtype = parts[i].dtype;
        tensor->dims = spec->dims;
        memcpy(tensor->shape, spec->shape, sizeof(tensor->shape));
        tensor->source = save->source_count++;
    }
}

/* Everything that can be known before a byte is moved. */
static psd_status
save_plan(struct save *save, struct psd_error *err)
{
    psd_status status = save_allocate(save, err);

    for (size_t i = 0; i < save->tables.count && status == PSD_OK; i++) {
        add_table(save, i);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = psi_safetensors_layout(&save->tensors[kind], save->step, &save->heads[kind],
                                        &save->head_bytes[kind], err);
        for (size_t i = 0; i < save->tensors[kind].count && status == PSD_OK; i++) {
            const struct psi_tensor *tensor = &save->tensors[kind].list[i];

            save->sources[tensor->source].begin = save->head_bytes[kind] + tensor->begin;
        }
    }
    return status;
}

/* A chunk came as all its parts, one after the other by number: each goes to its place. */
static psd_status
save_chunk(struct save *save, const struct source *sources, unsigned count, uint64_t chunk,
           const uint8_t *from, struct psd_error *err)
{
    const struct psi_spec *spec = psi_table_spec(save->tables.list[sources[0].table]);
    const uint64_t elements = psi_chunk_elements(spec->count, chunk);
    const uint64_t first = psi_chunk_first(chunk);

    for (unsigned number = 0; number < PSI_PARTS_MAX; number++) {
        const size_t element_bytes = psi_spec_part_bytes(spec, number);
        unsigned i = 0;
        psd_status status;

        if (element_bytes == 0) {
            continue;
        }
        while (i < count && sources[i].part.number != number) {
            i++;
        }
        psi_assert(i < count);
        status = psi_checkpoint_write(save->writer, sources[i].part.kind,
                                      sources[i].begin + first * element_bytes, from,
                                      elements * element_bytes, err);
        if (status != PSD_OK) {
            return status;
        }
        from += elements * element_bytes;
    }
    return PSD_OK;
}

/* Chunks of a table that are moved at once. */
static uint64_t
chunks_at_once(const struct psi_spec *spec)
{
    const uint64_t fit = BUFFER_BYTES / (PSD_CHUNK_ELEMENTS * psi_spec_all_parts_bytes(spec));

    return fit < RANGE_CHUNKS ? fit : RANGE_CHUNKS;
}

static psd_status
save_range(struct save *save, const struct source *sources, unsigned count,
           const struct psi_transfer *transfer, struct psd_error *err)
{
    psd_table *table = save->tables.list[sources[0].table];
    struct psi_manifest_table *record = &save->records[sources[0].table];
    const size_t chunk_bytes = PSD_CHUNK_ELEMENTS * psi_spec_all_parts_bytes(psi_table_spec(table));
    const uint64_t first_chunk = transfer->first / PSD_CHUNK_ELEMENTS;
    uint64_t updates = 0;
    psd_status status = psi_context_transfer(save->context, table, transfer, &updates, err);

    if (status == PSD_OK && updates > record->updates) {
        record->updates = updates;
    }
    for (uint64_t i = 0; i < psi_chunk_count(transfer->count) && status == PSD_OK; i++) {
        status = save_chunk(save, sources, count, first_chunk + i,
                            save->tables.buffer + i * chunk_bytes, err);
    }
    return status;
}

static psd_status
save_table(struct save *save, const struct source *sources, unsigned count, struct psd_error *err)
{
    const struct psi_spec *spec = psi_table_spec(save->tables.list[sources[0].table]);
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

        status = save_range(save, sources, count, &transfer, err);
    }
    return status;
}

static psd_status
save_tables(struct save *save, struct psd_error *err)
{
    psd_status status = PSD_OK;
    unsigned count;

    for (size_t i = 0; i < save->source_count && status == PSD_OK; i += count) {
        const struct source *sources = &save->sources[i];

        count = 1;
        while (i + count < save->source_count && sources[count].table == sources[0].table) {
            count++;
        }
        status = save_table(save, sources, count, err);
    }
    return status;
}

static psd_status
save_write(struct save *save, const char *directory, struct psd_error *err)
{
    uint64_t bytes[PSI_CHECKPOINT_DATA_FILES];
    psd_status status;

    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        bytes[kind] = save->head_bytes[kind] + psi_tensors_bytes(&save->tensors[kind]);
    }
    status = psi_checkpoint_writer_create(&psi_disk_system, directory, bytes, &save->writer, err);
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = psi_checkpoint_write(save->writer, (enum psi_checkpoint_kind)kind, 0,
                                      save->heads[kind], save->head_bytes[kind], err);
    }
    if (status == PSD_OK) {
        status = save_tables(save, err);
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
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_tensors_fini(&save->tensors[kind]);
        free(save->heads[kind]);
    }
    free(save->sources);
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
