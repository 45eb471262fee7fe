/*
 * security_test.c - what a daemon needs to be allowed to listen, and to connect.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/security.h"

struct answer {
    psd_status status;
    struct psd_error err;
    bool has_secret;
};

static struct answer
ask_to_connect(const char *host, const char *secret_fd, bool insecure, const char *master_address)
{
    const struct daemon_given given = {.bind = host, .insecure = insecure};
    struct daemon_security security = {0};
    struct answer answer = {0};

    setenv("PSD_SECRET_FD", secret_fd != NULL ? secret_fd : "", 1);
    answer.status = daemon_security_init(&security, &given, 0, master_address, &answer.err);
    answer.has_secret = security.secret != NULL;
    daemon_security_fini(&security);
    return answer;
}

static struct answer
ask(const char *host, const char *secret_fd, bool insecure)
{
    return ask_to_connect(host, secret_fd, insecure, NULL);
}

static void
expect_refusal(const struct answer *answer, const char *message)
{
    assert_int_equal(answer->status, PSD_ERR_INVALID);
    assert_false(answer->has_secret);
    if (strstr(answer->err.text, message) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", message, answer->err.text);
    }
}

/* If this fails, a daemon that anybody can reach starts without a secret. */
static void
test_routable_without_a_secret(void **state)
{
    static const char *const hosts[] = {"10.0.0.1",    "8.8.8.8",          "2001:db8::1",
                                        "a.host.name", "localhost.a.host", "128.0.0.1"};

    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct answer answer = ask(hosts[i], NULL, false);

        expect_refusal(&answer, "without a secret");
        expect_refusal(&answer, "psd_run secret FILE makes one");
        answer = ask(hosts[i], NULL, true);
        expect_refusal(&answer, "--insecure is for loopback only");
    }
}

/* If this fails, other users of the machine join a job that nobody declared open to them. */
static void
test_loopback_without_a_secret(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "127.9.9.9", "::1", "localhost"};

    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct answer answer = ask(hosts[i], NULL, false);

        expect_refusal(&answer, "or --insecure");
        answer = ask(hosts[i], NULL, true);
        assert_int_equal(answer.status, PSD_OK);
        assert_false(answer.has_secret);
    }
}

/* If this fails, members are told to connect to 0.0.0.0, and never find the daemon. */
static void
test_every_address_at_once(void **state)
{
    static const char *const hosts[] = {"0.0.0.0",       "::", "0", "0x0", "0.0", "0::0",
                                        "::ffff:0.0.0.0"};
    struct psi_secret *secret;
    char fd_text[16];
    int fd;

    (void)state;
    assert_int_equal(psi_secret_create(&secret, NULL), PSD_OK);
    fd = psi_secret_to_fd(secret, NULL);
    snprintf(fd_text, sizeof(fd_text), "%d", fd);
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        const struct answer answer = ask(hosts[i], fd_text, false);

        expect_refusal(&answer, "give --bind one address of this machine");
    }
    close(fd);
    psi_secret_destroy(secret);
}

/* If this fails, a secret does not help, or a broken one is taken for none. */
static void
test_with_a_secret(void **state)
{
    struct psi_secret *secret;
    struct answer answer;
    char fd_text[16];
    int fd;

    (void)state;
    assert_int_equal(psi_secret_create(&secret, NULL), PSD_OK);
    fd = psi_secret_to_fd(secret, NULL);
    snprintf(fd_text, sizeof(fd_text), "%d", fd);
    answer = ask("10.0.0.1", fd_text, false);
    assert_int_equal(answer.status, PSD_OK);
    assert_true(answer.has_secret);
    answer = ask("127.0.0.1", fd_text, true); /* one of the two is a mistake */
    expect_refusal(&answer, "--insecure and PSD_SECRET_FD contradict each other");
    answer = ask_to_connect("10.0.0.1", fd_text, false, "tcp://10.0.0.2:5555");
    assert_int_equal(answer.status, PSD_OK);
    close(fd);
    answer = ask("127.0.0.1", fd_text, false);
    expect_refusal(&answer, "PSD_SECRET_FD");
    psi_secret_destroy(secret);
}

/* If this fails, a server without a secret sends what it holds to whoever answers on a network. */
static void
test_insecure_connects_to_loopback_only(void **state)
{
    static const char *const here[] = {"tcp://127.0.0.1:5555", "tcp://[::1]:1",
                                       "tcp://localhost:1"};
    static const char *const elsewhere[] = {"tcp://192.0.2.2:5577", "tcp://[2001:db8::1]:1",
                                            "tcp://a.host.name:1"};
    struct answer answer;

    (void)state;
    for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++) {
        answer = ask_to_connect("127.0.0.1", NULL, true, here[i]);
        assert_int_equal(answer.status, PSD_OK);
    }
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        answer = ask_to_connect("127.0.0.1", NULL, true, elsewhere[i]);
        expect_refusal(&answer, "is not a loopback address; set PSD_SECRET_FILE");
        expect_refusal(&answer, elsewhere[i]);
        expect_refusal(&answer, "--insecure");
    }
}

/* If this fails, PSD_FORCE_TLS=off seals, or what somebody wrote for "on" does not. */
static void
test_force_tls_is_a_switch(void **state)
{
    const struct daemon_given given = {.bind = "127.0.0.1", .insecure = true};
    struct daemon_security security = {0};
    struct psd_error err = {0};

    (void)state;
    setenv("PSD_SECRET_FD", "", 1);
    setenv("PSD_FORCE_TLS", "1", 1);
    assert_int_equal(daemon_security_init(&security, &given, 0, NULL, &err), PSD_OK);
    assert_true(security.sealed_always);
    setenv("PSD_FORCE_TLS", "0", 1);
    assert_int_equal(daemon_security_init(&security, &given, 0, NULL, &err), PSD_OK);
    assert_false(security.sealed_always);
    setenv("PSD_FORCE_TLS", "off", 1);
    assert_int_equal(daemon_security_init(&security, &given, 0, NULL, &err), PSD_ERR_INVALID);
    assert_string_equal(err.text, "PSD_FORCE_TLS=off: must be 1 (on) or 0 (off)");
    unsetenv("PSD_FORCE_TLS");
}

/* If this fails, a misspelt PSD_SECRET_FILE looks like none at all. */
static void
test_misspelt_secret(void **state)
{
    struct answer answer;

    (void)state;
    setenv("PSD_SECRETFILE", "/nowhere", 1);
    answer = ask("127.0.0.1", NULL, false);
    expect_refusal(&answer, "PSD_SECRETFILE is set: did you mean PSD_SECRET_FILE?");
    unsetenv("PSD_SECRETFILE");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routable_without_a_secret),
        cmocka_unit_test(test_loopback_without_a_secret),
        cmocka_unit_test(test_every_address_at_once),
        cmocka_unit_test(test_with_a_secret),
        cmocka_unit_test(test_insecure_connects_to_loopback_only),
        cmocka_unit_test(test_force_tls_is_a_switch),
        cmocka_unit_test(test_misspelt_secret),
    };

    return cmocka_run_group_tests_name("daemon", tests, NULL, NULL);
}
