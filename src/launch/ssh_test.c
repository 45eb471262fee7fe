/*
 * ssh_test.c - what a person is told when a login fails: every command in it can be pasted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "launch/ssh.h"

enum { REFUSED = 255 << 8 };

static const char changed_key[] =
    "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
    "Add correct host key in /home/ann/known hosts to get rid of this message.\r\n"
    "Offending ECDSA key in /home/ann/known hosts:3\r\n"
    "Host key for [127.0.0.1]:22822 has changed and you have requested strict checking.\r\n"
    "Host key verification failed.\r\n";

static void
expect_told(const struct ssh_target *target, const char *complaint, const char *wanted)
{
    const struct ssh_defaults defaults = {.strict = false};
    char text[900];

    ssh_explain(target, &defaults, complaint, REFUSED, text, sizeof(text));
    if (strstr(text, wanted) == NULL) {
        fail_msg("'%s' is not in '%s'", wanted, text);
    }
}

/* If this fails, a hint leads to another port, another key or another way than psd_run took. */
static void
test_hints_repeat_the_login(void **state)
{
    char *list[] = {"-J", "gate", "-oUser Known=x"};
    const struct words options = {.list = list, .count = 3};
    const struct ssh_target target = {.host = "h",
                                      .user = "ann",
                                      .port = 22822,
                                      .pem_file = "my keys/cloud.pem",
                                      .options = &options,
                                      .program = "/bin/psd_run"};

    (void)state;
    expect_told(&target, "ssh: connect to host h: Connection refused",
                "run: ssh -i 'my keys/cloud.pem' -p 22822 -J gate '-oUser Known=x' ann@h true");
    expect_told(&target, "ann@h: Permission denied (publickey).",
                "run: ssh-copy-id -i 'my keys/cloud.pem' -p 22822 -oProxyJump=gate "
                "'-oUser Known=x' ann@h");
}

/* If this fails, a key that changed is looked for under another name or in another file. */
static void
test_hint_about_a_changed_key(void **state)
{
    const struct ssh_target target = {.host = "alias", .user = "ann", .program = "/bin/psd_run"};
    const struct ssh_target port = {
        .host = "h", .user = "ann", .port = 2222, .program = "/bin/psd_run"};

    (void)state;
    expect_told(&target, changed_key,
                "run: ssh-keygen -f '/home/ann/known hosts' -R [127.0.0.1]:22822");
    expect_told(&port, "REMOTE HOST IDENTIFICATION HAS CHANGED", "run: ssh-keygen -R [h]:2222");
    expect_told(&port, "Host key verification failed.", "run: ssh -p 2222 ann@h true");
}

/* If this fails, nobody knows where the name ubuntu comes from. */
static void
test_user_that_nobody_named(void **state)
{
    const struct ssh_target target = {.host = "h", .user = "", .program = "/bin/psd_run"};

    (void)state;
    expect_told(&target, "ubuntu@h: Permission denied (publickey).",
                "h (ssh ubuntu@h; ubuntu because neither \"username\" in the cluster file nor "
                "ssh_config names another user): ");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hints_repeat_the_login),
        cmocka_unit_test(test_hint_about_a_changed_key),
        cmocka_unit_test(test_user_that_nobody_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
