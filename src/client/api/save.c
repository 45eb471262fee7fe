/*
 * save.c - psd_save and psd_load: tables out of the servers into files, and back.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/read.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/write.h"
#include "client/api/context.h"
#include "wire/frame.h"

enum {
    PART_NAME_BYTES = PSD_NAME_MAX + 32, /* table.state */
    RANGE_CHUNKS = 64,                   /* moved at once, if they fit the buffer */
    RANGE_ELEMENTS = RANGE_CHUNKS * PSD_CHUNK_ELEMENTS,
    BUFFER_BYTES = RANGE_ELEMENTS * 8, /* of the widest type */
    SHAPE_TEXT_BYTES = 200,
};

/* One tensor of a table. */
struct part {
    uint8_t number;
    enum psi_checkpoint_kind kind;
    psd_dtype dtype;
    char name[PART_NAME_BYTES];
};

static void
name_part(struct part *part, const char *table, const char *what)
{
    const size_t length = strlen(table);
    const size_t what_length = strlen(what);

    psi_assert(length + 1 + what_length < sizeof(part->name));
    memcpy(part->name, table, length);
    part->name[length] = '.';
    memcpy(part->name + length + 1, what, what_length + 1);
}

/* All parts of a table, the value last: on the servers it is what makes a loaded chunk count. */
static unsigned
list_parts(const struct psi_spec *spec, struct part parts[PSI_PARTS_MAX])
{
    const psd_dtype state_dtype = spec->dtype == PSD_F64 ? PSD_F64 : PSD_F32;
    unsigned count = 0;

    if (psi_dtype_bytes(spec->dtype) == 2) {
        parts[count] = (struct part){PSI_PART_MASTER, PSI_CHECKPOINT_STATE, PSD_F32};
        name_part(&parts[count++], spec->name, "master");
    }
    for (unsigned state = 0; state < psi_rule_states(spec->rule.rule); state++) {
        parts[count] =
            (struct part){(uint8_t)(PSI_PART_STATE + state), PSI_CHECKPOINT_STATE, state_dtype};
        name_part(&parts[count++], spec->name, psi_rule_state_name(spec->rule.rule, state));
    }
    parts[count] = (struct part){PSI_PART_VALUE, PSI_CHECKPOINT_PARAMS, spec->dtype};
    memcpy(parts[count++].name, spec->name, sizeof(spec->name));
    return count;
}

/* ----------------------------------------------------------------------------- what to move --- */

/* The update tables of a context, by name. Thread: owned by the call that made it. */
struct tables {
    psd_table **list;
    size_t count;
    uint8_t *buffer; /* BUFFER_BYTES: one range */
};

static int
by_table_name(const void *a, const void *b)
{
    psd_table *const *left = a;
    psd_table *const *right = b;

    return strcmp(psi_table_spec(*left)->name, psi_table_spec(*right)->name);
}

static void
tables_fini(struct tables *tables)
{
    free(tables->list);
    free(tables->buffer);
}

static psd_status
tables_init(struct tables *tables, psd_context *context, struct psd_error *err)
{
    size_t opened = 0;

    while (psi_context_table(context, opened) != NULL) {
        opened++;
    }
    tables->count = 0;
    tables->list = calloc(opened + 1, sizeof(tables->list[0]));
    tables->buffer = malloc(BUFFER_BYTES);
    if (tables->list == NULL || tables->buffer == NULL) {
        tables_fini(tables);
        return psi_fail(err, PSD_ERR_NO_MEMORY, "save or load: no %d bytes for a buffer",
                        BUFFER_BYTES);
    }
    for (size_t i = 0; i < opened; i++) {
        psd_table *table = psi_context_table(context, i);

        if (psi_table_spec(table)->use == PSD_USE_UPDATE) {
            tables->list[tables->count++] = table;
        }
    }
    if (tables->count == 0) {
        tables_fini(tables);
        return psi_fail(err, PSD_ERR_STATE, "save or load: no table of use update is open");
    }
    qsort(tables->list, tables->count, sizeof(tables->list[0]), by_table_name);
    return PSD_OK;
}

static uint64_t
range_count(const struct psi_spec *spec, uint64_t first)
{
    return spec->count - first < RANGE_ELEMENTS ? spec->count - first : RANGE_ELEMENTS;
}

/* ------------------------------------------------------------------------------------- save --- */

/* One tensor of a file: of which table, and where it begins there. */
struct source {
    size_t table; /* in tables.list */
    struct part part;
    uint64_t begin;
};

