/*
 * table_test.c - what makes a valid table, what is refused and with which words, learning rates.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "table/spec.h"

enum { WORKERS = 4 };

static struct psd_rule_args rule_args; /* what good_args() gives with them */

#define RULE(...) ((struct psd_rule_args){.struct_size = sizeof(struct psd_rule_args), __VA_ARGS__})

static struct psd_table_args
good_args(void)
{
    rule_args = RULE(.rule = PSD_RULE_SGD);
    return (struct psd_table_args){.struct_size = sizeof(struct psd_table_args),
                                   .name = "layer/weights",
                                   .dtype = PSD_F32,
                                   .dims = 2,
                                   .shape = {784, 10},
                                   .rule = &rule_args};
}

/* Refused, with every one of the words in the message, and the output untouched. */
static void
expect_refused(const struct psd_table_args *args, const char *word, const char *other_word)
{
    struct psi_spec spec;
    struct psi_spec before;
    struct psd_error err = {0};

    memset(&spec, 0x5a, sizeof(spec));
    before = spec;
    assert_int_equal(psi_spec_init(&spec, args, WORKERS, &err), PSD_ERR_INVALID);
    if (strstr(err.text, word) == NULL || strstr(err.text, other_word) == NULL) {
        fail_msg("expected %s and %s in: %s", word, other_word, err.text);
    }
    assert_memory_equal(&spec, &before, sizeof(spec));
}

static struct psi_spec
made(const struct psd_table_args *args)
{
    struct psi_spec spec;
    struct psd_error err = {0};

    if (psi_spec_init(&spec, args, WORKERS, &err) != PSD_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(psi_spec_check(&spec, WORKERS, &err), PSD_OK);
    return spec;
}

/* If this fails, a plain table cannot be opened, or its defaults differ from the manual. */
static void
test_init_fills_defaults(void **state)
{
    struct psd_table_args args = good_args();
    struct psi_spec spec = made(&args);

    (void)state;
    assert_string_equal(spec.name, "layer/weights");
    assert_int_equal(spec.count, 7840);
    assert_true(spec.rule.learning_rate == 0.01);
    assert_true(spec.rule.momentum == 0);
    rule_args.rule = PSD_RULE_ADAM;
    spec = made(&args);
    assert_true(spec.rule.beta1 == 0.9 && spec.rule.beta2 == 0.999 && spec.rule.epsilon == 1e-8);
    rule_args.rule = PSD_RULE_RMSPROP;
    spec = made(&args);
    assert_true(spec.rule.beta1 == 0 && spec.rule.beta2 == 0.99 && spec.rule.epsilon == 1e-8);
    rule_args.rule = PSD_RULE_ADAGRAD;
    assert_true(made(&args).rule.epsilon == 1e-10);
    rule_args.rule = PSD_RULE_NESTEROV;
    assert_true(made(&args).rule.momentum == 0.9);
    rule_args.rule = PSD_RULE_FTRL;
    assert_true(made(&args).rule.ftrl_beta == 1);
    rule_args = RULE(.schedule = PSD_SCHEDULE_STEP, .period = 5);
    assert_true(made(&args).rule.decay == 0.1);
    rule_args = RULE(.rule = PSD_RULE_ADD);
    assert_true(made(&args).rule.learning_rate == 0);
}

/* If this fails, names that break logs or file headers get in, or good ones are kept out. */
static void
test_init_names(void **state)
{
    static const char *const bad[] = {
        "a\nb",     "\x7f",    "a\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80",
        "\xe2\x82", "\xc2\x9b"};
    static const char *const good[] = {"a", "caf\xc3\xa9", "\xe2\x82\xac 1", "\xf0\x9f\x94\xb1"};
    char longest[PSD_NAME_MAX + 2];
    struct psd_table_args args = good_args();

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        args.name = bad[i];
        expect_refused(&args, "table name", "not printable");
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        args.name = good[i];
        assert_string_equal(made(&args).name, good[i]);
    }
    args.name = NULL;
    expect_refused(&args, "table name", "NULL");
    args.name = "";
    expect_refused(&args, "table name", "empty");
    memset(longest, 'x', sizeof(longest));
    longest[PSD_NAME_MAX + 1] = '\0';
    args.name = longest;
    expect_refused(&args, "table name", "too long");
    longest[PSD_NAME_MAX] = '\0';
    assert_string_equal(made(&args).name, longest);
}

