/*
 * numbers.c - the numbers of an update rule as its kernels want them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "store/numbers.h"

#include <string.h>

void
psi_numbers_correct(struct kernel_numbers *numbers, const struct psd_rule_args *rule,
                    uint64_t update)
{
    if (rule->rule == PSD_RULE_ADAM || rule->rule == PSD_RULE_ADAMW) {
        numbers->correction1 = 1 - psi_rule_power(rule->beta1, update);
        numbers->correction2 = 1 - psi_rule_power(rule->beta2, update);
    }
}

void
psi_numbers_init(struct kernel_numbers *numbers, const struct psd_rule_args *rule, uint64_t update)
{
    const double rate = psi_rule_rate(rule, update);

    *numbers = (struct kernel_numbers){
        .rate = rate,
        .momentum = rule->momentum,
        .beta1 = rule->beta1,
        .beta1_rest = 1 - rule->beta1,
        .beta2 = rule->beta2,
        .beta2_rest = 1 - rule->beta2,
        .epsilon = rule->epsilon,
        .l1 = rule->l1,
        .l2 = rule->l2,
        .ftrl_beta = rule->ftrl_beta,
        .shrink = rate * rule->weight_decay,
    };
    psi_numbers_correct(numbers, rule, update);
}

bool
psi_decay_is_added(const struct psd_rule_args *rule)
{
    return rule->weight_decay != 0 && !psi_rule_decouples_decay(rule->rule);
}

/* By a power of two it is the same as multiplying, which is several times faster. */
void
psi_divide_by(const struct kernels_real *real, void *to, const void *values, uint32_t divisor,
              size_t count)
{
    if ((divisor & (divisor - 1)) == 0) {
        real->scale(to, values, 1.0 / divisor, count);
    } else {
        real->divide(to, values, divisor, count);
    }
}

/* How large a float is, as the order of its bits. The float may lie anywhere: one sum alone is read
 * where it came. */
static uint32_t
size_bits(const void *floats, uint32_t index)
{
    uint32_t bits;

    memcpy(&bits, (const char *)floats + index * sizeof(bits), sizeof(bits));
    return bits & 0x7fffffffu;
}

int64_t
psi_find_too_large(psd_dtype dtype, const void *floats, uint32_t count)
{
    /* Halfway between the largest number and the next power of two:
     * rounded up, that is infinity. */
    const uint32_t limit = dtype == PSD_F16 ? 0x477ff000u : 0x7f7f8000u;
    uint32_t largest = 0;
    uint32_t i = 0;

    for (uint32_t j = 0; j < count; j++) {
        const uint32_t size = size_bits(floats, j);

        largest = size > largest ? size : largest;
    }
    if (largest < limit) {
        return -1;
    }
    while (size_bits(floats, i) < limit) {
        i++;
    }
    return i;
}
