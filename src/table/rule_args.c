/*
 * rule_args.c - the numbers of an update rule: defaults, checks, comparison, words.
 *
 * One table says which rule and which schedule uses which number; the four functions walk it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "table/rule_args.h"

#include <float.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { SCHEDULES = PSD_SCHEDULE_COSINE + 1 };

#define RULE(name)     (1u << PSD_RULE_##name)
#define SCHEDULE(name) (1u << PSD_SCHEDULE_##name)
#define ALL            (~0u)

/* Rules whose rate may change:
 * add has none, and the state of ftrl is only right for a fixed one. */
#define RATED (ALL & ~RULE(ADD))
#define PACED (RATED & ~RULE(FTRL))

/* One number of struct psd_rule_args. */
struct number {
    const char *name;
    size_t offset;
    unsigned rules;          /* that use it */
    unsigned schedules;      /* that use it */
    double fallback;         /* the default; 0: none needed */
    bool fraction;           /* must lie below 1 */
    unsigned special;        /* rules with another default ... */
    double special_fallback; /* ... which is this */
};

#define FIELD(name) #name, offsetof(struct psd_rule_args, name)

static const struct number numbers[] = {
    {FIELD(learning_rate), RATED, ALL, 0.01},
    {FIELD(momentum), RULE(MOMENTUM) | RULE(NESTEROV), ALL, 0.9, true},
    {FIELD(beta1), RULE(ADAM) | RULE(ADAMW), ALL, 0.9, true},
    {FIELD(beta2), RULE(ADAM) | RULE(ADAMW) | RULE(RMSPROP), ALL, 0.999, true, RULE(RMSPROP), 0.99},
    {FIELD(epsilon), RULE(ADAM) | RULE(ADAMW) | RULE(RMSPROP) | RULE(ADAGRAD), ALL, 1e-8, false,
     RULE(ADAGRAD), 1e-10},
    {FIELD(l1), RULE(FTRL), ALL, 0},
    {FIELD(l2), RULE(FTRL), ALL, 0},
    {FIELD(ftrl_beta), RULE(FTRL), ALL, 1},
    {FIELD(weight_decay), ALL, ALL, 0},
    {FIELD(clip_value), ALL, ALL, 0},
    {FIELD(decay), PACED, SCHEDULE(STEP), 0.1, true},
    {FIELD(floor), PACED, SCHEDULE(COSINE), 0, true},
};

enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static const char *const schedule_names[SCHEDULES] = {"constant", "step", "cosine"};

static double
get(const struct psd_rule_args *args, const struct number *number)
{
    double value;

    memcpy(&value, (const char *)args + number->offset, sizeof(value));
    return value;
}

static bool
used(const struct psd_rule_args *args, const struct number *number)
{
    return (number->rules >> args->rule & 1) != 0 && (number->schedules >> args->schedule & 1) != 0;
}

static bool
enums_known(const struct psd_rule_args *args)
{
    return (unsigned)args->rule < PSI_RULES && (unsigned)args->schedule < SCHEDULES;
}

void
psi_rule_args_fill(struct psd_rule_args *args)
{
    if (!enums_known(args)) {
        return;
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        const struct number *number = &numbers[i];

        if (used(args, number) && get(args, number) == 0) {
            const bool special = (number->special >> args->rule & 1) != 0;
            const double value = special ? number->special_fallback : number->fallback;

            memcpy((char *)args + number->offset, &value, sizeof(value));
        }
    }
}

/* Rules compute in f32: a number that f32 turns into 0 or infinity is refused for f64, too. */
static psd_status
check_number(const struct psd_rule_args *args, const struct number *number, const char *table,
             struct psd_error *err)
{
    const double value = get(args, number);

    if (!(value >= 0 && value <= FLT_MAX)) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: %s %g is not a finite number >= 0", table,
                        number->name, value);
    }
    if (value != 0 && !used(args, number)) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: %s %g with rule %s, schedule %s: not used",
                        table, number->name, value, psi_rule_name(args->rule),
                        schedule_names[args->schedule]);
    }
    if (number->fraction && value >= 1) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: %s %g is not below 1", table, number->name,
                        value);
    }
    if (value < FLT_MIN && (value != 0 || (number->fallback != 0 && used(args, number)))) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: %s %g is too small", table, number->name,
                        value);
    }
    return PSD_OK;
}

static psd_status
check_pace(const struct psd_rule_args *args, const char *table, struct psd_error *err)
{
    const bool scheduled = args->schedule != PSD_SCHEDULE_CONSTANT;

    if ((scheduled || args->warmup != 0) && (PACED >> args->rule & 1) == 0) {
        return psi_fail(err, PSD_ERR_INVALID,
                        "table %s: schedule %s, warmup %llu with rule %s: its rate cannot change",
                        table, schedule_names[args->schedule], (unsigned long long)args->warmup,
                        psi_rule_name(args->rule));
    }
    if (scheduled != (args->period != 0)) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: schedule %s with period %llu", table,
                        schedule_names[args->schedule], (unsigned long long)args->period);
    }
    return PSD_OK;
}

psd_status
psi_rule_args_check(const struct psd_rule_args *args, const char *table, struct psd_error *err)
{
    if (!enums_known(args)) {
        return psi_fail(err, PSD_ERR_INVALID, "table %s: unknown rule %d or schedule %d", table,
                        (int)args->rule, (int)args->schedule);
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        const psd_status status = check_number(args, &numbers[i], table, err);

        if (status != PSD_OK) {
            return status;
        }
    }
    return check_pace(args, table, err);
}

const char *
psi_rule_args_difference(const struct psd_rule_args *a, const struct psd_rule_args *b)
{
    if (a->rule != b->rule) {
        return "rule";
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        if (get(a, &numbers[i]) != get(b, &numbers[i])) {
            return numbers[i].name;
        }
    }
    if (a->schedule != b->schedule) {
        return "schedule";
    }
    if (a->warmup != b->warmup) {
        return "warmup";
    }
    return a->period != b->period ? "period" : NULL;
}

void
psi_table_append(char *text, size_t size, const char *format, ...)
{
    const size_t length = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + length, size - length, format, args);
    va_end(args);
}

/* As short as it can be without showing two different numbers alike. */
void
psi_table_append_number(char *text, size_t size, const char *name, double value)
{
    char digits[32];

    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    psi_table_append(text, size, "%s=%s", name, digits);
}

void
psi_rule_args_text(const struct psd_rule_args *args, char *text, size_t size)
{
    const char *separator = "(";

    psi_table_append(text, size, "%s", psi_rule_name(args->rule));
    for (size_t i = 0; i < NUMBERS; i++) {
        const double value = get(args, &numbers[i]);

        if (value != 0) {
            psi_table_append(text, size, "%s", separator);
            psi_table_append_number(text, size, numbers[i].name, value);
            separator = ", ";
        }
    }
    if (args->warmup != 0) {
        psi_table_append(text, size, "%swarmup=%llu", separator, (unsigned long long)args->warmup);
        separator = ", ";
    }
    if (args->period != 0 && enums_known(args)) {
        psi_table_append(text, size, "%sschedule=%s, period=%llu", separator,
                         schedule_names[args->schedule], (unsigned long long)args->period);
        separator = ", ";
    }
    psi_table_append(text, size, "%s", separator[0] == '(' ? "" : ")");
}
