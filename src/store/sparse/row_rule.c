/*
 * row_rule.c - what a gradient does to a row.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/sparse/row_rule.h"

static kernel_rule_fn
kernel_of(const struct sparse *store)
{
    const struct kernels_real *real = store->kernels->f32;

    if (store->policy.row_wise) {
        return real->row_adagrad;
    }
    if (store->policy.group_lasso != 0) {
        return real->group_ftrl;
    }
    return real->rule[store->spec->rule.rule][KERNEL_ONE_LEAF];
}

void
row_rule_init(struct row_rule *rule, struct sparse *store, const struct sparse_change *change)
{
    const struct psd_rule_args *args = &store->spec->rule;
    const uint32_t divisor = change->divisor > 1 ? change->divisor : 0; /* by 1: the same bits */
    const bool plain = args->clip_value == 0 && !psi_decay_is_added(args);
    const bool by_kernel = plain && (divisor & (divisor - 1)) == 0;
    const bool narrow = store->spec->dtype != PSD_F32;

    *rule = (struct row_rule){
        .store = store,
        .args = args,
        .block = {.scale = by_kernel && divisor != 0 ? 1.0 / divisor : 1, .count = store->width},
        .kernel = kernel_of(store),
        .divisor = by_kernel ? 0 : divisor,
        .step = (uint32_t)change->step,
        .decays = psi_decay_is_added(args),
        .corrects = args->rule == PSD_RULE_ADAM || args->rule == PSD_RULE_ADAMW,
        .checks = narrow && store->spec->nan_policy != PSD_NAN_ALLOW,
    };
    psi_numbers_init(&rule->numbers, args, change->update);
    rule->numbers.group = store->policy.group_lasso;
    if (!change->is_sum && narrow) {
        rule->to_real = store->spec->dtype == PSD_F16 ? store->kernels->f32_from_f16
                                                      : store->kernels->f32_from_bf16;
    }
}

/* The gradient as the kernel wants it. */
static const void *
prepare(const struct row_rule *rule, struct row *row, const void *gradient)
{
    const struct sparse *store = rule->store;
    const struct kernels_real *real = store->kernels->f32;
    const uint32_t width = store->width;

    if (rule->to_real != NULL) {
        rule->to_real(store->work, gradient, width);
        gradient = store->work;
    }
    if (rule->divisor != 0) {
        psi_divide_by(real, store->work, gradient, rule->divisor, width);
        gradient = store->work;
    }
    if (rule->args->clip_value != 0) {
        real->clip(store->work, gradient, rule->args->clip_value, width);
        gradient = store->work;
    }
    if (rule->decays) {
        real->decay(store->work, gradient, row_values(row), rule->args->weight_decay, width);
        gradient = store->work;
    }
    return gradient;
}

bool
row_rule_apply(struct row_rule *rule, struct row *row, const void *gradient)
{
    const struct sparse *store = rule->store;
    float *values = row_values(row);

    row->step = rule->step;
    row->count += row->count < UINT32_MAX;
    if (rule->corrects) {
        psi_numbers_correct(&rule->numbers, rule->args, row->count);
    }
    rule->block.leaves[0] = prepare(rule, row, gradient);
    rule->block.from = values;
    rule->block.to = values;
    rule->block.state[0] = row_state(store, row);
    rule->block.state[1] = row_state(store, row) + store->width;
    rule->kernel(&rule->numbers, &rule->block);
    return !rule->checks || psi_find_too_large(store->spec->dtype, values, store->width) < 0;
}