/* If this fails, a table of no or of absurdly many elements reaches a server. */
static void
test_init_shapes(void **state)
{
    struct psd_table_args args = good_args();

    (void)state;
    args.shape[1] = 0;
    expect_refused(&args, "dimension 1", "is 0");
    args.shape[1] = UINT64_MAX;
    expect_refused(&args, "overflows", "dimension 1");
    args.shape[0] = UINT64_C(1) << 31;
    args.shape[1] = UINT64_C(1) << 30;
    expect_refused(&args, "overflows", "dimension 1");
    args.shape[1] = UINT64_C(1) << 29;
    assert_int_equal(made(&args).count, UINT64_C(1) << 60);
    args.dims = 0;
    expect_refused(&args, "0 dims", "1 to 8");
    args.dims = 9;
    expect_refused(&args, "9 dims", "1 to 8");
    args = good_args();
    args.dtype = (psd_dtype)0;
    expect_refused(&args, "dtype", "0");
    args = good_args();
    args.shape[2] = 77; /* beyond dims: not looked at */
    assert_int_equal(made(&args).shape[2], 0);
}

/* If this fails, options that contradict each other are accepted silently. */
static void
test_init_contradictions(void **state)
{
    struct psd_table_args args = good_args();

    (void)state;
    args.use = PSD_USE_SUM;
    args.staleness = 1;
    expect_refused(&args, "use sum", "staleness 1");
    args.staleness = 0;
    rule_args.rule = PSD_RULE_ADAM;
    expect_refused(&args, "use sum", "rule");
    rule_args = RULE(.learning_rate = 0.1);
    expect_refused(&args, "use sum", "learning_rate");
    rule_args = RULE(.rule = PSD_RULE_SGD);
    args.init = PSD_INIT_CONSTANT;
    expect_refused(&args, "use sum", "init constant");
    args.init = PSD_INIT_RANK0; /* a broadcast */
    made(&args);

    args = good_args();
    args.backup_workers = 1;
    args.staleness = 2;
    expect_refused(&args, "backup_workers 1", "staleness 2");
    args.staleness = 0;
    args.backup_workers = WORKERS;
    expect_refused(&args, "backup_workers 4", "4 workers");
    args.backup_workers = WORKERS - 1;
    made(&args);

    args = good_args();
    args.init_value = 1;
    expect_refused(&args, "init zero", "init_value 1");
    args.init = PSD_INIT_UNIFORM;
    args.init_value = -1;
    expect_refused(&args, "init uniform", "init_value -1");
    args.init = PSD_INIT_CONSTANT;
    made(&args);
    args.init_value = 1e5;
    args.dtype = PSD_F16;
    expect_refused(&args, "init_value 100000", "f16");
    args.init_value = NAN;
    expect_refused(&args, "init_value", "nan");
    args = good_args();
    args.priority = 256;
    expect_refused(&args, "priority", "256");
}

