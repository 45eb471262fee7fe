/*
 * spec.h - what a table is: type, shape, use, rule. Pure: checks, defaults, comparison, words.
 *
 * A spec that came out of psi_spec_init() or psi_spec_check() is valid, and every field that a
 * default stands for is filled in, so that two specs are equal exactly if their fields are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TABLE_SPEC_H
#define PSI_TABLE_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <psd/psd.h>

#include "table/dtype.h"
#include "table/row_policy.h"
#include "table/rule.h"

/* Thread: immutable once made. */
struct psi_spec {
    char name[PSD_NAME_MAX + 1];
    psd_dtype dtype;
    uint32_t dims;
    uint64_t shape[PSD_DIMS_MAX]; /* unused entries 0 */
    uint64_t count;               /* product of shape; count * element bytes fits 2^62 */
    psd_use use;
    psd_reduce reduce;
    struct psd_rule_args rule; /* struct_size 0; all of it 0 for PSD_USE_SUM */
    uint32_t staleness;
    uint32_t backup_workers;
    psd_nan_policy nan_policy;
    psd_init init;
    double init_value;
    uint64_t seed;
    uint32_t width;             /* sparse: numbers of a row, which is all that shape says; else 0 */
    struct psi_row_policy rows; /* sparse: which rows come to be, and which go */
    uint32_t bucket_bits;       /* sparse: its rows are in 2^bucket_bits buckets (shard/bucket.h) */
};

/* What every version of struct psd_table_args has, and of struct psd_rule_args. */
enum {
    PSI_TABLE_ARGS_LEAST = offsetof(struct psd_table_args, use),
    PSI_SPARSE_ARGS_LEAST = offsetof(struct psd_sparse_args, use),
    PSI_RULE_ARGS_LEAST = offsetof(struct psd_rule_args, learning_rate),
};

/* From the caller's arguments: checks them, fills in the defaults, says what is wrong. */
psd_status psi_spec_init(struct psi_spec *spec, const struct psd_table_args *args, uint32_t workers,
                         struct psd_error *err);

/* Of a sparse table. */
psd_status psi_spec_init_sparse(struct psi_spec *spec, const struct psd_sparse_args *args,
                                uint32_t workers, struct psd_error *err);

/* The same checks for a spec that came over the wire (defaults already filled in). */
psd_status psi_spec_check(const struct psi_spec *spec, uint32_t workers, struct psd_error *err);

/* Of a sparse table: is this how its rows may come to be, and go? */
psd_status psi_spec_check_rows(const struct psi_spec *spec, const struct psi_row_policy *policy,
                               struct psd_error *err);

/* NULL when equal; else the name of the first field that differs ("shape"). */
const char *psi_spec_difference(const struct psi_spec *a, const struct psi_spec *b);

/* "f32[784,10] update sgd(learning_rate=0.1) staleness=0 ...": all that matters, on one line. */
void psi_spec_text(const struct psi_spec *spec, char *text, size_t size);

/* Rows by id; else a tensor of a fixed number of elements. */
static inline bool
psi_spec_is_sparse(const struct psi_spec *spec)
{
    return spec->width > 0;
}

static inline bool
psi_spec_synchronous(const struct psi_spec *spec)
{
    return spec->staleness == 0;
}

/* Rows by id that are added, and not kept. */
static inline bool
psi_spec_is_sparse_sum(const struct psi_spec *spec)
{
    return psi_spec_is_sparse(spec) && spec->use == PSD_USE_SUM;
}

/* Can workers make anew what a lost server had of the table? Of a sum they have the gradients until
 * they have the result; not with backup workers, whom nobody waits for. */
static inline bool
psi_spec_survives(const struct psi_spec *spec)
{
    return spec->use == PSD_USE_SUM && psi_spec_synchronous(spec) && spec->backup_workers == 0;
}

/* ... and do they? Not in a job that waits for replacements of workers: these may repeat a step whose sum is
 * gone. */
static inline bool
psi_spec_is_remade(const struct psi_spec *spec, bool waits)
{
    return psi_spec_survives(spec) && !waits;
}

/* Changes whenever the bits of any sum or rule change: part of the handshake. */
enum { PSI_KERNEL_REVISION = 1 };

/*
 * What a server has of an element, as STATE_* frames number it: the value in the table's type, the
 * master value (f16 and bf16 tables), then the optimizer's state. Bytes of one; 0: no such part.
 */
enum { PSI_PART_VALUE = 0, PSI_PART_MASTER = 1, PSI_PART_STATE = 2, PSI_PARTS_MAX = 4 };
size_t psi_spec_part_bytes(const struct psi_spec *spec, unsigned part);
size_t psi_spec_all_parts_bytes(const struct psi_spec *spec);

#endif
