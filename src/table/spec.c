/*
 * spec.c - what a table is: checks, defaults, comparison, words.
 *
 * psi_spec_init() only gathers and fills in; every check is in psi_spec_check(), so that a worker
 * and a server can never disagree about what is valid.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "table/spec.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/fail.h"
#include "shard/bucket.h"
#include "table/rule_args.h"

enum { PRIORITY_MAX = 255, ROWS_FOR_BUCKETS = 1 << 18 };

#define TABLE_BYTES_MAX (UINT64_C(1) << 62)

static const char *const use_names[] = {"update", "sum"};
static const char *const reduce_names[] = {"mean", "sum"};
static const char *const nan_names[] = {"reject", "skip", "allow"};
static const char *const init_names[] = {"zero", "rank0", "constant", "uniform", "normal"};

_Static_assert((int)PSI_FULL_REFUSE == (int)PSD_FULL_REFUSE, "a user's word is ours");
_Static_assert((int)PSI_FULL_OLDEST == (int)PSD_FULL_OLDEST, "likewise");
_Static_assert((int)PSI_FULL_SPILL == (int)PSD_FULL_SPILL, "likewise");

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Bytes of the UTF-8 character at `at`; 0 if it is invalid, or a control character. */
static size_t
character_bytes(const unsigned char *at)
{
    size_t bytes;
    uint32_t code;

    if (at[0] < 0x80) {
        return at[0] >= 0x20 && at[0] != 0x7f;
    }
    bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    code = at[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0; /* the string's end stops here, too */
        }
        code = code << 6 | (at[i] & 0x3f);
    }
    if (at[0] < 0xc0 || at[0] > 0xf4 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return 0;
    }
    return code >= (bytes == 2 ? 0xa0u : bytes == 3 ? 0x800u : 0x10000u) ? bytes : 0;
}

/* Names end up in logs, in file headers and on screens. */
static psd_status
check_name(const char *name, struct psd_error *err)
{
    const size_t length = strnlen(name, PSD_NAME_MAX + 1);

    if (length < 1 || length > PSD_NAME_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "table name: %s, expected 1 to %d bytes",
                        length < 1 ? "empty" : "too long", PSD_NAME_MAX);
    }
    for (size_t i = 0; i < length;) {
        const size_t bytes = character_bytes((const unsigned char *)name + i);

        if (bytes == 0) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "table name: byte %zu (0x%02x) is not printable UTF-8", i,
                            (unsigned char)name[i]);
        }
        i += bytes;
    }
    return PSD_OK;
}

static psd_status
check_shape(const struct psi_spec *spec, struct psd_error *err)
{
    const size_t bytes = psi_dtype_bytes(spec->dtype);
    uint64_t count = 1;

    if (bytes == 0) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: unknown dtype %d", spec->name,
                        (int)spec->dtype);
    }
    if (spec->dims < 1 || spec->dims > PSD_DIMS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: %u dims, expected 1 to %d", spec->name,
                        spec->dims, PSD_DIMS_MAX);
    }
    for (uint32_t i = 0; i < PSD_DIMS_MAX; i++) {
        if ((spec->shape[i] == 0) != (i >= spec->dims)) {
            return psi_fail(err, PSD_ERR_INVALID, "table %s: dimension %u is %llu, dims is %u",
                            spec->name, i, (unsigned long long)spec->shape[i], spec->dims);
        }
        if (i < spec->dims && spec->shape[i] > TABLE_BYTES_MAX / bytes / count) {
            return psi_fail(err, PSD_ERR_INVALID,
                            "table %s: shape overflows at dimension %u (%llu)", spec->name, i,
                            (unsigned long long)spec->shape[i]);
        }
        count *= i < spec->dims ? spec->shape[i] : 1;
    }
    if (spec->count != count) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: count %llu, shape says %llu", spec->name,
                        (unsigned long long)spec->count, (unsigned long long)count);
    }
    return PSD_OK;
}

static psd_status
check_enum(const struct psi_spec *spec, const char *field, int value, size_t known,
           struct psd_error *err)
{
    if (value < 0 || (size_t)value >= known) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: unknown %s %d", spec->name, field, value);
    }
    return PSD_OK;
}

static psd_status
check_enums(const struct psi_spec *spec, struct psd_error *err)
{
    const struct {
        const char *field;
        int value;
        size_t known;
    } enums[] = {
        {"use", (int)spec->use, COUNT(use_names)},
        {"reduce", (int)spec->reduce, COUNT(reduce_names)},
        {"nan_policy", (int)spec->nan_policy, COUNT(nan_names)},
        {"init", (int)spec->init, COUNT(init_names)},
    };

    for (size_t i = 0; i < COUNT(enums); i++) {
        const psd_status status =
            check_enum(spec, enums[i].field, enums[i].value, enums[i].known, err);

        if (status != PSD_OK) {
            return status;
        }
    }
    return PSD_OK;
}

