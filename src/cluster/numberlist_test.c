/*
 * numberlist_test.c - tasks per node and ports, as Slurm writes them, and nonsense.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/numberlist.h"

typedef const char *reader(const char *text, struct psi_numberlist *list_p, size_t *column_p);

static void
expect(reader *read, const char *text, const char *want)
{
    struct psi_numberlist list = {0};
    char shown[1024] = "";
    size_t column = 0;
    const char *wrong = read(text, &list, &column);

    if (wrong != NULL) {
        fail_msg("%s: %s at %zu", text, wrong, column);
    }
    for (size_t i = 0; i < list.count; i++) {
        const size_t used = strlen(shown);

        snprintf(shown + used, sizeof(shown) - used, "%s%u", i > 0 ? " " : "", list.numbers[i]);
    }
    assert_string_equal(shown, want);
    psi_numberlist_free(&list);
}

static void
expect_wrong(reader *read, const char *text, size_t column, const char *wrong)
{
    struct psi_numberlist list = {0};
    size_t at = 0;
    const char *said = read(text, &list, &at);

    if (said == NULL || strcmp(said, wrong) != 0 || at != column) {
        fail_msg("%s: %s at %zu", text, said != NULL ? said : "accepted", at);
    }
    assert_null(list.numbers);
}

/* If this fails, a node runs more or fewer tasks than Slurm gave it. */
static void
test_counts(void **state)
{
    (void)state;
    expect(psi_numberlist_counts, "3(x2),2,1", "3 3 2 1");
    expect(psi_numberlist_counts, "1(x4)", "1 1 1 1");
    expect(psi_numberlist_counts, "8", "8");
    expect(psi_numberlist_counts, "2(x3),1", "2 2 2 1");
    expect_wrong(psi_numberlist_counts, "", 1, "has something that is no number");
    expect_wrong(psi_numberlist_counts, "3(x2", 5, "has a bracket that is not closed");
    expect_wrong(psi_numberlist_counts, "3(2)", 2, "has something that is no number");
    expect_wrong(psi_numberlist_counts, "3,,1", 3, "has something that is no number");
    expect_wrong(psi_numberlist_counts, "3,", 3, "has something that is no number");
    expect_wrong(psi_numberlist_counts, "0", 1, "has a number that is out of range");
    expect_wrong(psi_numberlist_counts, "1(x0)", 4, "has a number that is out of range");
    expect_wrong(psi_numberlist_counts, "99999999999", 1, "has a number that is out of range");
    expect_wrong(psi_numberlist_counts, "1(x65536),1", 11, "means more than 65536 numbers");
    expect_wrong(psi_numberlist_counts, "-1", 1, "has something that is no number");
}

/* If this fails, a job takes ports that are another's. */
static void
test_ports(void **state)
{
    (void)state;
    expect(psi_numberlist_ports, "12000-12003", "12000 12001 12002 12003");
    expect(psi_numberlist_ports, "12000,12005-12006", "12000 12005 12006");
    expect(psi_numberlist_ports, "12000", "12000");
    expect_wrong(psi_numberlist_ports, "", 1, "has something that is no number");
    expect_wrong(psi_numberlist_ports, "12000-", 7, "has something that is no number");
    expect_wrong(psi_numberlist_ports, "12003-12000", 1, "has a range that runs backwards");
    expect_wrong(psi_numberlist_ports, "70000", 1, "has a number that is out of range");
    expect_wrong(psi_numberlist_ports, "0", 1, "has a number that is out of range");
    expect_wrong(psi_numberlist_ports, "12000 12001", 6, "has something that is no number");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_ports),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