/* If this fails, a rule runs with numbers that it cannot mean. */
static void
test_init_rule_numbers(void **state)
{
    struct psd_table_args args = good_args();

    (void)state;
    rule_args.learning_rate = NAN;
    expect_refused(&args, "learning_rate", "nan");
    rule_args.learning_rate = INFINITY;
    expect_refused(&args, "learning_rate", "inf");
    rule_args.learning_rate = -0.1;
    expect_refused(&args, "learning_rate", "-0.1");
    rule_args.learning_rate = 1e-40;
    expect_refused(&args, "learning_rate", "too small");
    rule_args = RULE(.momentum = 0.5);
    expect_refused(&args, "momentum 0.5", "rule sgd");
    rule_args = RULE(.rule = PSD_RULE_ADAM, .beta2 = 1);
    expect_refused(&args, "beta2", "below 1");
    rule_args = RULE(.schedule = PSD_SCHEDULE_STEP);
    expect_refused(&args, "schedule step", "period 0");
    rule_args = RULE(.schedule = PSD_SCHEDULE_COSINE);
    expect_refused(&args, "schedule cosine", "period 0");
    rule_args = RULE(.period = 3);
    expect_refused(&args, "schedule constant", "period 3");
    rule_args = RULE(.floor = 0.5);
    expect_refused(&args, "floor 0.5", "schedule constant");
    rule_args = RULE(.rule = PSD_RULE_FTRL, .warmup = 10);
    expect_refused(&args, "warmup 10", "rule ftrl");
}

/* If this fails, a number of a newer library is taken for something it is not. */
static void
test_init_unknown_enums(void **state)
{
    struct psd_table_args args = good_args();

    (void)state;
    args.use = (psd_use)2;
    expect_refused(&args, "use", "2");
    args = good_args();
    args.reduce = (psd_reduce)-1;
    expect_refused(&args, "reduce", "-1");
    args = good_args();
    args.nan_policy = (psd_nan_policy)3;
    expect_refused(&args, "nan_policy", "3");
    args = good_args();
    args.init = (psd_init)5;
    expect_refused(&args, "init", "5");
    args = good_args();
    rule_args.rule = (psd_rule)200;
    expect_refused(&args, "rule", "200");
    args = good_args();
    rule_args.schedule = (psd_schedule)3;
    expect_refused(&args, "schedule", "3");
}

/* If this fails, programs built with an older or newer header read or lose fields. */
static void
test_init_struct_size(void **state)
{
    struct {
        struct psd_table_args args;
        uint64_t later;
    } newer = {.args = good_args(), .later = 7};
    struct psd_table_args args = good_args();

    (void)state;
    args.struct_size = 0;
    expect_refused(&args, "struct psd_table_args", "given as 0");
    args.struct_size = SIZE_MAX;
    expect_refused(&args, "struct psd_table_args", "sizeof");
    args.struct_size = offsetof(struct psd_table_args, staleness);
    args.staleness = 3;
    assert_int_equal(made(&args).staleness, 0);
    newer.args.struct_size = sizeof(newer);
    expect_refused(&newer.args, "struct psd_table_args", "newer");
    newer.later = 0;
    assert_int_equal(made(&newer.args).count, 7840);
}

/* If this fails, a rule cannot get a number more without breaking every program. */
static void
test_init_struct_size_of_a_rule(void **state)
{
    struct {
        struct psd_rule_args args;
        double later;
    } newer = {.args = RULE(.learning_rate = 0.5), .later = 0.25};
    struct psd_table_args args = good_args();

    (void)state;
    args.rule = NULL;
    assert_true(made(&args).rule.rule == PSD_RULE_SGD && made(&args).rule.learning_rate == 0.01);
    args = good_args();
    rule_args.struct_size = 0;
    expect_refused(&args, "struct psd_rule_args", "given as 0");
    rule_args = RULE(.learning_rate = 0.5, .weight_decay = 0.5);
    rule_args.struct_size = offsetof(struct psd_rule_args, weight_decay);
    assert_true(made(&args).rule.learning_rate == 0.5 && made(&args).rule.weight_decay == 0);
    newer.args.struct_size = sizeof(newer);
    args.rule = &newer.args;
    expect_refused(&args, "struct psd_rule_args", "newer");
    newer.later = 0;
    assert_true(made(&args).rule.learning_rate == 0.5);
}

