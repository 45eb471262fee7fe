/*
 * every_test.c - how often a checkpoint is written.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config/every.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* If this fails, a checkpoint comes more or less often than was asked for. */
static void
test_every_reads_times_and_steps(void **state)
{
    const struct {
        const char *text;
        uint64_t ms;
        uint64_t steps;
    } cases[] = {{"10m", 600000, 0}, {"90s", 90000, 0},       {"2h", 7200000, 0},
                 {"250ms", 250, 0},  {"1000steps", 0, 1000},  {"500 steps", 0, 500},
                 {"1 step", 0, 1},   {"365 h", 1314000000, 0}};
    struct psd_error err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_every every = {0};

        assert_int_equal(psi_every_parse("--checkpoint_every", cases[i].text, &every, &err),
                         PSD_OK);
        assert_int_equal(every.ms, cases[i].ms);
        assert_int_equal(every.steps, cases[i].steps);
    }
}

/* If this fails, a slip of the pen is taken for another interval, or for none. */
static void
test_every_refuses_the_rest(void **state)
{
    static const char *const texts[] = {
        "",           "m",        "10", "0s",     "-1s",
        "1.5h",       "10 miles", "5M", "epochs", "99999999999steps",
        "999999999h", "5mm"};
    struct psi_every every;
    struct psd_error err;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(psi_every_parse("--checkpoint_every", texts[i], &every, &err),
                         PSD_ERR_INVALID);
        assert_non_null(strstr(err.text, "--checkpoint_every"));
        assert_non_null(strstr(err.text, "1000steps"));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_reads_times_and_steps),
        cmocka_unit_test(test_every_refuses_the_rest),
    };

    return cmocka_run_group_tests_name("every", tests, NULL, NULL);
}
