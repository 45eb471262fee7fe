/*
 * Tests of invite.c. If one fails, people on other machines do not find their way to the page.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "launch/page/invite.h"

static char text[INVITE_BYTES];

/* If this fails, somebody who sits at the machine is sent through ssh. */
static void
test_at_the_machine(void **state)
{
    (void)state;
    invite_tunnel(&(struct invite_place){.user = "ann", .hostname = "node7"}, 4711, text);
    assert_string_equal(text, "");
}

/* If this fails, the command for those who came by ssh leads elsewhere. */
static void
test_over_ssh(void **state)
{
    struct invite_place place = {
        .user = "ann", .hostname = "node7", .ssh_connection = "10.0.0.9 50000 10.0.0.7 22"};

    (void)state;
    invite_tunnel(&place, 4711, text);
    assert_string_equal(text, "ssh -N -L 4711:localhost:4711 ann@10.0.0.7");
    place.ssh_connection = "nonsense";
    place.user = NULL;
    invite_tunnel(&place, 4711, text);
    assert_string_equal(text, "ssh -N -L 4711:localhost:4711 node7");
}

/* If this fails, the page of a job under Slurm cannot be reached, or a long variable overflows. */
static void
test_under_slurm(void **state)
{
    char endless[2000];
    struct invite_place place = {.user = "ann",
                                 .hostname = "node7",
                                 .ssh_connection = "10.0.0.9 50000 10.0.0.7 22",
                                 .slurm_job = "12",
                                 .submit_host = "login1"};

    (void)state;
    invite_tunnel(&place, 80, text);
    assert_string_equal(text, "ssh -N -L 80:localhost:80 -J login1 ann@node7");
    place.submit_host = NULL;
    invite_tunnel(&place, 80, text);
    assert_string_equal(text, "ssh -N -L 80:localhost:80 ann@node7");
    memset(endless, 'x', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    place = (struct invite_place){endless, endless, endless, endless, endless};
    invite_tunnel(&place, 65535, text);
    assert_true(strlen(text) < INVITE_BYTES);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_the_machine),
        cmocka_unit_test(test_over_ssh),
        cmocka_unit_test(test_under_slurm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