/* Thread: owned by the psd_save() call it serves. */
struct save {
    psd_context *context;
    uint64_t step;
    struct tables tables;
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
    struct part parts[PSI_PARTS_MAX];
    const unsigned count = list_parts(spec, parts);

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
    tables_fini(&save->tables);
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
    status = tables_init(&save.tables, context, err);
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

/* ------------------------------------------------------------------------------------- load --- */

/* "f32[784,10]"; "other" for a type we have no tables of. */
static void
shape_text(psd_dtype dtype, uint32_t dims, const uint64_t shape[PSD_DIMS_MAX],
           char text[SHAPE_TEXT_BYTES])
{
    int used =
        snprintf(text, SHAPE_TEXT_BYTES, "%s[", dtype == 0 ? "other" : psi_dtype_name(dtype));

    for (uint32_t i = 0; i < dims && i < PSD_DIMS_MAX; i++) {
        used += snprintf(text + used, SHAPE_TEXT_BYTES - (size_t)used, "%s%llu", i > 0 ? "," : "",
                         (unsigned long long)shape[i]);
    }
    snprintf(text + used, SHAPE_TEXT_BYTES - (size_t)used, "%s]",
             dims > PSD_DIMS_MAX ? ",..." : "");
}

static psd_status
check_part(const struct psi_checkpoint *checkpoint, const struct psi_spec *spec,
           const struct part *part, struct psd_error *err)
{
    const struct psi_manifest_file *file = &checkpoint->manifest.files[part->kind];
    const struct psi_tensor *tensor =
        psi_tensors_find(&checkpoint->tensors[part->kind], part->name);
    char here[SHAPE_TEXT_BYTES];
    char there[SHAPE_TEXT_BYTES];

    if (tensor == NULL) {
        return psi_fail(err, PSD_ERR_MISMATCH, "load table %s: no %s in %s/%s", spec->name,
                        part->name, checkpoint->path, file->name);
    }
    if (tensor->dtype == part->dtype && tensor->dims == spec->dims &&
        memcmp(tensor->shape, spec->shape, sizeof(tensor->shape)) == 0) {
        return PSD_OK;
    }
    shape_text(part->dtype, spec->dims, spec->shape, here);
    shape_text(tensor->dtype, tensor->dims, tensor->shape, there);
    return psi_fail(err, PSD_ERR_MISMATCH, "load table %s: %s is %s in %s/%s, %s in this job",
                    spec->name, part->name, there, checkpoint->path, file->name, here);
}

static psd_status
check_tables(const struct psi_checkpoint *checkpoint, const struct tables *tables,
             struct psd_error *err)
{
    for (size_t i = 0; i < tables->count; i++) {
        const struct psi_spec *spec = psi_table_spec(tables->list[i]);
        struct part parts[PSI_PARTS_MAX];
        const unsigned count = list_parts(spec, parts);

        if (psi_manifest_table(&checkpoint->manifest, spec->name) == NULL) {
            return psi_fail(err, PSD_ERR_MISMATCH, "load table %s: not in generation %llu of %s",
                            spec->name, (unsigned long long)checkpoint->manifest.generation,
                            checkpoint->path);
        }
        for (unsigned part = count; part-- > 0;) { /* the value first: it is what people know */
            const psd_status status = check_part(checkpoint, spec, &parts[part], err);

            if (status != PSD_OK) {
                return status;
            }
        }
    }
    return PSD_OK;
}

/* Thread: owned by the psd_load() call it serves. */
struct load {
    psd_context *context;
    struct tables tables;
    struct psi_checkpoint *checkpoint;
};

/* One range of one part, out of its file and to the servers. */
static psd_status
load_range(struct load *load, psd_table *table, const struct part *part,
           struct psi_transfer *transfer, struct psd_error *err)
{
    const size_t element_bytes = psi_dtype_bytes(part->dtype);
    const struct psi_tensor *tensor =
        psi_tensors_find(&load->checkpoint->tensors[part->kind], part->name);
    const psd_status status =
        psi_checkpoint_read(load->checkpoint, part->kind, tensor, transfer->first * element_bytes,
                            transfer->count * element_bytes, load->tables.buffer, err);