static psd_status
check_rounds(const struct psi_spec *spec, uint32_t workers, struct psd_error *err)
{
    if (spec->backup_workers > 0 && spec->staleness > 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s: backup_workers %u with staleness %u: backup workers need "
                        "bulk-synchronous rounds",
                        spec->name, spec->backup_workers, spec->staleness);
    }
    if (spec->backup_workers > 0 && spec->backup_workers >= workers) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s: backup_workers %u with %u workers: nobody is left", spec->name,
                        spec->backup_workers, workers);
    }
    return PSD_OK;
}

psd_status
psi_spec_check_rows(const struct psi_spec *spec, const struct psi_row_policy *policy,
                    struct psd_error *err)
{
    const struct psi_row_subject subject = {.name = spec->name,
                                            .dtype = spec->dtype,
                                            .count = spec->count,
                                            .rule = spec->rule.rule,
                                            .init = spec->init};

    return psi_row_policy_check(policy, &subject, err);
}

/* Of a sparse sum no row stays: there is nothing to admit, to bound or to let go. */
static psd_status
check_sparse_sum(const struct psi_spec *spec, struct psd_error *err)
{
    struct psi_row_policy none = {0};
    const char *given;

    psi_row_policy_fill(&none, spec->bucket_bits);
    given = psi_row_policy_difference(&spec->rows, &none);
    if (given != NULL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: use sum with %s: a sum keeps no rows", spec->name, given);
    }
    if (spec->backup_workers > 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: use sum with backup_workers %u: who is left out of a "
                        "step would never see its sum",
                        spec->name, spec->backup_workers);
    }
    return PSD_OK;
}

static psd_status
check_sparse(const struct psi_spec *spec, struct psd_error *err)
{
    psd_status status;

    if (!psi_spec_is_sparse(spec)) {
        return spec->bucket_bits == 0
                   ? PSD_OK
                   : psi_fail(err, PSD_ERR_INVALID, "table %s: buckets, but no width", spec->name);
    }
    if (spec->width > PSD_WIDTH_MAX || spec->dims != 1 || spec->count != spec->width) {
        return psi_fail(err, PSD_ERR_INVALID, "sparse table %s: width %u, expected 1 to %d",
                        spec->name, spec->width, PSD_WIDTH_MAX);
    }
    if (spec->bucket_bits < PSI_BUCKET_BITS_MIN || spec->bucket_bits > PSI_BUCKET_BITS_MAX) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: 2^%u buckets, expected 2^%d to 2^%d", spec->name,
                        spec->bucket_bits, PSI_BUCKET_BITS_MIN, PSI_BUCKET_BITS_MAX);
    }
    status = psi_spec_check_rows(spec, &spec->rows, err);
    return status == PSD_OK && spec->use == PSD_USE_SUM ? check_sparse_sum(spec, err) : status;
}

/* A sum table holds no values: nothing to begin with, nothing to update, nothing to be late for. */
static psd_status
check_sum(const struct psi_spec *spec, struct psd_error *err)
{
    static const struct psd_rule_args no_rule;
    const char *given = psi_rule_args_difference(&spec->rule, &no_rule);

    if (spec->staleness > 0) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: use sum with staleness %u", spec->name,
                        spec->staleness);
    }
    if (given != NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: use sum with a rule (%s given)",
                        spec->name, given);
    }
    if (spec->init != PSD_INIT_ZERO && spec->init != PSD_INIT_RANK0) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: use sum with init %s", spec->name,
                        init_names[spec->init]);
    }
    return PSD_OK;
}

static psd_status
check_init(const struct psi_spec *spec, struct psd_error *err)
{
    const double value = spec->init_value;
    const double most = spec->dtype == PSD_F64   ? DBL_MAX
                        : spec->dtype == PSD_F16 ? 65504.0
                                                 : (double)FLT_MAX;
    const bool random = spec->init == PSD_INIT_UNIFORM || spec->init == PSD_INIT_NORMAL;
    const bool wanted = random || spec->init == PSD_INIT_CONSTANT;

    if (!(value >= -most && value <= most)) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: init_value %g is not finite in %s",
                        spec->name, value, psi_dtype_name(spec->dtype));
    }
    if ((random && value <= 0) || (!wanted && value != 0)) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: init %s with init_value %g", spec->name,
                        init_names[spec->init], value);
    }
    return PSD_OK;
}

