/*
 * listen_test.c - what a daemon needs to be allowed to listen.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "secure/daemon.h"
#include "transport/address.h"

struct answer {
    psd_status status;
    struct psd_error err;
    bool has_secret;
};

static struct answer
ask(const char *host, const char *secret_fd, bool insecure)
{
    const struct psi_secret_source source = {.fd = secret_fd};
    struct psi_address address = {.scheme = PSI_SCHEME_TCP};
    struct psi_secret *secret = (void *)1;
    struct answer answer = {0};

    snprintf(address.host, sizeof(address.host), "%s", host);
    answer.status = psi_secure_listen(&source, insecure, &address, &secret, &answer.err);
    answer.has_secret = secret != NULL;
    psi_secret_destroy(secret);
    return answer;
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
    answer = ask("127.0.0.1", fd_text, true); /* the stricter one wins */
    assert_int_equal(answer.status, PSD_OK);
    assert_true(answer.has_secret);
    close(fd);
    answer = ask("127.0.0.1", fd_text, true);
    expect_refusal(&answer, "PSD_SECRET_FD");
    psi_secret_destroy(secret);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routable_without_a_secret),
        cmocka_unit_test(test_loopback_without_a_secret),
        cmocka_unit_test(test_every_address_at_once),
        cmocka_unit_test(test_with_a_secret),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
