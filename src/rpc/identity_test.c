/*
 * identity_test.c - names that members prove, and the HELLOs that go with them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "rpc/identity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "shard/shard.h"

static const uint64_t job = UINT64_C(0x0123456789abcdef);

static const struct {
    struct psi_hello hello;
    const char *name;
} cases[] = {
    {{.role = PSI_ROLE_WORKER, .rank = 3}, "worker:3"},
    {{.role = PSI_ROLE_WORKER, .rank = PSI_RANK_AUTO}, "worker:*"},
    {{.role = PSI_ROLE_WORKER, .rank = 3, .incarnation = 2, .job = job},
     "worker:3@2.0123456789abcdef"},
    {{.role = PSI_ROLE_WORKER, .rank = 3, .incarnation = 1, .job = job},
     "worker:3@1.0123456789abcdef"},
    {{.role = PSI_ROLE_WORKER, .rank = 3, .incarnation = 2, .job = 1},
     "worker:3@2.0000000000000001"},
    {{.role = PSI_ROLE_SERVER, .rank = 0, .lane = 1}, "server:0.1"},
    {{.role = PSI_ROLE_SERVER, .rank = 0, .lane = 1, .incarnation = 1, .job = job},
     "server:0.1@1.0123456789abcdef"},
    {{.role = PSI_ROLE_SERVER, .rank = 1, .lane = 0}, "server:1.0"},
    {{.role = PSI_ROLE_OBSERVER}, "observer"},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* If this fails, a member proves to be one and then speaks as another: as another rank, role, life,
 * or as a member of another job that has the same secret. */
static void
test_each_hello_has_one_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        char name[PSI_IDENTITY_BYTES];

        psi_identity_of(&cases[i].hello, name);
        assert_string_equal(name, cases[i].name);
        for (size_t k = 0; k < CASES; k++) {
            assert_int_equal(psi_identity_allows(cases[i].name, &cases[k].hello), i == k);
        }
        assert_true(psi_identity_allows("", &cases[i].hello)); /* nobody asked for a proof */
    }
}

/* If this fails, two members have the same name because theirs was cut short. */
static void
test_longest_names_fit(void **state)
{
    const struct psi_hello server = {.role = PSI_ROLE_SERVER,
                                     .rank = PSI_SERVERS_MAX - 1,
                                     .lane = PSI_PLACES_MAX - 1,
                                     .incarnation = UINT16_MAX,
                                     .job = UINT64_MAX};
    const struct psi_hello worker = {.role = PSI_ROLE_WORKER,
                                     .rank = PSI_RANKS_MAX - 1,
                                     .incarnation = UINT16_MAX,
                                     .job = UINT64_MAX};
    char name[PSI_IDENTITY_BYTES];

    (void)state;
    psi_identity_of(&server, name);
    assert_non_null(strstr(name, "@65535.ffffffffffffffff"));
    psi_identity_of(&worker, name);
    assert_non_null(strstr(name, "@65535.ffffffffffffffff"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_hello_has_one_name),
        cmocka_unit_test(test_longest_names_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