psd_status
psi_spec_check(const struct psi_spec *spec, uint32_t workers, struct psd_error *err)
{
    psd_status status = check_name(spec->name, err);

    if (status == PSD_OK) {
        status = check_shape(spec, err);
    }
    if (status == PSD_OK) {
        status = check_enums(spec, err);
    }
    if (status == PSD_OK) {
        status = check_rounds(spec, workers, err);
    }
    if (status == PSD_OK) {
        status = spec->use == PSD_USE_SUM ? check_sum(spec, err)
                                          : psi_rule_args_check(&spec->rule, spec->name, err);
    }
    if (status == PSD_OK) {
        status = check_init(spec, err);
    }
    if (status == PSD_OK) {
        status = check_sparse(spec, err);
    }
    return status;
}

static psd_status
copy_args(struct psd_table_args *copy, const struct psd_table_args *args, struct psd_error *err)
{
    const psd_status status =
        psi_args_copy(copy, sizeof(*copy), args, PSI_TABLE_ARGS_LEAST, "psd_table_args", err);

    if (status != PSD_OK) {
        return status;
    }
    if (copy->name == NULL) {
        return psi_fail(err, PSD_ERR_INVALID, "table name: NULL");
    }
    if (copy->priority < 0 || copy->priority > PRIORITY_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "table: priority is %d, expected 0 to %d",
                        copy->priority, PRIORITY_MAX);
    }
    return PSD_OK;
}

/* The numbers of the rule, defaults filled in; none given: all of them are defaults. */
static psd_status
gather_rule(struct psi_spec *spec, const struct psd_rule_args *given, struct psd_error *err)
{
    psd_status status = PSD_OK;

    if (given != NULL) {
        status = psi_args_copy(&spec->rule, sizeof(spec->rule), given, PSI_RULE_ARGS_LEAST,
                               "psd_rule_args", err);
        spec->rule.struct_size = 0;
    }
    if (status == PSD_OK && spec->use == PSD_USE_UPDATE) {
        psi_rule_args_fill(&spec->rule);
    }
    return status;
}

psd_status
psi_spec_init(struct psi_spec *spec, const struct psd_table_args *args, uint32_t workers,
              struct psd_error *err)
{
    struct psi_spec made = {.count = 1};
    struct psd_table_args given;
    psd_status status = copy_args(&given, args, err);

    if (status != PSD_OK) {
        return status;
    }
    /* A name that is too long fills all of made.name, without an end: the check sees that. */
    memcpy(made.name, given.name, strnlen(given.name, sizeof(made.name)));
    made.dtype = given.dtype;
    made.dims = given.dims;
    for (uint32_t i = 0; i < PSD_DIMS_MAX && i < given.dims; i++) {
        made.shape[i] = given.shape[i];
        made.count *= given.shape[i];
    }
    made.use = given.use;
    made.reduce = given.reduce;
    made.staleness = given.staleness;
    made.backup_workers = given.backup_workers;
    made.nan_policy = given.nan_policy;
    made.init = given.init;
    made.init_value = given.init_value;
    made.seed = given.init == PSD_INIT_UNIFORM || given.init == PSD_INIT_NORMAL ? given.seed : 0;

    status = gather_rule(&made, given.rule, err);
    if (status == PSD_OK) {
        status = psi_spec_check(&made, workers, err);
    }
    if (status == PSD_OK) {
        *spec = made;
    }
    return status;
}

/* A bucket's share of a small table would be too few rows for those that happen to be in it. */
static uint32_t
bucket_bits_for(uint64_t capacity_rows)
{
    return capacity_rows > 0 && capacity_rows < ROWS_FOR_BUCKETS ? PSI_BUCKET_BITS_MIN
                                                                 : PSI_BUCKET_BITS;
}

psd_status
psi_spec_init_sparse(struct psi_spec *spec, const struct psd_sparse_args *args, uint32_t workers,
                     struct psd_error *err)
{
    struct psi_spec made;
    struct psd_sparse_args given;
    psd_status status =
        psi_args_copy(&given, sizeof(given), args, PSI_SPARSE_ARGS_LEAST, "psd_sparse_args", err);
    const struct psd_table_args row = {
        .struct_size = sizeof(row),
        .name = given.name,
        .dtype = given.dtype,
        .dims = 1,
        .shape = {given.width},
        .use = given.use,
        .reduce = given.reduce,
        .rule = given.rule,
        .staleness = given.staleness,
        .backup_workers = given.backup_workers,
        .nan_policy = given.nan_policy,
        .init = given.init,
        .init_value = given.init_value,
        .seed = given.seed,
        .priority = given.priority,
    };

