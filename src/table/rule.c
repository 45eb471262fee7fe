/*
 * rule.c - update rules by name, the state they keep, and the learning rate of each update.
 *
 * The rate is part of what makes two machines end in the same bits, so nothing of libm is used: its
 * cosine may differ between C libraries in the last place.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "table/rule.h"

#include <stddef.h>

#include "base/fail.h"

static const struct {
    const char *name;
    unsigned states;
    const char *state_names[PSI_STATES_MAX];
    bool decouples_decay;
} rules[] = {
    [PSD_RULE_SGD] = {"sgd", 0, {NULL}},
    [PSD_RULE_ADD] = {"add", 0, {NULL}},
    [PSD_RULE_MOMENTUM] = {"momentum", 1, {"momentum"}},
    [PSD_RULE_NESTEROV] = {"nesterov", 1, {"momentum"}},
    [PSD_RULE_ADAGRAD] = {"adagrad", 1, {"accumulator"}},
    [PSD_RULE_RMSPROP] = {"rmsprop", 1, {"square"}},
    [PSD_RULE_ADAM] = {"adam", 2, {"mean", "variance"}},
    [PSD_RULE_ADAMW] = {"adamw", 2, {"mean", "variance"}, true},
    [PSD_RULE_FTRL] = {"ftrl", 2, {"n", "z"}},
};

_Static_assert(sizeof(rules) / sizeof(rules[0]) == PSI_RULES, "every rule has a row");

static bool
known(psd_rule rule)
{
    return (unsigned)rule < PSI_RULES;
}

const char *
psi_rule_name(psd_rule rule)
{
    return known(rule) ? rules[rule].name : "?";
}

unsigned
psi_rule_states(psd_rule rule)
{
    return known(rule) ? rules[rule].states : 0;
}

const char *
psi_rule_state_name(psd_rule rule, unsigned state)
{
    psi_assert(state < psi_rule_states(rule));
    return rules[rule].state_names[state];
}

bool
psi_rule_decouples_decay(psd_rule rule)
{
    return known(rule) && rules[rule].decouples_decay;
}

double
psi_rule_power(double base, uint64_t exponent)
{
    double result = 1;

    for (; exponent > 0; exponent >>= 1, base *= base) {
        if (exponent & 1) {
            result *= base;
        }
    }
    return result;
}

/* sin(x) for 0 <= x <= pi/4: the Taylor series, whose first term left out is below 5e-17. */
static double
sine(double x)
{
    const double s = x * x;
    double sum = 1;

    for (int k = 14; k >= 2; k -= 2) {
        sum = 1 - s / (double)(k * (k + 1)) * sum;
    }
    return x * sum;
}

/* (1 + cos(pi x)) / 2 = cos^2(pi x / 2) for 0 <= x <= 1. */
static double
half_wave(double x)
{
    const double half_pi = 1.5707963267948966;
    const double s = sine(half_pi * (x <= 0.5 ? x : 1 - x));

    return x <= 0.5 ? 1 - s * s : s * s;
}

/* The schedule begins when the warm-up is over; `done` updates of it lie behind. */
static double
scheduled(const struct psd_rule_args *rule, uint64_t done)
{
    switch (rule->schedule) {
    case PSD_SCHEDULE_CONSTANT:
        break;
    case PSD_SCHEDULE_STEP:
        return rule->learning_rate * psi_rule_power(rule->decay, done / rule->period);
    case PSD_SCHEDULE_COSINE:
        if (done >= rule->period) {
            return rule->learning_rate * rule->floor;
        }
        return rule->learning_rate *
               (rule->floor + (1 - rule->floor) * half_wave((double)done / (double)rule->period));
    }
    return rule->learning_rate;
}

double
psi_rule_rate(const struct psd_rule_args *rule, uint64_t update)
{
    psi_assert(update > 0);
    if (update <= rule->warmup) {
        return rule->learning_rate * ((double)update / (double)rule->warmup);
    }
    return scheduled(rule, update - rule->warmup - 1);
}
