/*
 * outline.c - which tensors tables are in files, and where each of them lies.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "checkpoint/outline.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/safetensors.h"

static void
name_part(struct psi_saved_part *part, const char *table, const char *what)
{
    const size_t length = strlen(table);
    const size_t what_length = strlen(what);

    psi_assert(length + 1 + what_length < sizeof(part->name));
    memcpy(part->name, table, length);
    part->name[length] = '.';
    memcpy(part->name + length + 1, what, what_length + 1);
}

unsigned
psi_saved_parts(const struct psi_spec *spec, struct psi_saved_part parts[PSI_PARTS_MAX])
{
    const psd_dtype state_dtype = spec->dtype == PSD_F64 ? PSD_F64 : PSD_F32;
    unsigned count = 0;

    if (psi_spec_is_sparse(spec)) {
        return 0; /* its rows are in files of their own */
    }

    if (psi_dtype_bytes(spec->dtype) == 2) {
        parts[count] = (struct psi_saved_part){PSI_PART_MASTER, PSI_CHECKPOINT_STATE, PSD_F32};
        name_part(&parts[count++], spec->name, "master");
    }
    for (unsigned state = 0; state < psi_rule_states(spec->rule.rule); state++) {
        parts[count] = (struct psi_saved_part){(uint8_t)(PSI_PART_STATE + state),
                                               PSI_CHECKPOINT_STATE, state_dtype};
        name_part(&parts[count++], spec->name, psi_rule_state_name(spec->rule.rule, state));
    }
    parts[count] = (struct psi_saved_part){PSI_PART_VALUE, PSI_CHECKPOINT_PARAMS, spec->dtype};
    memcpy(parts[count++].name, spec->name, sizeof(spec->name));
    return count;
}

/* While it is laid out. */
struct draft {
    struct psi_saved_part *parts; /* PSI_PARTS_MAX for each table */
    struct psi_tensors tensors[PSI_CHECKPOINT_DATA_FILES];
};

static psd_status
draft_init(struct draft *draft, struct psi_outline *outline, size_t count, struct psd_error *err)
{
    const size_t parts = (count + 1) * PSI_PARTS_MAX;
    bool complete;

    outline->begin = calloc(count + 1, sizeof(outline->begin[0]));
    draft->parts = calloc(parts, sizeof(draft->parts[0]));
    complete = outline->begin != NULL && draft->parts != NULL;
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        draft->tensors[kind].list = calloc(parts, sizeof(draft->tensors[kind].list[0]));
        complete = complete && draft->tensors[kind].list != NULL;
    }
    return complete ? PSD_OK
                    : psi_fail(err, PSD_ERR_NO_MEMORY, "save: no memory for a list of %zu tables",
                               count);
}

static void
draft_fini(struct draft *draft)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        psi_tensors_fini(&draft->tensors[kind]);
    }
    free(draft->parts);
}

static void
add_table(struct draft *draft, size_t index, const struct psi_spec *spec)
{
    struct psi_saved_part *parts = &draft->parts[index * PSI_PARTS_MAX];
    const unsigned count = psi_saved_parts(spec, parts);

    for (unsigned i = 0; i < count; i++) {
        struct psi_tensors *tensors = &draft->tensors[parts[i].kind];
        struct psi_tensor *tensor = &tensors->list[tensors->count++];

        tensor->name = parts[i].name;
        tensor->dtype = parts[i].dtype;
        tensor->dims = spec->dims;
        memcpy(tensor->shape, spec->shape, sizeof(tensor->shape));
        tensor->source = index * PSI_PARTS_MAX + i;
    }
}

static psd_status
lay_out(struct draft *draft, struct psi_outline *outline, enum psi_checkpoint_kind kind,
        uint64_t step, struct psd_error *err)
{
    struct psi_tensors *tensors = &draft->tensors[kind];
    const psd_status status = psi_safetensors_layout(tensors, step, &outline->head[kind],
                                                     &outline->head_bytes[kind], err);

    for (size_t i = 0; status == PSD_OK && i < tensors->count; i++) {
        const struct psi_tensor *tensor = &tensors->list[i];

        outline->begin[tensor->source / PSI_PARTS_MAX][draft->parts[tensor->source].number] =
            outline->head_bytes[kind] + tensor->begin;
    }
    outline->bytes[kind] = outline->head_bytes[kind] + psi_tensors_bytes(tensors);
    return status;
}

psd_status
psi_outline_init(struct psi_outline *outline, const struct psi_spec *const *specs, size_t count,
                 uint64_t step, struct psd_error *err)
{
    struct draft draft = {0};
    psd_status status;

    memset(outline, 0, sizeof(*outline));
    outline->tables = count;
    status = draft_init(&draft, outline, count, err);
    for (size_t i = 0; i < count && status == PSD_OK; i++) {
        add_table(&draft, i, specs[i]);
    }
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES && status == PSD_OK; kind++) {
        status = lay_out(&draft, outline, (enum psi_checkpoint_kind)kind, step, err);
    }
    draft_fini(&draft);
    if (status != PSD_OK) {
        psi_outline_fini(outline);
    }
    return status;
}

void
psi_outline_fini(struct psi_outline *outline)
{
    for (unsigned kind = 0; kind < PSI_CHECKPOINT_DATA_FILES; kind++) {
        free(outline->head[kind]);
    }
    free(outline->begin);
    memset(outline, 0, sizeof(*outline));
}
