/*
 * rule.h - update rules by name, the state they keep, and the learning rate of each update.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PSI_TABLE_RULE_H
#define PSI_TABLE_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include <psd/psd.h>

enum { PSI_RULES = PSD_RULE_FTRL + 1 };   /* the last one of enum psd_rule */
const char *psi_rule_name(psd_rule rule); /* "sgd" */

/* Arrays of optimizer state a rule keeps (0..2) and their names in files ("momentum"). */
enum { PSI_STATES_MAX = 2 };
unsigned psi_rule_states(psd_rule rule);
const char *psi_rule_state_name(psd_rule rule, unsigned state);

/* Whether the rule itself shrinks the values by rate * weight_decay. Else the decay is added to the
 * gradient before the rule sees it. */
bool psi_rule_decouples_decay(psd_rule rule);

/* The learning rate of update number `update` (1 is the first), by schedule and warm-up. Computed
 * with +, -, *, / alone: the same bits on every machine. */
double psi_rule_rate(const struct psd_rule_args *rule, uint64_t update);

/* base^exponent by repeated squaring: multiplication alone. */
double psi_rule_power(double base, uint64_t exponent);

#endif
