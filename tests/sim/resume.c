/*
 * resume.c - the checkpoint that a simulated job goes on from.
 *
 * The master looks whether tables fit it, by names, shapes and rules; lanes read values and state of their
 * chunks, whatever servers there are. There are no files: checkpoint/ has tests of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/outline.h"
#include "checkpoint/read.h"
#include "server/source.h"

enum { TENSORS_MAX = TABLES_MAX * PSI_PARTS_MAX };

struct resume {
    const struct plan *plan;
    struct psi_checkpoint checkpoint;
    struct lane_source source;
    struct psi_manifest_table tables[TABLES_MAX];
    struct psi_saved_part parts[TABLES_MAX][PSI_PARTS_MAX]; /* whose names tensors borrow */
    struct psi_tensor tensors[PSI_CHECKPOINT_DATA_FILES][TENSORS_MAX];
};

static int
by_name(const void *a, const void *b)
{
    const struct psi_tensor *one = a;
    const struct psi_tensor *other = b;

    return strcmp(one->name, other->name);
}

static void
describe_table(struct resume *resume, unsigned index)
{
    struct psi_manifest_table *table = &resume->tables[index];
    struct psi_spec spec;
    unsigned count;

    plan_spec(resume->plan, index, &spec);
    snprintf(table->name, sizeof(table->name), "%s", spec.name);
    psi_spec_text(&spec, table->spec, sizeof(table->spec));
    table->step = resume->plan->load_step;
    table->updates = resume->plan->load_step;
    count = psi_saved_parts(&spec, resume->parts[index]);
    for (unsigned i = 0; i < count; i++) {
        const struct psi_saved_part *part = &resume->parts[index][i];
        struct psi_tensors *tensors = &resume->checkpoint.tensors[part->kind];
        struct psi_tensor *tensor = &tensors->list[tensors->count++];

        tensor->name = part->name;
        tensor->dtype = part->dtype;
        tensor->dims = spec.dims;
        memcpy(tensor->shape, spec.shape, sizeof(tensor->shape));
    }
}

static psd_status
read_part(void *self, const struct psi_spec *spec, unsigned part, uint64_t first, size_t bytes,
          void *to, uint64_t *updates_p, struct psd_error *err)
{
    const struct resume *resume = self;
    unsigned index = 0;

    (void)err;
    while (strcmp(resume->tables[index].name, spec->name) != 0) {
        index++;
        psi_assert(index < resume->plan->table_count);
    }
    plan_loaded(resume->plan, index, part, first, bytes / psi_spec_part_bytes(spec, part), to);
    *updates_p = resume->tables[index].updates;
    return PSD_OK;
}

struct resume *
resume_create(const struct plan *plan)
{
    struct resume *resume;

    if (!plan->resumes) {
        return NULL;
    }
    resume = calloc(1, sizeof(*resume));
    psi_assert(resume != NULL);
    resume->plan = plan;
    resume->source =
        (struct lane_source){.self = resume, .step = plan->load_step, .read = read_part};
    resume->checkpoint.path = "saved";
    resume->checkpoint.manifest.generation = 1;
    resume->checkpoint.manifest.step = plan->load_step;
    resume->checkpoint.manifest.tables = resume->tables;
    resume->checkpoint.manifest.table_count = plan->table_count;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        resume->checkpoint.tensors[kind].list = resume->tensors[kind];
    }
    for (unsigned i = 0; i < plan->table_count; i++) {
        describe_table(resume, i);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        qsort(resume->tensors[kind], resume->checkpoint.tensors[kind].count,
              sizeof(struct psi_tensor), by_name);
    }
    return resume;
}

void
resume_destroy(struct resume *resume)
{
    free(resume);
}

const struct psi_checkpoint *
resume_checkpoint(const struct resume *resume)
{
    return resume != NULL ? &resume->checkpoint : NULL;
}

const struct lane_source *
resume_source(const struct resume *resume)
{
    return resume != NULL ? &resume->source : NULL;
}
