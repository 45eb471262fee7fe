/*
 * numbers.h - the numbers of an update rule as its kernels want them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_STORE_NUMBERS_H
#define PSI_STORE_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "store/kernels.h"

/* For update number `update` of what has been updated together, from 1 on. */
void psi_numbers_init(struct kernel_numbers *numbers, const struct psd_rule_args *rule,
                      uint64_t update);

/* The bias correction of the update with that number; for other rules it does nothing. */
void psi_numbers_correct(struct kernel_numbers *numbers, const struct psd_rule_args *rule,
                         uint64_t update);

/* Is weight_decay * value added to the gradient before the rule sees it? */
bool psi_decay_is_added(const struct psd_rule_args *rule);

/* to = values / divisor */
void psi_divide_by(const struct kernels_real *real, void *to, const void *values, uint32_t divisor,
                   size_t count);

/* The first of these f32 that has no finite number nearest to it in a type of two bytes; -1: none. */
int64_t psi_find_too_large(psd_dtype dtype, const void *floats, uint32_t count);

#endif
