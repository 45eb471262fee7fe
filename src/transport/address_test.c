/*
 * address_test.c - addresses people write, and the ones they should not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "transport/address.h"

/* If this fails, an address that is right is refused, or means another place. */
static void
test_parse_and_format_agree(void **state)
{
    static const struct {
        const char *text;
        enum psi_scheme_id scheme;
        const char *host;
        uint16_t port;
        bool loopback;
    } cases[] = {
        {"tcp://127.0.0.1:0", PSI_SCHEME_TCP, "127.0.0.1", 0, true},
        {"tcp://127.200.0.1:1", PSI_SCHEME_TCP, "127.200.0.1", 1, true},
        {"tcp://10.0.0.7:65535", PSI_SCHEME_TCP, "10.0.0.7", 65535, false},
        {"tcp://0.0.0.0:80", PSI_SCHEME_TCP, "0.0.0.0", 80, false},
        {"tcp://[::1]:4711", PSI_SCHEME_TCP, "::1", 4711, true},
        {"tcp://[fe80::1%eth0]:9", PSI_SCHEME_TCP, "fe80::1%eth0", 9, false},
        {"tcp://localhost:9", PSI_SCHEME_TCP, "localhost", 9, true},
        {"tcp://node-17.cluster_a.example:29500", PSI_SCHEME_TCP, "node-17.cluster_a.example",
         29500, false},
        {"inproc://lane0", PSI_SCHEME_INPROC, "lane0", 0, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_address address;
        struct psd_error err = {0};
        char text[PSI_ADDRESS_BYTES];

        assert_int_equal(psi_address_parse(cases[i].text, &address, &err), PSD_OK);
        assert_int_equal(address.scheme, cases[i].scheme);
        assert_string_equal(address.host, cases[i].host);
        assert_int_equal(address.port, cases[i].port);
        assert_int_equal(psi_address_is_loopback(&address), cases[i].loopback);
        assert_int_equal(psi_address_format(&address, text, &err), PSD_OK);
        assert_string_equal(text, cases[i].text);
    }
}

/* If this fails, a typing error turns into a connection to somewhere else,
 * or an unclear message. */
static void
test_parse_refuses(void **state)
{
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        {"", "expected tcp://"},
        {"127.0.0.1:80", "expected tcp://"},
        {"udp://127.0.0.1:80", "expected tcp://"},
        {"TCP://127.0.0.1:80", "expected tcp://"},
        {"tcp:/127.0.0.1:80", "expected tcp://"},
        {"tcp://", "no port"},
        {"tcp://127.0.0.1", "no port"},
        {"tcp://:80", "not a host"},
        {"tcp://a b:80", "not a host"},
        {"tcp://host/path:80", "not a host"},
        {"tcp://host:", "the port is"},
        {"tcp://host:65536", "the port is"},
        {"tcp://host:4294967376", "the port is"},
        {"tcp://host:-1", "the port is"},
        {"tcp://host:+1", "the port is"},
        {"tcp://host: 1", "the port is"},
        {"tcp://host:80x", "the port is"},
        {"tcp://::1:80", "[ ]"},
        {"tcp://[::1:80", "no ]"},
        {"tcp://[::1]", "no port"},
        {"tcp://[::1]80", "no port"},
        {"tcp://[host]:80", "not an IPv6"},
        {"tcp://[]:80", "not an IPv6"},
        {"inproc://", "no name"},
        {"inproc://0123456789012345678901234567890123456789012345678901234567890123456789",
         "name too long"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct psi_address address = {.port = 7};
        struct psd_error err = {0};

        assert_int_equal(psi_address_parse(cases[i].text, &address, &err), PSD_ERR_INVALID);
        assert_non_null(strstr(err.text, cases[i].text));
        assert_non_null(strstr(err.text, cases[i].why));
        assert_int_equal(address.port, 7);
    }
}

/* If this fails, a long host name overruns somebody's buffer. */
static void
test_long_hosts(void **state)
{
    struct psi_address address;
    struct psd_error err = {0};
    char text[600] = "tcp://";
    char short_text[PSI_ADDRESS_BYTES] = "untouched";

    (void)state;
    memset(text + 6, 'h', 255);
    strcpy(text + 6 + 255, ":80");
    assert_int_equal(psi_address_parse(text, &address, &err), PSD_OK);
    assert_int_equal(strlen(address.host), 255);
    assert_int_equal(psi_address_format(&address, short_text, &err), PSD_ERR_TOO_BIG);
    assert_string_equal(short_text, "untouched");
    memset(text + 6, 'h', 256);
    strcpy(text + 6 + 256, ":80");
    assert_int_equal(psi_address_parse(text, &address, &err), PSD_ERR_INVALID);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_and_format_agree),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_long_hosts),
    };

    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
