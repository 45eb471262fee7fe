/*
 * options_test.c - the command line: both spellings, the old flags, and what is refused.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

enum { WORDS_MAX = 16 };

static bool
parse(struct options *options, const char *const *words, struct failure *failure)
{
    char *argv[WORDS_MAX + 2] = {"mnist"};
    int argc = 1;

    for (; words[argc - 1] != NULL; argc++) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    }
    return options_parse(options, argc, argv, failure);
}

/* If this fails, a plain `mnist` does something else than its help says. */
static void
test_options_defaults(void **state)
{
    struct options options;
    struct failure failure;

    (void)state;
    assert_true(parse(&options, (const char *const[]){NULL}, &failure));
    assert_int_equal(options.model, MODEL_MLP);
    assert_int_equal(options.mode, MODE_BSP);
    assert_int_equal(options.staleness, 0);
    assert_int_equal(options.batch, 64);
    assert_int_equal(options.epochs, 6);
    assert_null(options.rank);
    assert_int_equal(options.slow, NOBODY);
    assert_true(parse(&options, (const char *const[]){"--slow", "0", NULL}, &failure));
    assert_int_equal(options.slow, 0);
    assert_true(
        parse(&options, (const char *const[]){"--model=softmax", "--mode", "ssp", NULL}, &failure));
    assert_int_equal(options.model, MODEL_SOFTMAX);
    assert_int_equal(options.epochs, 12);
    assert_int_equal(options.staleness, 3);
}

/* If this fails, flags that launchers append to every worker are not understood. */
static void
test_options_old_flags(void **state)
{
    static const char *const forms[][6] = {
        {"--distributed", "--master_address", "tcp://10.0.0.1:5555", "--client_id", "3", NULL},
        {"--distributed=true", "--master_address=tcp://10.0.0.1:5555", "--client_id=3", NULL},
    };
    struct options options;
    struct failure failure;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_true(parse(&options, forms[i], &failure));
        assert_string_equal(options.master_address, "tcp://10.0.0.1:5555");
        assert_string_equal(options.rank, "3");
    }
    assert_true(parse(&options, (const char *const[]){"--client_id", "-1", NULL}, &failure));
    assert_null(options.rank);
}

/* If this fails, a slip of the pen trains something else, silently. */
static void
test_options_refusals(void **state)
{
    static const struct {
        const char *words[4];
        const char *text;
    } cases[] = {
        {{"--epoch", "3"}, "--epoch: no such option; -h lists them"},
        {{"data"}, "data: no such option; -h lists them"},
        {{"--epochs"}, "--epochs: its value is missing"},
        {{"--epochs=0"}, "--epochs 0: expected a whole number from 1 to 100000"},
        {{"--epochs", "4k"}, "--epochs 4k: expected a whole number from 1 to 100000"},
        {{"--batch", "-1"}, "--batch -1: expected a whole number from 1 to 65536"},
        {{"--batch", "1e2"}, "--batch 1e2: expected a whole number from 1 to 65536"},
        {{"--rate", "nan"}, "--rate nan: expected a number from 1e-09 to 1000"},
        {{"--rate="}, "--rate : expected a number from 1e-09 to 1000"},
        {{"--momentum", "1"}, "--momentum 1: expected a number from 0 to 0.9999"},
        {{"--model", "cnn"}, "--model cnn: not one of the names that -h lists"},
        {{"--save="}, "--save: its value is empty"},
        {{"--staleness", "2"}, "--staleness 2: only --mode ssp has one"},
        {{"--client_id", "two"}, "--client_id two: expected a whole number from 0"},
        {{"--distributed=false"}, "--distributed=false: leave it out instead"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct options options;
        struct failure failure = {""};

        assert_false(parse(&options, cases[i].words, &failure));
        assert_string_equal(failure.text, cases[i].text);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_defaults),
        cmocka_unit_test(test_options_old_flags),
        cmocka_unit_test(test_options_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