    if (status != PSD_OK) {
        return status;
    }
    transfer->part = part->number;
    transfer->from = load->tables.buffer;
    return psi_context_transfer(load->context, table, transfer, NULL, err);
}

static psd_status
load_table(struct load *load, psd_table *table, struct psd_error *err)
{
    const struct psi_spec *spec = psi_table_spec(table);
    const struct psi_manifest_table *record =
        psi_manifest_table(&load->checkpoint->manifest, spec->name);
    struct part parts[PSI_PARTS_MAX];
    const unsigned count = list_parts(spec, parts);

    for (uint64_t first = 0; first < spec->count; first += RANGE_ELEMENTS) {
        struct psi_transfer transfer = {
            .type = PSI_FRAME_STATE_PUSH,
            .step = record->step,
            .updates = record->updates,
            .first = first,
            .count = range_count(spec, first),
        };

        for (unsigned part = 0; part < count; part++) {
            const psd_status status = load_range(load, table, &parts[part], &transfer, err);

            if (status != PSD_OK) {
                return status;
            }
        }
    }
    return PSD_OK;
}

/* Sum tables have nothing in the files. They go on from the saved step, as those do that are pushed
 * beside them; one that was pushed before the load has a rhythm of its own. */
static psd_status
load_steps(psd_context *context, uint64_t step, struct psd_error *err)
{
    const struct psi_transfer transfer = {
        .type = PSI_FRAME_STATE_PUSH, .empty = true, .step = step, .updates = step};
    psd_status status = PSD_OK;
    psd_table *table;

    for (size_t i = 0; (table = psi_context_table(context, i)) != NULL && status == PSD_OK; i++) {
        if (psi_table_spec(table)->use == PSD_USE_SUM && psi_context_loads(context, table)) {
            status = psi_context_transfer(context, table, &transfer, NULL, err);
        }
    }
    return status;
}

/* Rank 0's part. Nothing is sent before the files are known to be intact and to match. */
static psd_status
load_files(psd_context *context, const char *directory, struct psd_error *err)
{
    struct load load = {.context = context};
    psd_status status = tables_init(&load.tables, context, err);

    if (status != PSD_OK) {
        return status;
    }
    status = psi_checkpoint_open(&psi_disk_system, directory, &load.checkpoint, err);
    if (status == PSD_OK) {
        status = check_tables(load.checkpoint, &load.tables, err);
    }
    for (size_t i = 0; i < load.tables.count && status == PSD_OK; i++) {
        status = load_table(&load, load.tables.list[i], err);
    }
    if (status == PSD_OK) {
        status = load_steps(context, load.checkpoint->manifest.step, err);
    }
    psi_checkpoint_destroy(load.checkpoint);
    tables_fini(&load.tables);
    return status;
}

/* Waits until every worker has come to the same place of the same psd_load(). */
static psd_status
meet(psd_context *context)
{
    struct psd_error *err = psi_error();
    psd_op *op;
    psd_status status;

    pthread_mutex_lock(&context->lock);
    status = psi_client_load_barrier(context->client, &op, err);
    if (status == PSD_OK) {
        status = psi_context_finish_locked(context, op, NULL, err);
    }
    pthread_mutex_unlock(&context->lock);
    return status;
}

/*
 * A replacement that comes to a job which has loaded loads nothing: the servers are ahead of the
 * files, and each table was opened with the step to go on from. One that comes while the others
 * still wait for the load takes its predecessor's part in it.
 */
static bool
load_is_over(psd_context *context)
{
    bool over;

    pthread_mutex_lock(&context->lock);
    over = psi_client_load_is_over(context->client);
    pthread_mutex_unlock(&context->lock);
    return over;
}

/*
 * Loaded, everybody asks the servers for the step, and only when all have it may anybody push:
 * hence two barriers, which no psd_barrier() is taken for. Whatever happens to rank 0, it comes to
 * both: the others must not wait for ever. They then return the step they see, which is 0 when
 * nothing was loaded, while rank 0 returns its error.
 */
psd_status
psd_load(psd_context *context, const char *directory, uint64_t *step_p)
{
    struct psd_error failure = {0};
    psd_status status = psi_context_check(context, psi_error());
    psd_status met;
    bool over;

    if (status != PSD_OK) {
        return status;
    }
    over = load_is_over(context);
    if (directory == NULL || directory[0] == '\0' || step_p == NULL) {
        status = psi_fail(&failure, PSD_ERR_INVALID, "load: no %s given",
                          step_p == NULL ? "place for the step" : "directory");
    } else if (psd_rank(context) == 0 && !over) {
        status = load_files(context, directory, &failure);
    }
    met = meet(context);
    if (met == PSD_OK && !over) {
        met = psi_context_refresh_steps(context, psi_error());
    }
    if (met == PSD_OK) {
        met = meet(context);
    }
    if (status != PSD_OK) {
        *psi_error() = failure;
        return status;
    }
    if (met == PSD_OK) {
        *step_p = psi_context_first_step(context);
    }
    return met;
}
