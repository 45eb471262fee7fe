/*
 * rule_test.c - the update rules against values from an independent program
 * (tests/reference/rules.py), over 100 updates.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "store/dense/apply.h"
#include "store/level.h"
#include "store/rule_reference.h"

static _Alignas(64) double scratch[APPLY_SCRATCH_BYTES / sizeof(double)];

/* The generator of rules.py: in [-1, 1), exact in f32. */
static double
next_gradient(uint32_t *generator)
{
    *generator = *generator * 1664525u + 1013904223u;
    return (double)(*generator >> 8) / 8388608.0 - 1;
}

/* Four elements in one working type; only one of the two arrays of each is used. */
struct run {
    float f32[REFERENCE_ELEMENTS], gradient32[REFERENCE_ELEMENTS];
    float state32[PSI_STATES_MAX][REFERENCE_ELEMENTS];
    double f64[REFERENCE_ELEMENTS], gradient64[REFERENCE_ELEMENTS];
    double state64[PSI_STATES_MAX][REFERENCE_ELEMENTS];
};

static void
run_init(struct run *run)
{
    *run = (struct run){0};
    for (int i = 0; i < REFERENCE_ELEMENTS; i++) {
        run->f64[i] = i * 0.25 - 0.375;
        run->f32[i] = (float)run->f64[i];
    }
}

static void
run_update(struct run *run, const struct rule_reference *reference, enum kernel_level level,
           psd_dtype dtype, uint64_t update)
{
    const bool wide = dtype == PSD_F64;
    const struct leaf leaf = {.data = wide ? (void *)run->gradient64 : (void *)run->gradient32};
    void *values = wide ? (void *)run->f64 : (void *)run->f32;
    struct apply apply = {.kernels = psi_kernel_level_kernels(level),
                          .dtype = dtype,
                          .use = PSD_USE_UPDATE,
                          .rule = &reference->args,
                          .elements = REFERENCE_ELEMENTS,
                          .leaves = &leaf,
                          .leaf_count = 1,
                          .divisor = 1,
                          .check = true,
                          .update = update,
                          .from = values,
                          .to = values};

    for (int i = 0; i < PSI_STATES_MAX; i++) {
        apply.state[i] = wide ? (void *)run->state64[i] : (void *)run->state32[i];
    }
    assert_int_equal(store_apply(&apply, scratch), APPLY_OK);
}

static void
compare(const struct rule_reference *reference, psd_dtype dtype, int shown, const struct run *run)
{
    for (int i = 0; i < REFERENCE_ELEMENTS; i++) {
        const bool wide = dtype == PSD_F64;
        const double expected = wide ? reference->f64[shown][i] : reference->f32[shown][i];
        const double got = wide ? run->f64[i] : (double)run->f32[i];

        if (fabs(got - expected) > (wide ? 1e-12 : 1e-5) * fabs(expected)) {
            fail_msg("%s, %s, update %llu, element %d: %.17g, expected %.17g", reference->name,
                     psi_dtype_name(dtype), (unsigned long long)reference_updates[shown], i, got,
                     expected);
        }
    }
}

static void
run_reference(const struct rule_reference *reference, enum kernel_level level, psd_dtype dtype)
{
    uint32_t generator = REFERENCE_SEED;
    struct run run;
    int shown = 0;

    run_init(&run);
    for (uint64_t update = 1; shown < REFERENCE_SHOWN; update++) {
        for (int i = 0; i < REFERENCE_ELEMENTS; i++) {
            run.gradient64[i] = next_gradient(&generator);
            run.gradient32[i] = (float)run.gradient64[i];
        }
        run_update(&run, reference, level, dtype, update);
        if (update == reference_updates[shown]) {
            compare(reference, dtype, shown, &run);
            shown++;
        }
    }
}

/* If this fails, a rule is not the one that the manual describes. */
static void
test_rules_match_reference(void **state)
{
    unsigned rules = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(rule_references) / sizeof(rule_references[0]); i++) {
        rules |= 1u << rule_references[i].args.rule;
        for (int level = 0; level < KERNEL_LEVELS; level++) {
            if (psi_kernel_level_supported((enum kernel_level)level)) {
                run_reference(&rule_references[i], (enum kernel_level)level, PSD_F32);
                run_reference(&rule_references[i], (enum kernel_level)level, PSD_F64);
            }
        }
    }
    assert_int_equal(rules, (1u << PSI_RULES) - 1); /* none was forgotten */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_match_reference),
    };

    return cmocka_run_group_tests_name("store_rule", tests, NULL, NULL);
}