/* If this fails, a peer's spec can carry what psi_spec_init() never makes. */
static void
test_check_refuses_what_init_never_makes(void **state)
{
    struct psd_table_args args = good_args();
    const struct psi_spec good = made(&args);
    struct psi_spec spec = good;

    (void)state;
    spec.count++;
    assert_int_equal(psi_spec_check(&spec, WORKERS, NULL), PSD_ERR_INVALID);
    spec = good;
    spec.rule.learning_rate = 0;
    assert_int_equal(psi_spec_check(&spec, WORKERS, NULL), PSD_ERR_INVALID);
    spec = good;
    spec.shape[5] = 1;
    assert_int_equal(psi_spec_check(&spec, WORKERS, NULL), PSD_ERR_INVALID);
    spec = good;
    memset(spec.name, 'x', sizeof(spec.name));
    assert_int_equal(psi_spec_check(&spec, WORKERS, NULL), PSD_ERR_INVALID);
}

/* If this fails, workers that disagree are not told about what. */
static void
test_difference_names_the_field(void **state)
{
    struct psd_table_args args = good_args();
    const struct psi_spec a = made(&args);
    struct psi_spec b = a;

    (void)state;
    rule_args.learning_rate = 0.01; /* the default, said aloud */
    args.seed = 5;                  /* nothing is random */
    b = made(&args);
    assert_null(psi_spec_difference(&a, &b));
    args.shape[1] = 11;
    b = made(&args);
    assert_string_equal(psi_spec_difference(&a, &b), "shape");
    args = good_args();
    rule_args.weight_decay = 0.1;
    b = made(&args);
    assert_string_equal(psi_spec_difference(&a, &b), "weight_decay");
    rule_args.rule = PSD_RULE_MOMENTUM;
    b = made(&args);
    assert_string_equal(psi_spec_difference(&a, &b), "rule");
    args = good_args();
    rule_args.warmup = 1;
    b = made(&args);
    assert_string_equal(psi_spec_difference(&a, &b), "warmup");
    b = a;
    b.seed = 1;
    assert_string_equal(psi_spec_difference(&a, &b), "seed");
    b = a;
    b.staleness = 1;
    assert_string_equal(psi_spec_difference(&a, &b), "staleness");
}

/* If this fails, the message about a mismatch cannot show what differs, or writes too far. */
static void
test_text_shows_all(void **state)
{
    struct psd_table_args args = good_args();
    struct psi_spec spec;
    char text[512];
    char small[16];

    (void)state;
    rule_args.rule = PSD_RULE_MOMENTUM;
    rule_args.learning_rate = 0.1;
    rule_args.schedule = PSD_SCHEDULE_COSINE;
    rule_args.period = 50;
    rule_args.warmup = 5;
    args.init = PSD_INIT_UNIFORM;
    args.init_value = 1.0 / 3;
    args.seed = 9;
    spec = made(&args);
    psi_spec_text(&spec, text, sizeof(text));
    assert_string_equal(text, "f32[784,10] update momentum(learning_rate=0.1, momentum=0.9, "
                              "warmup=5, schedule=cosine, period=50) reduce=mean staleness=0 "
                              "backup_workers=0 nan_policy=reject init=uniform "
                              "init_value=0.3333333333333333 seed=9");
    psi_spec_text(&spec, small, sizeof(small));
    assert_string_equal(small, "f32[784,10] upd");
    args = good_args();
    args.use = PSD_USE_SUM;
    spec = made(&args);
    psi_spec_text(&spec, text, sizeof(text));
    assert_non_null(strstr(text, "] sum reduce=mean"));
}

