/*
 * fits.c - does a table of this job fit what was saved of it?
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "checkpoint/outline.h"
#include "checkpoint/read.h"
#include "table/dtype.h"
#include "table/rule.h"

enum { SHAPE_TEXT_BYTES = 200 };

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
           const struct psi_saved_part *part, struct psd_error *err)
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

/* "momentum" of "f32[2] update momentum(learning_rate=0.1) ...": 0 bytes where there is none. */
static const char *
rule_word(const char *text, size_t *bytes_p)
{
    static const char use[] = " update ";
    const char *at = strstr(text, use);

    at = at == NULL ? "" : at + sizeof(use) - 1;
    *bytes_p = strcspn(at, "( ");
    return at;
}

static psd_status
check_rule(const struct psi_checkpoint *checkpoint, const struct psi_manifest_table *record,
           const struct psi_spec *spec, struct psd_error *err)
{
    char text[PSI_MANIFEST_SPEC_MAX];
    size_t here_bytes;
    size_t there_bytes;
    const char *here;
    const char *there = rule_word(record->spec, &there_bytes);

    psi_spec_text(spec, text, sizeof(text));
    here = rule_word(text, &here_bytes);
    if (here_bytes == there_bytes && memcmp(here, there, here_bytes) == 0) {
        return PSD_OK;
    }
    return psi_fail(err, PSD_ERR_MISMATCH,
                    "load table %s: its rule is %.*s in generation %llu of %s, %.*s in this job",
                    spec->name, (int)there_bytes, there,
                    (unsigned long long)checkpoint->manifest.generation, checkpoint->path,
                    (int)here_bytes, here);
}

/* "bf16[16], rule adagrad, row_wise 1, 4096 buckets of 0 counters" */
static void
form_text(const struct psi_row_form *form, char text[SHAPE_TEXT_BYTES])
{
    snprintf(text, SHAPE_TEXT_BYTES, "%s[%u], rule %s, row_wise %u, %u buckets with %u counters",
             psi_dtype_name(form->dtype), form->width, psi_rule_name(form->rule), form->row_wise,
             1u << form->bucket_bits, form->counter_bytes);
}

/* How many buckets and counters there are follows from capacity_rows, admit_after and admit_counters. */
static psd_status
check_rows(const struct psi_checkpoint *checkpoint, const struct psi_spec *spec,
           struct psd_error *err)
{
    const struct psi_manifest_rows *rows = psi_manifest_rows(&checkpoint->manifest, spec->name);
    const struct psi_row_form form = psi_row_form_of(spec);
    char here[SHAPE_TEXT_BYTES];
    char there[SHAPE_TEXT_BYTES];

    if (rows == NULL) {
        return psi_fail(err, PSD_ERR_MISMATCH,
                        "load table %s: it is sparse in this job, and not in generation %llu of %s",
                        spec->name, (unsigned long long)checkpoint->manifest.generation,
                        checkpoint->path);
    }
    if (rows->form.dtype == form.dtype && rows->form.rule == form.rule &&
        rows->form.width == form.width && rows->form.row_wise == form.row_wise &&
        rows->form.bucket_bits == form.bucket_bits &&
        rows->form.counter_bytes == form.counter_bytes) {
        return PSD_OK;
    }
    form_text(&form, here);
    form_text(&rows->form, there);
    return psi_fail(err, PSD_ERR_MISMATCH,
                    "load table %s: its rows are %s in generation %llu of %s, %s in this job",
                    spec->name, there, (unsigned long long)checkpoint->manifest.generation,
                    checkpoint->path, here);
}

psd_status
psi_checkpoint_fits(const struct psi_checkpoint *checkpoint, const struct psi_spec *spec,
                    struct psd_error *err)
{
    const struct psi_manifest_table *record = psi_manifest_table(&checkpoint->manifest, spec->name);
    struct psi_saved_part parts[PSI_PARTS_MAX];
    const unsigned count = psi_saved_parts(spec, parts);
    psd_status status = PSD_OK;

    if (record == NULL) {
        return psi_fail(err, PSD_ERR_MISMATCH, "load table %s: not in generation %llu of %s",
                        spec->name, (unsigned long long)checkpoint->manifest.generation,
                        checkpoint->path);
    }
    if (psi_spec_is_sparse(spec)) {
        return check_rows(checkpoint, spec, err);
    }
    for (unsigned part = count; part-- > 0 && status == PSD_OK;) { /* the value: people know it */
        status = check_part(checkpoint, spec, &parts[part], err);
    }
    return status == PSD_OK ? check_rule(checkpoint, record, spec, err) : status;
}
