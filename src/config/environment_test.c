/*
 * environment_test.c - variables that are switches, and variables that nobody would have read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* If this fails, PSD_INSECURE=0 turns authentication off, or a word means what nobody meant. */
static void
test_switch_is_on_with_1_alone(void **state)
{
    static const char *const wrong[] = {"yes", "on", "true", "2", "01", " 1", "no", "off", "-1"};
    struct psd_error err = {0};
    bool on;

    (void)state;
    setenv("PSD_INSECURE", "1", 1);
    on = false;
    assert_int_equal(psi_environment_switch("PSD_INSECURE", &on, &err), PSD_OK);
    assert_true(on);
    setenv("PSD_INSECURE", "0", 1);
    assert_int_equal(psi_environment_switch("PSD_INSECURE", &on, &err), PSD_OK);
    assert_false(on);
    on = true;
    setenv("PSD_INSECURE", "", 1);
    assert_int_equal(psi_environment_switch("PSD_INSECURE", &on, &err), PSD_OK);
    assert_false(on);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char expected[80];

        on = true;
        setenv("PSD_INSECURE", wrong[i], 1);
        snprintf(expected, sizeof(expected), "PSD_INSECURE=%s: must be 1 (on) or 0 (off)",
                 wrong[i]);
        assert_int_equal(psi_environment_switch("PSD_INSECURE", &on, &err), PSD_ERR_INVALID);
        assert_string_equal(err.text, expected);
        assert_true(on); /* unchanged */
    }
    unsetenv("PSD_INSECURE");
    assert_int_equal(psi_environment_switch("PSD_INSECURE", &on, &err), PSD_OK);
    assert_false(on);
}

static void
add_line(void *owner, const char *written, const char *meant)
{
    char *lines = owner;
    const size_t used = strlen(lines);

    snprintf(lines + used, 512 - used, "%s>%s ", written, meant);
}

/* What is told of a variable with a value. */
static void
expect_told(const char *name, const char *value, const char *expected)
{
    char lines[512] = "";

    setenv(name, value, 1);
    psi_environment_slips(add_line, lines);
    unsetenv(name);
    assert_string_equal(lines, expected);
}

/* If this fails, a misspelt variable is ignored without a word. */
static void
test_slips_are_told(void **state)
{
    (void)state;
    expect_told("PSD_LANEZ", "2", "PSD_LANEZ>PSD_LANES ");
    expect_told("PSD_SECRETFILE", "x", "PSD_SECRETFILE>PSD_SECRET_FILE ");
    expect_told("PSD_OPEN_TIMOUT_MS", "1", "PSD_OPEN_TIMOUT_MS>PSD_OPEN_TIMEOUT_MS ");
    expect_told("PSD_MASTER_ADRESS", "x", "PSD_MASTER_ADRESS>PSD_MASTER_ADDRESS ");
    expect_told("PSD_INSECRUE", "1", "PSD_INSECRUE>PSD_INSECURE ");
    expect_told("PSD_lanes", "1", "PSD_lanes>PSD_LANES ");
}

/* If this fails, a log warns of variables that are right, or somebody else's. */
static void
test_what_is_no_slip(void **state)
{
    char endless[300] = "PSD_LANES";

    (void)state;
    expect_told("PSD_LANES", "2", "");
    expect_told("PSD_SECRET_FD", "3", "");
    expect_told("PSD_WORLD", "4", "");
    expect_told("PSD_LANEZ", "", "");
    expect_told("PSD_HOME", "/", "");
    expect_told("PSD_BIN", "/bin", "");
    expect_told("PSD_LIB", "/lib", "");
    expect_told("PSD_TEST_MARK", "x", "");
    expect_told("PSD_", "x", "");
    expect_told("LANEZ", "2", "");
    memset(endless + 9, 'S', sizeof(endless) - 10);
    expect_told(endless, "2", "");
}

/* If this fails, an error sends people to look for what they have set, by another name. */
static void
test_hint_follows_the_error_it_explains(void **state)
{
    struct psd_error err = {.text = "no master"};

    (void)state;
    setenv("PSD_MASTER_ADRESS", "tcp://127.0.0.1:1", 1);
    psi_environment_hint("PSD_SECRET_FILE", &err);
    assert_string_equal(err.text, "no master");
    psi_environment_hint("PSD_MASTER_ADDRESS", &err);
    assert_string_equal(err.text,
                        "no master; PSD_MASTER_ADRESS is set: did you mean PSD_MASTER_ADDRESS?");
    for (unsigned i = 0; i < 20; i++) { /* cut at the end of the text, not beyond */
        psi_environment_hint("PSD_MASTER_ADDRESS", &err);
    }
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    setenv("PSD_MASTER_ADDRESS", "tcp://127.0.0.1:2", 1);
    strcpy(err.text, "not there");
    psi_environment_hint("PSD_MASTER_ADDRESS", &err); /* it is not what is lacking */
    assert_string_equal(err.text, "not there");
    unsetenv("PSD_MASTER_ADDRESS");
    unsetenv("PSD_MASTER_ADRESS");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_switch_is_on_with_1_alone),
        cmocka_unit_test(test_slips_are_told),
        cmocka_unit_test(test_what_is_no_slip),
        cmocka_unit_test(test_hint_follows_the_error_it_explains),
    };

    return cmocka_run_group_tests_name("environment", tests, NULL, NULL);
}