/* If this fails, state is allocated or saved in the wrong size or under the wrong name. */
static void
test_dtypes_and_states(void **state)
{
    (void)state;
    assert_int_equal(psi_dtype_bytes(PSD_F32), 4);
    assert_int_equal(psi_dtype_bytes(PSD_F64), 8);
    assert_int_equal(psi_dtype_bytes(PSD_F16), 2);
    assert_int_equal(psi_dtype_bytes(PSD_BF16), 2);
    assert_int_equal(psi_dtype_bytes((psd_dtype)77), 0);
    assert_int_equal(psi_dtype_state_bytes(PSD_BF16), 4);
    assert_int_equal(psi_dtype_state_bytes(PSD_F64), 8);
    assert_string_equal(psi_dtype_name(PSD_BF16), "bf16");
    assert_string_equal(psi_dtype_name((psd_dtype)0), "?");
    assert_int_equal(psi_rule_states(PSD_RULE_SGD), 0);
    assert_int_equal(psi_rule_states(PSD_RULE_NESTEROV), 1);
    assert_string_equal(psi_rule_state_name(PSD_RULE_ADAMW, 1), "variance");
    assert_string_equal(psi_rule_state_name(PSD_RULE_FTRL, 1), "z");
    assert_true(psi_rule_decouples_decay(PSD_RULE_ADAMW));
    assert_false(psi_rule_decouples_decay(PSD_RULE_ADAM));
    assert_string_equal(psi_rule_name(PSD_RULE_RMSPROP), "rmsprop");
    assert_string_equal(psi_rule_name((psd_rule)-1), "?");
}

static void
expect_rate(const struct psd_rule_args *rule, uint64_t update, double rate)
{
    const double got = psi_rule_rate(rule, update);

    if (fabs(got - rate) > 2e-15 * rule->learning_rate) {
        fail_msg("update %llu: rate %.17g, expected %.17g", (unsigned long long)update, got, rate);
    }
}

/* If this fails, training runs at another rate than the manual says. */
static void
test_rate_schedules(void **state)
{
    struct psd_rule_args rule = {.learning_rate = 0.8, .warmup = 4};

    (void)state;
    expect_rate(&rule, 1, 0.2);
    expect_rate(&rule, 3, 0.6);
    expect_rate(&rule, 4, 0.8);
    expect_rate(&rule, 1000000, 0.8);

    rule.schedule = PSD_SCHEDULE_STEP;
    rule.period = 10;
    rule.decay = 0.5;
    expect_rate(&rule, 14, 0.8);
    expect_rate(&rule, 15, 0.4);
    expect_rate(&rule, 24, 0.4);
    expect_rate(&rule, 25, 0.2);
    assert_true(psi_rule_rate(&rule, UINT64_MAX) == 0);

    rule.schedule = PSD_SCHEDULE_COSINE;
    rule.floor = 0.25;
    expect_rate(&rule, 5, 0.8);
    expect_rate(&rule, 10, 0.5);
    expect_rate(&rule, 15, 0.2);
    assert_true(psi_rule_rate(&rule, 1000000) == 0.8 * 0.25);
}

/* If this fails, the cosine made from plain arithmetic is not one. */
static void
test_rate_cosine_matches_libm(void **state)
{
    const double pi = 3.14159265358979323846;
    struct psd_rule_args rule = {
        .learning_rate = 1, .schedule = PSD_SCHEDULE_COSINE, .period = 9973};

    (void)state;
    for (uint64_t done = 0; done < rule.period; done++) {
        const double expected = 0.5 * (1 + cos(pi * (double)done / (double)rule.period));

        assert_true(fabs(psi_rule_rate(&rule, done + 1) - expected) < 1e-15);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_fills_defaults),
        cmocka_unit_test(test_init_names),
        cmocka_unit_test(test_init_shapes),
        cmocka_unit_test(test_init_contradictions),
        cmocka_unit_test(test_init_rule_numbers),
        cmocka_unit_test(test_init_unknown_enums),
        cmocka_unit_test(test_init_struct_size),
        cmocka_unit_test(test_init_struct_size_of_a_rule),
        cmocka_unit_test(test_check_refuses_what_init_never_makes),
        cmocka_unit_test(test_difference_names_the_field),
        cmocka_unit_test(test_text_shows_all),
        cmocka_unit_test(test_dtypes_and_states),
        cmocka_unit_test(test_rate_schedules),
        cmocka_unit_test(test_rate_cosine_matches_libm),
    };

    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
