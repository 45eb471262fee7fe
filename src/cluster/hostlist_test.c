/*
 * hostlist_test.c - many host names written as one: the forms that schedulers print, and nonsense.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster/hostlist.h"

static void
expect(const char *text, const char *want)
{
    struct psi_hostlist list = {0};
    char shown[1024] = "";
    size_t column = 0;
    const char *wrong = psi_hostlist_expand(text, &list, &column);

    for (size_t i = 0; i < list.count; i++) {
        const size_t used = strlen(shown);

        snprintf(shown + used, sizeof(shown) - used, "%s%s", i > 0 ? " " : "", list.names[i]);
    }
    if (wrong != NULL) {
        fail_msg("%s: %s at %zu", text, wrong, column);
    }
    assert_string_equal(shown, want);
    psi_hostlist_free(&list);
}

static void
expect_count(const char *text, size_t count, const char *last)
{
    struct psi_hostlist list = {0};
    size_t column;

    assert_null(psi_hostlist_expand(text, &list, &column));
    assert_int_equal(list.count, count);
    assert_string_equal(list.names[count - 1], last);
    psi_hostlist_free(&list);
}

/* If this fails, a job starts on other machines than those that were meant. */
static void
test_lists(void **state)
{
    (void)state;
    expect("linux", "linux");
    expect("node-0", "node-0");
    expect("jean-zay-ia810", "jean-zay-ia810");
    expect("alpha,beta,gamma", "alpha beta gamma");
    expect("linux[1,2]", "linux1 linux2");
    expect("lx[15,18,32-33]", "lx15 lx18 lx32 lx33");
    expect("compute-b2[011,022]", "compute-b2011 compute-b2022");
    expect("b04-[09-10]", "b04-09 b04-10");
    expect("n[9-11]", "n9 n10 n11");
    expect("tux[2,1-2]", "tux2 tux1 tux2");
    expect("rack[0-1]_blade[0-2]", "rack0_blade0 rack0_blade1 rack0_blade2 rack1_blade0 "
                                   "rack1_blade1 rack1_blade2");
    expect("nodeA,nodeB[001,003],nodeC", "nodeA nodeB001 nodeB003 nodeC");
    expect("n[1-2].ib.cluster", "n1.ib.cluster n2.ib.cluster");
    expect("n[1-2]-ib", "n1-ib n2-ib");
    expect("ann@n[1-2]:2200", "ann@n1:2200 ann@n2:2200");
    expect("[fd00::1]:22,fd00::2", "[fd00::1]:22 fd00::2");
    expect_count("linux[0000-1023]", 1024, "linux1023");
    expect_count("n[08-101]", 94, "n101");
    expect_count("rack[00-12,14]_blade[0-2],alpha,tux[1-3,6]", 47, "tux6");
    expect_count("n[0-65535]", 65536, "n65535");
}

/* The names that scontrol makes of a list, between blanks; false: it cannot read it. */
static bool
ask_slurm(const char *config, const char *text, char *names_p, size_t size)
{
    char command[512];
    size_t used = 0;
    FILE *pipe;

    snprintf(command, sizeof(command), "SLURM_CONF=%s scontrol show hostnames '%s' 2>/dev/null",
             config, text);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    used = fread(names_p, 1, size - 1, pipe);
    names_p[used] = '\0';
    for (char *at = names_p; (at = strchr(at, '\n')) != NULL;) {
        *at = at[1] == '\0' ? '\0' : ' ';
    }
    return pclose(pipe) == 0 && used > 0;
}

/* If this fails, our table of lists is not Slurm's. */
static void
test_slurm_agrees(void **state)
{
    static const char *const lists[] = {"linux",
                                        "node-0",
                                        "jean-zay-ia810",
                                        "alpha,beta,gamma",
                                        "linux[1,2]",
                                        "n[9-11]",
                                        "lx[15,18,32-33]",
                                        "compute-b2[011,022]",
                                        "b04-[09-10]",
                                        "n[1-2]-ib",
                                        "rack[0-1]_blade[0-2]",
                                        "nodeA,nodeB[001,003],nodeC",
                                        "tux[2,1-2]",
                                        "n[98-101]",
                                        "n[08-12]",
                                        "n[1-2].ib.cluster"};
    char config[] = "/tmp/psd-hostlist-XXXXXX";
    const int fd = mkstemp(config);
    unsigned compared = 0;
    char names[1024];

    (void)state;
    assert_true(fd >= 0);
    dprintf(fd, "ClusterName=none\nSlurmctldHost=localhost\n"); /* it wants one, and asks nobody */
    close(fd);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (ask_slurm(config, lists[i], names, sizeof(names))) {
            expect(lists[i], names);
            compared++;
        }
    }
    unlink(config);
    if (compared == 0) {
        print_message("skipped: scontrol is not installed (tools/setup.sh test)\n");
        skip();
    }
    assert_true(compared >= 12); /* of a name behind brackets Slurm knows nothing */
}

/* If this fails, a mistake in a list is read as something else. */
static void
test_nonsense(void **state)
{
    static const struct {
        const char *text;
        size_t column;
        const char *wrong;
    } cases[] = {
        {"", 1, "has an empty name"},
        {"n[1-", 2, "has a bracket that is not closed"},
        {"n[]", 3, "has brackets with something that is no number"},
        {"n[1-,4]", 5, "has brackets with something that is no number"},
        {"n[3-1]", 3, "has a range that runs backwards"},
        {"n[a-c]", 3, "has brackets with something that is no number"},
        {"n1,,n2", 4, "has an empty name"},
        {"n1,", 4, "has an empty name"},
        {"n[1,2,m3]", 7, "has brackets with something that is no number"},
        {"n1]", 3, "has a bracket that was not opened"},
        {"n[1-2]]", 7, "has a bracket that was not opened"},
        {"n[0-65536]", 3, "means more than 65536 names"},
        {"n[0-999][0-999]", 16, "means more than 65536 names"},
        {"n[1234567890]", 3, "has a number with more than 9 digits"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_hostlist list = {0};
        size_t column = 0;
        const char *wrong = psi_hostlist_expand(cases[i].text, &list, &column);

        if (wrong == NULL || strcmp(wrong, cases[i].wrong) != 0 || column != cases[i].column) {
            fail_msg("%s: %s at %zu", cases[i].text, wrong != NULL ? wrong : "accepted", column);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_slurm_agrees),
        cmocka_unit_test(test_nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
