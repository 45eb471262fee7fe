/*
 * row_policy.c - what a sparse table has beside a dense one: defaults, checks, comparison.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "table/row_policy.h"

#include <float.h>
#include <stddef.h>

#include "base/fail.h"
#include "table/rule.h"

enum { STEPS = 1024, COUNTERS_LEAST = 1024, COUNTERS_MOST = 1 << 24 };

static uint64_t
power_of_two_above(uint64_t number)
{
    uint64_t power = 1;

    while (power < number) {
        power *= 2;
    }
    return power;
}

/* What the buckets before this one have of it. */
static uint64_t
rows_before(uint64_t capacity, uint32_t bucket, uint32_t bits)
{
    const uint64_t rest = capacity & ((UINT64_C(1) << bits) - 1);

    return (capacity >> bits) * bucket + (rest * bucket >> bits);
}

uint64_t
psi_row_policy_share(const struct psi_row_policy *policy, uint32_t bucket_bits, uint32_t first,
                     uint32_t count)
{
    const uint64_t capacity = policy->capacity_rows;

    return capacity == 0 ? UINT64_MAX
                         : rows_before(capacity, first + count, bucket_bits) -
                               rows_before(capacity, first, bucket_bits);
}

/* As many counters as rows: fewer would run into each other. */
static uint32_t
default_counters(const struct psi_row_policy *policy, uint32_t bucket_bits)
{
    const uint64_t rows = policy->capacity_rows >> bucket_bits;
    const uint64_t wanted = rows > COUNTERS_MOST ? COUNTERS_MOST : power_of_two_above(rows);

    return wanted < COUNTERS_LEAST ? COUNTERS_LEAST : (uint32_t)wanted;
}

void
psi_row_policy_fill(struct psi_row_policy *policy, uint32_t bucket_bits)
{
    if (policy->admit_after == 0) {
        policy->admit_after = 1;
    }
    if (policy->admit_after > 1 && policy->admit_window == 0) {
        policy->admit_window = STEPS;
    }
    if (policy->admit_after > 1 && policy->admit_counters == 0) {
        policy->admit_counters = default_counters(policy, bucket_bits);
    }
    if ((policy->idle_steps != 0 || policy->norm_min != 0) && policy->sweep_every == 0) {
        policy->sweep_every = STEPS;
    }
}

static psd_status
check_type(const struct psi_row_subject *spec, struct psd_error *err)
{
    if (spec->dtype == PSD_F64) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: dtype f64, expected f32, f16 or bf16", spec->name);
    }
    if (spec->count < 1 || spec->count > PSD_WIDTH_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "sparse table %s: width %llu, expected 1 to %d",
                        spec->name, (unsigned long long)spec->count, PSD_WIDTH_MAX);
    }
    if (spec->init == PSD_INIT_RANK0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: init rank0: rows begin with zero, constant, uniform or "
                        "normal values, which follow from their ids",
                        spec->name);
    }
    return PSD_OK;
}

static psd_status
check_rules(const struct psi_row_policy *policy, const struct psi_row_subject *spec,
            struct psd_error *err)
{
    if (policy->row_wise && spec->rule != PSD_RULE_ADAGRAD) {
        return psi_fail(err, PSD_ERR_INVALID, "sparse table %s: row_wise with rule %s: not used",
                        spec->name, psi_rule_name(spec->rule));
    }
    if (policy->group_lasso != 0 && spec->rule != PSD_RULE_FTRL) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: group_lasso %g with rule %s: not used", spec->name,
                        policy->group_lasso, psi_rule_name(spec->rule));
    }
    if (!(policy->group_lasso >= 0 && policy->group_lasso <= FLT_MAX) ||
        (policy->group_lasso != 0 && policy->group_lasso < FLT_MIN)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: group_lasso %g is not 0 nor a number of f32 above it",
                        spec->name, policy->group_lasso);
    }
    return PSD_OK;
}

static psd_status
check_admission(const struct psi_row_policy *policy, const struct psi_row_subject *spec,
                struct psd_error *err)
{
    const uint32_t counters = policy->admit_counters;