    if (status == PSD_OK && given.width == 0) {
        status = psi_fail(err, PSD_ERR_INVALID, "sparse table: width is 0, expected 1 to %d",
                          PSD_WIDTH_MAX);
    }
    if (status == PSD_OK) {
        status = psi_spec_init(&made, &row, workers, err);
    }
    if (status == PSD_OK) {
        made.width = given.width;
        made.bucket_bits = bucket_bits_for(given.capacity_rows);
        made.rows = (struct psi_row_policy){
            .row_wise = given.row_wise != 0,
            .group_lasso = given.group_lasso,
            .admit_after = given.admit_after,
            .admit_window = given.admit_window,
            .admit_share = given.admit_share,
            .capacity_rows = given.capacity_rows,
            .full = (enum psi_full)given.full,
            .idle_steps = given.idle_steps,
            .norm_min = given.norm_min,
            .sweep_every = given.sweep_every,
        };
        psi_row_policy_fill(&made.rows, made.bucket_bits);
        status = psi_spec_check(&made, workers, err);
    }
    if (status == PSD_OK) {
        *spec = made;
    }
    return status;
}

const char *
psi_spec_difference(const struct psi_spec *a, const struct psi_spec *b)
{
    const char *rule = psi_rule_args_difference(&a->rule, &b->rule);
    const char *rows = psi_row_policy_difference(&a->rows, &b->rows);
    const struct {
        const char *name;
        bool equal;
    } fields[] = {
        {"name", strcmp(a->name, b->name) == 0},
        {"sparse", psi_spec_is_sparse(a) == psi_spec_is_sparse(b)},
        {"dtype", a->dtype == b->dtype},
        {"width", a->width == b->width},
        {"shape", a->dims == b->dims && memcmp(a->shape, b->shape, sizeof(a->shape)) == 0},
        {"use", a->use == b->use},
        {"reduce", a->reduce == b->reduce},
        {rule, rule == NULL},
        {"staleness", a->staleness == b->staleness},
        {"backup_workers", a->backup_workers == b->backup_workers},
        {"nan_policy", a->nan_policy == b->nan_policy},
        {"init", a->init == b->init},
        {"init_value", a->init_value == b->init_value},
        {"seed", a->seed == b->seed},
        {"bucket_bits", a->bucket_bits == b->bucket_bits},
        {rows, rows == NULL},
    };

    for (size_t i = 0; i < COUNT(fields); i++) {
        if (!fields[i].equal) {
            return fields[i].name;
        }
    }
    return NULL;
}

void
psi_spec_text(const struct psi_spec *spec, char *text, size_t size)
{
    psi_assert(size > 0);
    text[0] = '\0';
    psi_table_append(text, size, "%s%s", psi_spec_is_sparse(spec) ? "sparse " : "",
                     psi_dtype_name(spec->dtype));
    for (uint32_t i = 0; i < spec->dims; i++) {
        psi_table_append(text, size, "%c%llu", i == 0 ? '[' : ',',
                         (unsigned long long)spec->shape[i]);
    }
    psi_table_append(text, size, "] %s ", use_names[spec->use]);
    if (spec->use == PSD_USE_UPDATE) {
        psi_rule_args_text(&spec->rule, text, size);
        psi_table_append(text, size, " ");
    }
    psi_table_append(text, size, "reduce=%s ", reduce_names[spec->reduce]);
    if (spec->staleness == PSD_STALENESS_UNBOUNDED) {
        psi_table_append(text, size, "staleness=unbounded");
    } else {
        psi_table_append(text, size, "staleness=%u", spec->staleness);
    }
    psi_table_append(text, size, " backup_workers=%u nan_policy=%s init=%s", spec->backup_workers,
                     nan_names[spec->nan_policy], init_names[spec->init]);
    if (spec->init_value != 0) {
        psi_table_append_number(text, size, " init_value", spec->init_value);
    }
    if (spec->seed != 0) {
        psi_table_append(text, size, " seed=%llu", (unsigned long long)spec->seed);
    }
}

size_t
psi_spec_part_bytes(const struct psi_spec *spec, unsigned part)
{
    const bool update = spec->use == PSD_USE_UPDATE;

    if (part == PSI_PART_VALUE) {
        return psi_dtype_bytes(spec->dtype);
    }
    if (part == PSI_PART_MASTER) {
        return update && psi_dtype_bytes(spec->dtype) == 2 ? sizeof(float) : 0;
    }
    return update && part - PSI_PART_STATE < psi_rule_states(spec->rule.rule)
               ? psi_dtype_state_bytes(spec->dtype)
               : 0;
}

size_t
psi_spec_all_parts_bytes(const struct psi_spec *spec)
{
    size_t bytes = 0;

    for (unsigned part = 0; part < PSI_PARTS_MAX; part++) {
        bytes += psi_spec_part_bytes(spec, part);
    }
    return bytes;
}