    if (policy->admit_after < 1 || policy->admit_after > PSI_ADMIT_AFTER_MAX) {
        return psi_fail(err, PSD_ERR_INVALID, "sparse table %s: admit_after %u, expected 1 to %d",
                        spec->name, policy->admit_after, PSI_ADMIT_AFTER_MAX);
    }
    if (!(policy->admit_share >= 0 && policy->admit_share < 1)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: admit_share %g, expected 0 (off) or more, below 1",
                        spec->name, policy->admit_share);
    }
    if (policy->admit_after > 1 && policy->admit_share != 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: admit_after %u and admit_share %g: only one of them",
                        spec->name, policy->admit_after, policy->admit_share);
    }
    if ((policy->admit_after > 1) != (policy->admit_window != 0) ||
        (policy->admit_after > 1) != (counters != 0)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: admit_window %u, admit_counters %u with admit_after %u",
                        spec->name, policy->admit_window, counters, policy->admit_after);
    }
    if (counters != 0 && (counters < COUNTERS_LEAST || counters > COUNTERS_MOST ||
                          (counters & (counters - 1)) != 0)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: admit_counters %u, expected a power of two from %d to %d",
                        spec->name, counters, COUNTERS_LEAST, COUNTERS_MOST);
    }
    return PSD_OK;
}

static psd_status
check_eviction(const struct psi_row_policy *policy, const struct psi_row_subject *spec,
               struct psd_error *err)
{
    const bool swept = policy->idle_steps != 0 || policy->norm_min != 0;

    if ((unsigned)policy->full >= PSI_FULLS) {
        return psi_fail(err, PSD_ERR_INVALID, "sparse table %s: unknown policy %d for a full table",
                        spec->name, (int)policy->full);
    }
    if (policy->full == PSI_FULL_OLDEST && policy->capacity_rows == 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: the oldest rows make room, but there is no capacity_rows",
                        spec->name);
    }
    if (policy->full == PSI_FULL_SPILL && policy->capacity_rows == 0) {
        return psi_fail(
            err, PSD_ERR_INVALID,
            "sparse table %s: rows beyond capacity_rows go to the disk (full is spill), "
            "but there is no capacity_rows: give as many as memory is to hold",
            spec->name);
    }
    if (!(policy->norm_min >= 0 && policy->norm_min <= FLT_MAX)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: norm_min %g is not a finite number >= 0", spec->name,
                        policy->norm_min);
    }
    if (swept != (policy->sweep_every != 0)) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "sparse table %s: sweep_every %u with idle_steps %u, norm_min %g",
                        spec->name, policy->sweep_every, policy->idle_steps, policy->norm_min);
    }
    return PSD_OK;
}

psd_status
psi_row_policy_check(const struct psi_row_policy *policy, const struct psi_row_subject *spec,
                     struct psd_error *err)
{
    psd_status status = check_type(spec, err);

    if (status == PSD_OK) {
        status = check_rules(policy, spec, err);
    }
    if (status == PSD_OK) {
        status = check_admission(policy, spec, err);
    }
    return status == PSD_OK ? check_eviction(policy, spec, err) : status;
}

const char *
psi_row_policy_difference(const struct psi_row_policy *a, const struct psi_row_policy *b)
{
    const struct {
        const char *name;
        bool equal;
    } fields[] = {
        {"row_wise", a->row_wise == b->row_wise},
        {"group_lasso", a->group_lasso == b->group_lasso},
        {"admit_after", a->admit_after == b->admit_after},
        {"admit_window", a->admit_window == b->admit_window},
        {"admit_counters", a->admit_counters == b->admit_counters},
        {"admit_share", a->admit_share == b->admit_share},
        {"capacity_rows", a->capacity_rows == b->capacity_rows},
        {"full", a->full == b->full},
        {"idle_steps", a->idle_steps == b->idle_steps},
        {"norm_min", a->norm_min == b->norm_min},
        {"sweep_every", a->sweep_every == b->sweep_every},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (!fields[i].equal) {
            return fields[i].name;
        }
    }
    return NULL;
}

uint32_t
psi_row_state_numbers(const struct psi_row_policy *policy, psd_rule rule, uint32_t width)
{
    return policy->row_wise ? 1 : psi_rule_states(rule) * width;
}
